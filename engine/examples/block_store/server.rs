//! The handler: it takes data out of receive buffers and hands them to the disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpcrdma_engine::onc::ReplyHeader;
use rpcrdma_engine::{Answer, Call, Handler, Incoming, Reply, TakeError, Ticket, Turn};

use crate::disk::{Disk, Job, Segments, Task, status};
use crate::rpc::{self, BLOCK_MAX, Denial, GARBAGE, Procedure};
use crate::store::Slices;

/// Serves one file. The shard moves segments and tickets; bytes move between the network, the
/// memory where they landed, and the file.
#[derive(Debug)]
pub struct BlockServer {
    disk: Arc<Disk>,
    /// WRITEs that the shard did itself: no spare segment was left to take the place of theirs, or
    /// their data came in the payload stream.
    own_writes: Arc<AtomicU64>,
    /// READs that wait for registered memory, which only a turn can give.
    reads: VecDeque<WaitingRead>,
    /// Which thread is next.
    turn: usize,
}

#[derive(Debug)]
struct WaitingRead {
    ticket: Ticket,
    offset: u64,
    len: usize,
}

/// A WRITE as it arrived.
struct Write {
    offset: u64,
    len: usize,
    placed: bool,
}

impl BlockServer {
    /// A server of `disk`. At most `calls_max` calls are open at a time.
    /// `own_writes` counts WRITEs that did not go to the disk's threads.
    pub fn new(disk: Arc<Disk>, own_writes: Arc<AtomicU64>, calls_max: usize) -> BlockServer {
        BlockServer { disk, own_writes, reads: VecDeque::with_capacity(calls_max), turn: 0 }
    }

    fn write<'a>(&mut self, mut call: Call<'a>, write: &Write, mut reply: Reply<'a>) -> Answer<'a> {
        let Write { offset, len, placed } = *write;
        let mut segments = Segments::new();
        if placed && take_all(&mut call, &mut segments).is_ok() {
            let (answer, ticket) = reply.defer();
            self.submit(Job { ticket, task: Task::Write { offset, segments } });
            return answer;
        }
        self.own_writes.fetch_add(1, Ordering::Relaxed);
        // What could not be taken out is written from where it is, before the call is let go.
        let mut slices = Slices::new();
        let gathered = if placed {
            gather_placed(&call, &segments, &mut slices)
        } else {
            gather_inline(&call, len, &mut slices)
        };
        let Some(()) = gathered else { return deny(GARBAGE, reply) };
        let written = self.disk.store().write(&slices, offset);
        put_status(&mut reply, written.as_ref().map_or_else(status, |()| 0));
        if written.is_ok() {
            reply.payload().put_u32(len as u32);
        }
        reply.send()
    }

    /// Hands a job over. If that thread has died, the job is done here: slow beats silent.
    fn submit(&mut self, job: Job) {
        self.turn = self.turn.wrapping_add(1);
        if let Err(job) = self.disk.submit(self.turn, job) {
            let (ticket, finished) = job.run(self.disk.store());
            self.disk.finish(ticket, finished);
        }
    }
}

impl Handler for BlockServer {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let request = match Request::read(&call) {
            Ok(request) => request,
            Err(denial) => return deny(denial, reply),
        };
        let task = match request {
            Request::Null => {
                reply.payload().put_fixed(&ReplyHeader::SUCCESS);
                return reply.send();
            }
            Request::TooLong => {
                put_status(&mut reply, libc::EMSGSIZE);
                return reply.send();
            }
            Request::Write(write) => return self.write(call, &write, reply),
            Request::Read { offset, len } => {
                let (answer, ticket) = reply.defer();
                self.reads.push_back(WaitingRead { ticket, offset, len });
                return answer;
            }
            Request::Resize { len } => Task::Resize { len },
            Request::Commit => Task::Commit,
        };
        let (answer, ticket) = reply.defer();
        self.submit(Job { ticket, task });
        answer
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while !self.reads.is_empty()
            && let Some(into) = turn.buffer()
            && let Some(WaitingRead { ticket, offset, len }) = self.reads.pop_front()
        {
            self.submit(Job { ticket, task: Task::Read { offset, len, into } });
        }
    }
}

/// A call, decoded.
enum Request {
    Null,
    Write(Write),
    Read {
        offset: u64,
        len: usize,
    },
    Resize {
        len: u64,
    },
    Commit,
    /// A WRITE or READ of more than [`BLOCK_MAX`].
    TooLong,
}

impl Request {
    fn read(call: &Incoming<'_>) -> Result<Request, Denial> {
        let mut reader = call.reader();
        let called = rpc::read_call(&mut reader)?;
        let mut hyper = || reader.u64().map_err(|_| GARBAGE);
        let (offset, len) = match called.procedure {
            Procedure::Null => return Ok(Request::Null),
            Procedure::Commit => return Ok(Request::Commit),
            Procedure::Resize => return Ok(Request::Resize { len: hyper()? }),
            Procedure::Write | Procedure::Read => {
                (hyper()?, reader.u32().map_err(|_| GARBAGE)? as usize)
            }
        };
        if len > BLOCK_MAX {
            return Ok(Request::TooLong);
        }
        if called.procedure == Procedure::Read {
            return Ok(Request::Read { offset, len });
        }
        // Behind offset and count the data would be, had they not been placed.
        let data_position = called.arguments + 12;
        let mut placed = call.placed();
        let placed = match (placed.next(), placed.next()) {
            (None, _) => false,
            (Some(item), None)
                if item.position() == Some(data_position) && item.len() as usize == len =>
            {
                true
            }
            _ => return Err(GARBAGE),
        };
        Ok(Request::Write(Write { offset, len, placed }))
    }
}

/// Takes every segment of the only item out of the call, in order.
fn take_all(call: &mut Call<'_>, segments: &mut Segments) -> Result<(), TakeError> {
    let count = call.placed().next().map_or(0, |item| item.segments().len());
    for piece in 0..count {
        if segments.is_full() {
            return Err(TakeError::NoSpare);
        }
        segments.push(call.take(0, piece)?);
    }
    Ok(())
}

/// The bytes of the only item: of segments that were taken, and of those that were not.
fn gather_placed<'a>(
    call: &'a Call<'_>,
    taken: &'a Segments,
    slices: &mut Slices<'a>,
) -> Option<()> {
    let borrowed = call.placed().next()?.segments().skip(taken.len());
    for slice in taken.iter().map(|segment| &segment[..]).chain(borrowed) {
        slices.try_push(slice).ok()?;
    }
    Some(())
}

/// The bytes of data that follow the arguments in the payload stream.
fn gather_inline<'a>(call: &'a Call<'_>, len: usize, slices: &mut Slices<'a>) -> Option<()> {
    let mut reader = call.reader();
    rpc::read_call(&mut reader).ok()?;
    reader.skip(12).ok()?;
    let mut left = len;
    while left > 0 {
        let slice = reader.some(left).ok()?;
        left -= slice.len();
        slices.try_push(slice).ok()?;
    }
    Some(())
}

fn deny<'a>(denial: Denial, mut reply: Reply<'a>) -> Answer<'a> {
    reply.payload().put_fixed(&denial.bytes());
    reply.send()
}

/// The header of a reply, and a status: 0 or an error number.
fn put_status(reply: &mut Reply<'_>, status: i32) {
    reply.payload().put_fixed(&ReplyHeader::SUCCESS);
    reply.payload().put_u32(status.cast_unsigned());
}
