//! The layout of a message in the peer's receive buffers: which transmission, which segment.
//!
//! ```text
//!   t=0  | header | payload ....................... |   whole buffers of payload first
//!   t=1  | header | payload | zeros | item 0 | item 1 |   the rest, then items from the next free
//!   t=2  | header | zeros           | item 1          |   placement segment on
//! ```
//! Every item begins at offset 0 of a placement segment and uses whole, consecutively numbered
//! segments (wire.md E12, E13). The start of the items decides how many segments each needs, which
//! decides the length of the header, which decides the end of the payload. To resolve the cycle,
//! possible starts are tried in order: a given start determines all else, and the first that leaves
//! room for the payload is taken.

use core::ops::Range;

use rpcrdma_xdr::numbers::limit::{GROUP_MAX, ITEM_SEGMENTS_MAX};
use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::rtr::structure::{RecvStructure, SegmentRun};

use crate::error::SendError;
use crate::item::{BulkItem, ItemSet};

/// Header bytes of every transmission but the first.
pub const CONT_LEN: u32 = size::XMTCONT as u32;

/// Bytes of payload that must follow the first header: xid and direction of the RPC.
const RPC_PREFIX_LEN: u32 = 8;

/// The receive buffers that a layout is made for.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Their structure.
    pub structure: &'a RecvStructure,
    /// Bytes of a buffer that may be used.
    pub usable: u32,
    /// Whether items may be placed there ([`places_items`]).
    pub placement: bool,
}

/// Whether this layout can place items in buffers of this structure: there are placement segments,
/// all of them within the usable bytes, and a continuation's header does not reach into them.
#[must_use]
pub fn places_items(structure: &RecvStructure, usable: u32) -> bool {
    let Some(last) = structure.placement_count().checked_sub(1) else { return false };
    structure.leading_len() >= CONT_LEN
        && structure.placement(last).is_some_and(|at| at.start + at.length <= usable)
}

/// What is to be laid out.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// Header bytes of the first transmission, without the placed items' entries.
    pub header_base: u32,
    /// Bytes of the payload stream, a multiple of four.
    pub stream: u32,
    /// Memory pieces that the stream is gathered from.
    pub stream_pieces: u32,
    /// The items of the message, in order.
    pub items: &'a [BulkItem],
    /// Those that are placed. None of them is empty.
    pub placed: ItemSet,
    /// The most transmissions that are possible.
    pub count_max: u32,
    /// The most memory pieces that a transmission is gathered from.
    pub gather_max: u32,
}

/// The segment numbers of an item: `count` of them, from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// The layout of a message. The start of the first item determines the position of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// Header bytes of the first transmission.
    pub header_len: u32,
    /// Payload bytes that the first transmission can take.
    pub first_room: u32,
    /// Payload bytes that every other can take.
    pub cont_room: u32,
    /// Transmissions.
    pub count: u32,
    /// At the beginning of the first placed item.
    pub walk: Walk,
}

impl Layout {
    /// One transmission with so many bytes of payload.
    #[must_use]
    pub fn single(header_len: u32, first_room: u32) -> Self {
        Self { header_len, first_room, cont_room: 0, count: 1, walk: Walk::default() }
    }

    /// The parts of a stream that the transmissions carry.
    pub(crate) fn parts(&self, stream: u32) -> impl Iterator<Item = Range<u32>> {
        let Self { first_room, cont_room, .. } = *self;
        (0..self.count).map(move |index| part_of(first_room, cont_room, stream, index))
    }
}

/// The part of a stream that a transmission carries, given the room in the first and in the others.
pub(super) fn part_of(first_room: u32, cont_room: u32, stream: u32, index: u32) -> Range<u32> {
    let start = match index.checked_sub(1) {
        None => 0,
        Some(between) => {
            let before = u64::from(between) * u64::from(cont_room);
            let start = u64::from(first_room) + before;
            u32::try_from(start).unwrap_or(u32::MAX).min(stream)
        }
    };
    let room = if index == 0 { first_room } else { cont_room };
    start..start.saturating_add(room).min(stream)
}

/// Why there is no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// So many transmissions or more are needed; 0 if no number would do.
    Count(u32),
    /// A transmission would be gathered from so many pieces.
    Pieces(u32),
}

impl LayoutError {
    /// As the error of a message of these sizes.
    #[must_use]
    pub fn into_send_error(self, payload: u32, bulk: u32, limit: u32, gather: u32) -> SendError {
        match self {
            Self::Count(transmissions) => {
                SendError::NeedsExplicitRdma { payload, bulk, transmissions, limit }
            }
            Self::Pieces(need) => SendError::TooManyPieces { need, max: gather },
        }
    }
}

/// Lays a message out.
///
/// # Errors
/// [`LayoutError`] if it does not fit the transmissions, the segments of an item would be too
/// many, or the pieces of a transmission.
pub fn lay(target: Target<'_>, demand: &Demand<'_>) -> Result<Layout, LayoutError> {
    let stream_entries = 1 + demand.stream_pieces;
    if stream_entries > demand.gather_max {
        return Err(LayoutError::Pieces(stream_entries));
    }
    if demand.placed.is_empty() {
        return lay_stream(target, demand);
    }
    if !target.placement {
        return Err(LayoutError::Count(0));
    }
    match lay_at_once(target, demand) {
        Some(layout) => Ok(layout),
        None => lay_by_search(target, demand),
    }
}

/// As [`lay`], for a single placed item that begins in the first placement segment of the first
/// buffer, where all placement segments are one group: nearly all messages, without a search.
fn lay_at_once(target: Target<'_>, demand: &Demand<'_>) -> Option<Layout> {
    let Some(0) = demand.placed.last() else { return None };
    let item = demand.items.first()?;
    let run = target.structure.only_run()?;
    let entries = 1 + demand.stream_pieces;
    // A part of an item costs its own pieces and one for the padding before it.
    if entries.checked_add(item.pieces.max(1))?.checked_add(1)? > demand.gather_max {
        return None;
    }
    let Span { segments, count } = span(run, item.len, demand.count_max)?;
    let header_len = demand.header_base + size::MITEM_TBSN as u32 + 4 * segments;
    let room = run.first.start.checked_sub(header_len).map(round_down)?;
    let first_room = first_room(target, header_len).filter(|_| room >= demand.stream)?;
    let cont_room = round_down(target.usable.saturating_sub(CONT_LEN));
    let walk = Walk { t: 0, k: 0, entries };
    Some(Layout { header_len, first_room, cont_room, count, walk })
}

/// The extent of an item that begins in the first placement segment of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Segments.
    pub(crate) segments: u32,
    /// Transmissions.
    pub(crate) count: u32,
}

/// The extent of an item of `len` bytes in buffers with these placement segments only. `None` if it
/// needs more than `count_max` transmissions, or more segments than an item may have. Costs a step
/// for each segment.
#[inline]
pub(crate) fn span(run: SegmentRun, len: u32, count_max: u32) -> Option<Span> {
    let (mut segments, mut count, mut left) = (0, 0, len);
    while left > 0 {
        if count == count_max.min(GROUP_MAX) {
            return None;
        }
        segments += needed(&mut left, run.first.length, run.count);
        count += 1;
        if segments > ITEM_SEGMENTS_MAX {
            return None;
        }
    }
    (count > 0).then_some(Span { segments, count })
}

/// As [`lay`], for any placed items.
fn lay_by_search(target: Target<'_>, demand: &Demand<'_>) -> Result<Layout, LayoutError> {
    let k_max = target.structure.placement_count();
    let least = least_header(demand);
    for t in 0..demand.count_max.min(GROUP_MAX) {
        let last = Beginning { t, k: k_max - 1 };
        if !holds(target, demand, least, last) {
            continue;
        }
        for k in 0..k_max {
            if let Some(layout) = try_from(target, demand, Beginning { t, k })? {
                return Ok(layout);
            }
        }
    }
    Err(LayoutError::Count(demand.count_max + 1))
}

/// Where the first item begins: segment `k` of transmission `t`.
#[derive(Debug, Clone, Copy)]
struct Beginning {
    t: u32,
    k: u32,
}

/// The layout with this beginning, if the payload ends before it.
fn try_from(
    target: Target<'_>,
    demand: &Demand<'_>,
    at: Beginning,
) -> Result<Option<Layout>, LayoutError> {
    if !holds(target, demand, least_header(demand), at) {
        return Ok(None);
    }
    let start = Walk { t: at.t, k: at.k, entries: 1 + demand.stream_pieces };
    let mut walk = start;
    let bounds = WalkBounds { count_max: demand.count_max, gather_max: demand.gather_max };
    let mut segments = 0;
    for item in demand.placed.of(demand.items) {
        segments += walk.place(target.structure, bounds, item)?.count;
    }
    let entries = demand.placed.len() * size::MITEM_TBSN as u32;
    let header_len = demand.header_base + entries + 4 * segments;
    if !holds(target, demand, header_len, at) {
        return Ok(None);
    }
    let first_room = first_room(target, header_len).ok_or(LayoutError::Count(0))?;
    let cont_room = round_down(target.usable.saturating_sub(CONT_LEN));
    Ok(Some(Layout { header_len, first_room, cont_room, count: walk.t + 1, walk: start }))
}

/// The length of the first header if every item needed one segment only.
fn least_header(demand: &Demand<'_>) -> u32 {
    demand.header_base + demand.placed.len() * (size::MITEM_TBSN as u32 + 4)
}

/// Whether the payload ends before the start of the items.
fn holds(target: Target<'_>, demand: &Demand<'_>, header_len: u32, at: Beginning) -> bool {
    room_before(target, header_len, at).is_some_and(|room| room >= demand.stream)
}

/// A message without placed items.
fn lay_stream(target: Target<'_>, demand: &Demand<'_>) -> Result<Layout, LayoutError> {
    let header_len = demand.header_base;
    let first_room = first_room(target, header_len).ok_or(LayoutError::Count(0))?;
    let cont_room = round_down(target.usable.saturating_sub(CONT_LEN));
    let mut room = u64::from(first_room);
    let mut count = 1;
    while room < u64::from(demand.stream) {
        if cont_room == 0 || count == GROUP_MAX {
            return Err(LayoutError::Count(0));
        }
        room += u64::from(cont_room);
        count += 1;
    }
    if count > demand.count_max {
        return Err(LayoutError::Count(count));
    }
    Ok(Layout { header_len, first_room, cont_room, count, walk: Walk::default() })
}

/// Payload bytes that fit before the beginning; `None` if the headers themselves do not.
fn room_before(target: Target<'_>, header_len: u32, at: Beginning) -> Option<u32> {
    let start = target.structure.placement(at.k)?.start;
    let first = first_room(target, header_len)?;
    let Some(between) = at.t.checked_sub(1) else {
        return start.checked_sub(header_len).map(round_down);
    };
    let cont = round_down(target.usable.checked_sub(CONT_LEN)?);
    let last = round_down(start.checked_sub(CONT_LEN)?);
    let room = u64::from(first) + u64::from(between) * u64::from(cont) + u64::from(last);
    Some(u32::try_from(room).unwrap_or(u32::MAX))
}

/// Payload bytes that fit behind the first header, if the header and the RPC's first words lie in
/// the peer's first segment, where the peer expects them.
fn first_room(target: Target<'_>, header_len: u32) -> Option<u32> {
    let first = target.structure.first_len().min(target.usable);
    if header_len.checked_add(RPC_PREFIX_LEN)? > first {
        return None;
    }
    Some(round_down(target.usable - header_len))
}

/// A place among the placement segments of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walk {
    /// The transmission.
    t: u32,
    /// The next free placement segment in it; K if there is none.
    k: u32,
    /// Gather pieces of the transmission so far.
    entries: u32,
}

/// The limits of a walk.
#[derive(Debug, Clone, Copy)]
pub struct WalkBounds {
    /// The most transmissions.
    pub count_max: u32,
    /// The most gather pieces of a transmission.
    pub gather_max: u32,
}

impl Walk {
    /// Assigns an item its segments, and moves past them. Costs a step for each segment.
    ///
    /// # Errors
    /// [`LayoutError`] if the bounds are too narrow, or the segments too many.
    pub fn place(
        &mut self,
        structure: &RecvStructure,
        bounds: WalkBounds,
        item: &BulkItem,
    ) -> Result<Run, LayoutError> {
        // A part of an item costs its own pieces and one for the padding before it.
        let stretch = item.pieces.max(1) + 1;
        let k_max = structure.placement_count();
        let crowded = self.entries + stretch > bounds.gather_max && self.entries > 1;
        if self.k == k_max || crowded {
            self.next_transmission();
        }
        let first = self.t * k_max + self.k;
        let (mut count, mut left) = (0, item.len);
        // The end of the segments before, in the same transmission.
        let mut end = None;
        loop {
            if self.t >= bounds.count_max.min(GROUP_MAX) {
                return Err(LayoutError::Count(self.t + 1));
            }
            let Some(SegmentRun { first: at, count: adjacent }) = structure.run(self.k) else {
                return Err(LayoutError::Count(0));
            };
            if end != Some(at.start) {
                self.entries += stretch;
                if self.entries > bounds.gather_max {
                    return Err(LayoutError::Pieces(self.entries));
                }
            }
            let used = needed(&mut left, at.length, adjacent);
            count += used;
            if count > ITEM_SEGMENTS_MAX {
                return Err(LayoutError::Count(0));
            }
            self.k += used;
            if left == 0 {
                return Ok(Run { first, count });
            }
            end = Some(at.start + used * at.length);
            if self.k == k_max {
                self.next_transmission();
                end = None;
            }
        }
    }

    fn next_transmission(&mut self) {
        *self = Self { t: self.t + 1, k: 0, entries: 1 };
    }
}

/// How many segments of this length an item needs, `max` at most; takes their bytes from `left`.
#[inline]
fn needed(left: &mut u32, length: u32, max: u32) -> u32 {
    let mut count = 0;
    loop {
        count += 1;
        *left = left.saturating_sub(length);
        if *left == 0 || count == max {
            return count;
        }
    }
}

/// Rounds down to a multiple of four, as every part of a payload stream is (wire.md E10).
fn round_down(len: u32) -> u32 {
    len & !3
}

#[cfg(test)]
mod tests {
    use arrayvec::ArrayVec;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rpcrdma_xdr::rtr::structure::{Segment, SegmentGroup};
    use std::vec::Vec;

    use super::*;

    const INLINE: SegmentGroup =
        SegmentGroup { count: 1, length: 4096, align: 64, placement: false };

    fn plt(count: u32, length: u32) -> SegmentGroup {
        SegmentGroup { count, length, align: 4096, placement: true }
    }

    fn structure(groups: &[SegmentGroup]) -> RecvStructure {
        RecvStructure::new(groups).expect("valid")
    }

    /// All items that have bytes are to be placed.
    fn demand(stream: u32, items: &[BulkItem]) -> Demand<'_> {
        let (header_base, stream_pieces, count_max, gather_max) = (44, 1, 64, 32);
        let mut placed = ItemSet::EMPTY;
        for (index, _) in items.iter().enumerate().filter(|(_, item)| item.len > 0) {
            placed.insert(index);
        }
        Demand { header_base, stream, stream_pieces, items, placed, count_max, gather_max }
    }

    fn item(len: u32) -> BulkItem {
        BulkItem { position: 8, len, origin: 0, pieces: 1 }
    }

    fn lay_in(structure: &RecvStructure, demand: &Demand<'_>) -> Result<Layout, LayoutError> {
        let usable = structure.total_len();
        lay(Target { structure, usable, placement: places_items(structure, usable) }, demand)
    }

    /// The runs of a layout, once more from its beginning.
    fn runs(
        structure: &RecvStructure,
        demand: &Demand<'_>,
        layout: &Layout,
    ) -> ArrayVec<(u32, u32), 64> {
        let bounds = WalkBounds { count_max: layout.count, gather_max: demand.gather_max };
        let mut walk = layout.walk;
        let mut place = |item| walk.place(structure, bounds, item).expect("as laid out");
        let placed = demand.placed.of(demand.items);
        placed.map(&mut place).map(|run| (run.first, run.count)).collect()
    }

    /// The layout and its runs.
    fn laid(structure: &RecvStructure, demand: &Demand<'_>) -> (Layout, ArrayVec<(u32, u32), 64>) {
        let layout = lay_in(structure, demand).expect("fits");
        (layout, runs(structure, demand, &layout))
    }

    #[test]
    fn a_payload_that_just_fits_before_the_segments_stays_there() {
        let structure = structure(&[INLINE, plt(2, 8192)]);
        let items = [item(8192)];
        let header = 44 + 24;
        let (fits, runs) = laid(&structure, &demand(4096 - header, &items));
        assert_eq!((runs[0], fits.count, fits.header_len), ((0, 1), 1, header));
        // Four bytes more reach into segment 0, which then is not free.
        let (beyond, runs) = laid(&structure, &demand(4096 - header + 4, &items));
        assert_eq!((runs[0], beyond.count), ((1, 1), 1));
    }

    #[test]
    fn a_payload_of_more_than_a_buffer_is_before_the_items() {
        let structure = structure(&[INLINE, plt(1, 8192)]);
        let items = [item(8192)];
        // The whole first buffer, and what is before the segment of the second.
        let most = (4096 + 8192 - 68) + (4096 - 36);
        let (layout, runs) = laid(&structure, &demand(most, &items));
        assert_eq!((runs[0], layout.count), ((1, 1), 2));
        let (layout, runs) = laid(&structure, &demand(most + 4, &items));
        assert_eq!((runs[0], layout.count), ((2, 1), 3));
    }

    #[test]
    fn items_take_consecutive_segments_over_transmissions() {
        let structure = structure(&[INLINE, plt(2, 100)]);
        let items = [item(101), item(0), item(100), item(201)];
        let (layout, runs) = laid(&structure, &demand(8, &items));
        assert_eq!(runs[..], [(0, 2), (2, 1), (3, 3)]);
        assert_eq!(layout.count, 3);
        assert_eq!(layout.header_len, 44 + 3 * 20 + 4 * 6);
    }

    #[test]
    fn the_limit_of_transmissions_is_kept_to_the_byte() {
        let structure = structure(&[INLINE, plt(2, 100)]);
        let (fits, beyond) = ([item(400)], [item(401)]);
        let limited = |placed| Demand { count_max: 2, ..demand(8, placed) };
        assert_eq!(lay_in(&structure, &limited(&fits)).expect("fits").count, 2);
        let error = lay_in(&structure, &limited(&beyond)).expect_err("one byte too many");
        assert_eq!(error, LayoutError::Count(3));
    }

    #[test]
    fn a_crowded_transmission_leaves_the_next_item_to_the_next() {
        let structure = structure(&[INLINE, plt(4, 100)]);
        let placed = [item(8), item(8), item(8)];
        // Header, payload, and padding and data of one item: four; a second item makes six.
        for (gather_max, firsts) in [(4, [0, 4, 8]), (6, [0, 1, 4]), (8, [0, 1, 2])] {
            let demand = Demand { gather_max, ..demand(8, &placed) };
            // In the later transmissions there is no payload: one more item fits five pieces.
            let (_, runs) = laid(&structure, &demand);
            let found: ArrayVec<u32, 3> = runs.iter().map(|run| run.0).collect();
            assert_eq!(found[..], firsts, "{gather_max} pieces");
        }
        let demand = Demand { gather_max: 2, ..demand(8, &placed) };
        assert_eq!(lay_in(&structure, &demand).expect_err("too few"), LayoutError::Pieces(3));
    }

    #[test]
    fn the_header_and_the_first_words_of_the_rpc_stay_in_the_first_segment() {
        // A header of 44 bytes, or 68 with an item, and eight bytes of payload.
        for (first, bare, with_item) in
            [(51, false, false), (52, true, false), (75, true, false), (76, true, true)]
        {
            let first = SegmentGroup { length: first, ..INLINE };
            let second = SegmentGroup { length: 8192, ..INLINE };
            let structure = structure(&[first, second, plt(1, 100)]);
            assert_eq!(lay_in(&structure, &demand(8, &[])).is_ok(), bare, "{first:?}");
            let items = [item(8)];
            assert_eq!(lay_in(&structure, &demand(8, &items)).is_ok(), with_item, "{first:?}");
        }
    }

    #[test]
    fn an_item_of_more_segments_than_may_be_named_is_not_placed() {
        let structure = structure(&[INLINE, plt(60, 4)]);
        let (most, beyond) = ([item(4 * 256)], [item(4 * 256 + 1)]);
        assert_eq!(laid(&structure, &demand(8, &most)).1[0], (0, 256));
        assert_eq!(
            lay_in(&structure, &demand(8, &beyond)).expect_err("257"),
            LayoutError::Count(0)
        );
    }

    /// [`Walk::place`], segment by segment.
    fn place_by_segments(
        walk: &mut Walk,
        structure: &RecvStructure,
        bounds: WalkBounds,
        item: &BulkItem,
    ) -> Result<Run, LayoutError> {
        let stretch = item.pieces.max(1) + 1;
        let k_max = structure.placement_count();
        let crowded = walk.entries + stretch > bounds.gather_max && walk.entries > 1;
        if walk.k == k_max || crowded {
            walk.next_transmission();
        }
        let first = walk.t * k_max + walk.k;
        let (mut count, mut left) = (0, item.len);
        let mut previous: Option<Segment> = None;
        loop {
            if walk.t >= bounds.count_max.min(GROUP_MAX) {
                return Err(LayoutError::Count(walk.t + 1));
            }
            let at = structure.segments().filter(|at| at.placement).nth(walk.k as usize);
            let at = at.expect("there is one");
            if previous.is_none_or(|previous| previous.start + previous.length != at.start) {
                walk.entries += stretch;
                if walk.entries > bounds.gather_max {
                    return Err(LayoutError::Pieces(walk.entries));
                }
            }
            count += 1;
            if count > ITEM_SEGMENTS_MAX {
                return Err(LayoutError::Count(0));
            }
            walk.k += 1;
            left = left.saturating_sub(at.length);
            if left == 0 {
                return Ok(Run { first, count });
            }
            previous = Some(at);
            if walk.k == k_max {
                walk.next_transmission();
                previous = None;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn what_is_laid_out_at_once_is_as_a_search_lays_it(
            (first, count, length, gap) in (40u32..300, 1u32..9, 1u32..600, prop_oneof![3 => Just(0u32), 1 => 1u32..9]),
            (len, pieces, rest) in (0u32..9000, 0u32..4, any::<bool>()),
            (stream, stream_pieces) in (2u32..70, 1u32..4),
            (count_max, gather_max, header_base) in (0u32..70, 3u32..12, 36u32..60),
        ) {
            let inline = |length| SegmentGroup { length, ..INLINE };
            let groups = [inline(first), plt(count, length), inline(gap.max(1)), plt(1, 50)];
            let structure = structure(&groups[..if gap == 0 { 2 } else { 4 }]);
            let items = [BulkItem { pieces, ..item(len) }, item(0)];
            let items = &items[..1 + usize::from(rest)];
            let demand = Demand {
                header_base: header_base & !3,
                stream_pieces,
                count_max,
                gather_max,
                ..demand(4 * stream, items)
            };
            let usable = structure.total_len();
            let target = Target { structure: &structure, usable, placement: true };
            let at_once = places_items(&structure, usable).then(|| lay_at_once(target, &demand));
            if let Some(layout) = at_once.flatten() {
                prop_assert_eq!(lay_by_search(target, &demand), Ok(layout));
            }
        }

        #[test]
        fn a_walk_over_groups_is_one_over_segments(
            shapes in vec((0u32..5, 1u32..40, any::<bool>()), 0..6),
            items in vec((1u32..600, 0u32..3), 1..5),
            (count_max, gather_max) in (1u32..70, 2u32..20),
        ) {
            let groups: Vec<_> = shapes
                .into_iter()
                .map(|(count, length, placement)| SegmentGroup { count, length, align: 1, placement })
                .chain([plt(1, 7)])
                .collect();
            let structure = structure(&groups);
            let bounds = WalkBounds { count_max, gather_max };
            let (mut walk, mut reference) = (Walk::default(), Walk::default());
            for (len, pieces) in items {
                let item = BulkItem { pieces, ..item(len) };
                let placed = walk.place(&structure, bounds, &item);
                let due = place_by_segments(&mut reference, &structure, bounds, &item);
                prop_assert_eq!(placed, due);
                if due.is_err() {
                    break;
                }
                prop_assert_eq!(walk, reference);
            }
        }
    }

    #[test]
    fn a_single_item_behind_a_short_payload_is_laid_out_at_once() {
        let structure = structure(&[INLINE, plt(2, 100)]);
        let target = Target { structure: &structure, usable: 4296, placement: true };
        for (len, count) in [(1, 1), (200, 1), (201, 2), (64 * 200, 64)] {
            let items = [item(len)];
            let layout = lay_at_once(target, &demand(8, &items)).expect("it fits");
            assert_eq!(layout.count, count, "{len}");
        }
        for (stream, len) in [(8, 64 * 200 + 1), (4096, 100)] {
            assert_eq!(lay_at_once(target, &demand(stream, &[item(len)])), None);
        }
    }

    #[test]
    fn structures_that_cannot_take_items_are_recognised() {
        let plain = structure(&[INLINE]);
        assert!(!places_items(&plain, 4096));
        let good = structure(&[INLINE, plt(2, 100)]);
        assert!(places_items(&good, 4296));
        assert!(!places_items(&good, 4295), "the last segment is not all usable");
        let short = structure(&[SegmentGroup { length: 35, ..INLINE }, plt(1, 5000)]);
        assert!(!places_items(&short, 5035), "a continuation's header reaches in");
    }
}
