//! The pieces of receive buffers that the payload and the items of a received message are in

use rpcrdma_xdr::rtr::structure::{RecvStructure, SegmentRun};

use crate::group::Part;

/// A run of received bytes within one segment of one receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The transmission of the group, which is the place among its parts.
    pub part: u32,
    /// The segment of the receive buffer, counted among all its segments.
    pub segment: u32,
    /// Bytes of the segment before the run.
    pub offset: u32,
    /// Bytes of the run.
    pub len: u32,
}

/// An item in placement segments of one group, the same in each transmission: it fills them from
/// the first on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentedItem {
    /// The position of its first byte in the stream with nothing excised.
    pub position: u32,
    /// Its bytes, without padding.
    pub len: u32,
    pub(crate) run: SegmentRun,
}

impl SegmentedItem {
    /// Where its bytes are, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + use<> {
        let SegmentRun { first, count } = self.run;
        let (mut left, mut part, mut k) = (self.len, 0, 0);
        core::iter::from_fn(move || {
            let piece =
                Piece { part, segment: first.index + k, offset: 0, len: left.min(first.length) };
            left -= piece.len;
            (part, k) = if k + 1 == count { (part + 1, 0) } else { (part, k + 1) };
            (piece.len > 0).then_some(piece)
        })
    }
}

/// The positions of a message's payload stream, in order. The parts are those of a received
/// message: each payload lies within its received bytes.
pub fn payload_pieces<'p>(
    structure: &'p RecvStructure,
    parts: &'p [Part],
) -> impl Iterator<Item = Piece> + 'p {
    parts.iter().enumerate().flat_map(move |(index, part)| {
        let (begin, end) = (part.payload_start, part.payload_end());
        structure.segments().filter_map(move |segment| {
            let from = begin.max(segment.start);
            let to = end.min(segment.start + segment.length);
            (from < to).then(|| Piece {
                part: index as u32,
                segment: segment.index,
                offset: from - segment.start,
                len: to - from,
            })
        })
    })
}
