//! A message that has arrived: its payload stream and its placed items, where they landed.

use core::ops::Range;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Loan, RecvPool, RecvToken};
use rpcrdma_proto::{
    self as proto, Finder, ItemSet, LoneItem, Part, Piece, Place, Placed, payload_pieces,
};
use rpcrdma_xdr::RecvStructure;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;

use crate::client::sink::Sink;
use crate::landed::Landed;
use crate::stats::SharedStats;

/// The receive buffers of one message.
pub(crate) type Buffers = ArrayVec<RecvToken, { GROUP_MAX as usize }>;

/// An RPC message, read where it landed.
///
/// Payload and items are borrowed from the receive buffers, which go back to the device when the
/// message has been dealt with. A placed segment can be taken out and kept.
#[derive(Debug)]
pub struct Incoming<'a> {
    body: Body<'a>,
}

/// Where the bytes of a message are.
#[derive(Debug)]
enum Body<'a> {
    /// Of a plain message: the payload is this.
    Plain(&'a [u8]),
    /// Of any other.
    Mapped(Mapped<'a>),
}

/// A message of which a map says where its parts are.
#[derive(Debug)]
struct Mapped<'a> {
    pool: &'a mut RecvPool,
    buffers: &'a mut [RecvToken],
    /// Buffers that explicit RDMA has filled.
    landed: Landed<'a>,
    map: &'a mut Map,
    stats: &'a SharedStats,
}

/// Where the parts of one message are. One of them a shard, filled for each message that needs it.
#[derive(Debug)]
pub(crate) struct Map {
    payload: Vec<Piece>,
    items: Vec<ItemAt>,
    pieces: Vec<Piece>,
    taken: Vec<bool>,
    /// The Write chunks that were there for a reply of the base protocol.
    chunks: Option<ItemSet>,
}

/// A placed item in the map.
#[derive(Debug, Clone, Copy)]
struct ItemAt {
    index: u32,
    position: Option<u32>,
    len: u32,
    first: u32,
    count: u32,
}

impl Map {
    /// Room for messages of `pieces_max` pieces in all; more are never needed.
    pub fn new(pieces_max: usize, items_max: usize) -> Map {
        Map {
            payload: Vec::with_capacity(pieces_max),
            items: Vec::with_capacity(items_max),
            pieces: Vec::with_capacity(pieces_max),
            taken: Vec::with_capacity(pieces_max),
            chunks: None,
        }
    }

    /// Forgets the last message and notes where the payload of the next is.
    pub fn set_payload(&mut self, pieces: impl Iterator<Item = Piece>) {
        self.clear();
        self.add_payload(pieces);
    }

    /// Forgets the last message.
    #[inline]
    pub fn clear(&mut self) {
        self.payload.clear();
        self.items.clear();
        self.pieces.clear();
        self.taken.clear();
        self.chunks = None;
    }

    /// Notes that the items which were found are all there are, and where the payload is.
    #[inline]
    pub fn finish(&mut self, structure: &RecvStructure, parts: &[Part]) {
        self.taken.resize(self.pieces.len(), false);
        let first_len = structure.first_len();
        // Nearly all payload lies in the first segment, and most parts of a group have none.
        if parts.iter().any(|part| part.payload_end() > first_len) {
            return self.add_payload(payload_pieces(structure, parts));
        }
        for (part, it) in parts.iter().enumerate().filter(|(_, it)| it.payload_len > 0) {
            let (part, offset, len) = (part as u32, it.payload_start, it.payload_len);
            self.payload.push(Piece { part, segment: 0, offset, len });
        }
    }

    #[inline]
    fn add_payload(&mut self, pieces: impl Iterator<Item = Piece>) {
        for piece in pieces {
            debug_assert!(self.payload.len() < self.payload.capacity(), "sized by the budget");
            self.payload.push(piece);
        }
    }

    /// Forgets the last message; the next has so many bytes of payload behind its header, and this
    /// item.
    #[inline]
    pub fn set_lone(&mut self, (offset, len): (u32, u32), item: Option<LoneItem>) {
        let payload = Piece { part: 0, segment: 0, offset, len };
        self.set_payload(core::iter::once(payload));
        self.taken.clear();
        let Some(LoneItem { position, len, segment }) = item else { return };
        let (index, position, first, count) = (0, Some(position), 0, 1);
        self.items.push(ItemAt { index, position, len, first, count });
        self.pieces.push(Piece { part: 0, segment, offset: 0, len });
        self.taken.push(false);
    }

    /// Forgets the last message; the next is the first `len` bytes of these loans.
    pub fn set_body(&mut self, loans: &[Option<Loan>], first: usize, len: u32) {
        self.set_payload(pieces_of(loans, first, len));
    }

    /// Notes that the message is a reply of the base protocol, and which Write chunks it had.
    pub fn set_chunks(&mut self, offered: ItemSet) {
        self.chunks = Some(offered);
    }

    /// Notes where the items are that are not in the payload. `landing` tells of one that explicit
    /// RDMA has moved in which of the loans it begins.
    pub fn set_items(
        &mut self,
        structure: &RecvStructure,
        placed: &Placed<'_>,
        loans: &[Option<Loan>],
        mut landing: impl FnMut(&proto::PlacedItem<'_>) -> usize,
    ) {
        for item in placed.iter() {
            let first = self.pieces.len() as u32;
            match item.at {
                Place::Sent(_) => self.pieces.extend(item.pieces(structure)),
                Place::Remote(_) | Place::Sink => {
                    self.pieces.extend(pieces_of(loans, landing(&item), item.len));
                }
            }
            let count = self.pieces.len() as u32 - first;
            let (index, position, len) = (item.index as u32, item.position, item.len);
            self.items.push(ItemAt { index, position, len, first, count });
        }
        self.taken.clear();
        self.taken.resize(self.pieces.len(), false);
    }
}

impl Finder for Map {
    #[inline]
    fn item(&mut self, index: usize, position: u32, len: u32) {
        // What names more than there can be is found bad in the end, and nothing grows for it.
        if self.items.len() < self.items.capacity() {
            let (first, position) = (self.pieces.len() as u32, Some(position));
            self.items.push(ItemAt { index: index as u32, position, len, first, count: 0 });
        }
    }

    #[inline]
    fn piece(&mut self, piece: Piece) {
        if self.pieces.len() < self.pieces.capacity()
            && let Some(item) = self.items.last_mut()
        {
            item.count += 1;
            self.pieces.push(piece);
        }
    }
}

impl<'a> Incoming<'a> {
    /// A message of which the map says where its parts are.
    pub(crate) fn mapped(
        pool: &'a mut RecvPool,
        buffers: &'a mut [RecvToken],
        landed: Landed<'a>,
        map: &'a mut Map,
        stats: &'a SharedStats,
    ) -> Incoming<'a> {
        Incoming { body: Body::Mapped(Mapped { pool, buffers, landed, map, stats }) }
    }

    /// A message that is its payload and nothing else.
    #[inline]
    pub(crate) fn plain(payload: &'a [u8]) -> Incoming<'a> {
        Incoming { body: Body::Plain(payload) }
    }

    /// The payload stream: the RPC message without its placed items, from the transaction id on.
    /// One slice for a message of one transmission whose payload lies in the first segment.
    #[inline]
    pub fn payload(&self) -> PayloadStream<'_> {
        PayloadStream { incoming: self, next: 0 }
    }

    /// The payload stream as one slice, if it is one: always so for short messages.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Plain(payload) => Some(payload),
            Body::Mapped(mapped) => mapped.contiguous(),
        }
    }

    /// A reader of the payload stream, standing behind transaction id and message type.
    pub fn reader(&self) -> PayloadReader<'_> {
        let mut reader = PayloadReader { stream: self.payload(), slice: &[], seen: 0 };
        // The engine read these two words to learn that the message is a call.
        let _ = reader.skip(PREFIX_LEN);
        reader
    }

    /// The items that were placed outside of the payload stream, in stream order.
    pub fn placed(&self) -> impl ExactSizeIterator<Item = PlacedItem<'_>> {
        let items = self.mapping().map_or(&[][..], |mapped| &mapped.map.items);
        items.iter().map(|&at| PlacedItem { incoming: self, at })
    }

    /// The Write chunks that were there for this message, by want, if it is a reply that has to use
    /// them: one of the base protocol.
    pub(crate) fn chunks(&self) -> Option<ItemSet> {
        self.mapping().and_then(|mapped| mapped.map.chunks)
    }

    /// Takes a segment of an item out of its receive buffer; a spare takes its place.
    ///
    /// `piece` counts the slices of [`PlacedItem::segments`]. Read the payload first: the message
    /// is borrowed anew. Cost: one pool operation, no copy.
    ///
    /// # Errors
    /// [`TakeError`] says why not; the bytes can still be read and copied.
    pub fn take(&mut self, item: usize, piece: usize) -> Result<Loan, TakeError> {
        match &mut self.body {
            Body::Plain(_) => Err(TakeError::NoSuchPiece),
            Body::Mapped(mapped) => mapped.take(item, piece),
        }
    }

    /// Gives the sink of a want back, as far as its pieces were not taken.
    pub(crate) fn take_sink(&mut self, want: usize) -> Option<Sink> {
        match &mut self.body {
            Body::Plain(_) => None,
            Body::Mapped(mapped) => mapped.take_sink(want),
        }
    }

    /// The slice of the payload stream that comes after `at` others.
    #[inline]
    fn slice(&self, at: usize) -> Option<&[u8]> {
        match &self.body {
            Body::Plain(payload) => (at == 0).then_some(payload),
            Body::Mapped(mapped) => Some(mapped.bytes(mapped.map.payload.get(at)?)),
        }
    }

    fn mapping(&self) -> Option<&Mapped<'a>> {
        match &self.body {
            Body::Plain(_) => None,
            Body::Mapped(mapped) => Some(mapped),
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
        let Mapped { pool, buffers, landed, map, stats } = self;
        let entry = *map.items.get(item).ok_or(TakeError::NoSuchPiece)?;
        if piece >= entry.count as usize {
            return Err(TakeError::NoSuchPiece);
        }
        let at = entry.first as usize + piece;
        let Piece { part, segment, offset, len } = map.pieces[at];
        if map.taken[at] {
            return Err(TakeError::Taken);
        }
        // Payload that ran into the segment lies before the item.
        if offset != 0 {
            return Err(TakeError::Shared { offset });
        }
        let mut loan = if part == IN_LOANS {
            let loan = landed.loans.get_mut(segment as usize).and_then(Option::take);
            loan.ok_or(TakeError::Taken)?
        } else {
            let Some(loan) = pool.detach(&mut buffers[part as usize], segment as usize) else {
                stats.spares_out.add(1);
                return Err(TakeError::NoSpare);
            };
            loan
        };
        map.taken[at] = true;
        stats.taken.add(1);
        loan.truncate(len as usize);
        Ok(loan)
    }

    fn take_sink(&mut self, want: usize) -> Option<Sink> {
        let sink = self.landed.take_sink(want)?;
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
    fn landed_bytes(&self, at: u32, range: Range<usize>) -> &[u8] {
        let loan = self.landed.loans.get(at as usize).and_then(Option::as_deref);
        loan.and_then(|bytes| bytes.get(range)).unwrap_or_default()
    }

    #[inline]
    fn bytes(&self, piece: &Piece) -> &[u8] {
        let range = piece.offset as usize..(piece.offset + piece.len) as usize;
        if piece.part == IN_LOANS {
            return self.landed_bytes(piece.segment, range);
        }
        let segment = self.pool.segment(&self.buffers[piece.part as usize], piece.segment as usize);
        &segment[range]
    }
}

/// Bytes of a message that the engine reads: transaction id and message type.
const PREFIX_LEN: usize = 8;

/// The first `len` bytes of the loans from `first` on.
fn pieces_of(loans: &[Option<Loan>], first: usize, len: u32) -> impl Iterator<Item = Piece> {
    let mut left = len;
    loans.iter().enumerate().skip(first).map_while(move |(at, loan)| {
        let len = left.min(loan.as_ref()?.len() as u32);
        left -= len;
        (len > 0).then_some(Piece { part: IN_LOANS, segment: at as u32, offset: 0, len })
    })
}

/// In place of the number of a transmission: the segment is a buffer that explicit RDMA has filled.
const IN_LOANS: u32 = u32::MAX;

/// Why a segment could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// The message has no such item, or the item no such piece.
    #[error("there is no such piece")]
    NoSuchPiece,
    /// It was taken before.
    #[error("the segment was taken before")]
    Taken,
    /// The segment holds something else in front of the item.
    #[error("the segment holds {offset} bytes of something else in front of the item")]
    Shared {
        /// Where the item begins.
        offset: u32,
    },
    /// All spares are out: loans must come home first.
    #[error("no spare segment is left to put in its place")]
    NoSpare,
}

/// An item that was placed outside of the payload stream.
#[derive(Debug, Clone, Copy)]
pub struct PlacedItem<'a> {
    incoming: &'a Incoming<'a>,
    at: ItemAt,
}

impl<'a> PlacedItem<'a> {
    /// Where it belongs in the unreduced XDR stream. A reply of the base protocol does not say that
    /// of its Write chunks; their order is that of the stream.
    pub fn position(&self) -> Option<u32> {
        self.at.position
    }

    /// In a reply: the want that it answers, in the order in which they were stated.
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

impl<'a> Iterator for PayloadStream<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let slice = self.incoming.slice(self.next)?;
        self.next += 1;
        Some(slice)
    }
}

/// Reads XDR from a payload stream, across its slices.
#[derive(Debug, Clone)]
pub struct PayloadReader<'a> {
    stream: PayloadStream<'a>,
    slice: &'a [u8],
    /// Bytes of the slices up to and including `slice`.
    seen: usize,
}

/// The payload stream is shorter than what was to be read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message ends too early")]
pub struct EndOfMessage;

impl<'a> PayloadReader<'a> {
    /// Bytes read so far, from the transaction id on. Placed items are not in the payload: add the
    /// padded lengths of those before it to get the position in the unreduced XDR stream.
    pub fn position(&self) -> usize {
        self.seen - self.slice.len()
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, EndOfMessage> {
        if let Some((word, rest)) = self.slice.split_first_chunk() {
            self.slice = rest;
            return Ok(u32::from_be_bytes(*word));
        }
        let mut word = [0; 4];
        self.fixed_into(&mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, EndOfMessage> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// Fixed-length opaque data, without padding, to where `out` is.
    pub fn fixed_into(&mut self, mut out: &mut [u8]) -> Result<(), EndOfMessage> {
        while !out.is_empty() {
            let part = self.some(out.len())?;
            let (now, later) = out.split_at_mut(part.len());
            now.copy_from_slice(part);
            out = later;
        }
        Ok(())
    }

    /// Passes over `len` bytes.
    pub fn skip(&mut self, mut len: usize) -> Result<(), EndOfMessage> {
        while len > 0 {
            len -= self.some(len)?.len();
        }
        Ok(())
    }

    /// At most `max` bytes, as many as lie together; at least one.
    pub fn some(&mut self, max: usize) -> Result<&'a [u8], EndOfMessage> {
        while self.slice.is_empty() {
            self.slice = self.stream.next().ok_or(EndOfMessage)?;
            self.seen += self.slice.len();
        }
        let (now, later) = self.slice.split_at(max.min(self.slice.len()));
        self.slice = later;
        Ok(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Piece = Piece { part: 0, segment: 1, offset: 0, len: 4 };

    #[test]
    fn a_map_grows_for_nothing_that_it_is_told() {
        let mut map = Map::new(3, 2);
        for round in 0..2 {
            map.clear();
            let (pieces, items) = (map.pieces.capacity(), map.items.capacity());
            for index in 0..10 {
                map.item(index, 8, 40);
                (0..10).for_each(|_| map.piece(PIECE));
            }
            let part = Part { buffer: 0, byte_len: 40, payload_start: 36, payload_len: 4 };
            map.finish(&RecvStructure::single(4096), &[part]);
            assert_eq!((map.pieces.len(), map.items.len()), (pieces, items), "round {round}");
            assert_eq!((map.pieces.capacity(), map.items.capacity()), (pieces, items));
            assert_eq!((map.taken.len(), map.payload.len()), (pieces, 1));
        }
    }

    #[test]
    fn pieces_belong_to_the_item_before_them() {
        let mut map = Map::new(8, 4);
        map.clear();
        for (index, count) in [(0, 2), (2, 1), (5, 3)] {
            map.item(index, 8 * index as u32, 4);
            (0..count).for_each(|_| map.piece(PIECE));
        }
        let found: Vec<_> = map.items.iter().map(|it| (it.index, it.first, it.count)).collect();
        assert_eq!(found, [(0, 0, 2), (2, 2, 1), (5, 3, 3)]);
    }
}
