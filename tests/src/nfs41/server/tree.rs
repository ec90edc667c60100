//! The root directory, its files and their attributes, opens and delegations.

use rpcrdma::{EndOfMessage, PayloadReader, RegisteredBytes, RegisteredSlice, Turn};

use crate::nfs41::numbers::{access, op, status};
use crate::nfs41::words::{FileHandle, StateId, Take, Words};

/// The directory.
#[derive(Debug)]
pub struct Tree {
    /// Delegations that stand in the way of an open and are to be recalled.
    pub conflicts: Vec<Conflict>,
    files: Vec<File>,
}

/// A delegation that stands in the way of an open by another client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Whose it is.
    pub client: u64,
    /// The delegation.
    pub state: StateId,
    /// The file.
    pub handle: FileHandle,
}

#[derive(Debug)]
struct File {
    name: String,
    content: Content,
    /// How often it was opened.
    opens: u32,
    delegation: Option<Held>,
    /// Delegations that there were.
    delegations: u32,
    /// The clients that have it open to write.
    writers: Vec<u64>,
}

/// A delegation.
#[derive(Debug, Clone, Copy)]
struct Held {
    state: StateId,
    client: u64,
    /// Whether it has stood in the way of an open.
    is_wanted: bool,
}

/// Bytes, in registered memory once a shard has some.
#[derive(Debug)]
enum Content {
    Given(Vec<u8>),
    Loaded(RegisteredBytes, usize),
}

/// What an operation leads to beside its words.
#[derive(Debug)]
pub struct Found {
    /// The current file handle behind it.
    pub current: Option<u64>,
    /// Data behind the words.
    pub data: Option<RegisteredSlice>,
}

impl Tree {
    /// Of these files.
    pub fn new(files: &[(&str, Vec<u8>)]) -> Tree {
        let mut tree = Tree { conflicts: Vec::new(), files: Vec::new() };
        for (name, bytes) in files {
            tree.add(name, bytes);
        }
        tree
    }

    /// One file more.
    pub fn add(&mut self, name: &str, bytes: &[u8]) {
        self.files.push(File {
            name: name.into(),
            content: Content::Given(bytes.into()),
            opens: 0,
            delegation: None,
            delegations: 0,
            writers: Vec::new(),
        });
    }

    /// The bytes of a file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn bytes_of(&self, name: &str) -> Vec<u8> {
        self.files.iter().find(|file| file.name == name).expect("a file").content.bytes()
    }

    /// A client has gone, with all its state.
    pub fn forget(&mut self, client: u64) {
        for file in &mut self.files {
            file.delegation = file.delegation.filter(|held| held.client != client);
            file.writers.retain(|writer| *writer != client);
        }
    }

    /// Whether a delegation was not returned yet.
    pub fn is_held(&self, state: &StateId) -> bool {
        let held = self.files.iter().filter_map(|file| file.delegation);
        held.into_iter().any(|held| held.state == *state)
    }

    /// Copies the files to registered memory, once there is some.
    ///
    /// # Panics
    /// If a file is longer than a buffer.
    pub fn load(&mut self, turn: &mut Turn<'_>) {
        for file in &mut self.files {
            if let Content::Given(bytes) = &file.content {
                let Some(mut loan) = turn.buffer() else { return };
                let len = bytes.len();
                loan[..len].copy_from_slice(bytes);
                file.content = Content::Loaded(RegisteredBytes::new(loan), len);
            }
        }
    }

    /// The handle of a file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn handle_of(&self, name: &str) -> FileHandle {
        let at = self.files.iter().position(|file| file.name == name).expect("a file");
        FileHandle((at as u64 + 1).to_be_bytes().to_vec())
    }

    /// The delegation of a file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn delegation_of(&self, name: &str) -> Option<StateId> {
        let file = self.files.iter().find(|file| file.name == name).expect("a file");
        file.delegation.map(|held| held.state)
    }

    /// The file that a handle names.
    ///
    /// # Errors
    /// The status, if it is none.
    pub fn handle(&self, handle: &[u8]) -> Result<u64, u32> {
        let number = handle.try_into().map(u64::from_be_bytes);
        let number = number.ok().filter(|number| *number <= self.files.len() as u64);
        number.ok_or(status::BADHANDLE)
    }

    /// WRITE, of data that stand behind its other arguments. To be read, they have to be loaded.
    ///
    /// # Errors
    /// The status.
    pub fn write(&mut self, current: u64, offset: u64, data: &[u8]) -> Result<(), u32> {
        let file = self.file(current).ok_or(status::INVAL)?;
        let begin = usize::try_from(offset).map_err(|_| status::INVAL)?;
        let end = begin.checked_add(data.len()).ok_or(status::INVAL)?;
        let mut bytes = file.content.bytes();
        bytes.resize(bytes.len().max(end), 0);
        bytes[begin..end].copy_from_slice(data);
        file.content = Content::Given(bytes);
        Ok(())
    }

    /// Executes an operation of a client on the current file handle.
    ///
    /// # Errors
    /// If the arguments are cut off. Inside: the status.
    pub fn execute(
        &mut self,
        number: u32,
        client: u64,
        current: u64,
        reader: &mut PayloadReader<'_>,
        out: &mut Words,
    ) -> Result<Result<Found, u32>, EndOfMessage> {
        let mut found = Found { current: Some(current), data: None };
        match number {
            op::GETFH => {
                out.opaque(&current.to_be_bytes());
            }
            op::GETATTR => {
                let (which, values) = self.attributes(current, &reader.list()?);
                out.list(&which).opaque(&values.0);
            }
            op::ACCESS => {
                let asked = reader.u32()?;
                out.u32(asked).u32(asked & ACCESS_TO_READ);
            }
            // AUTH_SYS alone; there is no current file handle behind it.
            op::SECINFO_NO_NAME => {
                reader.u32()?;
                out.u32(1).u32(1);
                found.current = None;
            }
            op::LOOKUP => match self.find(current, &reader.opaque()?) {
                Ok(file) => found.current = Some(file),
                Err(status) => return Ok(Err(status)),
            },
            op::READDIR => return Ok(self.list(current, reader, out)?.map(|()| found)),
            op::OPEN => match self.open(client, current, reader, out)? {
                Ok(file) => found.current = Some(file),
                Err(status) => return Ok(Err(status)),
            },
            op::CLOSE => {
                reader.u32()?;
                let state = reader.state()?;
                let Some(file) = self.file(current) else { return Ok(Err(status::INVAL)) };
                if state.other[1] == TO_WRITE {
                    file.writers.retain(|writer| *writer != client);
                }
                // RFC 8881 18.2.3: the state is over, which this value says.
                out.state(&StateId { sequence: u32::MAX, other: [0; 12] });
            }
            op::DELEGRETURN => {
                let state = reader.state()?;
                let Some(file) = self.file(current) else { return Ok(Err(status::INVAL)) };
                if file.delegation.is_none_or(|held| held.state.other != state.other) {
                    return Ok(Err(status::BAD_STATEID));
                }
                file.delegation = None;
            }
            op::READ => {
                reader.state()?;
                let (offset, count) = (reader.u64()?, reader.u32()?);
                let Some(file) = self.file(current) else { return Ok(Err(status::INVAL)) };
                let Content::Loaded(bytes, len) = &file.content else {
                    return Ok(Err(status::DELAY));
                };
                let begin = usize::try_from(offset).map_or(*len, |offset| offset.min(*len));
                let end = begin.saturating_add(count as usize).min(*len);
                out.u32((end == *len).into());
                found.data = bytes.slice(begin..end);
            }
            _ => return Ok(Err(status::NOTSUPP)),
        }
        Ok(Ok(found))
    }

    fn file(&mut self, number: u64) -> Option<&mut File> {
        self.files.get_mut(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    fn find(&self, directory: u64, name: &[u8]) -> Result<u64, u32> {
        if directory != ROOT {
            return Err(status::NOTDIR);
        }
        let at = self.files.iter().position(|file| file.name.as_bytes() == name);
        at.map(|at| at as u64 + 1).ok_or(status::NOENT)
    }

    fn open(
        &mut self,
        client: u64,
        current: u64,
        reader: &mut PayloadReader<'_>,
        out: &mut Words,
    ) -> Result<Result<u64, u32>, EndOfMessage> {
        let (_, share, _deny, _client) =
            (reader.u32()?, reader.u32()?, reader.u32()?, reader.u64()?);
        reader.opaque()?;
        if reader.u32()? != 0 {
            return Ok(Err(status::ROFS));
        }
        let claim = reader.u32()?;
        if matches!(claim, CLAIM_DELEGATE_CUR | CLAIM_DELEG_CUR_FH) {
            reader.state()?;
        }
        let found = match claim {
            CLAIM_NULL | CLAIM_DELEGATE_CUR => self.find(current, &reader.opaque()?),
            CLAIM_FH | CLAIM_DELEG_CUR_FH => Ok(current),
            _ => Err(status::NOTSUPP),
        };
        let number = match found {
            Ok(number) => number,
            Err(status) => return Ok(Err(status)),
        };
        if self.is_in_conflict(number, client, share) {
            return Ok(Err(status::DELAY));
        }
        let Some(file) = self.file(number) else { return Ok(Err(status::INVAL)) };
        file.opens += 1;
        let mut open = state(b'o', number, client as u32, file.opens);
        if share & access::WRITE != 0 {
            open.other[1] = TO_WRITE;
            file.writers.push(client);
        }
        out.state(&open);
        // The directory has not changed; no flags, no attributes were set.
        out.u32(1).u64(1).u64(1).u32(0).list(&[]);
        let is_granted = file.delegation.is_none() && file.writers.is_empty();
        if !is_granted || share & access::WANT_NO_DELEG != 0 {
            out.u32(0);
            return Ok(Ok(number));
        }
        file.delegations += 1;
        let delegation = state(b'd', number, file.delegations, 1);
        file.delegation = Some(Held { state: delegation, client, is_wanted: false });
        // To read; it is not recalled; no entry of an access control list.
        out.u32(1).state(&delegation).u32(0).u32(0).u32(0).u32(0).opaque(b"");
        Ok(Ok(number))
    }

    /// Whether a delegation of another client stands in the way of an open to write. It is recalled
    /// when it does so for the first time.
    fn is_in_conflict(&mut self, number: u64, client: u64, share: u32) -> bool {
        let held = self.file(number).and_then(|file| file.delegation.as_mut());
        let Some(held) = held.filter(|held| held.client != client) else { return false };
        if share & access::WRITE == 0 {
            return false;
        }
        if !std::mem::replace(&mut held.is_wanted, true) {
            let (client, state) = (held.client, held.state);
            let handle = FileHandle(number.to_be_bytes().to_vec());
            self.conflicts.push(Conflict { client, state, handle });
        }
        true
    }

    fn list(
        &self,
        current: u64,
        reader: &mut PayloadReader<'_>,
        out: &mut Words,
    ) -> Result<Result<(), u32>, EndOfMessage> {
        let cookie = reader.u64()?;
        reader.skip(8 + 8)?;
        let asked = reader.list()?;
        if current != ROOT {
            return Ok(Err(status::NOTDIR));
        }
        out.fixed(&[0; 8]);
        for (number, file) in (1..).zip(&self.files) {
            // 0, 1 and 2 are not cookies of entries (RFC 8881 18.23.3).
            if number + 2 > cookie {
                let (which, values) = self.attributes(number, &asked);
                out.u32(1).u64(number + 2).opaque(file.name.as_bytes());
                out.list(&which).opaque(&values.0);
            }
        }
        out.u32(0).u32(1);
        Ok(Ok(()))
    }

    /// The attributes of those that are asked for which exist here, and which these are.
    fn attributes(&self, number: u64, asked: &[u32]) -> (Vec<u32>, Words) {
        let (mut which, mut values) = (vec![0; 2], Words::default());
        for attribute in 0..64 {
            let (word, bit) = (attribute as usize / 32, 1 << (attribute % 32));
            if asked.get(word).is_some_and(|asked| asked & bit != 0)
                && self.attribute(number, attribute, &mut values)
            {
                which[word] |= bit;
            }
        }
        (which, values)
    }

    /// Appends an attribute (RFC 8881 5.8). False if it does not exist here.
    fn attribute(&self, number: u64, attribute: u32, out: &mut Words) -> bool {
        let file = usize::try_from(number).ok().and_then(|it| self.files.get(it.checked_sub(1)?));
        let size = match file.map(|file| &file.content) {
            Some(Content::Given(bytes)) => bytes.len() as u64,
            Some(Content::Loaded(_, len)) => *len as u64,
            None => 4096,
        };
        match attribute {
            0 => out.list(&supported()),
            1 => out.u32(if file.is_some() { 1 } else { 2 }),
            // Handles that persist; a change number; the size.
            2 => out.u32(0),
            3 => out.u64(1),
            4 | 45 => out.u64(size),
            // Links and symbolic links exist, named attributes do not.
            5 | 6 => out.u32(1),
            7 => out.u32(0),
            8 => out.u64(4).u64(1),
            9 => out.u32(1),
            10 => out.u32(LEASE),
            // No access control lists; names are as they were given.
            13 | 16 => out.u32(0),
            17 => out.u32(1),
            19 => out.opaque(&number.to_be_bytes()),
            20 | 55 => out.u64(number + 100),
            27 => out.u64(i64::MAX as u64),
            28 => out.u32(1),
            29 => out.u32(255),
            30 | 31 => out.u64(1 << 16),
            33 => out.u32(if file.is_some() { 0o444 } else { 0o555 }),
            35 => out.u32(if file.is_some() { 1 } else { 2 }),
            36 | 37 => out.opaque(b"0"),
            // Access, granularity, metadata and modification.
            47 | 52 | 53 => out.u64(1_700_000_000).u32(0),
            51 => out.u64(0).u32(1),
            _ => return false,
        };
        true
    }
}

/// The attributes that exist here.
fn supported() -> [u32; 2] {
    const ATTRIBUTES: [u32; 30] = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 16, 17, 19, 20, 27, 28, 29, 30, 31, 33, 35, 36, 37,
        45, 47, 51, 52, 53,
    ];
    let mut words = [0, 1 << (55 - 32)];
    for attribute in ATTRIBUTES {
        words[attribute as usize / 32] |= 1 << (attribute % 32);
    }
    words
}

impl Content {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Content::Given(bytes) => bytes.clone(),
            Content::Loaded(bytes, len) => bytes[..*len].to_vec(),
        }
    }
}

/// A state of a file, distinguished from others of its kind by a number.
fn state(kind: u8, number: u64, which: u32, sequence: u32) -> StateId {
    let mut other = [0; 12];
    other[0] = kind;
    other[4..8].copy_from_slice(&which.to_be_bytes());
    other[8..].copy_from_slice(&(number as u32).to_be_bytes());
    StateId { sequence, other }
}

/// What distinguishes the states of opens to write from those to read.
const TO_WRITE: u8 = b'w';
/// The handle of the root directory.
pub const ROOT: u64 = 0;
/// ACCESS4_READ, ACCESS4_LOOKUP, ACCESS4_EXECUTE.
const ACCESS_TO_READ: u32 = 0x23;
/// Seconds.
const LEASE: u32 = 60;
const CLAIM_NULL: u32 = 0;
const CLAIM_DELEGATE_CUR: u32 = 2;
const CLAIM_FH: u32 = 4;
const CLAIM_DELEG_CUR_FH: u32 = 5;
