//! Finds the parts of a received message, piece by piece

use rpcrdma_xdr::rtr::structure::RecvStructure;

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

/// Receives the positions of items placed by Send, as they are found. The positions are meaningless
/// if the message turns out to be invalid.
pub trait Finder {
    /// The next item, by its place among the items of the header, its position and its length.
    fn item(&mut self, index: usize, position: u32, len: u32);

    /// The next piece of the item.
    fn piece(&mut self, piece: Piece);
}

/// Ignores the positions.
impl Finder for () {
    fn item(&mut self, _index: usize, _position: u32, _len: u32) {}

    fn piece(&mut self, _piece: Piece) {}
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
