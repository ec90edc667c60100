//! The headers of a single item in several segments: fixed structures around a list of numbers.
//!
//! ```text
//!   | xid vers credit OPTIONAL | XMTRESP length | 1 | disp length TBSN 0 n | n numbers | count pslen |
//! ```

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::fixed::{ONE, Operation, RespEnd, TBSN};
use crate::numbers::{limit, opttype, proc};

/// The start of a list of one item, before the numbers of its segments.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ItemStart {
    items: U32,
    /// The position of the item in the virtual XDR stream (`xmdmi_disp`).
    pub disp: U32,
    /// Bytes of the item, without padding (`xmdmi_length`).
    pub length: U32,
    kind: U32,
    offset: U32,
    /// How many segments it has.
    pub segments: U32,
}

/// The first transmission of a response with one item in several segments, from the beginning of
/// the first of them.
#[derive(Clone, Copy, Debug)]
pub struct SegmentedResp<'a> {
    /// The start.
    pub operation: &'a Operation,
    /// The item.
    pub item: &'a ItemStart,
    /// The numbers of its segments (`xmdl_bsnum`).
    pub numbers: &'a [U32],
    /// The fields after the list.
    pub end: &'a RespEnd,
    /// Bytes of the header.
    pub len: u32,
}

impl ItemStart {
    /// The item of `length` bytes at `disp`, from the beginning of the first of so many segments.
    #[inline]
    #[must_use]
    pub fn new(disp: u32, length: u32, segments: u32) -> Self {
        let (disp, length, segments) = (disp.into(), length.into(), segments.into());
        // [RTR] 7.3: our items begin at the start of their first segment.
        Self { items: ONE, disp, length, kind: TBSN, offset: U32::ZERO, segments }
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.items == ONE && self.kind == TBSN && self.offset == U32::ZERO
    }
}

impl<'a> SegmentedResp<'a> {
    /// The header of a message, if it has exactly this form, in either version.
    #[inline]
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (operation, rest) = Operation::ref_from_prefix(bytes).ok()?;
        let (item, rest) = ItemStart::ref_from_prefix(rest).ok()?;
        let count = item.segments.get();
        if count > limit::ITEM_SEGMENTS_MAX || !item.is_valid() {
            return None;
        }
        let (numbers, rest) = <[U32]>::ref_from_prefix_with_elems(rest, count as usize).ok()?;
        let (end, _) = RespEnd::ref_from_prefix(rest).ok()?;
        let fixed = size_of::<Operation>() + size_of::<ItemStart>() + size_of::<RespEnd>();
        let len = fixed + 4 * count as usize;
        let is_it = operation.proc.get() == proc::OPTIONAL && operation.is(opttype::XMTRESP, len);
        is_it.then_some(Self { operation, item, numbers, end, len: len as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;
    use crate::cursor::Writer;
    use crate::header::{Body, Header, Optional};
    use crate::numbers::VERSION_TWO;
    use crate::rtr::fixed::Stamp;
    use crate::rtr::placement::{Loc, MsgItem, Tbsns};
    use crate::rtr::transmit::XmtResp;
    use std::vec::Vec;

    /// A response with one item in so many segments, as the fixed structures have it.
    fn response(segments: u32) -> Vec<u8> {
        let len = 24 + 24 + 4 * segments + 8;
        let stamp = Stamp { vers: VERSION_TWO, credit: 9 };
        let operation = Operation::new(7, stamp, opttype::XMTRESP, len);
        let mut bytes = operation.as_bytes().to_vec();
        bytes.extend(ItemStart::new(8, 100, segments).as_bytes());
        (0..segments).for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes.extend(RespEnd::new(1, 40).as_bytes());
        bytes
    }

    #[test]
    fn a_response_equals_that_of_the_codec_and_is_read() {
        for count in [0, 1, 2, 255, 256] {
            let mut bytes = response(count);
            let numbers: Vec<u32> = (0..count).collect();
            let segments = Tbsns::from_slice(&numbers);
            let items = [MsgItem { disp: 8, length: 100, loc: Loc::Tbsn { offset: 0, segments } }];
            let resp = XmtResp { dp: Array::from_slice(&items), count: 1, pslen: 40 };
            let body = Body::Optional(Optional::XmtResp(resp));
            let mut coded = [0; 2048];
            let mut writer = Writer::new(&mut coded);
            let header = Header { xid: 7, vers: VERSION_TWO, credit: 9, body };
            header.encode(&mut writer).expect("enough room");
            assert_eq!(bytes, writer.written(), "{count}");

            let len = bytes.len();
            assert!(SegmentedResp::read(&bytes[..len - 1]).is_none(), "{count}");
            bytes.extend(b"payload");
            let read = SegmentedResp::read(&bytes).expect("of this form");
            assert_eq!((read.operation.xid.get(), read.len as usize), (7, len));
            assert_eq!(*read.item, ItemStart::new(8, 100, count));
            assert!(read.numbers.iter().map(|number| number.get()).eq(numbers), "{count}");
            assert_eq!(*read.end, RespEnd::new(1, 40));
        }
        assert!(SegmentedResp::read(&response(257)).is_none(), "an item has at most 256 segments");
    }

    #[test]
    fn any_other_form_is_not_read() {
        let bytes = response(2);
        let fixed: Vec<usize> = (0..bytes.len() / 4)
            .filter(|word| {
                let mut bytes = bytes.clone();
                bytes[4 * word + 3] ^= 1;
                SegmentedResp::read(&bytes).is_none()
            })
            .collect();
        // Procedure, operation, length, items, kind, offset and segments.
        assert_eq!(fixed, [3, 4, 5, 6, 9, 10, 11]);
    }
}
