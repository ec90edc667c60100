//! The handler: it takes data out of receive buffers and hands them to the disk.

use std::collections::VecDeque;

use rpcrdma_engine::onc::ReplyHeader;
use rpcrdma_engine::{Answer, Call, Handler, PlacedItem, Reply, TakeError, Ticket, Turn};

use crate::disk::{Disk, Segments, Task, status};
use crate::rpc::{self, BLOCK_MAX, Called, Denial, GARBAGE, NULL, READ, WRITE};

/// Serves one file. The shard moves segments and tickets; bytes move between the network, the memory
/// where they landed, and the file.
pub struct BlockServer {
    pub disk: Disk,
    /// READs that wait for registered memory, which only a turn can give: offset and length.
    pub reads: VecDeque<(Ticket, u64, usize)>,
}

impl Handler for BlockServer {
    fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
        let called = match rpc::read_call(call.reader()) {
            Ok(called) => called,
            Err(denial) => return deny(reply, denial),
        };
        match called {
            Called { procedure: NULL, .. } => {
                reply.payload().put_fixed(&ReplyHeader::SUCCESS);
                reply.send()
            }
            Called { len: BLOCK_TOO_LONG.., .. } => send_status(reply, libc::EMSGSIZE, &[]),
            Called { procedure: WRITE, .. } => self.write(call, reply, &called),
            Called { procedure: READ, at, len, .. } => {
                let (answer, ticket) = reply.defer();
                self.reads.push_back((ticket, at, len));
                answer
            }
            Called { at: len, .. } => {
                let (answer, ticket) = reply.defer();
                self.disk.submit(ticket, Task::Commit { len });
                answer
            }
        }
    }

    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        while !self.reads.is_empty()
            && let Some(into) = turn.buffer()
            && let Some((ticket, offset, len)) = self.reads.pop_front()
        {
            self.disk.submit(ticket, Task::Read { offset, len, into });
        }
    }
}

impl BlockServer {
    fn write<'a>(&self, mut call: Call<'a>, reply: Reply<'a>, called: &Called) -> Answer<'a> {
        let (offset, data) = (called.at, Some(called.data as u32));
        let is_right =
            |item: PlacedItem<'_>| item.position() == data && item.len() as usize == called.len;
        let is_placed = call.placed().len() > 0;
        if call.placed().len() > 1 || !call.placed().all(is_right) {
            return deny(reply, GARBAGE);
        }
        let mut segments = Segments::new();
        if is_placed && take_all(&mut call, &mut segments).is_ok() {
            let (answer, ticket) = reply.defer();
            self.disk.submit(ticket, Task::Write { offset, segments });
            return answer;
        }
        // What cannot be taken out is written before the call is let go.
        let Some(bytes) = copy(&call, &segments, called) else { return deny(reply, GARBAGE) };
        match self.disk.store.write(&bytes, offset) {
            Ok(()) => send_status(reply, 0, &[called.len as u32]),
            Err(error) => send_status(reply, status(&error), &[]),
        }
    }
}

/// Takes every segment of the only item out of the call, in order.
fn take_all(call: &mut Call<'_>, segments: &mut Segments) -> Result<(), TakeError> {
    let count = call.placed().next().map_or(0, |item| item.segments().len());
    for piece in 0..count {
        let segment = call.take(0, piece)?;
        segments.try_push(segment).map_err(|_| TakeError::NoSpare)?;
    }
    Ok(())
}

/// A copy of the data: of what was taken and what was not, or of what stands behind the arguments.
fn copy(call: &Call<'_>, taken: &Segments, called: &Called) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(called.len);
    taken.iter().for_each(|segment| bytes.extend_from_slice(segment));
    if let Some(item) = call.placed().next() {
        item.segments().skip(taken.len()).for_each(|slice| bytes.extend_from_slice(slice));
    }
    let mut reader = call.reader();
    reader.skip(called.data - reader.position()).ok()?;
    while bytes.len() < called.len {
        bytes.extend_from_slice(reader.some(called.len - bytes.len()).ok()?);
    }
    Some(bytes)
}

fn deny<'a>(mut reply: Reply<'a>, denial: Denial) -> Answer<'a> {
    reply.payload().put_fixed(&denial.bytes());
    reply.send()
}

/// Sends the header of a reply, a status, and the results behind it.
fn send_status<'a>(mut reply: Reply<'a>, status: i32, results: &[u32]) -> Answer<'a> {
    reply.payload().put_fixed(&ReplyHeader::SUCCESS);
    reply.payload().put_u32(status.cast_unsigned());
    results.iter().for_each(|word| reply.payload().put_u32(*word));
    reply.send()
}

const BLOCK_TOO_LONG: usize = BLOCK_MAX + 1;
