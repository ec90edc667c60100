//! A list of RDMA segments: its total length, its validity, and how it is filled

use rpcrdma_xdr::array::{Array, Wire};
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;

use crate::error::Violation;

/// The length of all segments.
pub(crate) fn total_len(segments: impl Iterator<Item = RdmaSegment>) -> u64 {
    segments.map(|segment| u64::from(segment.length)).sum()
}

/// Checks that no segment ends beyond the last address.
pub(crate) fn check_possible(
    mut segments: impl Iterator<Item = RdmaSegment>,
) -> Result<(), Violation> {
    let end = |segment: RdmaSegment| segment.offset.checked_add(segment.length.into());
    match segments.all(|segment| end(segment).is_some()) {
        true => Ok(()),
        false => Err(Violation::BadHeader("a segment ends beyond the last address")),
    }
}

/// Puts the segments that were offered, all of them, filled in order with `len` bytes (RFC 8166
/// 3.4.6; wire.md E27).
pub(crate) fn put_filled(
    segments: Array<'_, RdmaSegment>,
    len: u32,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    writer.put_u32(segments.len() as u32)?;
    let mut left = len;
    segments.iter().try_for_each(|segment| {
        let length = segment.length.min(left);
        left -= length;
        RdmaSegment { length, ..segment }.encode(writer)
    })
}
