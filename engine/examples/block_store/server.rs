//! The server's program: it takes data out of receive buffers and hands them to the disk.
//!
//! ```text
//!   NULL    ()                               -> ()
//!   WRITE   (offset: hyper, data: opaque<>)  -> (status, count)
//!   READ    (offset: hyper, count)           -> (status, data: opaque<>)
//!   COMMIT  (length: hyper)                  -> (status)   the file has this length, on the medium
//! ```
//! A COMMIT of the length 2^64 - 1 leaves the length as it is. A READ returns less than it asks for
//! only at the end of the file. A status is 0 or an error number of the system, after which there is
//! nothing. The data are placed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rpcrdma::onc::{AcceptStatus, ReplyHeader, RpcProgram};
use rpcrdma::storage::Pieces;
use rpcrdma::{
    Address, Answer, Call, Engine, Finished, Handler, Loan, PlacedItem, Provider, Reply,
    ShardHandle, Ticket, Turn,
};

use crate::disk::{Disk, Store, Task, answer, failure};
use crate::{Outcome, complain};

/// The number is from the range that RFC 5531 leaves to users.
pub const PROGRAM: RpcProgram =
    RpcProgram { number: 0x2000_b10c, version: 1, procedures: COMMIT + 1 };
pub const NULL: u32 = 0;
pub const WRITE: u32 = 1;
pub const READ: u32 = 2;
pub const COMMIT: u32 = 3;
/// The length of a COMMIT that changes none.
pub const SAME_LENGTH: u64 = u64::MAX;
/// The longest data of a WRITE or a READ, in bytes.
pub const BLOCK_MAX: usize = 1 << 20;

/// Starts the server of a store. Returns where it listens.
pub fn start<P: Provider>(
    engine: &mut Engine<P>,
    store: &Arc<Store>,
    at: Address,
) -> Outcome<(ShardHandle, Address)> {
    engine.on_failure(complain);
    let connections = engine.config().connections();
    let calls_max = connections.max.value() as usize * connections.credits.value() as usize;
    let store = store.clone();
    let mut shards = engine.start(move |_shard| BlockServer {
        disk: store.disk(calls_max).expect("there is a ring, or a thread"),
        waiting: VecDeque::with_capacity(calls_max),
        answers: VecDeque::with_capacity(calls_max),
    })?;
    let server = shards.pop().ok_or("the configuration has no shard")?;
    Ok((server, engine.listen(at)?))
}

/// Serves one file, in the turns of its shard: it moves segments and tickets; bytes move between the
/// network, the memory that they arrived in, and the file.
pub struct BlockServer {
    disk: Disk,
    /// Calls that wait for registered memory, which only a turn can give.
    waiting: VecDeque<(Ticket, Request)>,
    /// Answers that wait for a place to be sent from.
    answers: VecDeque<(Ticket, Finished)>,
}

/// A call.
struct Request {
    procedure: u32,
    /// An offset, or the length of a COMMIT.
    at: u64,
    /// Bytes of data.
    len: usize,
    /// The segments of a WRITE, in order.
    segments: Pieces,
    /// The data of a WRITE behind its segments.
    rest: Vec<u8>,
}

impl Handler for BlockServer {
    fn on_call<'a>(&mut self, mut call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let request = match read(&mut call) {
            Ok(request) => request,
            Err(denial) => return reply.deny(&denial),
        };
        if request.procedure == NULL || request.len > BLOCK_MAX {
            let Finished { head, .. } = match request.procedure {
                NULL => answer(&[]),
                _ => failure(&too_long()),
            };
            reply.payload().put_fixed(&head);
            return reply.send();
        }
        let (answer, ticket) = reply.defer();
        let Request { procedure, at, len, .. } = request;
        match procedure {
            COMMIT => self.disk.commit(Task { ticket, len }, at),
            WRITE if request.rest.is_empty() => {
                self.disk.write(Task { ticket, len }, at, request.segments);
            }
            _ => self.waiting.push_back((ticket, request)),
        }
        answer
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..self.answers.len() {
            let next = self.answers.pop_front();
            next.into_iter().for_each(|(ticket, answer)| self.answer(turn, ticket, answer));
        }
        while let Some((ticket, answer)) = self.disk.answer() {
            self.answer(turn, ticket, answer);
        }
        while !self.waiting.is_empty()
            && let Some(memory) = turn.buffer()
            && let Some((ticket, request)) = self.waiting.pop_front()
        {
            self.submit(turn, ticket, request, memory);
        }
        turn.drive(&mut self.disk.storage);
    }
}

impl BlockServer {
    /// Hands a call to the disk that has waited for memory.
    fn submit(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: Request, mut memory: Loan) {
        let Request { procedure, at, len, mut segments, rest } = request;
        let needed = if procedure == READ { len } else { rest.len() };
        if needed > memory.len() {
            turn.release(memory);
            return self.answer(turn, ticket, failure(&too_long()));
        }
        let task = Task { ticket, len };
        if procedure == READ {
            return self.disk.read(task, at, Pieces::from_iter([memory]));
        }
        memory.truncate(needed);
        memory.copy_from_slice(&rest);
        segments.push(memory);
        self.disk.write(task, at, segments);
    }

    /// Answers a call, or in a later turn if there is no place to send from. A ticket whose
    /// connection has ended is dropped.
    fn answer(&mut self, turn: &mut Turn<'_>, ticket: Ticket, answer: Finished) {
        if let Err((ticket, answer)) = turn.finish(ticket, answer)
            && turn.is_open(&ticket)
        {
            self.answers.push_back((ticket, answer));
        }
    }
}

/// Reads a call. Takes the data of a WRITE out of it, in order. What cannot be taken is copied:
/// segments without a spare, and data in the payload stream.
fn read(call: &mut Call<'_>) -> Result<Request, ReplyHeader<'static>> {
    let (procedure, mut arguments) = call.arguments(&PROGRAM)?;
    let at = if procedure == NULL { 0 } else { arguments.u64()? };
    let len = if matches!(procedure, READ | WRITE) { arguments.u32()? as usize } else { 0 };
    let position = arguments.position();
    let mut request = Request { procedure, at, len, segments: Pieces::new(), rest: Vec::new() };
    if procedure != WRITE || len > BLOCK_MAX {
        return Ok(request);
    }
    let data = (Some(position as u32), len);
    let is_right = |item: PlacedItem<'_>| (item.position(), item.len() as usize) == data;
    if call.placed().len() > 1 || !call.placed().all(is_right) {
        return Err(AcceptStatus::GarbageArguments.into());
    }
    while !request.segments.is_full()
        && let Ok(segment) = call.take(0, request.segments.len())
    {
        request.segments.push(segment);
    }
    let left = len - request.segments.iter().map(|segment| segment.len()).sum::<usize>();
    let mut stream = call.reader();
    stream.skip(position - stream.position())?;
    let stream = std::iter::from_fn(|| stream.some(len).ok());
    let slices = call.placed().flat_map(|item| item.segments()).chain(stream);
    slices.for_each(|slice| request.rest.extend_from_slice(slice));
    request.rest.truncate(left);
    if request.rest.len() < left { Err(AcceptStatus::GarbageArguments.into()) } else { Ok(request) }
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}
