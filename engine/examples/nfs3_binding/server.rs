//! The server: one file in memory, which is also a symbolic link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma_engine::ulb::{BoundReply, CallHeader, Data, HeaderError, ItemError, Items, nfs3};
use rpcrdma_engine::{Answer, Call, Handler, Loan, Reply, Turn};

use crate::client::HANDLE;

/// One file.
pub struct OneFile {
    bytes: Vec<u8>,
    link: String,
    /// Registered buffers that results leave from.
    stock: Vec<Loan>,
    counts: Counts,
}

/// What a server counts; shared with those who want to know.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<AtomicU64>);

impl Counts {
    /// WRITEs whose data did not come in the stream.
    pub fn placed(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a procedure returns, after its status.
enum Outcome {
    Nothing,
    Failed(u32),
    Attributes,
    Written(u32),
    Data { bytes: Loan, is_end: bool },
    Path(Loan),
}

impl OneFile {
    /// An empty file, and a link.
    pub fn new(link: &str, counts: Counts) -> OneFile {
        OneFile { bytes: Vec::new(), link: link.to_owned(), stock: Vec::new(), counts }
    }

    /// Reads the arguments and does what they say.
    fn execute(&mut self, procedure: u32, arguments: &mut Items<'_>) -> Result<Outcome, ItemError> {
        if procedure == nfs3::NULL {
            arguments.end()?;
            return Ok(Outcome::Nothing);
        }
        let is_ours = handle(arguments)?;
        let outcome = match procedure {
            nfs3::GETATTR => Outcome::Attributes,
            nfs3::READLINK => self.readlink(),
            nfs3::READ => {
                let (offset, count) = (arguments.reader().u64()?, arguments.reader().u32()?);
                self.read(offset, count)
            }
            nfs3::WRITE => {
                let offset = arguments.reader().u64()?;
                let (_count, _stable) = (arguments.reader().u32()?, arguments.reader().u32()?);
                let data = arguments.data()?;
                // Before anything is written: nothing else was placed.
                arguments.end()?;
                if is_ours { self.write(offset, &data) } else { Outcome::Nothing }
            }
            _ => Outcome::Failed(NOT_SUPPORTED),
        };
        arguments.end()?;
        Ok(if is_ours { outcome } else { Outcome::Failed(BAD_HANDLE) })
    }

    fn write(&mut self, offset: u64, data: &Data<'_>) -> Outcome {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(data.len() as usize);
        if end > FILE_MAX {
            return Outcome::Failed(FILE_TOO_BIG);
        }
        self.bytes.resize(self.bytes.len().max(end), 0);
        let mut room = &mut self.bytes[begin..end];
        for slice in data.slices() {
            let (now, later) = room.split_at_mut(slice.len());
            now.copy_from_slice(slice);
            room = later;
        }
        self.counts.0.fetch_add(data.placed_index().is_some().into(), Ordering::Relaxed);
        Outcome::Written(data.len())
    }

    fn read(&mut self, offset: u64, count: u32) -> Outcome {
        let Some(mut loan) = self.stock.pop() else { return Outcome::Failed(LATER) };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let rest = &self.bytes[begin..];
        let len = rest.len().min(count as usize).min(loan.len());
        loan[..len].copy_from_slice(&rest[..len]);
        loan.truncate(len);
        Outcome::Data { bytes: loan, is_end: len == rest.len() }
    }

    fn readlink(&mut self) -> Outcome {
        let Some(mut loan) = self.stock.pop() else { return Outcome::Failed(LATER) };
        loan[..self.link.len()].copy_from_slice(self.link.as_bytes());
        loan.truncate(self.link.len());
        Outcome::Path(loan)
    }

    /// Writes the results of a procedure.
    fn answer<'a>(
        &self,
        mut reply: BoundReply<'a>,
        procedure: u32,
        outcome: Outcome,
    ) -> Answer<'a> {
        put_accepted(&mut reply, SUCCESS);
        if procedure == nfs3::NULL {
            return reply.send();
        }
        let status = if let Outcome::Failed(status) = &outcome { *status } else { 0 };
        reply.payload().put_u32(status);
        let placed = match outcome {
            Outcome::Nothing => Ok(()),
            Outcome::Failed(_) => {
                // Neither the attributes before nor those after.
                for _absent in 0..failure_words(procedure) {
                    reply.payload().put_bool(false);
                }
                Ok(())
            }
            Outcome::Attributes => {
                self.put_attributes(&mut reply);
                Ok(())
            }
            Outcome::Written(count) => {
                reply.payload().put_bool(false);
                reply.payload().put_bool(true);
                self.put_attributes(&mut reply);
                reply.payload().put_u32(count);
                reply.payload().put_u32(FILE_SYNC);
                reply.payload().put_u64(WRITE_VERIFIER);
                Ok(())
            }
            Outcome::Data { bytes, is_end } => {
                reply.payload().put_bool(true);
                self.put_attributes(&mut reply);
                reply.payload().put_u32(bytes.len() as u32);
                reply.payload().put_bool(is_end);
                reply.result(bytes)
            }
            Outcome::Path(path) => {
                reply.payload().put_bool(true);
                self.put_attributes(&mut reply);
                reply.result(path)
            }
        };
        match placed {
            Ok(()) => reply.send(),
            Err(_) => reply.refuse(),
        }
    }

    /// `fattr3`
    fn put_attributes(&self, reply: &mut BoundReply<'_>) {
        let size = self.bytes.len() as u64;
        let payload = reply.payload();
        for word in [REGULAR, 0o644, 1, 0, 0] {
            payload.put_u32(word);
        }
        for hyper in [size, size, 0, 0, 1, 0, 0, 0] {
            payload.put_u64(hyper);
        }
    }
}

impl Handler for OneFile {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let mut reader = call.reader();
        let header = match CallHeader::read(&mut reader) {
            Ok(header) => header,
            Err(HeaderError::RpcVersion { .. }) => {
                for word in [DENIED, RPC_MISMATCH, 2, 2] {
                    reply.payload().put_u32(word);
                }
                return reply.send();
            }
            Err(_) => return reply.refuse(),
        };
        let binding = nfs3::BINDING;
        if header.program != binding.program {
            return fail(reply, PROGRAM_UNAVAILABLE);
        }
        if header.version != binding.version {
            for word in [ACCEPTED, AUTH_NONE, 0, PROGRAM_MISMATCH, 3, 3] {
                reply.payload().put_u32(word);
            }
            return reply.send();
        }
        if !header.protection.may_place() {
            // A real server would unwrap the arguments; this one knows nobody's keys.
            return reply.refuse();
        }
        let Ok(bound) = binding.bind(header.procedure, header.protection) else {
            return fail(reply, PROCEDURE_UNAVAILABLE);
        };
        let mut arguments = bound.arguments(&call, reader);
        match self.execute(header.procedure, &mut arguments) {
            Ok(outcome) => self.answer(bound.reply(reply), header.procedure, outcome),
            Err(ItemError::End(_) | ItemError::TooLong { .. }) => fail(reply, GARBAGE_ARGUMENTS),
            // RFC 8166 6.1: a call with something placed without right is not executed.
            Err(_) => reply.refuse(),
        }
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while self.stock.len() < STOCK
            && let Some(buffer) = turn.buffer()
        {
            self.stock.push(buffer);
        }
    }
}

/// `nfs_fh3`: whether it is the file's.
fn handle(arguments: &mut Items<'_>) -> Result<bool, ItemError> {
    let mut bytes = [0; 64];
    let len = arguments.reader().u32()? as usize;
    let Some(handle) = bytes.get_mut(..len.next_multiple_of(4)) else { return Ok(false) };
    arguments.reader().fixed_into(handle)?;
    Ok(handle.get(..len) == Some(HANDLE))
}

/// Booleans of a failure: whether there are attributes.
fn failure_words(procedure: u32) -> u32 {
    match procedure {
        nfs3::GETATTR => 0,
        nfs3::WRITE | nfs3::SETATTR | nfs3::COMMIT => 2,
        nfs3::CREATE | nfs3::MKDIR | nfs3::SYMLINK | nfs3::MKNOD => 2,
        nfs3::REMOVE | nfs3::RMDIR => 2,
        nfs3::LINK => 3,
        nfs3::RENAME => 4,
        _ => 1,
    }
}

/// The header of a reply to an accepted call, with AUTH_NONE.
fn put_accepted(reply: &mut BoundReply<'_>, accept_stat: u32) {
    for word in [ACCEPTED, AUTH_NONE, 0, accept_stat] {
        reply.payload().put_u32(word);
    }
}

/// The call was not executed.
fn fail(mut reply: Reply<'_>, accept_stat: u32) -> Answer<'_> {
    for word in [ACCEPTED, AUTH_NONE, 0, accept_stat] {
        reply.payload().put_u32(word);
    }
    reply.send()
}

/// The longest file.
const FILE_MAX: usize = 16 << 20;
/// Buffers that are kept for results.
const STOCK: usize = 4;

const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_NONE: u32 = 0;
const SUCCESS: u32 = 0;
const PROGRAM_UNAVAILABLE: u32 = 1;
const PROGRAM_MISMATCH: u32 = 2;
const PROCEDURE_UNAVAILABLE: u32 = 3;
const GARBAGE_ARGUMENTS: u32 = 4;

/// `ftype3`
const REGULAR: u32 = 1;
/// `stable_how`
const FILE_SYNC: u32 = 2;
/// The same as long as the server lives.
const WRITE_VERIFIER: u64 = 0x0df1_1e00_0000_0001;
/// NFS3ERR_FBIG
const FILE_TOO_BIG: u32 = 27;
/// NFS3ERR_BADHANDLE
const BAD_HANDLE: u32 = 10_001;
/// NFS3ERR_NOTSUPP
const NOT_SUPPORTED: u32 = 10_004;
/// NFS3ERR_JUKEBOX
const LATER: u32 = 10_008;
