//! The pieces of a transmission: what follows its header, from the program's payload and items

use core::ops::Range;

use rpcrdma_xdr::rtr::structure::RecvStructure;

use crate::placement::plan::{BulkCursor, GroupPlan, Stretch};

/// What follows the header of a transmission, piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gather {
    /// These bytes of the program's payload.
    Payload(Range<u32>),
    /// These bytes of an item.
    Bulk {
        /// Its place among the items.
        item: usize,
        /// The first byte.
        start: u32,
        /// How many.
        len: u32,
    },
    /// So many zero bytes.
    Zero(u32),
}

/// The pieces of a transmission behind its header, in order.
#[derive(Debug, Clone)]
pub struct Pieces<'p, 'a> {
    pub(super) plan: &'p GroupPlan<'a>,
    pub(super) structure: &'p RecvStructure,
    pub(super) index: u32,
    pub(super) at: u32,
    pub(super) stream: Range<u32>,
    pub(super) bulk: BulkCursor,
    pub(super) waiting: Option<Stretch>,
}

impl Iterator for Pieces<'_, '_> {
    type Item = Gather;

    fn next(&mut self) -> Option<Gather> {
        if self.stream.start < self.stream.end {
            let piece = self.plan.stream_piece(&self.stream);
            self.stream.start += piece.len();
            self.at += piece.len();
            return Some(piece);
        }
        let stretch = match self.waiting.take() {
            Some(stretch) => stretch,
            None => self.plan.next_stretch(&mut self.bulk, self.structure, self.index)?,
        };
        if stretch.at > self.at {
            let pad = stretch.at - self.at;
            self.at = stretch.at;
            self.waiting = Some(stretch);
            // wire.md E15: the gap is real bytes on the wire.
            return Some(Gather::Zero(pad));
        }
        self.at += stretch.len;
        let Stretch { item, start, len, .. } = stretch;
        Some(Gather::Bulk { item, start, len })
    }
}

impl Gather {
    /// Bytes of the piece.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a piece always has bytes")]
    pub fn len(&self) -> u32 {
        match self {
            Self::Payload(range) => range.end - range.start,
            Self::Bulk { len, .. } | Self::Zero(len) => *len,
        }
    }
}

impl GroupPlan<'_> {
    /// The piece of the stream that begins at `range.start`, no longer than the range.
    pub(crate) fn stream_piece(&self, range: &Range<u32>) -> Gather {
        let left = range.end - range.start;
        // Where we are in the stream, and how many of its bytes are items and their padding.
        let (mut excised, mut spliced) = (0, 0);
        for (index, item) in self.items.iter().enumerate() {
            if self.is_apart(index) {
                excised += item.padded_len();
                continue;
            }
            let begin = item.position - excised;
            if range.start < begin {
                return payload_piece(range.start - spliced, left.min(begin - range.start));
            }
            let within = range.start - begin;
            if within < item.len {
                let len = left.min(item.len - within);
                return Gather::Bulk { item: index, start: within, len };
            }
            if within < item.padded_len() {
                return Gather::Zero(left.min(item.padded_len() - within));
            }
            spliced += item.padded_len();
        }
        payload_piece(range.start - spliced, left)
    }
}

fn payload_piece(start: u32, len: u32) -> Gather {
    Gather::Payload(start..start + len)
}
