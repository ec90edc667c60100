//! The map of a received message: the pieces of buffers that are payload, and those that are items.

use rpcrdma_mempool::Loan;
use rpcrdma_proto::{
    self as proto, ItemSet, Part, Piece, Place, Placed, SegmentItem, SegmentedItem, payload_pieces,
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

    /// Locates the payload, which is in these transmissions.
    #[inline]
    pub fn set_payload(&mut self, structure: &RecvStructure, parts: &[Part]) {
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

    /// Locates the payload, which is the first `len` bytes of these loans.
    pub fn set_body(&mut self, loans: &[Option<Loan>], first: usize, len: u32) {
        self.add_payload(pieces_of(loans, first, len));
    }

    #[inline]
    fn add_pieces(&mut self, pieces: impl Iterator<Item = Piece>) {
        for piece in pieces {
            debug_assert!(self.pieces.len() < self.pieces.capacity(), "sized by the budget");
            self.pieces.push(piece);
        }
    }

    /// Locates the only item, which is in the segments of a group.
    #[inline]
    pub fn set_segmented(&mut self, item: &SegmentedItem) {
        let (index, position, len, first) = (0, Some(item.position), item.len, 0);
        self.add_pieces(item.pieces());
        let count = self.pieces.len() as u32;
        self.placed = len.into();
        self.items.push(ItemAt { index, position, len, first, count });
        self.taken.resize(self.pieces.len(), false);
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
                    self.add_pieces(item.pieces(structure));
                    self.placed += u64::from(item.len);
                }
                Place::Remote(_) | Place::Sink => {
                    self.add_pieces(pieces_of(loans, rdma_buffers(&item), item.len));
                }
            }
            let count = self.pieces.len() as u32 - first;
            let (index, position, len) = (item.index as u32, item.position, item.len);
            self.items.push(ItemAt { index, position, len, first, count });
        }
        self.taken.resize(self.pieces.len(), false);
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
