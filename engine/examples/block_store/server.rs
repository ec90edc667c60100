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
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use arrayvec::ArrayVec;
use rpcrdma::onc::{AcceptStatus, ReplyHeader, RpcProgram};
use rpcrdma::{
    Address, Answer, Call, Engine, Handler, PlacedItem, Provider, Reply, ShardHandle, Ticket, Turn,
};

use crate::disk::{self, Store, Task};
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
    let mut shards = engine.start(move |shard| BlockServer {
        jobs: disk::start(&store, &shard, calls_max),
        reads: VecDeque::with_capacity(calls_max),
    })?;
    let server = shards.pop().ok_or("the configuration has no shard")?;
    Ok((server, engine.listen(at)?))
}

/// Serves one file. The shard moves segments and tickets; bytes move between the network, the
/// memory that they arrived in, and the file.
pub struct BlockServer {
    pub jobs: SyncSender<(Ticket, Task)>,
    /// READs that wait for registered memory, which only a turn can give.
    pub reads: VecDeque<(Ticket, Task)>,
}

impl Handler for BlockServer {
    fn on_call<'a>(&mut self, mut call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        let task = match read(&mut call) {
            Ok(task) => task,
            Err(denial) => return reply.deny(&denial),
        };
        let (answer, ticket) = reply.defer();
        match task.procedure {
            READ => self.reads.push_back((ticket, task)),
            _ => self.submit(ticket, task),
        }
        answer
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while !self.reads.is_empty()
            && let Some(into) = turn.buffer()
            && let Some((ticket, mut task)) = self.reads.pop_front()
        {
            task.memory.push(into);
            self.submit(ticket, task);
        }
    }
}

impl BlockServer {
    /// Hands a task to the disk. The queue has room for every open call. If it had none, the ticket
    /// would be dropped, and the caller would get SYSTEM_ERR.
    fn submit(&self, ticket: Ticket, task: Task) {
        let _ = self.jobs.try_send((ticket, task));
    }
}

/// Reads a call. Takes the data of a WRITE out of it, in order. What cannot be taken is copied:
/// segments without a spare, and data in the payload stream.
fn read(call: &mut Call<'_>) -> Result<Task, ReplyHeader<'static>> {
    let (procedure, mut arguments) = call.arguments(&PROGRAM)?;
    let at = if procedure == NULL { 0 } else { arguments.u64()? };
    let len = if matches!(procedure, READ | WRITE) { arguments.u32()? as usize } else { 0 };
    let position = arguments.position();
    let mut task = Task { procedure, at, len, memory: ArrayVec::new(), rest: Vec::new() };
    if procedure != WRITE || len > BLOCK_MAX {
        return Ok(task);
    }
    let data = (Some(position as u32), len);
    let is_right = |item: PlacedItem<'_>| (item.position(), item.len() as usize) == data;
    if call.placed().len() > 1 || !call.placed().all(is_right) {
        return Err(AcceptStatus::GarbageArguments.into());
    }
    while !task.memory.is_full()
        && let Ok(segment) = call.take(0, task.memory.len())
    {
        task.memory.push(segment);
    }
    let left = len - task.memory.iter().map(|segment| segment.len()).sum::<usize>();
    let mut stream = call.reader();
    stream.skip(position - stream.position())?;
    let stream = std::iter::from_fn(|| stream.some(len).ok());
    let slices = call.placed().flat_map(|item| item.segments()).chain(stream);
    slices.for_each(|slice| task.rest.extend_from_slice(slice));
    task.rest.truncate(left);
    if task.rest.len() < left { Err(AcceptStatus::GarbageArguments.into()) } else { Ok(task) }
}
