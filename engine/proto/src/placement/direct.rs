//! Reply directions: where the caller wants the items of a reply, and where they were placed.
//!
//! \[RTR\] 6.2 Table 1 and 7.4 Table 2 are matches here, exhaustive over their rows and columns.

use arrayvec::ArrayVec;
use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::numbers::limit::MITEMS_MAX;
use rpcrdma_xdr::numbers::placement as number;
use rpcrdma_xdr::rtr::placement::{Loc, MsgItem, RsdItem, RsdLoc, RsdSet};

use crate::demand::{Want, WantKind};
use crate::error::{Misuse, Violation};
use crate::item::{BulkItem, ItemSet};
use crate::placement::exrw;

use crate::segments::{check_possible, total_len};

/// `xmdp_type` of an item: the columns of Table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// Moved by explicit RDMA.
    Exrw,
    /// Placed by Send.
    Tbsn,
    /// Too short, so in the payload stream.
    TooShort,
    /// No such item.
    NoItem,
}

/// The requester's duty after a result (\[RTR\] 7.4, Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Nothing: no memory was offered.
    Nothing,
    /// The offered memory must be invalidated before the call completes.
    Deregister,
}

impl WantKind {
    /// The kind of a direction.
    #[must_use]
    pub fn of(loc: &RsdLoc<'_>) -> Self {
        match loc {
            RsdLoc::Exrw(_) => Self::Exrw,
            RsdLoc::Tbsn => Self::Tbsn,
            RsdLoc::Choice(_) => Self::Choice,
            RsdLoc::BySize { .. } => Self::BySize,
        }
    }

    /// Table 2: the duty after `result`, or `None` if the combination is invalid.
    ///
    /// CHOICE and BYSIZE answered by Send count as "deregister", unlike in the table: the requester
    /// did offer memory, and the responder may still write to it (wire.md E41).
    #[must_use]
    pub fn duty(self, result: ItemKind) -> Option<Duty> {
        match (self, result) {
            (Self::Exrw, ItemKind::Tbsn) | (Self::Tbsn, ItemKind::Exrw) => None,
            (Self::Tbsn, ItemKind::Tbsn | ItemKind::TooShort | ItemKind::NoItem) => {
                Some(Duty::Nothing)
            }
            (Self::Exrw, ItemKind::Exrw | ItemKind::TooShort | ItemKind::NoItem)
            | (
                Self::Choice | Self::BySize,
                ItemKind::Exrw | ItemKind::Tbsn | ItemKind::TooShort | ItemKind::NoItem,
            ) => Some(Duty::Deregister),
        }
    }
}

impl ItemKind {
    /// The kind of an item.
    #[must_use]
    pub fn of(loc: &Loc<'_>) -> Self {
        match loc {
            Loc::Exrw(_) => Self::Exrw,
            Loc::Tbsn { .. } => Self::Tbsn,
            Loc::TooShort => Self::TooShort,
            Loc::NoItem => Self::NoItem,
        }
    }

    /// The assigned number (\[RTR\] 6.2).
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Exrw => number::EXRW,
            Self::Tbsn => number::TBSN,
            Self::TooShort => number::TOOSHORT,
            Self::NoItem => number::NOITEM,
        }
    }

    /// Table 1, column "xmdp_loc in request"; what is "XDR Invalid" there does not decode.
    ///
    /// # Errors
    /// [`Violation::Segment`] with the type as its value (wire.md E31).
    pub fn check_in_request(self) -> Result<(), Violation> {
        match self {
            Self::Exrw | Self::Tbsn => Ok(()),
            Self::TooShort | Self::NoItem => Err(Violation::Segment {
                value: self.number(),
                min: number::EXRW,
                max: number::TBSN,
            }),
        }
    }
}

/// The kinds of all directions of a call, in order: what its reply is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantSet {
    sends: u64,
    direct: u64,
    len: u8,
}

impl WantSet {
    /// No direction.
    pub const NONE: Self = Self { sends: 0, direct: 0, len: 0 };

    /// A single direction, by Send.
    pub const SENT: Self = Self { sends: 1, direct: 0, len: 1 };

    /// The kinds of these results, of which `offered` have memory.
    ///
    /// # Errors
    /// [`Misuse`] if there are more than 64, or the ranges are not disjoint and increasing.
    pub fn of(wants: &[Want], offered: ItemSet) -> Result<Self, Misuse> {
        let mut set = Self::NONE;
        let mut previous_end = 0;
        for group in ranges(wants) {
            let (begin, end) = group.first().map_or((0, 0), |want| (want.begin, want.end));
            if begin < previous_end || end <= begin {
                return Err(Misuse("reply directions are disjoint and increasing"));
            }
            previous_end = end;
        }
        for (index, want) in wants.iter().enumerate() {
            set.push(want.asked(offered.contains(index)))?;
        }
        Ok(set)
    }

    /// The number of directions.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is no direction.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bounds within which `result` for direction `index` is valid by Table 2.
    ///
    /// # Errors
    /// [`Violation::Segment`] with the types as its numbers (wire.md E30).
    pub fn check(&self, index: usize, result: ItemKind) -> Result<(), Violation> {
        match (self.allows(index, ItemKind::Exrw), self.allows(index, ItemKind::Tbsn), result) {
            (_, _, ItemKind::TooShort | ItemKind::NoItem)
            | (true, _, ItemKind::Exrw)
            | (_, true, ItemKind::Tbsn) => Ok(()),
            (false, _, ItemKind::Exrw) => Err(wrong_type(result, number::TBSN)),
            (_, false, ItemKind::Tbsn) => Err(wrong_type(result, number::EXRW)),
        }
    }

    fn allows(&self, index: usize, kind: ItemKind) -> bool {
        let bits = match kind {
            ItemKind::Exrw => self.direct,
            ItemKind::Tbsn => self.sends,
            ItemKind::TooShort | ItemKind::NoItem => return true,
        };
        index < self.len() && bits >> index & 1 == 1
    }

    fn push(&mut self, kind: WantKind) -> Result<(), Misuse> {
        if u32::from(self.len) == MITEMS_MAX {
            return Err(Misuse("a call has at most 64 reply directions"));
        }
        let bit = 1 << self.len;
        self.len += 1;
        if kind.duty(ItemKind::Tbsn).is_some() {
            self.sends |= bit;
        }
        if kind.duty(ItemKind::Exrw).is_some() {
            self.direct |= bit;
        }
        Ok(())
    }
}

fn wrong_type(result: ItemKind, allowed: u32) -> Violation {
    Violation::Segment { value: result.number(), min: allowed, max: allowed }
}

/// The results of each operation, which form one set of directions on the wire.
pub fn ranges(wants: &[Want]) -> impl Iterator<Item = &[Want]> {
    wants.chunk_by(|one, other| (one.begin, one.end) == (other.begin, other.end))
}

impl Want {
    /// The direction's kind: without offered memory, placement by Send. A result by Send that
    /// nevertheless has memory may come either way.
    #[must_use]
    pub fn asked(&self, offered: bool) -> WantKind {
        match self.kind {
            _ if !offered => WantKind::Tbsn,
            WantKind::Tbsn => WantKind::Choice,
            kind => kind,
        }
    }

    /// Its direction, with the memory that is offered.
    #[must_use]
    pub fn direction<'a>(&self, offered: Option<&'a [RdmaSegment]>) -> RsdItem<'a> {
        let segments = Array::from_slice(offered.unwrap_or_default());
        let loc = match self.asked(offered.is_some()) {
            WantKind::Exrw => RsdLoc::Exrw(segments),
            WantKind::Tbsn => RsdLoc::Tbsn,
            WantKind::Choice => RsdLoc::Choice(segments),
            WantKind::BySize => RsdLoc::BySize { over: self.over, segments },
        };
        RsdItem { min_len: self.min_len, loc }
    }
}

/// Checks the directions of a received call against its virtual length (wire.md E23, E40).
///
/// # Errors
/// [`Violation::Offset`] if a range is empty, out of order, or beyond the message.
pub fn check_directions(rsd: &Array<'_, RsdSet<'_>>, virtual_len: u64) -> Result<(), Violation> {
    let max = u32::try_from(virtual_len).unwrap_or(u32::MAX);
    let mut previous_end = 0;
    let mut items = 0;
    for set in rsd.iter() {
        // [RTR] 7.4: "disjoint and in strictly increasing order".
        if set.begin < previous_end {
            return Err(Violation::Offset { value: set.begin, min: previous_end, max });
        }
        if set.end <= set.begin || set.end > max {
            let min = set.begin.saturating_add(1);
            return Err(Violation::Offset { value: set.end, min, max });
        }
        previous_end = set.end;
        items += set.items.len();
        for direction in set.items.iter() {
            check_possible(exrw::segments_of(&direction).iter())?;
        }
    }
    if items > MITEMS_MAX as usize {
        return Err(Violation::BadHeader("more than 64 reply directions"));
    }
    Ok(())
}

/// The answer to one reply direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// The matching item of the reply, if there is one.
    pub item: Option<u8>,
    /// Whether the item may leave the payload stream: it exists, is not empty, and is not shorter
    /// than the direction's minimum (wire.md E16, E29).
    pub is_apart: bool,
    /// What the direction asks for.
    pub kind: WantKind,
    /// Prefer Send to RDMA Write, if both are allowed.
    pub rather_sends: bool,
    /// Bytes of the memory that is offered.
    pub room: u64,
}

impl Match {
    /// Whether the item may be placed by Send.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.is_apart && self.kind.duty(ItemKind::Tbsn).is_some()
    }

    /// Whether the item may be written to the caller's memory. A direction with empty memory
    /// requests the item in line, as an empty Write chunk does.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.is_apart && self.kind.duty(ItemKind::Exrw).is_some() && self.room > 0
    }
}

/// One entry for each direction, in wire order.
pub type Matches = ArrayVec<Match, { MITEMS_MAX as usize }>;

/// Finds the item of the reply for each direction of the call (wire.md E23, E24).
///
/// In each set, the items whose operation begins within the set's range use up the directions in
/// order; an item below a direction's minimum uses it up without being placed. Items without a
/// direction stay in the payload stream.
///
/// # Errors
/// [`Misuse`] if items are not in the order of the operations, or there are too many directions.
pub fn match_items(rsd: &Array<'_, RsdSet<'_>>, items: &[BulkItem]) -> Result<Matches, Misuse> {
    if items.windows(2).any(|pair| pair[0].origin > pair[1].origin) {
        return Err(Misuse("the items of a reply are in the order of their operations"));
    }
    let mut matches = Matches::new();
    let mut next = 0;
    for set in rsd.iter() {
        while items.get(next).is_some_and(|item| item.origin < set.begin) {
            next += 1;
        }
        for direction in set.items.iter() {
            let item = items.get(next).filter(|item| item.origin < set.end);
            let len = item.map_or(0, |item| item.len);
            let entry = Match {
                item: item.map(|_| next as u8),
                is_apart: len > 0 && len >= direction.min_len,
                kind: WantKind::of(&direction.loc),
                // wire.md E28
                rather_sends: match direction.loc {
                    RsdLoc::BySize { over, .. } => len <= over,
                    RsdLoc::Exrw(_) => false,
                    RsdLoc::Tbsn | RsdLoc::Choice(_) => true,
                },
                room: total_len(exrw::segments_of(&direction).iter()),
            };
            matches
                .try_push(entry)
                .map_err(|_| Misuse("a call has at most 64 reply directions"))?;
            next += usize::from(item.is_some());
        }
    }
    Ok(matches)
}

/// An item that is in the payload stream, as a result.
#[must_use]
pub fn too_short(item: &BulkItem) -> MsgItem<'static> {
    MsgItem { disp: item.position, length: item.len, loc: Loc::TooShort }
}

/// The result of a direction without an item (wire.md E25).
pub const NO_ITEM: MsgItem<'static> = MsgItem { disp: 0, length: 0, loc: Loc::NoItem };

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const WANTS: [WantKind; 4] =
        [WantKind::Exrw, WantKind::Tbsn, WantKind::Choice, WantKind::BySize];
    const RESULTS: [ItemKind; 4] =
        [ItemKind::Exrw, ItemKind::Tbsn, ItemKind::TooShort, ItemKind::NoItem];

    fn loc(kind: WantKind) -> RsdLoc<'static> {
        match kind {
            WantKind::Exrw => RsdLoc::Exrw(Array::EMPTY),
            WantKind::Tbsn => RsdLoc::Tbsn,
            WantKind::Choice => RsdLoc::Choice(Array::EMPTY),
            WantKind::BySize => RsdLoc::BySize { over: 1, segments: Array::EMPTY },
        }
    }

    fn want(begin: u32, end: u32, kind: WantKind) -> Want {
        Want { kind, ..Want::sends(begin, end, 0, 100) }
    }

    fn all(count: usize) -> ItemSet {
        let mut set = ItemSet::EMPTY;
        (0..count).for_each(|index| set.insert(index));
        set
    }

    fn direction(min_len: u32, kind: WantKind) -> RsdItem<'static> {
        RsdItem { min_len, loc: loc(kind) }
    }

    fn item(position: u32, len: u32, origin: u32) -> BulkItem {
        BulkItem { position, len, origin, pieces: 1 }
    }

    #[test]
    fn table_2_is_as_printed_but_for_the_cells_that_are_wrong() {
        use Duty::{Deregister as Dr, Nothing as Ndr};
        // Rows and columns as in [RTR] 7.4; CHOICE and BYSIZE to TBSN differ (wire.md E41).
        let table = [
            [Some(Dr), None, Some(Dr), Some(Dr)],
            [None, Some(Ndr), Some(Ndr), Some(Ndr)],
            [Some(Dr), Some(Dr), Some(Dr), Some(Dr)],
            [Some(Dr), Some(Dr), Some(Dr), Some(Dr)],
        ];
        for (want, row) in WANTS.iter().zip(table) {
            for (result, duty) in RESULTS.iter().zip(row) {
                assert_eq!(want.duty(*result), duty, "{want:?} {result:?}");
            }
        }
    }

    #[test]
    fn a_set_of_wants_checks_results_by_table_2() {
        let asked: Vec<_> = WANTS.iter().map(|kind| want(0, 8, *kind)).collect();
        let wants = WantSet::of(&asked, all(4)).expect("four directions");
        assert_eq!(wants.len(), 4);
        for (index, want) in WANTS.iter().enumerate() {
            // A result by Send that has memory may come either way.
            let want = if *want == WantKind::Tbsn { WantKind::Choice } else { *want };
            for result in RESULTS {
                let valid = want.duty(result).is_some();
                assert_eq!(wants.check(index, result).is_ok(), valid, "{want:?} {result:?}");
            }
        }
        let violation = Violation::Segment { value: 2, min: 1, max: 1 };
        assert_eq!(wants.check(0, ItemKind::Tbsn), Err(violation));
        // Without memory, all results are requested by Send.
        let wants = WantSet::of(&asked, ItemSet::EMPTY).expect("four directions");
        assert!((0..4).all(|index| wants.check(index, ItemKind::Exrw).is_err()));
        assert!((0..4).all(|index| wants.check(index, ItemKind::Tbsn).is_ok()));
        // Without directions no item may be placed.
        assert!(WantSet::NONE.check(0, ItemKind::Tbsn).is_err());
    }

    #[test]
    fn table_1_allows_placed_items_only_in_a_request() {
        assert!(ItemKind::Exrw.check_in_request().is_ok());
        assert!(ItemKind::Tbsn.check_in_request().is_ok());
        for (kind, value) in [(ItemKind::TooShort, 5), (ItemKind::NoItem, 6)] {
            let violation = Violation::Segment { value, min: 1, max: 2 };
            assert_eq!(kind.check_in_request(), Err(violation));
        }
    }

    #[test]
    fn sixty_four_directions_are_the_most() {
        let many = [direction(0, WantKind::Tbsn); 64];
        let one = [direction(0, WantKind::Tbsn)];
        let full = RsdSet { begin: 0, end: 4, items: Array::from_slice(&many) };
        let extra = RsdSet { begin: 4, end: 8, items: Array::from_slice(&one) };
        let most = [want(0, 4, WantKind::Tbsn); 65];
        assert_eq!(WantSet::of(&most[..64], ItemSet::EMPTY).map(|wants| wants.len()), Ok(64));
        assert!(WantSet::of(&most, ItemSet::EMPTY).is_err());
        let directions = [full, extra];
        assert!(check_directions(&Array::from_slice(&directions), 8).is_err());
    }

    #[test]
    fn ranges_are_disjoint_increasing_and_within_the_call() {
        let range = |begin, end| RsdSet { begin, end, items: Array::EMPTY };
        let check = |sets: &[RsdSet<'_>]| check_directions(&Array::from_slice(sets), 100);
        assert_eq!(check(&[range(0, 40), range(40, 100)]), Ok(()));
        let offset = |value, min| Err(Violation::Offset { value, min, max: 100 });
        assert_eq!(check(&[range(0, 40), range(39, 100)]), offset(39, 40));
        assert_eq!(check(&[range(8, 8)]), offset(8, 9));
        assert_eq!(check(&[range(8, 101)]), offset(101, 9));
        let wanted = |begin, end| want(begin, end, WantKind::Tbsn);
        let set = |wants: &[Want]| WantSet::of(wants, ItemSet::EMPTY).is_ok();
        assert!(set(&[wanted(0, 40), wanted(0, 40), wanted(40, 100)]));
        assert!(!set(&[wanted(0, 40), wanted(39, 100)]));
        assert!(!set(&[wanted(0, 40), wanted(40, 100), wanted(0, 40)]));
        assert!(!set(&[wanted(8, 8)]));
    }

    // wire.md W19
    #[test]
    fn memory_of_a_direction_ends_before_the_last_address() {
        let at = |offset, length| [RdmaSegment { handle: 1, length, offset }];
        for (length, valid) in [(8, true), (9, false)] {
            let (first, last) = (at(0, 8), at(u64::MAX - 8, length));
            let segments = [first[0], last[0]];
            let segments = Array::from_slice(&segments);
            let kinds = [
                RsdLoc::Exrw(segments),
                RsdLoc::Choice(segments),
                RsdLoc::BySize { over: 1, segments },
            ];
            for loc in kinds {
                let items = [direction(0, WantKind::Tbsn), RsdItem { min_len: 0, loc }];
                let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&items) }];
                let checked = check_directions(&Array::from_slice(&sets), 40);
                assert_eq!(checked.is_ok(), valid, "{loc:?}");
                assert!(valid || matches!(checked, Err(Violation::BadHeader(_))));
            }
        }
    }

    #[test]
    fn items_use_up_the_directions_of_their_operation_in_order() {
        let first = [direction(100, WantKind::Tbsn), direction(0, WantKind::Tbsn)];
        let second = [direction(0, WantKind::Exrw), direction(0, WantKind::Choice)];
        let sets = [
            RsdSet { begin: 0, end: 40, items: Array::from_slice(&first) },
            RsdSet { begin: 80, end: 120, items: Array::from_slice(&second) },
        ];
        let items = [
            item(8, 99, 0),     // below the minimum: uses the first direction up
            item(108, 50, 39),  // placed by the second
            item(160, 50, 39),  // no direction is left in its set
            item(212, 50, 79),  // between the sets
            item(264, 50, 80),  // explicit RDMA is asked for, which is not there
            item(316, 0, 81),   // an empty item is never placed
            item(316, 50, 500), // behind all sets
        ];
        let matches = match_items(&Array::from_slice(&sets), &items).expect("in order");
        let expected = [(Some(0), false), (Some(1), true), (Some(4), false), (Some(5), false)];
        let found: Vec<_> = matches.iter().map(|found| (found.item, found.sends())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn directions_without_an_item_remain() {
        let wanted = [direction(0, WantKind::Tbsn); 2];
        let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&wanted) }];
        let matches = match_items(&Array::from_slice(&sets), &[item(8, 5, 0)]).expect("in order");
        let found: Vec<_> = matches.iter().map(|found| (found.item, found.sends())).collect();
        assert_eq!(found, [(Some(0), true), (None, false)]);
    }

    #[test]
    fn a_range_ends_before_its_end() {
        for (origin, found) in [(39, Some(0)), (40, None)] {
            let wanted = [direction(0, WantKind::Tbsn)];
            let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&wanted) }];
            let matches = match_items(&Array::from_slice(&sets), &[item(8, 5, origin)]);
            assert_eq!(matches.expect("in order")[0].item, found);
        }
    }

    #[test]
    fn the_minimum_length_itself_is_long_enough() {
        for (len, sends) in [(99, false), (100, true), (101, true)] {
            let wanted = [direction(100, WantKind::Tbsn)];
            let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&wanted) }];
            let matches = match_items(&Array::from_slice(&sets), &[item(8, len, 0)]);
            assert_eq!(matches.expect("in order")[0].sends(), sends);
        }
    }

    #[test]
    fn by_size_an_item_is_rather_sent_up_to_the_length() {
        let loc = RsdLoc::BySize { over: 100, segments: Array::EMPTY };
        for (len, sends) in [(1, true), (100, true), (101, false)] {
            let wanted = [RsdItem { min_len: 0, loc }];
            let sets = [RsdSet { begin: 0, end: 40, items: Array::from_slice(&wanted) }];
            let matches = match_items(&Array::from_slice(&sets), &[item(8, len, 0)]);
            assert_eq!(matches.expect("in order")[0].rather_sends, sends, "{len}");
        }
    }

    #[test]
    fn items_out_of_the_order_of_operations_are_a_misuse() {
        assert!(match_items(&Array::EMPTY, &[item(8, 4, 1), item(12, 4, 0)]).is_err());
    }
}
