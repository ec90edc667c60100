//! EXRW: items of transmit requests and responses that are moved by explicit RDMA.
//!
//! ```text
//!   request    item     EXRW{segments}   the responder reads so many bytes of them
//!   request    direction EXRW, CHOICE, BYSIZE{segments}   the responder may write to them
//!   response   item     EXRW{the same segments, with the lengths that were written}
//! ```

use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::numbers::placement as number;
use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::rtr::placement::{RsdItem, RsdLoc};

use crate::error::Violation;
use crate::item::BulkItem;
use crate::segments::{check_possible, put_filled, total_len};

/// Bytes of an EXRW item of a header, or a direction of so many segments without its kind's own.
pub(crate) fn item_len(segments: u32) -> u32 {
    size::MITEM_VOID as u32 + 4 + segments * size::SEGMENT as u32
}

/// The memory that a direction offers.
pub(crate) fn segments_of<'a>(direction: &RsdItem<'a>) -> Array<'a, RdmaSegment> {
    match direction.loc {
        RsdLoc::Exrw(segments) | RsdLoc::Choice(segments) | RsdLoc::BySize { segments, .. } => {
            segments
        }
        RsdLoc::Tbsn => Array::EMPTY,
    }
}

/// Checks an item of a call that is to be read from the caller's memory (wire.md E17, W19).
pub(crate) fn check_read(len: u32, segments: Array<'_, RdmaSegment>) -> Result<(), Violation> {
    check_possible(segments.iter())?;
    let (len, total) = (u64::from(len), total_len(segments.iter()));
    match len > 0 && (total == len || total == (len + 3) & !3) {
        true => Ok(()),
        false => Err(Violation::BadHeader("an item and its segments are not of one length")),
    }
}

/// Checks an item of a reply that names offered memory (wire.md E27, W19).
pub(crate) fn check_written(
    len: u32,
    returned: Array<'_, RdmaSegment>,
    offered: &[RdmaSegment],
) -> Result<(), Violation> {
    let bad = |why| Err(Violation::BadHeader(why));
    if returned.len() != offered.len() {
        return bad("an item came back with other segments");
    }
    let mut left = len;
    for (segment, offer) in returned.iter().zip(offered) {
        if (segment.handle, segment.offset) != (offer.handle, offer.offset) {
            return bad("an item came back with other segments");
        }
        // As with a Write chunk: the segments are filled in order.
        let expected = offer.length.min(left);
        if segment.length != expected {
            return bad("an item came back with impossible lengths");
        }
        left -= expected;
    }
    match len > 0 && left == 0 {
        true => Ok(()),
        false => bad("an item came back longer than its memory, or empty"),
    }
}

/// Puts an item that was written to the segments of its direction: all of them, with the lengths
/// that were written.
pub(crate) fn encode_written(
    item: &BulkItem,
    segments: Array<'_, RdmaSegment>,
    writer: &mut Writer<'_>,
) -> Result<(), NoRoom> {
    for word in [item.position, item.len, number::EXRW] {
        writer.put_u32(word)?;
    }
    put_filled(segments, item.len, writer)
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use rpcrdma_xdr::array::Wire;

    use super::*;

    fn segments(lengths: &[u32]) -> Vec<RdmaSegment> {
        let segment = |(index, length): (usize, &u32)| RdmaSegment {
            handle: 7,
            length: *length,
            offset: 1000 * index as u64,
        };
        lengths.iter().enumerate().map(segment).collect()
    }

    fn read(len: u32, lengths: &[u32]) -> bool {
        check_read(len, Array::from_slice(&segments(lengths))).is_ok()
    }

    #[test]
    fn the_length_to_read_is_that_of_the_item_or_its_words() {
        for (len, total) in [(1, 4), (2, 4), (3, 4), (4, 4), (5, 8), (6, 8), (7, 8), (8, 8)] {
            for have in 0..12 {
                let valid = have == len || have == total;
                assert_eq!(read(len, &[have]), valid, "{have} bytes for {len}");
            }
        }
        assert!(read(10, &[3, 0, 7]) && read(10, &[3, 9]) && !read(10, &[3, 8]));
        assert!(!read(0, &[]) && !read(0, &[0]), "an excised item has bytes");
        assert!(!read(3, &[u32::MAX, 4]), "the sum does not wrap");
    }

    #[test]
    fn a_segment_ends_within_the_addresses() {
        let at = |offset, length| [RdmaSegment { handle: 1, length, offset }];
        for (offset, valid) in [(u64::MAX - 8, true), (u64::MAX - 7, false), (u64::MAX, false)] {
            assert_eq!(check_read(8, Array::from_slice(&at(offset, 8))).is_ok(), valid);
        }
    }

    #[test]
    fn written_data_fills_the_segments_in_order() {
        let offered = segments(&[10, 0, 20]);
        let check = |len, lengths: &[u32]| {
            check_written(len, Array::from_slice(&segments(lengths)), &offered).is_ok()
        };
        assert!(check(4, &[4, 0, 0]) && check(10, &[10, 0, 0]) && check(30, &[10, 0, 20]));
        for lengths in [&[4, 0][..], &[0, 0, 4], &[3, 0, 1], &[4, 0, 1], &[5, 0, 0], &[4, 0, 0, 0]]
        {
            assert!(!check(4, lengths), "{lengths:?}");
        }
        assert!(!check(31, &[10, 0, 21]) && !check(31, &[10, 0, 20]), "longer than its memory");
        assert!(!check(0, &[0, 0, 0]), "an empty item is not moved");
        let mut others = [segments(&[4, 0, 0]), segments(&[4, 0, 0])];
        others[0][2].handle = 8;
        others[1][0].offset = 4;
        for other in others {
            assert!(check_written(4, Array::from_slice(&other), &offered).is_err());
        }
    }

    #[test]
    fn encoded_items_are_accepted() {
        let offered = segments(&[10, 0, 20]);
        for len in 1..=30 {
            let item = BulkItem { position: 8, len, origin: 0, pieces: 1 };
            let mut bytes = vec![0; item_len(3) as usize];
            let mut writer = Writer::new(&mut bytes);
            encode_written(&item, Array::from_slice(&offered), &mut writer).expect("as long");
            assert_eq!(writer.position(), bytes.len());
            let mut reader = rpcrdma_xdr::cursor::Reader::new(&bytes);
            let item = rpcrdma_xdr::rtr::placement::MsgItem::decode(&mut reader).expect("valid");
            let rpcrdma_xdr::rtr::placement::Loc::Exrw(returned) = item.loc else { panic!("EXRW") };
            assert_eq!(check_written(len, returned, &offered), Ok(()));
        }
    }
}
