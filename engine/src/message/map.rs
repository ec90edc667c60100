//! The map of a received message: the pieces of buffers that are payload, and those that are items.

use rpcrdma_mempool::Loan;
use rpcrdma_proto::{
    self as proto, Finder, ItemSet, Part, Piece, Place, Placed, SegmentItem, payload_pieces,
};
use rpcrdma_xdr::RecvStructure;

/// The locations of the parts of one message. A shard has one map, and fills it for each message
/// that needs it.
#[derive(Debug)]
pub(crate) struct Map {
    pub(super) payload: Vec<Piece>,
    pub(super) items: Vec<ItemAt>,
    pub(super) pieces: Vec<Piece>,
    pub(super) taken: Vec<bool>,
    /// Bytes of the items that are in segments of receive buffers.
    pub(super) placed: u64,
    /// The Write chunks offered for a reply of the base protocol.
    pub(super) chunks: Option<WriteChunks>,
}

/// The Write chunks of a call, for the upper-layer binding of its reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteChunks {
    /// Those offered, by want.
    pub offered: ItemSet,
    /// Whether a result may have padding behind it (`interop.write_chunk_padding`).
    pub may_have_padding: bool,
}

/// A placed item in the map.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemAt {
    pub(super) index: u32,
    pub(super) position: Option<u32>,
    pub(super) len: u32,
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Map {
    /// Room for messages of `pieces_max` pieces in all, which is the maximum.
    pub fn new(pieces_max: usize, items_max: usize) -> Map {
        Map {
            payload: Vec::with_capacity(pieces_max),
            items: Vec::with_capacity(items_max),
            pieces: Vec::with_capacity(pieces_max),
            taken: Vec::with_capacity(pieces_max),
            placed: 0,
            chunks: None,
        }
    }

    /// Replaces the last message by one with this payload.
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
        self.placed = 0;
        self.chunks = None;
    }

    /// Records that the items are complete, and locates the payload.
    #[inline]
    pub fn finish(&mut self, structure: &RecvStructure, parts: &[Part]) {
        self.taken.resize(self.pieces.len(), false);
        let first_len = structure.first_len();
        for (part, it) in parts.iter().enumerate() {
            // Nearly all payload is in the first segment, and most parts of a group have none.
            if it.payload_end() > first_len {
                self.payload.clear();
                return self.add_payload(payload_pieces(structure, parts));
            }
            if it.payload_len > 0 {
                let (part, offset, len) = (part as u32, it.payload_start, it.payload_len);
                self.payload.push(Piece { part, segment: 0, offset, len });
            }
        }
    }

    #[inline]
    fn add_payload(&mut self, pieces: impl Iterator<Item = Piece>) {
        for piece in pieces {
            debug_assert!(self.payload.len() < self.payload.capacity(), "sized by the budget");
            self.payload.push(piece);
        }
    }

    /// Replaces the last message by one with `len` bytes of payload behind its header, and this
    /// item.
    #[inline]
    pub fn set_single_item(&mut self, (offset, len): (u32, u32), item: Option<SegmentItem>) {
        self.clear();
        self.payload.push(Piece { part: 0, segment: 0, offset, len });
        let Some(SegmentItem { position, len, segment }) = item else { return };
        let (index, position, first, count) = (0, Some(position), 0, 1);
        self.placed = len.into();
        self.items.push(ItemAt { index, position, len, first, count });
        self.pieces.push(Piece { part: 0, segment, offset: 0, len });
        self.taken.push(false);
    }

    /// Replaces the last message by one in the first `len` bytes of these loans.
    pub fn set_body(&mut self, loans: &[Option<Loan>], first: usize, len: u32) {
        self.set_payload(pieces_of(loans, first, len));
    }

    /// Records that the message is a reply of the base protocol, and its Write chunks.
    pub fn set_chunks(&mut self, chunks: WriteChunks) {
        self.chunks = Some(chunks);
    }

    /// Locates the items outside of the payload. `rdma_buffers` gives the first loan of an item
    /// that explicit RDMA has moved.
    pub fn set_items(
        &mut self,
        structure: &RecvStructure,
        placed: &Placed<'_>,
        loans: &[Option<Loan>],
        mut rdma_buffers: impl FnMut(&proto::PlacedItem<'_>) -> usize,
    ) {
        for item in placed.iter() {
            let first = self.pieces.len() as u32;
            match item.at {
                Place::Sent(_) => {
                    self.pieces.extend(item.pieces(structure));
                    self.placed += u64::from(item.len);
                }
                Place::Remote(_) | Place::Sink => {
                    self.pieces.extend(pieces_of(loans, rdma_buffers(&item), item.len));
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
        // A message with more than the maximum is rejected at the end; the list does not grow for
        // it.
        if self.items.len() < self.items.capacity() {
            let (first, position) = (self.pieces.len() as u32, Some(position));
            self.items.push(ItemAt { index: index as u32, position, len, first, count: 0 });
            self.placed += u64::from(len);
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

/// The first `len` bytes of the loans from `first` on.
fn pieces_of(loans: &[Option<Loan>], first: usize, len: u32) -> impl Iterator<Item = Piece> {
    let mut left = len;
    loans.iter().enumerate().skip(first).map_while(move |(at, loan)| {
        let len = left.min(loan.as_ref()?.len() as u32);
        left -= len;
        (len > 0).then_some(Piece { part: IN_LOANS, segment: at as u32, offset: 0, len })
    })
}

/// In place of a transmission's number: the segment is a buffer filled by explicit RDMA.
pub(super) const IN_LOANS: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Piece = Piece { part: 0, segment: 1, offset: 0, len: 4 };

    #[test]
    fn a_map_does_not_grow() {
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
