//! RDMA Writes of a reply: the destinations in the memory that the caller offered

use core::ops::Range;

use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::chunk::{RdmaSegment, WriteChunk};

use crate::placement::direct::match_items;
use crate::placement::exrw;
use crate::placement::gather::Gather;
use crate::placement::lists::written_len;
use crate::placement::plan::{Form, GroupPlan, Plan, WriteCursor};

/// An RDMA Write into memory that the peer offered.
///
/// It may be posted in consecutive parts, if it has more pieces than one work request can gather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteWrite {
    /// The exact target.
    pub remote: RdmaSegment,
    /// The item that is written; none if it is the message itself.
    item: Option<u8>,
    /// Its first byte.
    start: u32,
}

/// Memory of the caller, and what is written to it.
struct WriteTarget<'a> {
    segments: Array<'a, RdmaSegment>,
    /// The item; none if it is the message itself.
    item: Option<u8>,
    /// Bytes that are written.
    total: u32,
}

impl Plan<'_> {
    /// The next RDMA Write of the message, to be posted before its transmissions and on the same
    /// queue pair.
    pub fn next_write(&mut self) -> Option<RemoteWrite> {
        match self {
            Self::Inline(_) => None,
            Self::Group(plan) => plan.next_write(),
        }
    }
}

impl<'a> GroupPlan<'a> {
    /// The next RDMA Write of the message, to be posted before its transmissions and on the same
    /// queue pair.
    pub fn next_write(&mut self) -> Option<RemoteWrite> {
        loop {
            let at = self.writes;
            let WriteTarget { segments, item, total } = self.target(at.chunk)?;
            if at.done == total {
                self.writes = WriteCursor { chunk: at.chunk + 1, ..WriteCursor::default() };
                continue;
            }
            // The plan was made for chunks that hold what is written to them.
            let segment = segments.get(at.segment)?;
            let room = segment.length - at.within;
            if room == 0 {
                self.writes = WriteCursor { segment: at.segment + 1, within: 0, ..at };
                continue;
            }
            let len = room.min(total - at.done);
            let length = match item {
                Some(_) => len,
                None => self.gathered_at_once(at.done..at.done + len),
            };
            self.writes = WriteCursor { within: at.within + length, done: at.done + length, ..at };
            let offset = segment.offset.wrapping_add(u64::from(at.within));
            let remote = RdmaSegment { length, offset, ..segment };
            return Some(RemoteWrite { remote, item, start: at.done });
        }
    }

    /// The memory at `index` among what the caller offered; `None` behind the last.
    fn target(&self, index: usize) -> Option<WriteTarget<'a>> {
        match self.form {
            Form::ChunkReply(lists) => match lists.writes.iter().nth(index) {
                Some(WriteChunk(segments)) => {
                    let total = written_len(self.items, self.direct, index);
                    Some(WriteTarget { segments, item: Some(index as u8), total })
                }
                None if index == lists.writes.len() && lists.is_written => {
                    let WriteChunk(segments) = lists.reply?;
                    Some(WriteTarget { segments, item: None, total: self.stream })
                }
                None => None,
            },
            Form::Response { rsd } if !self.direct.is_empty() => {
                let direction = rsd.iter().flat_map(|set| set.items.iter()).nth(index)?;
                let segments = exrw::segments_of(&direction);
                // It matched when the plan was made.
                let found = match_items(&rsd, self.items).ok()?.get(index).copied();
                let item = found?.item.filter(|item| self.is_direct(usize::from(*item)));
                let total = item.and_then(|item| self.items.get(usize::from(item)));
                Some(WriteTarget { segments, item, total: total.map_or(0, |item| item.len) })
            }
            Form::Msg(_) | Form::ChunkCall(_) | Form::Request { .. } | Form::Response { .. } => {
                None
            }
        }
    }

    /// What an RDMA Write is gathered from.
    pub fn write_pieces<'p>(&'p self, write: &RemoteWrite) -> StreamPieces<'p, 'a> {
        let &RemoteWrite { remote: RdmaSegment { length: len, .. }, item, start } = write;
        match item {
            Some(item) => {
                let item = Some(Gather::Bulk { item: usize::from(item), start, len });
                StreamPieces { plan: self, stream: 0..0, item }
            }
            None => StreamPieces { plan: self, stream: start..start + len, item: None },
        }
    }

    /// The required content of the memory at position zero: the message without the items that are
    /// read separately. Nothing if the message is in the transmissions.
    pub fn body_pieces<'p>(&'p self) -> StreamPieces<'p, 'a> {
        let is_fetched = matches!(&self.form, Form::ChunkCall(lists) if lists.is_fetched);
        let stream = if is_fetched { 0..self.stream } else { 0..0 };
        StreamPieces { plan: self, stream, item: None }
    }

    /// How many bytes of this part of the stream one work request can gather.
    fn gathered_at_once(&self, range: Range<u32>) -> u32 {
        let begin = range.start;
        let mut stream = range;
        let mut entries = 0;
        while stream.start < stream.end {
            let piece = self.stream_piece(&stream);
            entries += match piece {
                Gather::Bulk { item, .. } => self.items.get(item).map_or(1, |item| item.pieces),
                Gather::Payload(_) | Gather::Zero(_) => 1,
            };
            if entries > self.gather_max && stream.start > begin {
                break;
            }
            stream.start += piece.len();
        }
        stream.start - begin
    }
}

/// The pieces of a part of the stream, in order.
#[derive(Debug, Clone)]
pub struct StreamPieces<'p, 'a> {
    plan: &'p GroupPlan<'a>,
    stream: Range<u32>,
    item: Option<Gather>,
}

impl Iterator for StreamPieces<'_, '_> {
    type Item = Gather;

    fn next(&mut self) -> Option<Gather> {
        if let Some(item) = self.item.take() {
            return Some(item);
        }
        if self.stream.is_empty() {
            return None;
        }
        let piece = self.plan.stream_piece(&self.stream);
        self.stream.start += piece.len();
        Some(piece)
    }
}
