//! Resolves a received message: finds its payload and its placed items.
//!
//! ```text
//!   MsgItem{disp, length, TBSN{offset, [5, 6]}} ──check──▶ pieces (transmission, segment, offset, len)
//! ```
//! All placement errors of a peer are found here, before anything is delivered. Only received bytes
//! behind a transmission's payload are ever named: the remains of an earlier message in a buffer
//! stay hidden (wire.md E13).

use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::cursor::pad_len;
use rpcrdma_xdr::numbers::limit::{GROUP_MAX, STRUCTURE_SEGMENTS_MAX};
use rpcrdma_xdr::rtr::placement::{Loc, MsgItem};
use rpcrdma_xdr::rtr::segmented::SegmentedResp;
use rpcrdma_xdr::rtr::structure::{RecvStructure, SegmentRun};

use crate::demand::Offered;
use crate::error::Violation;
use crate::group::Part;
use crate::placement::direct::{ItemKind, WantSet};
use crate::placement::exrw;
use crate::placement::find::SegmentedItem;
use crate::placement::placed::{Items, Placed, Sums};

/// What the items of a message are checked against.
#[derive(Debug, Clone, Copy)]
pub enum Rule<'r> {
    /// Those of a call: Table 1 of \[RTR\] 6.2.
    Request {
        /// Whether items may be in the caller's memory.
        explicit: bool,
    },
    /// Those of a reply, by the directions of its call: Table 2 of \[RTR\] 7.4.
    Response {
        /// What the directions ask for.
        wants: &'r WantSet,
        /// The memory that they offer.
        offered: &'r Offered<'r>,
    },
}

/// Checks every item of a message and finds its length (wire.md E13, E16, E17, E25, E30, E31, E40).
///
/// `parts` are the transmissions of the message; `rpc_len_max` bounds the message with its items.
///
/// # Errors
/// The first [`Violation`] in the order of the items.
pub fn resolve<'a>(
    structure: &RecvStructure,
    parts: &[Part],
    items: Array<'a, MsgItem<'a>>,
    rule: Rule<'_>,
    rpc_len_max: u32,
) -> Result<Placed<'a>, Violation> {
    let payload: u64 = parts.iter().map(|part| u64::from(part.payload_len)).sum();
    let mut check = Check::new(structure, parts, payload);
    if let Rule::Response { wants, .. } = rule {
        check_count(items.len(), wants)?;
    }
    for (index, item) in items.iter().enumerate() {
        check.item(index, &item, rule)?;
    }
    check.distinct(items)?;
    let virtual_len = check.virtual_len(rpc_len_max)?;
    let is_reply = matches!(rule, Rule::Response { .. });
    let items = Items::Listed { items, is_reply };
    let (payload_len, is_here) = (payload as u32, is_reply || !check.is_remote);
    Ok(Placed { items, sums: Sums { body_len: None, payload_len, virtual_len, is_here } })
}

/// As [`resolve`], for a reply with this item only, which fills placement segments of one group
/// from the first on. `None` if it breaks a rule, or is another one.
#[inline]
pub(crate) fn resolve_segmented(
    structure: &RecvStructure,
    parts: &[Part],
    header: &SegmentedResp<'_>,
    wants: &WantSet,
    rpc_len_max: u32,
) -> Option<SegmentedItem> {
    let (position, len) = (header.item.disp.get(), header.item.length.get());
    let payload = parts.iter().map(|part| u64::from(part.payload_len)).sum();
    let mut check = Check::new(structure, parts, payload);
    check_count(1, wants).ok()?;
    wants.check(0, ItemKind::Tbsn).ok()?;
    check.position(position, len).ok()?;
    check.virtual_len(rpc_len_max).ok()?;
    let run = structure.only_run()?;
    let count = header.numbers.len() as u32;
    let numbers = header.numbers.iter().map(|number| number.get());
    let is_here = numbers.eq(0..count) && is_in_first(parts, run, len, count);
    is_here.then_some(SegmentedItem { position, len, run })
}

/// Whether so many bytes fill exactly the first `count` segments of buffers with these placement
/// segments only, and were received: each transmission is checked once.
#[inline]
fn is_in_first(parts: &[Part], run: SegmentRun, len: u32, count: u32) -> bool {
    let SegmentRun { first, count: in_one } = run;
    let mut left = len;
    let is_received = |part: &Part| {
        let here = left.min(in_one * first.length);
        left -= here;
        first.start >= part.payload_end() && first.start + here <= part.byte_len
    };
    len > 0 && len.div_ceil(first.length) == count && parts.iter().all(is_received) && left == 0
}

/// wire.md E25: exactly one item for each direction, none unsolicited.
pub(crate) fn check_count(items: usize, wants: &WantSet) -> Result<(), Violation> {
    if items == wants.len() {
        return Ok(());
    }
    let due = wants.len() as u32;
    Err(Violation::Segment { value: items as u32, min: due, max: due })
}

struct Check<'s> {
    structure: &'s RecvStructure,
    parts: &'s [Part],
    payload: u64,
    /// Bytes excised by the items so far, with padding.
    excised: u64,
    /// Where the last excised item ended.
    previous_end: u64,
    /// The number used last; all so far are increasing unless `shuffled`.
    last: Option<u32>,
    shuffled: bool,
    /// Whether an item is in the memory of the peer.
    is_remote: bool,
}

impl<'s> Check<'s> {
    fn new(structure: &'s RecvStructure, parts: &'s [Part], payload: u64) -> Self {
        // [V2]: xid and direction come first, and are never excised.
        let previous_end = 8;
        let (excised, last, shuffled, is_remote) = (0, None, false, false);
        Self { structure, parts, payload, excised, previous_end, last, shuffled, is_remote }
    }

    #[inline]
    fn item(&mut self, index: usize, item: &MsgItem<'_>, rule: Rule<'_>) -> Result<(), Violation> {
        let kind = ItemKind::of(&item.loc);
        match rule {
            Rule::Request { .. } => kind.check_in_request()?,
            Rule::Response { wants, .. } => wants.check(index, kind)?,
        }
        match item.loc {
            Loc::TooShort | Loc::NoItem => Ok(()),
            Loc::Exrw(segments) => {
                self.position(item.disp, item.length)?;
                self.is_remote = true;
                match rule {
                    Rule::Request { explicit: true } => exrw::check_read(item.length, segments),
                    Rule::Request { explicit: false } => {
                        Err(Violation::BadHeader("an item is to be moved by explicit RDMA"))
                    }
                    Rule::Response { offered, .. } => {
                        let offered = offered.wants.of(offered.set, index);
                        exrw::check_written(item.length, segments, offered)
                    }
                }
            }
            Loc::Tbsn { offset, segments } => {
                self.position(item.disp, item.length)?;
                self.segments(item.length, offset, segments.iter())
            }
        }
    }

    /// wire.md E16: in order, disjoint, on word boundaries, within the stream.
    fn position(&mut self, value: u32, length: u32) -> Result<(), Violation> {
        let disp = u64::from(value);
        let max = self.payload + self.excised;
        if disp % 4 != 0 || disp < self.previous_end || disp > max {
            let clamp = |value| u32::try_from(value).unwrap_or(u32::MAX);
            let (min, max) = (clamp(self.previous_end), clamp(max));
            return Err(Violation::Offset { value, min, max });
        }
        let padded = u64::from(length) + pad_len(length as usize) as u64;
        self.excised += padded;
        self.previous_end = disp + padded;
        Ok(())
    }

    /// wire.md E13: whole segments, of received bytes behind the payload.
    fn segments(
        &mut self,
        length: u32,
        offset: u32,
        numbers: impl ExactSizeIterator<Item = u32>,
    ) -> Result<(), Violation> {
        let mut left = length;
        let count = numbers.len() as u32;
        for (nth, number) in numbers.enumerate() {
            let Some((transmission, at)) = self.structure.locate(number) else {
                return Err(self.bad_number(number));
            };
            let Some(part) = self.parts.get(transmission as usize) else {
                return Err(self.bad_number(number));
            };
            let offset = if nth == 0 { offset } else { 0 };
            // [RTR] 7.3: the offset counts from the start of the first segment.
            if offset % 4 != 0 || offset >= at.length {
                let max = at.length.saturating_sub(4);
                return Err(Violation::Offset { value: offset, min: 0, max });
            }
            let len = (at.length - offset).min(left);
            let begin = at.start + offset;
            let received = begin >= part.payload_end()
                && begin.checked_add(len).is_some_and(|end| end <= part.byte_len);
            if left == 0 || !received {
                return Err(self.bad_number(number));
            }
            left -= len;
            self.shuffled |= self.last.is_some_and(|last| number <= last);
            self.last = Some(number);
        }
        if left > 0 || count == 0 {
            return Err(self.bad_number(count));
        }
        Ok(())
    }

    /// Each number at most once. Increasing numbers, as all but a strange peer sends them, are
    /// that without looking; else they are ticked off in a bitmap.
    fn distinct(&self, items: Array<'_, MsgItem<'_>>) -> Result<(), Violation> {
        if !self.shuffled {
            return Ok(());
        }
        let mut seen = [0u64; (GROUP_MAX * STRUCTURE_SEGMENTS_MAX / 64) as usize];
        for item in items.iter() {
            let Loc::Tbsn { segments, .. } = item.loc else { continue };
            for number in segments.iter() {
                let word = seen.get_mut(number as usize / 64);
                let bit = 1 << (number % 64);
                match word {
                    Some(word) if *word & bit == 0 => *word |= bit,
                    _ => return Err(self.bad_number(number)),
                }
            }
        }
        Ok(())
    }

    /// wire.md E40
    fn virtual_len(&self, max: u32) -> Result<u32, Violation> {
        match u32::try_from(self.payload + self.excised) {
            Ok(virtual_len) if virtual_len <= max => Ok(virtual_len),
            _ => Err(Violation::BadHeader("the message is longer than is accepted")),
        }
    }

    fn bad_number(&self, value: u32) -> Violation {
        let numbers = self.parts.len() as u32 * self.structure.placement_count();
        Violation::Segment { value, min: 0, max: numbers.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rpcrdma_xdr::chunk::RdmaSegment;
    use rpcrdma_xdr::rtr::placement::Tbsns;
    use rpcrdma_xdr::rtr::structure::SegmentGroup;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::placement::find::{Piece, payload_pieces};

    const MAX: u32 = 1 << 20;
    const REQUEST: Rule<'static> = Rule::Request { explicit: false };

    /// 1000 bytes, then four placement segments of 100.
    fn structure() -> RecvStructure {
        RecvStructure::new(&[
            SegmentGroup { count: 1, length: 1000, align: 1, placement: false },
            SegmentGroup { count: 4, length: 100, align: 1, placement: true },
        ])
        .expect("valid")
    }

    fn part(payload_len: u32, byte_len: u32) -> Part {
        Part { buffer: 0, byte_len, payload_start: 100, payload_len }
    }

    fn tbsn(disp: u32, length: u32, offset: u32, numbers: &[u32]) -> MsgItem<'_> {
        MsgItem { disp, length, loc: Loc::Tbsn { offset, segments: Tbsns::from_slice(numbers) } }
    }

    fn in_call<'a>(parts: &[Part], items: &'a [MsgItem<'a>]) -> Result<Placed<'a>, Violation> {
        resolve(&structure(), parts, Array::from_slice(items), REQUEST, MAX)
    }

    fn segment(value: u32, max: u32) -> Option<Violation> {
        Some(Violation::Segment { value, min: 0, max })
    }

    #[test]
    fn an_item_is_found_over_segments_and_transmissions() {
        let parts = [part(40, 1400), part(0, 1150)];
        let items = [tbsn(8, 150, 0, &[1, 2]), tbsn(160, 170, 80, &[3, 4, 5])];
        let placed = in_call(&parts, &items).expect("valid");
        assert_eq!((placed.payload_len(), placed.virtual_len()), (40, 40 + 152 + 172));
        let found: Vec<_> = placed.iter().collect();
        assert_eq!((found[0].index, found[0].position, found[0].len), (0, Some(8), 150));
        let structure = structure();
        let piece = |part, segment, offset, len| Piece { part, segment, offset, len };
        let first: Vec<_> = found[0].pieces(&structure).collect();
        assert_eq!(first, [piece(0, 2, 0, 100), piece(0, 3, 0, 50)]);
        let second: Vec<_> = found[1].pieces(&structure).collect();
        assert_eq!(second, [piece(0, 4, 80, 20), piece(1, 1, 0, 100), piece(1, 2, 0, 50)]);
    }

    #[test]
    fn a_number_beyond_the_group_is_bad() {
        let items = [tbsn(8, 4, 0, &[3])];
        assert!(in_call(&[part(40, 1400)], &items).is_ok());
        let items = [tbsn(8, 4, 0, &[4])];
        assert_eq!(in_call(&[part(40, 1400)], &items).err(), segment(4, 3));
        let items = [tbsn(8, 4, 0, &[u32::MAX])];
        assert_eq!(in_call(&[part(40, 1400)], &items).err(), segment(u32::MAX, 3));
    }

    #[test]
    fn no_byte_beyond_those_received_is_named() {
        let items = [tbsn(8, 100, 0, &[0])];
        assert!(in_call(&[part(40, 1100)], &items).is_ok());
        assert_eq!(in_call(&[part(40, 1099)], &items).err(), segment(0, 3));
    }

    #[test]
    fn no_byte_of_header_or_payload_is_named() {
        let items = [tbsn(8, 50, 48, &[0])];
        assert!(in_call(&[part(948, 1100)], &items).is_ok(), "behind the payload's end");
        assert_eq!(in_call(&[part(952, 1100)], &items).err(), segment(0, 3));
    }

    #[test]
    fn no_segment_is_named_twice() {
        let twice = [tbsn(8, 4, 0, &[1]), tbsn(12, 4, 0, &[1])];
        assert_eq!(in_call(&[part(40, 1400)], &twice).err(), segment(1, 3));
        // Out of order is strange, but not wrong.
        let backwards = [tbsn(8, 4, 0, &[2]), tbsn(12, 4, 0, &[1]), tbsn(16, 4, 0, &[0])];
        assert!(in_call(&[part(40, 1400)], &backwards).is_ok());
        let again = [tbsn(8, 4, 0, &[2]), tbsn(12, 4, 0, &[1]), tbsn(16, 4, 0, &[2])];
        assert_eq!(in_call(&[part(40, 1400)], &again).err(), segment(2, 3));
    }

    #[test]
    fn the_number_of_segments_is_exactly_what_the_length_needs() {
        let parts = [part(40, 1400)];
        assert!(in_call(&parts, &[tbsn(8, 200, 0, &[0, 1])]).is_ok());
        assert_eq!(in_call(&parts, &[tbsn(8, 201, 0, &[0, 1])]).err(), segment(2, 3));
        assert_eq!(in_call(&parts, &[tbsn(8, 100, 0, &[0, 1])]).err(), segment(1, 3));
        assert_eq!(in_call(&parts, &[tbsn(8, 4, 0, &[])]).err(), segment(0, 3));
        assert_eq!(in_call(&parts, &[tbsn(8, 0, 0, &[])]).err(), segment(0, 3));
    }

    #[test]
    fn an_offset_lies_in_its_segment_on_a_word_boundary() {
        let parts = [part(40, 1400)];
        assert!(in_call(&parts, &[tbsn(8, 4, 96, &[0])]).is_ok());
        for value in [100, 2, u32::MAX - 3] {
            let violation = Violation::Offset { value, min: 0, max: 96 };
            assert_eq!(in_call(&parts, &[tbsn(8, 4, value, &[0])]).err(), Some(violation));
        }
    }

    #[test]
    fn positions_are_in_order_aligned_and_within_the_stream() {
        let parts = [part(40, 1400)];
        let offset = |value, min, max| Some(Violation::Offset { value, min, max });
        assert!(in_call(&parts, &[tbsn(40, 4, 0, &[0])]).is_ok(), "at the very end");
        assert_eq!(in_call(&parts, &[tbsn(44, 4, 0, &[0])]).err(), offset(44, 8, 40));
        assert_eq!(in_call(&parts, &[tbsn(10, 4, 0, &[0])]).err(), offset(10, 8, 40));
        assert_eq!(in_call(&parts, &[tbsn(4, 4, 0, &[0])]).err(), offset(4, 8, 40));
        let overlap = [tbsn(8, 5, 0, &[0]), tbsn(12, 4, 0, &[1])];
        assert_eq!(in_call(&parts, &overlap).err(), offset(12, 16, 48));
        let touching = [tbsn(8, 5, 0, &[0]), tbsn(16, 4, 0, &[1])];
        assert!(in_call(&parts, &touching).is_ok());
    }

    #[test]
    fn explicit_rdma_is_refused_and_at_position_zero_it_is_senseless() {
        let exrw = |disp| [MsgItem { disp, length: 4, loc: Loc::Exrw(Array::EMPTY) }];
        let parts = [part(40, 1400)];
        assert!(matches!(in_call(&parts, &exrw(8)), Err(Violation::BadHeader(_))));
        let violation = Violation::Offset { value: 0, min: 8, max: 40 };
        assert_eq!(in_call(&parts, &exrw(0)).err(), Some(violation));
    }

    #[test]
    fn items_of_both_kinds_may_be_in_one_message() {
        let segments = [RdmaSegment { handle: 1, length: 8, offset: 0 }];
        let read = MsgItem { disp: 16, length: 8, loc: Loc::Exrw(Array::from_slice(&segments)) };
        let items = [tbsn(8, 5, 0, &[0]), read, tbsn(24, 4, 0, &[1])];
        let (parts, items) = ([part(40, 1400)], Array::from_slice(&items));
        let rule = Rule::Request { explicit: true };
        let placed = resolve(&structure(), &parts, items, rule, MAX).expect("valid");
        let kinds = [ItemKind::Tbsn, ItemKind::Exrw, ItemKind::Tbsn];
        assert!(placed.results().eq(kinds) && !placed.is_here());
    }

    #[test]
    fn only_what_the_caller_keeps_in_its_memory_is_not_here() {
        let segments = [RdmaSegment { handle: 1, length: 8, offset: 0 }];
        let exrw = MsgItem { disp: 8, length: 8, loc: Loc::Exrw(Array::from_slice(&segments)) };
        let parts = [part(40, 1400)];
        let sent = [tbsn(8, 5, 0, &[0])];
        let cases: [(&[MsgItem<'_>], bool); 3] = [(&[], true), (&sent, true), (&[exrw], false)];
        for (items, is_here) in cases {
            let (items, rule) = (Array::from_slice(items), Rule::Request { explicit: true });
            let placed = resolve(&structure(), &parts, items, rule, MAX).expect("valid");
            assert_eq!(placed.is_here(), is_here);
        }
    }

    #[test]
    fn results_have_no_place_in_a_call() {
        for (loc, value) in [(Loc::TooShort, 5), (Loc::NoItem, 6)] {
            let items = [MsgItem { disp: 8, length: 4, loc }];
            let violation = Violation::Segment { value, min: 1, max: 2 };
            assert_eq!(in_call(&[part(40, 1400)], &items).err(), Some(violation));
        }
    }

    #[test]
    fn a_message_longer_than_accepted_is_refused() {
        let items = [tbsn(8, 99, 0, &[0])];
        let resolved = |max| {
            let items = Array::from_slice(&items);
            resolve(&structure(), &[part(40, 1400)], items, REQUEST, max).is_ok()
        };
        assert!(resolved(140));
        assert!(!resolved(139));
    }

    #[test]
    fn a_payload_is_found_over_segments() {
        let structure = structure();
        let parts = [
            Part { buffer: 0, byte_len: 1160, payload_start: 44, payload_len: 1116 },
            Part { buffer: 1, byte_len: 36, payload_start: 36, payload_len: 0 },
            Part { buffer: 2, byte_len: 44, payload_start: 36, payload_len: 8 },
        ];
        let pieces: Vec<_> = payload_pieces(&structure, &parts).collect();
        let piece = |part, segment, offset, len| Piece { part, segment, offset, len };
        let expected =
            vec![piece(0, 0, 44, 956), piece(0, 1, 0, 100), piece(0, 2, 0, 60), piece(2, 0, 36, 8)];
        assert_eq!(pieces, expected);
    }

    fn any_structure() -> impl Strategy<Value = RecvStructure> {
        let group = (1u32..4, 1u32..12, any::<bool>()).prop_map(|(count, length, placement)| {
            SegmentGroup { count, length: length * 2, align: 1, placement }
        });
        (vec(group, 0..4), 1u32..20).prop_map(|(mut groups, lead)| {
            let lead = SegmentGroup { count: 1, length: lead * 4, align: 1, placement: false };
            let target = SegmentGroup { count: 1, length: 12, align: 1, placement: true };
            groups.insert(0, lead);
            groups.push(target);
            RecvStructure::new(&groups).expect("valid")
        })
    }

    /// A transmission around the bounds: `before` and `cut` are bytes by which the payload ends
    /// before the first placement segment and the transmission before the buffer.
    fn part_near(structure: &RecvStructure, before: i64, cut: u32) -> Part {
        let byte_len = structure.total_len().saturating_sub(cut);
        let end = (i64::from(structure.leading_len()) - before).clamp(0, byte_len.into()) as u32;
        let payload_len = end & !3;
        Part { buffer: 0, byte_len, payload_start: end - payload_len, payload_len }
    }

    /// An item as the generator has it: mostly behind the one before, mostly of the right length.
    #[derive(Debug, Clone)]
    struct Shape {
        gap: i64,
        skip: i64,
        segments: u32,
        offset: u32,
        trim: i64,
    }

    fn any_shape() -> impl Strategy<Value = Shape> {
        let gap = prop_oneof![6 => (0i64..3).prop_map(|gap| gap * 4), 1 => -4i64..6];
        let skip = prop_oneof![8 => Just(0i64), 1 => -3i64..4];
        let offset = prop_oneof![6 => Just(0u32), 1 => 0u32..24];
        let trim = prop_oneof![4 => Just(0i64), 2 => 0i64..4, 1 => -4i64..24];
        (gap, skip, 1u32..4, offset, trim).prop_map(|(gap, skip, segments, offset, trim)| Shape {
            gap,
            skip,
            segments,
            offset,
            trim,
        })
    }

    type Raw = (u32, u32, u32, Vec<u32>);

    fn items_of(structure: &RecvStructure, shapes: &[Shape]) -> Vec<Raw> {
        let (mut position, mut number) = (8, 0);
        let mut items = Vec::new();
        for shape in shapes {
            number = (number + shape.skip).max(0);
            let numbers: Vec<_> = (number as u32..number as u32 + shape.segments).collect();
            number += i64::from(shape.segments);
            let lens = numbers.iter().filter_map(|number| structure.locate(*number));
            let whole: u32 = lens.map(|(_, at)| at.length).sum();
            let len = (i64::from(whole) - i64::from(shape.offset) - shape.trim).max(0) as u32;
            let disp = (position + shape.gap).max(0) as u32;
            position = i64::from(disp + len.next_multiple_of(4));
            items.push((disp, len, shape.offset, numbers));
        }
        items
    }

    /// What the bytes of each transmission may still be used for, byte by byte.
    fn naive(
        structure: &RecvStructure,
        parts: &[Part],
        items: &[Raw],
    ) -> Option<Vec<Vec<(usize, u32)>>> {
        let targets: Vec<_> = structure.segments().filter(|segment| segment.placement).collect();
        let mut free: Vec<Vec<bool>> = parts
            .iter()
            .map(|part| (0..part.byte_len).map(|at| at >= part.payload_end()).collect())
            .collect();
        let payload: u32 = parts.iter().map(|part| part.payload_len).sum();
        let mut used = Vec::new();
        let mut virtual_end = 8;
        let mut excised = 0;
        let mut found = Vec::new();
        for (disp, length, offset, numbers) in items {
            if disp % 4 != 0 || *disp < virtual_end || *disp > payload + excised || *length == 0 {
                return None;
            }
            virtual_end = disp + length.next_multiple_of(4);
            excised += length.next_multiple_of(4);
            // Every byte of every segment named, from the offset on; the item is the first of them.
            let mut bytes = Vec::new();
            for (nth, number) in numbers.iter().enumerate() {
                let number = *number as usize;
                if targets.is_empty() || number >= targets.len() * parts.len() {
                    return None;
                }
                let segment = targets[number % targets.len()];
                let skip = if nth == 0 { *offset } else { 0 };
                if skip % 4 != 0 || skip >= segment.length || used.contains(&number) {
                    return None;
                }
                used.push(number);
                // A segment that the item does not reach is one too many.
                if bytes.len() as u32 >= *length {
                    return None;
                }
                let transmission = number / targets.len();
                bytes.extend((skip..segment.length).map(|at| (transmission, segment.start + at)));
            }
            if (bytes.len() as u32) < *length {
                return None;
            }
            bytes.truncate(*length as usize);
            for (transmission, at) in &bytes {
                let byte = free[*transmission].get_mut(*at as usize)?;
                if !core::mem::take(byte) {
                    return None;
                }
            }
            found.push(bytes);
        }
        Some(found)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn resolution_agrees_with_a_map_of_bytes(
            structure in any_structure(),
            parts in vec((prop_oneof![4 => 0i64..9, 1 => -9i64..9], 0u32..9), 1..4),
            shapes in vec(any_shape(), 0..4),
        ) {
            let parts: Vec<_> =
                parts.iter().map(|(end, cut)| part_near(&structure, *end, *cut)).collect();
            let items = items_of(&structure, &shapes);
            let encoded: Vec<_> = items
                .iter()
                .map(|(disp, length, offset, numbers)| tbsn(*disp, *length, *offset, numbers))
                .collect();
            let array = Array::from_slice(&encoded);
            let resolved = resolve(&structure, &parts, array, REQUEST, MAX);
            let segments: Vec<_> = structure.segments().collect();
            let bytes = resolved.ok().map(|placed| {
                let bytes_of = |piece: Piece| {
                    let start = segments[piece.segment as usize].start + piece.offset;
                    (start..start + piece.len).map(move |at| (piece.part as usize, at))
                };
                placed
                    .iter()
                    .map(|item| item.pieces(&structure).flat_map(bytes_of).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            });
            prop_assert_eq!(bytes, naive(&structure, &parts, &items));
        }
    }
}
