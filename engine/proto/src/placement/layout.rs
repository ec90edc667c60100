//! The layout of a message in the peer's receive buffers: which transmission, which segment.
//!
//! ```text
//!   t=0  | header | payload ....................... |   whole buffers of payload first
//!   t=1  | header | payload | zeros | item 0 | item 1 |   the rest, then items from the next free
//!   t=2  | header | zeros           | item 1          |   placement segment on
//! ```
//! Every item begins at offset 0 of a placement segment and uses whole segments, consecutively
//! numbered, until its last (wire.md E12, E13). Where the items begin decides how many segments
//! each needs, that decides how long the header is, and that decides where the payload ends. The
//! knot is cut by trying the possible beginnings in order: with one beginning given, all else
//! follows, and the first that leaves room for the payload is taken.

use core::num::NonZeroU16;

use arrayvec::ArrayVec;
use rpcrdma_xdr::numbers::limit::{GROUP_MAX, ITEM_SEGMENTS_MAX, MITEMS_MAX};
use rpcrdma_xdr::numbers::size;
use rpcrdma_xdr::rtr::structure::{RecvStructure, SegmentAt};

use crate::error::SendError;

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

/// Whether items can be placed in buffers of this structure by the layout made here: there are
/// placement segments, all of them within the usable bytes, and a continuation's header does not
/// reach into them.
#[must_use]
pub fn places_items(structure: &RecvStructure, usable: u32) -> bool {
    let Some(last) = structure.placement_count().checked_sub(1) else { return false };
    structure.leading_len() >= CONT_LEN
        && structure.placement(last).is_some_and(|at| at.start + at.length <= usable)
}

/// An item to be placed.
#[derive(Debug, Clone, Copy)]
pub struct PlacedLen {
    /// Its place among all items of the message.
    pub index: u8,
    /// Its bytes, at least 1.
    pub len: u32,
    /// Memory pieces that it is gathered from, at least 1.
    pub pieces: u32,
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
    /// The items to be placed, in order.
    pub placed: &'a [PlacedLen],
    /// The most transmissions that are possible.
    pub count_max: u32,
    /// The most memory pieces that a transmission is gathered from.
    pub gather_max: u32,
}

/// The segment numbers of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: u16,
    /// How many.
    pub count: NonZeroU16,
}

/// One for each placed item, in order.
pub type Runs = ArrayVec<Run, { MITEMS_MAX as usize }>;

/// A message laid out.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Header bytes of the first transmission.
    pub header_len: u32,
    /// Payload bytes that the first transmission can take.
    pub first_room: u32,
    /// Payload bytes that every other can take.
    pub cont_room: u32,
    /// Transmissions.
    pub count: u32,
    /// Where the placed items are.
    pub runs: Runs,
}

/// Why there is no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    let mut walk = Walk { target, demand, t: at.t, k: at.k, entries: 1 + demand.stream_pieces };
    let mut runs = Runs::new();
    for item in demand.placed {
        runs.push(walk.place(item)?);
    }
    let segments: u32 = runs.iter().map(|run| u32::from(run.count.get())).sum();
    let entries = demand.placed.len() as u32 * size::MITEM_TBSN as u32;
    let header_len = demand.header_base + entries + 4 * segments;
    if !holds(target, demand, header_len, at) {
        return Ok(None);
    }
    let first_room = first_room(target, header_len).ok_or(LayoutError::Count(0))?;
    let cont_room = round_down(target.usable.saturating_sub(CONT_LEN));
    Ok(Some(Layout { header_len, first_room, cont_room, count: walk.t + 1, runs }))
}

/// The length of the first header if every item needed one segment only.
fn least_header(demand: &Demand<'_>) -> u32 {
    demand.header_base + demand.placed.len() as u32 * (size::MITEM_TBSN as u32 + 4)
}

/// Whether the payload ends before the beginning of the items.
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
    Ok(Layout { header_len, first_room, cont_room, count, runs: Runs::new() })
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
/// the peer's first segment, where it looks for them.
fn first_room(target: Target<'_>, header_len: u32) -> Option<u32> {
    let first = target.structure.segments().next()?.length.min(target.usable);
    if header_len.checked_add(RPC_PREFIX_LEN)? > first {
        return None;
    }
    Some(round_down(target.usable - header_len))
}

/// Steps through the placement segments of a group.
struct Walk<'a> {
    target: Target<'a>,
    demand: &'a Demand<'a>,
    /// The transmission.
    t: u32,
    /// The next free placement segment in it; K if there is none.
    k: u32,
    /// Gather pieces of the transmission so far.
    entries: u32,
}

impl Walk<'_> {
    /// Gives an item its segments.
    fn place(&mut self, item: &PlacedLen) -> Result<Run, LayoutError> {
        // A stretch of an item costs its own pieces and one for the padding before it.
        let stretch = item.pieces + 1;
        let k_max = self.target.structure.placement_count();
        let crowded = self.entries + stretch > self.demand.gather_max && self.entries > 1;
        if self.k == k_max || crowded {
            self.next_transmission();
        }
        let first = self.t * k_max + self.k;
        let mut count = 0u16;
        let mut left = item.len;
        let mut previous: Option<SegmentAt> = None;
        loop {
            if self.t >= self.demand.count_max.min(GROUP_MAX) {
                return Err(LayoutError::Count(self.t + 1));
            }
            let Some(at) = self.target.structure.placement(self.k) else {
                return Err(LayoutError::Count(0));
            };
            if previous.is_none_or(|previous| previous.start + previous.length != at.start) {
                self.entries += stretch;
                if self.entries > self.demand.gather_max {
                    return Err(LayoutError::Pieces(self.entries));
                }
            }
            count += 1;
            if u32::from(count) > ITEM_SEGMENTS_MAX {
                return Err(LayoutError::Count(0));
            }
            self.k += 1;
            left = left.saturating_sub(at.length);
            if left == 0 {
                break;
            }
            previous = Some(at);
            if self.k == k_max {
                self.next_transmission();
                previous = None;
            }
        }
        let count = NonZeroU16::new(count).ok_or(LayoutError::Count(0))?;
        // At most 64 segments in each of at most 64 transmissions.
        Ok(Run { first: first as u16, count })
    }

    fn next_transmission(&mut self) {
        self.t += 1;
        self.k = 0;
        self.entries = 1;
    }
}

/// Down to a multiple of four: every part of a payload stream is one (wire.md E10).
fn round_down(len: u32) -> u32 {
    len & !3
}

#[cfg(test)]
mod tests {
    use rpcrdma_xdr::rtr::structure::SegmentGroup;

    use super::*;

    const INLINE: SegmentGroup =
        SegmentGroup { count: 1, length: 4096, align: 64, placement: false };

    fn plt(count: u32, length: u32) -> SegmentGroup {
        SegmentGroup { count, length, align: 4096, placement: true }
    }

    fn structure(groups: &[SegmentGroup]) -> RecvStructure {
        RecvStructure::new(groups).expect("valid")
    }

    fn demand(stream: u32, placed: &[PlacedLen]) -> Demand<'_> {
        let (header_base, stream_pieces, count_max, gather_max) = (44, 1, 64, 32);
        Demand { header_base, stream, stream_pieces, placed, count_max, gather_max }
    }

    fn item(index: u8, len: u32) -> PlacedLen {
        PlacedLen { index, len, pieces: 1 }
    }

    fn lay_in(structure: &RecvStructure, demand: &Demand<'_>) -> Result<Layout, LayoutError> {
        let usable = structure.total_len();
        lay(Target { structure, usable, placement: places_items(structure, usable) }, demand)
    }

    fn runs(layout: &Layout) -> ArrayVec<(u16, u16), 64> {
        layout.runs.iter().map(|run| (run.first, run.count.get())).collect()
    }

    #[test]
    fn a_payload_that_just_fits_before_the_segments_stays_there() {
        let structure = structure(&[INLINE, plt(2, 8192)]);
        let placed = [item(0, 8192)];
        let header = 44 + 24;
        let fits = lay_in(&structure, &demand(4096 - header, &placed)).expect("fits");
        assert_eq!((runs(&fits)[0], fits.count, fits.header_len), ((0, 1), 1, header));
        // Four bytes more reach into segment 0, which then is not free.
        let beyond = lay_in(&structure, &demand(4096 - header + 4, &placed)).expect("fits");
        assert_eq!((runs(&beyond)[0], beyond.count), ((1, 1), 1));
    }

    #[test]
    fn a_payload_of_more_than_a_buffer_is_before_the_items() {
        let structure = structure(&[INLINE, plt(1, 8192)]);
        let placed = [item(0, 8192)];
        // The whole first buffer, and what is before the segment of the second.
        let most = (4096 + 8192 - 68) + (4096 - 36);
        let layout = lay_in(&structure, &demand(most, &placed)).expect("fits");
        assert_eq!((runs(&layout)[0], layout.count), ((1, 1), 2));
        let layout = lay_in(&structure, &demand(most + 4, &placed)).expect("fits");
        assert_eq!((runs(&layout)[0], layout.count), ((2, 1), 3));
    }

    #[test]
    fn items_take_consecutive_segments_over_transmissions() {
        let structure = structure(&[INLINE, plt(2, 100)]);
        let placed = [item(0, 101), item(3, 100), item(4, 201)];
        let layout = lay_in(&structure, &demand(8, &placed)).expect("fits");
        assert_eq!(runs(&layout)[..], [(0, 2), (2, 1), (3, 3)]);
        assert_eq!(layout.count, 3);
        assert_eq!(layout.header_len, 44 + 3 * 20 + 4 * 6);
    }

    #[test]
    fn the_limit_of_transmissions_is_kept_to_the_byte() {
        let structure = structure(&[INLINE, plt(2, 100)]);
        let (fits, beyond) = ([item(0, 400)], [item(0, 401)]);
        let limited = |placed| Demand { count_max: 2, ..demand(8, placed) };
        assert_eq!(lay_in(&structure, &limited(&fits)).expect("fits").count, 2);
        let error = lay_in(&structure, &limited(&beyond)).expect_err("one byte too many");
        assert_eq!(error, LayoutError::Count(3));
    }

    #[test]
    fn a_crowded_transmission_leaves_the_next_item_to_the_next() {
        let structure = structure(&[INLINE, plt(4, 100)]);
        let placed = [item(0, 8), item(1, 8), item(2, 8)];
        // Header, payload, and padding and data of one item: four; a second item makes six.
        for (gather_max, firsts) in [(4, [0, 4, 8]), (6, [0, 1, 4]), (8, [0, 1, 2])] {
            let demand = Demand { gather_max, ..demand(8, &placed) };
            // In the later transmissions there is no payload: one more item fits five pieces.
            let layout = lay_in(&structure, &demand).expect("fits");
            let found: ArrayVec<u16, 3> = layout.runs.iter().map(|run| run.first).collect();
            assert_eq!(found[..], firsts, "{gather_max} pieces");
        }
        let demand = Demand { gather_max: 2, ..demand(8, &placed) };
        assert_eq!(lay_in(&structure, &demand).expect_err("too few"), LayoutError::Pieces(3));
    }

    #[test]
    fn a_header_that_leaves_its_first_segment_is_not_sent() {
        let first = SegmentGroup { length: 64, ..INLINE };
        let second = SegmentGroup { length: 8192, ..INLINE };
        let structure = structure(&[first, second, plt(1, 100)]);
        assert_eq!(lay_in(&structure, &demand(8, &[])).expect("fits").header_len, 44);
        let placed = [item(0, 8)];
        assert!(lay_in(&structure, &demand(8, &placed)).is_err(), "68 and 8 bytes");
    }

    #[test]
    fn an_item_of_more_segments_than_may_be_named_is_not_placed() {
        let structure = structure(&[INLINE, plt(60, 4)]);
        let (most, beyond) = ([item(0, 4 * 256)], [item(0, 4 * 256 + 1)]);
        assert_eq!(runs(&lay_in(&structure, &demand(8, &most)).expect("256"))[0], (0, 256));
        assert_eq!(
            lay_in(&structure, &demand(8, &beyond)).expect_err("257"),
            LayoutError::Count(0)
        );
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
