//! The gather list of a transmission: the pieces after its header, from the program's payload and
//! items

use core::ops::Range;

use rpcrdma_xdr::rtr::structure::RecvStructure;

use crate::item::{BulkItem, ItemSet};

use crate::placement::plan::{BulkCursor, GroupPlan, Stretch, Transmission};

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
    plan: &'p GroupPlan<'a>,
    structure: &'p RecvStructure,
    index: u32,
    at: u32,
    stream: Range<u32>,
    bulk: BulkCursor,
    waiting: Option<Stretch>,
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

impl<'a> GroupPlan<'a> {
    /// The pieces behind the header of a transmission.
    pub(crate) fn pieces<'p>(
        &'p self,
        structure: &'p RecvStructure,
        transmission: &Transmission,
    ) -> Pieces<'p, 'a> {
        let payload = transmission.payload.clone();
        Pieces {
            plan: self,
            structure,
            index: transmission.index,
            at: transmission.header_len,
            stream: payload,
            bulk: transmission.bulk,
            waiting: None,
        }
    }

    /// The piece of the stream that begins at `range.start`, no longer than the range.
    pub(crate) fn stream_piece(&self, range: &Range<u32>) -> Gather {
        stream_piece(self.items, self.apart(), range)
    }
}

/// The piece of a stream without the separate items that begins at `range.start`, no longer than
/// the range.
fn stream_piece(items: &[BulkItem], apart: ItemSet, range: &Range<u32>) -> Gather {
    let left = range.end - range.start;
    // Where we are in the stream, and how many of its bytes are items and their padding.
    let (mut excised, mut spliced) = (0, 0);
    for (index, item) in items.iter().enumerate() {
        if apart.contains(index) {
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

fn payload_piece(start: u32, len: u32) -> Gather {
    Gather::Payload(start..start + len)
}

/// The most pieces of a transmission with this part of a stream, including its header. If they
/// exceed `gather_max`, the first up to `copy_max` bytes are copied together.
#[cold]
pub(crate) fn gathered(
    items: &[BulkItem],
    apart: ItemSet,
    part: Range<u32>,
    gather_max: u32,
    copy_max: u32,
) -> u32 {
    let (mut part, mut len) = (part, 0u32);
    let (mut all, mut behind) = (1, 0);
    while part.start < part.end {
        let piece = stream_piece(items, apart, &part);
        part.start += piece.len();
        let pieces = match piece {
            Gather::Bulk { item, .. } => items.get(item).map_or(1, |item| item.pieces.max(1)),
            Gather::Payload(_) | Gather::Zero(_) => 1,
        };
        len = len.saturating_add(piece.len());
        all += pieces;
        behind += if len > copy_max { pieces } else { 0 };
    }
    if all > gather_max { all.min(2 + behind) } else { all }
}
