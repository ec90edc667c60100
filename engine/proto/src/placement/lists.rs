//! The three chunk lists of a header to send: their length, and their encoding

use rpcrdma_xdr::array::{Array, Wire};
use rpcrdma_xdr::chunk::{RdmaSegment, ReadSegment, WriteChunk, WriteList};
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::numbers::{proc, size};

use crate::demand::Exposed;
use crate::item::{BulkItem, ItemSet};

use crate::segments::put_filled;

/// The lists of a call; their segments are the exposed ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLists {
    /// Whether the message is fetched from position zero.
    pub(crate) is_fetched: bool,
    /// The results with memory.
    pub(crate) wants: ItemSet,
}

/// The lists of a reply: what the caller offered, with other lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyLists<'a> {
    pub(crate) writes: WriteList<'a>,
    pub(crate) reply: Option<WriteChunk<'a>>,
    /// Whether the message is written to the Reply chunk.
    pub(crate) is_written: bool,
}

/// Header bytes of a Write chunk, or of a Reply chunk that is there, without its mark.
pub(crate) fn chunk_len(segments: u32) -> u32 {
    4 + segments * size::SEGMENT as u32
}

/// Header bytes of an entry of the Read list.
pub(crate) const READ_LEN: u32 = 4 + 4 + size::SEGMENT as u32;

impl CallLists {
    /// Bytes of the header with these lists.
    pub(crate) fn header_len(&self, exposed: &Exposed<'_>) -> u32 {
        let reads = exposed.body.len() as u32 + exposed.items.total();
        let chunks = self.writes().len() as u32;
        let writes = chunks * (4 + chunk_len(0)) + exposed.wants.total() * size::SEGMENT as u32;
        let reply = match exposed.reply {
            [] => 0,
            segments => chunk_len(segments.len() as u32),
        };
        size::HEADER_MIN as u32 + reads * READ_LEN + writes + reply
    }

    /// The procedure.
    pub(crate) fn proc(&self) -> u32 {
        if self.is_fetched { proc::NOMSG } else { proc::MSG }
    }

    /// The lists.
    pub(crate) fn encode(
        &self,
        items: &[BulkItem],
        read: ItemSet,
        exposed: &Exposed<'_>,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        // wire.md C1: the message comes first, then its items, by position.
        put_reads(0, exposed.body, writer)?;
        for index in read.iter() {
            let position = items.get(index).map_or(0, |item| item.position);
            put_reads(position, exposed.items.of(read, index), writer)?;
        }
        writer.put_bool(false)?;
        for index in self.writes() {
            writer.put_bool(true)?;
            Array::from_slice(exposed.wants.of(self.wants, index)).encode(writer)?;
        }
        writer.put_bool(false)?;
        writer.put_bool(!exposed.reply.is_empty())?;
        match exposed.reply {
            [] => Ok(()),
            segments => Array::from_slice(segments).encode(writer),
        }
    }

    /// The results that have an entry in the Write list. Those without memory before one with
    /// memory get an empty chunk (RFC 8166 4.3.2.3).
    fn writes(&self) -> core::ops::Range<usize> {
        0..self.wants.last().map_or(0, |last| last + 1)
    }
}

impl ReplyLists<'_> {
    /// Bytes of the header with these lists.
    pub(crate) fn header_len(&self) -> u32 {
        let writes: u32 =
            self.writes.iter().map(|WriteChunk(list)| 4 + chunk_len(list.len() as u32)).sum();
        let reply = self.reply.map_or(0, |WriteChunk(list)| chunk_len(list.len() as u32));
        size::HEADER_MIN as u32 + writes + reply
    }

    /// The procedure.
    pub(crate) fn proc(&self) -> u32 {
        if self.is_written { proc::NOMSG } else { proc::MSG }
    }

    /// The lists. Item `i` of the reply is in chunk `i` if it was written.
    pub(crate) fn encode(
        &self,
        items: &[BulkItem],
        written: ItemSet,
        stream: u32,
        writer: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        // RFC 8166 4.3.1: no Read list in a reply.
        writer.put_bool(false)?;
        for (index, WriteChunk(chunk)) in self.writes.iter().enumerate() {
            writer.put_bool(true)?;
            put_filled(chunk, written_len(items, written, index), writer)?;
        }
        writer.put_bool(false)?;
        writer.put_bool(self.reply.is_some())?;
        match self.reply {
            None => Ok(()),
            Some(WriteChunk(chunk)) => {
                put_filled(chunk, if self.is_written { stream } else { 0 }, writer)
            }
        }
    }
}

/// Bytes that are written to the Write chunk at `index`.
pub(crate) fn written_len(items: &[BulkItem], written: ItemSet, index: usize) -> u32 {
    items.get(index).filter(|_| written.contains(index)).map_or(0, |item| item.len)
}

fn put_reads(
    position: u32,
    segments: &[RdmaSegment],
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    segments.iter().try_for_each(|target| {
        writer.put_bool(true)?;
        ReadSegment { position, target: *target }.encode(writer)
    })
}
