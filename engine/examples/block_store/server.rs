//! The handler: it takes data out of receive buffers and hands them to the disk.

use std::collections::VecDeque;

use rpcrdma_engine::onc::ReplyHeader;
use rpcrdma_engine::{Answer, Call, Handler, PlacedItem, Reply, TakeError, Ticket, Turn};

use crate::disk::{Disk, Segments, Task, status};
use crate::rpc::{self, BLOCK_MAX, Called, GARBAGE, NULL, READ, WRITE};

/// Serves one file. The shard moves segments and tickets; bytes move between the network, the memory
/// where they landed, and the file.
pub struct BlockServer {
    pub disk: Disk,
    /// READs that wait for registered memory, which only a turn can give: offset and length.
    pub reads: VecDeque<(Ticket, u64, usize)>,
}

impl Handler for BlockServer {
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        let called = match rpc::read_call(call.reader()) {
            Ok(called) => called,
            Err(denial) => return send(reply, &denial.bytes(), &[]),
        };
        match called {
            Called { procedure: NULL, .. } => send(reply, &ReplyHeader::SUCCESS, &[]),
            Called { len, .. } if len > BLOCK_MAX => {
                send(reply, &ReplyHeader::SUCCESS, &[libc::EMSGSIZE as u32])
            }
            Called { procedure: WRITE, .. } => self.write(call, reply, &called),
            Called { procedure: READ, at, len, .. } => {
                let (answer, ticket) = reply.defer();
                self.reads.push_back((ticket, at, len));
                answer
            }
            Called { at: len, .. } => self.defer(reply, Task::Commit { len }),
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
        let data = (Some(called.data as u32), called.len);
        let is_right = |item: PlacedItem<'_>| (item.position(), item.len() as usize) == data;
        let is_placed = call.placed().len() > 0;
        if call.placed().len() > 1 || !call.placed().all(is_right) {
            return send(reply, &GARBAGE.bytes(), &[]);
        }
        let (offset, mut segments) = (called.at, Segments::new());
        if is_placed && take_all(&mut call, &mut segments).is_ok() {
            return self.defer(reply, Task::Write { offset, segments });
        }
        // What cannot be taken out is written before the call is let go.
        let Some(bytes) = copy(&call, &segments, called) else {
            return send(reply, &GARBAGE.bytes(), &[]);
        };
        match self.disk.store.write(&bytes, offset) {
            Ok(()) => send(reply, &ReplyHeader::SUCCESS, &[0, called.len as u32]),
            Err(error) => send(reply, &ReplyHeader::SUCCESS, &[status(&error)]),
        }
    }

    fn defer<'a>(&self, reply: Reply<'a>, task: Task) -> Answer<'a> {
        let (answer, ticket) = reply.defer();
        self.disk.submit(ticket, task);
        answer
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
    let mut bytes = taken.iter().flat_map(|segment| segment.iter().copied()).collect::<Vec<u8>>();
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

/// Sends a header, and a status and results behind it.
fn send<'a>(mut reply: Reply<'a>, header: &[u8], words: &[u32]) -> Answer<'a> {
    reply.payload().put_fixed(header);
    words.iter().for_each(|word| reply.payload().put_u32(*word));
    reply.send()
}
