//! Arguments, taken out of a call in the shape that the procedure says.
//!
//! `nfs3_types` reads XDR into memory of its own and believes every length that it reads. So
//! arguments are walked through first, along a table of what each procedure has, and every length is
//! held against what is allowed before anything is kept; parts without lengths it walks itself. What comes out is short, whole and in
//! order; data that may be placed are not in it.

use std::io::{self, Read};

use nfs3_types::nfs3::{createhow3, mknoddata3, sattr3, sattrguard3};
use nfs3_types::xdr_codec::Unpack;
use rpcrdma_engine::ulb::{ItemError, Items, nfs3};
use rpcrdma_engine::{Call, PayloadReader, TakeError};

use crate::call::Part;
use crate::drc::Ends;
use crate::rpc::Denial;

/// The arguments of a call.
#[derive(Debug, Default)]
pub struct Arguments {
    /// As they came, without the data of a WRITE.
    pub head: Vec<u8>,
    /// The data of a WRITE.
    pub data: Option<DataAt>,
}

/// Where the data of a WRITE are.
#[derive(Debug)]
pub enum DataAt {
    /// Which of the placed items, in how many pieces, and how long.
    Placed { index: usize, pieces: usize, len: usize },
    /// They came in the stream.
    Copied(Vec<u8>),
}

/// A call whose arguments cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// GARBAGE_ARGS is the answer.
    Garbage,
    /// Something was placed without right: the call is refused by the transport (RFC 8166 6.1).
    Misplaced,
}

/// One part of the arguments of a procedure.
#[derive(Debug, Clone, Copy)]
enum Field {
    /// Bytes of fixed length.
    Fixed(usize),
    /// `nfs_fh3`
    Handle,
    /// `filename3`
    Name,
    /// `sattr3`
    Attributes,
    /// A time behind a boolean: `sattrguard3`.
    Guard,
    /// `createhow3`
    How,
    /// `mknoddata3`
    Node,
    /// `nfspath3`, which may be placed.
    Path,
    /// The data of a WRITE, which may be placed.
    Data,
}

use Field::*;

/// What each procedure has, by number.
const SHAPES: [&[Field]; 22] = [
    &[],
    &[Handle],
    &[Handle, Attributes, Guard],
    &[Handle, Name],
    &[Handle, Fixed(4)],
    &[Handle],
    &[Handle, Fixed(12)],
    &[Handle, Fixed(16), Data],
    &[Handle, Name, How],
    &[Handle, Name, Attributes],
    &[Handle, Name, Attributes, Path],
    &[Handle, Name, Node],
    &[Handle, Name],
    &[Handle, Name],
    &[Handle, Name, Handle, Name],
    &[Handle, Handle, Name],
    &[Handle, Fixed(20)],
    &[Handle, Fixed(24)],
    &[Handle],
    &[Handle],
    &[Handle],
    &[Handle, Fixed(12)],
];

impl Arguments {
    /// Reads the arguments of a procedure.
    ///
    /// # Errors
    /// [`Unusable`] says what the answer is.
    pub fn read(procedure: u32, items: &mut Items<'_>) -> Result<Arguments, Unusable> {
        let shape = SHAPES.get(procedure as usize).ok_or(Unusable::Garbage)?;
        let mut arguments = Arguments::default();
        for field in *shape {
            match field {
                Field::Path => arguments.path(items)?,
                Field::Data => arguments.data(items)?,
                field => take(*field, &mut Stream(items.reader()), &mut arguments.head)?,
            }
        }
        items.end()?;
        Ok(arguments)
    }

    /// As one of the types of `nfs3_types`.
    ///
    /// # Errors
    /// If a number stands for nothing.
    pub fn decode<T: Unpack>(head: &[u8]) -> Result<T, Denial> {
        let (value, len) = T::unpack(&mut &head[..]).map_err(|_| Denial::Garbage)?;
        if len == head.len() { Ok(value) } else { Err(Denial::Garbage) }
    }

    /// Appends a path as if it had come in the stream.
    fn path(&mut self, items: &mut Items<'_>) -> Result<(), Unusable> {
        let path = items.data()?;
        if path.len() > PATH_MAX {
            return Err(Unusable::Garbage);
        }
        self.head.extend(path.len().to_be_bytes());
        path.slices().for_each(|slice| self.head.extend_from_slice(slice));
        self.head.resize(self.head.len().next_multiple_of(4), 0);
        Ok(())
    }

    fn data(&mut self, items: &mut Items<'_>) -> Result<(), Unusable> {
        let data = items.data()?;
        self.data = Some(match data.placed_index() {
            Some(index) => {
                let (pieces, len) = (data.slices().count(), data.len() as usize);
                DataAt::Placed { index, pieces, len }
            }
            // What fits the message is short: less than a page, as a rule.
            None => DataAt::Copied(data.slices().flatten().copied().collect()),
        });
        Ok(())
    }
}

impl DataAt {
    /// What a repetition of the call is known by.
    pub fn ends(&self, call: &Call<'_>) -> Ends {
        match self {
            DataAt::Copied(bytes) => Ends::of(bytes.len(), std::iter::once(&bytes[..])),
            DataAt::Placed { index, len, .. } => {
                let item = call.placed().nth(*index);
                item.map(|item| Ends::of(*len, item.segments())).unwrap_or_default()
            }
        }
    }

    /// Takes the data out of the call: the memory that they have landed in, where it can be had.
    pub fn take(self, call: &mut Call<'_>) -> Vec<Part> {
        let DataAt::Placed { index, pieces, len } = self else {
            let DataAt::Copied(bytes) = self else { return Vec::new() };
            return vec![Part::Copy(bytes)];
        };
        let mut left = len;
        let mut parts = Vec::with_capacity(pieces);
        for piece in 0..pieces {
            let mut part = match call.take(index, piece) {
                Ok(loan) => Part::Loan(loan),
                // All spares are out, or the segment holds something else as well.
                Err(TakeError::NoSpare | TakeError::Shared { .. }) => {
                    let item = call.placed().nth(index);
                    let slice = item.and_then(|item| item.segments().nth(piece));
                    Part::Copy(slice.unwrap_or_default().to_vec())
                }
                Err(TakeError::NoSuchPiece | TakeError::Taken) => break,
            };
            // Padding may have come along.
            part.truncate(left);
            left -= part.len();
            parts.push(part);
        }
        parts
    }
}

impl From<ItemError> for Unusable {
    fn from(error: ItemError) -> Unusable {
        match error {
            ItemError::End(_) | ItemError::TooLong { .. } => Unusable::Garbage,
            _ => Unusable::Misplaced,
        }
    }
}

impl From<Denial> for Unusable {
    fn from(_: Denial) -> Unusable {
        Unusable::Garbage
    }
}

/// Copies one part, of which every length was looked at.
fn take(field: Field, from: &mut impl Read, to: &mut Vec<u8>) -> Result<(), Denial> {
    let mut copied = Copied { from, to };
    let taken = match field {
        Fixed(len) => copied.fixed(len),
        Handle => copied.opaque(HANDLE_MAX),
        Name => copied.opaque(NAME_MAX),
        Attributes => copied.value::<sattr3>(),
        Guard => copied.value::<sattrguard3>(),
        How => copied.value::<createhow3>(),
        Node => copied.value::<mknoddata3>(),
        Path | Data => None,
    };
    taken.ok_or(Denial::Garbage)
}

/// Keeps what is read of a call.
struct Copied<'a, R> {
    from: &'a mut R,
    to: &'a mut Vec<u8>,
}

impl<R: Read> Copied<'_, R> {
    fn fixed(&mut self, len: usize) -> Option<()> {
        let begin = self.to.len();
        self.to.resize(begin + len, 0);
        self.from.read_exact(&mut self.to[begin..]).ok()
    }

    fn opaque(&mut self, len_max: usize) -> Option<()> {
        let len = u32::unpack(self).ok()?.0 as usize;
        if len > len_max { None } else { self.fixed(len.next_multiple_of(4)) }
    }

    /// Something that has no lengths in it.
    fn value<T: Unpack>(&mut self) -> Option<()> {
        T::unpack(self).ok().map(drop)
    }
}

impl<R: Read> Read for Copied<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.from.read_exact(out)?;
        self.to.extend_from_slice(out);
        Ok(out.len())
    }
}

/// The stream of a call.
struct Stream<'a, 'b>(&'a mut PayloadReader<'b>);

impl Read for Stream<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.fixed_into(out).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        Ok(out.len())
    }
}

const HANDLE_MAX: usize = 64;
/// Longer than any file system takes, so that a name that is too long gets the answer that says so.
const NAME_MAX: usize = 4096;
const PATH_MAX: u32 = 4096;

const _: () = assert!(SHAPES.len() == nfs3::COMMIT as usize + 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(field: Field, words: &[u32]) -> Result<usize, Denial> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let (mut from, mut to) = (&bytes[..], Vec::new());
        take(field, &mut from, &mut to)?;
        assert_eq!(to, bytes[..to.len()], "what is kept is what came");
        Ok(to.len() / 4)
    }

    #[test]
    fn lengths_are_looked_at_before_memory_is_taken() {
        assert_eq!(taken(Handle, &[4, 7]), Ok(2));
        assert_eq!(taken(Handle, &[65]), Err(Denial::Garbage));
        assert_eq!(taken(Handle, &[u32::MAX, 1]), Err(Denial::Garbage));
        assert_eq!(taken(Name, &[4097]), Err(Denial::Garbage));
        assert_eq!(taken(Name, &[5, 1]), Err(Denial::Garbage), "it is cut off");
    }

    #[test]
    fn unions_are_followed() {
        let nothing = [0; 6];
        assert_eq!(taken(Attributes, &nothing), Ok(6));
        assert_eq!(taken(Attributes, &[1, 0o644, 1, 5, 1, 6, 1, 0, 9, 2, 1, 2, 2, 3, 4]), Ok(15));
        assert_eq!(taken(Attributes, &[0, 0, 0, 0, 1, 1]), Ok(6), "the server's time is no more");
        assert_eq!(taken(Guard, &[1, 2, 3]), Ok(3));
        assert_eq!(taken(How, &[2, 8, 9]), Ok(3));
        assert_eq!(taken(How, &[0, 0, 0, 0, 0, 0, 0]), Ok(7));
        assert_eq!(taken(Node, &[4, 0, 0, 0, 0, 0, 0, 1, 3]), Ok(9));
        assert_eq!(taken(Node, &[7, 0, 0, 0, 0, 0, 0]), Ok(7));
        assert_eq!(taken(Node, &[1]), Ok(1), "no such node can be made: the procedure says so");
    }
}
