//! A received message: its payload stream and its placed items, in the receive buffers.

use core::ops::Range;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Loan, RecvPool, RecvToken};
use rpcrdma_proto::Piece;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;

use super::map::{IN_LOANS, ItemAt, Map, WriteChunks};
use super::rdma_target::RdmaTarget;
use crate::message::sink::Sink;
use crate::stats::SharedStats;

/// The receive buffers of one message.
pub(crate) type Buffers = ArrayVec<RecvToken, { GROUP_MAX as usize }>;

/// An RPC message, read in place.
///
/// Payload and items are borrowed from the receive buffers, which return to the device when the
/// message has been processed. A placed segment can be taken out and kept.
#[derive(Debug)]
pub struct Incoming<'a> {
    body: MessageBytes<'a>,
}

/// The location of a message's bytes.
#[derive(Debug)]
enum MessageBytes<'a> {
    /// A plain message: this is its payload.
    Plain(&'a [u8]),
    /// Any other message.
    Mapped(Mapped<'a>),
}

/// A message whose parts are located by a map.
#[derive(Debug)]
struct Mapped<'a> {
    pool: &'a mut RecvPool,
    buffers: &'a mut [RecvToken],
    /// Buffers filled by explicit RDMA.
    rdma_target: RdmaTarget<'a>,
    map: &'a mut Map,
    stats: &'a SharedStats,
}

impl<'a> Incoming<'a> {
    /// A message whose parts are located by the map, to be delivered: its placed bytes are counted.
    pub(crate) fn mapped(
        pool: &'a mut RecvPool,
        buffers: &'a mut [RecvToken],
        rdma_target: RdmaTarget<'a>,
        map: &'a mut Map,
        stats: &'a SharedStats,
    ) -> Incoming<'a> {
        stats.bytes_placed.add(map.placed);
        Incoming { body: MessageBytes::Mapped(Mapped { pool, buffers, rdma_target, map, stats }) }
    }

    /// A message that consists only of payload.
    #[inline]
    pub(crate) fn plain(payload: &'a [u8]) -> Incoming<'a> {
        Incoming { body: MessageBytes::Plain(payload) }
    }

    /// The payload stream: the RPC message without its placed items, from the transaction id on.
    /// One slice for a message of one transmission whose payload lies in the first segment.
    #[inline]
    pub fn payload(&self) -> PayloadStream<'_> {
        PayloadStream { incoming: self, next: 0 }
    }

    /// The payload stream as one slice, if it is contiguous: always so for short messages.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        match &self.body {
            MessageBytes::Plain(payload) => Some(payload),
            MessageBytes::Mapped(mapped) => mapped.contiguous(),
        }
    }

    /// The first word of the payload.
    pub(crate) fn xid(&self) -> u32 {
        let first = self.payload().flatten().take(4);
        first.fold(0, |word, &byte| word << 8 | u32::from(byte))
    }

    /// The items that were placed outside of the payload stream, in stream order.
    pub fn placed(&self) -> impl ExactSizeIterator<Item = PlacedItem<'_>> {
        let items = self.mapping().map_or(&[][..], |mapped| &mapped.map.items);
        items.iter().map(|&at| PlacedItem { incoming: self, at })
    }

    /// The Write chunks offered for this message, if it is a reply of the base protocol,
    /// which must use them.
    pub(crate) fn chunks(&self) -> Option<WriteChunks> {
        self.mapping().and_then(|mapped| mapped.map.chunks)
    }

    /// Takes a segment of an item out of its receive buffer; a segment of the reserve replaces it.
    ///
    /// `piece` counts the slices of [`PlacedItem::segments`]. Read the payload first: the message
    /// is borrowed anew. Cost: one pool operation, no copy.
    ///
    /// # Errors
    /// [`TakeError`] states the reason; the bytes can still be read and copied.
    pub fn take(&mut self, item: usize, piece: usize) -> Result<Loan, TakeError> {
        match &mut self.body {
            MessageBytes::Plain(_) => Err(TakeError::NoSuchPiece),
            MessageBytes::Mapped(mapped) => mapped.take(item, piece),
        }
    }

    /// Returns the result buffer of a want, without pieces that were taken.
    pub(crate) fn take_sink(&mut self, want: usize) -> Option<Sink> {
        match &mut self.body {
            MessageBytes::Plain(_) => None,
            MessageBytes::Mapped(mapped) => mapped.take_sink(want),
        }
    }

    /// The slice of the payload stream with index `at`.
    #[inline]
    fn slice(&self, at: usize) -> Option<&[u8]> {
        match &self.body {
            MessageBytes::Plain(payload) => (at == 0).then_some(payload),
            MessageBytes::Mapped(mapped) => Some(mapped.bytes(mapped.map.payload.get(at)?)),
        }
    }

    fn mapping(&self) -> Option<&Mapped<'a>> {
        match &self.body {
            MessageBytes::Plain(_) => None,
            MessageBytes::Mapped(mapped) => Some(mapped),
        }
    }
}

impl Mapped<'_> {
    fn contiguous(&self) -> Option<&[u8]> {
        match self.map.payload.as_slice() {
            [piece] => Some(self.bytes(piece)),
            _ => None,
        }
    }

    fn take(&mut self, item: usize, piece: usize) -> Result<Loan, TakeError> {
        let Mapped { pool, buffers, rdma_target, map, stats } = self;
        let entry = *map.items.get(item).ok_or(TakeError::NoSuchPiece)?;
        if piece >= entry.count as usize {
            return Err(TakeError::NoSuchPiece);
        }
        let at = entry.first as usize + piece;
        let Piece { part, segment, offset, len } = map.pieces[at];
        if map.taken[at] {
            return Err(TakeError::Taken);
        }
        // The segment holds payload in front of the item.
        if offset != 0 {
            return Err(TakeError::Shared { offset });
        }
        let mut loan = if part == IN_LOANS {
            let loan = rdma_target.loans.get_mut(segment as usize).and_then(Option::take);
            loan.ok_or(TakeError::Taken)?
        } else {
            let Some(loan) = pool.detach(&mut buffers[part as usize], segment as usize) else {
                stats.segments_not_taken.add(1);
                return Err(TakeError::NoSpare);
            };
            loan
        };
        map.taken[at] = true;
        stats.segments_taken.add(1);
        loan.truncate(len as usize);
        Ok(loan)
    }

    fn take_sink(&mut self, want: usize) -> Option<Sink> {
        let sink = self.rdma_target.take_sink(want)?;
        let Map { items, pieces, taken, .. } = &mut *self.map;
        for item in items.iter().filter(|item| item.index as usize == want) {
            let range = item.first as usize..(item.first + item.count) as usize;
            for at in range.filter(|&at| pieces[at].part == IN_LOANS) {
                taken[at] = true;
            }
        }
        Some(sink)
    }

    #[cold]
    fn rdma_bytes(&self, at: u32, range: Range<usize>) -> &[u8] {
        let loan = self.rdma_target.loans.get(at as usize).and_then(Option::as_deref);
        loan.and_then(|bytes| bytes.get(range)).unwrap_or_default()
    }

    #[inline]
    fn bytes(&self, piece: &Piece) -> &[u8] {
        let range = piece.offset as usize..(piece.offset + piece.len) as usize;
        if piece.part == IN_LOANS {
            return self.rdma_bytes(piece.segment, range);
        }
        let segment = self.pool.segment(&self.buffers[piece.part as usize], piece.segment as usize);
        &segment[range]
    }
}

/// Why a segment could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The message has no such item, or the item no such piece.
    #[error("the message has no such piece")]
    NoSuchPiece,
    /// It was taken before.
    #[error("the segment was already taken")]
    Taken,
    /// The segment holds other data in front of the item.
    #[error("the segment holds {offset} bytes of other data in front of the item")]
    Shared {
        /// Where the item begins.
        offset: u32,
    },
    /// The reserve is empty: loans must return first.
    #[error("no spare segment is free to replace it; release loans first")]
    NoSpare,
}

/// An item outside of the payload stream.
#[derive(Debug, Clone, Copy)]
pub struct PlacedItem<'a> {
    incoming: &'a Incoming<'a>,
    at: ItemAt,
}

impl<'a> PlacedItem<'a> {
    /// Its position in the unreduced XDR stream. A reply of the base protocol does not state it for
    /// its Write chunks; their order is that of the stream.
    pub fn position(&self) -> Option<u32> {
        self.at.position
    }

    /// In a reply: the want that it answers, by the order of requests.
    pub fn index(&self) -> usize {
        self.at.index as usize
    }

    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.at.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes, segment by segment. Slices that were taken are empty.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let incoming = self.incoming;
        let ItemAt { first, count, .. } = self.at;
        (first as usize..(first + count) as usize).map(move |at| match incoming.mapping() {
            Some(mapped) if !mapped.map.taken[at] => mapped.bytes(&mapped.map.pieces[at]),
            _ => &[],
        })
    }
}

/// The slices of a payload stream, in order.
#[derive(Debug, Clone)]
pub struct PayloadStream<'a> {
    incoming: &'a Incoming<'a>,
    next: usize,
}

impl PayloadStream<'_> {
    /// A stream that has ended.
    pub(super) fn empty() -> Self {
        PayloadStream { incoming: &Incoming { body: MessageBytes::Plain(&[]) }, next: 1 }
    }
}

impl<'a> Iterator for PayloadStream<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let slice = self.incoming.slice(self.next)?;
        self.next += 1;
        Some(slice)
    }
}
