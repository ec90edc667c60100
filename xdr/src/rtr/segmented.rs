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
