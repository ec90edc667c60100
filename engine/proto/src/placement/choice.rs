//! The choice for the items of a reply: by Send, by RDMA Write, or in the payload stream.
//!
//! ```text
//!   EXRW            written ────────────────────────────────────────▶ in line, if we cannot write
//!   TBSN            placed  ────────────────────▶ in line (E26)
//!   CHOICE, BYSIZE  as preferred ──▶ the other ─▶ in line
//! ```
//! The choices are tried in order, for all items at once, until the message fits what the caller
//! reserved (wire.md W18).

use arrayvec::ArrayVec;

use crate::error::SendError;
use crate::item::{BulkItem, ItemSet};
use crate::placement::direct::{Match, Matches};

/// Our means towards this peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Can {
    /// Place items in its receive buffers.
    pub(crate) place: bool,
    /// Write to its memory.
    pub(crate) write: bool,
}

/// The items of a reply that are not in its payload stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Apart {
    /// Placed by Send.
    pub(crate) placed: ItemSet,
    /// Written by RDMA.
    pub(crate) direct: ItemSet,
}

impl Apart {
    /// All of the message is in its stream.
    pub(crate) const NONE: Self = Self { placed: ItemSet::EMPTY, direct: ItemSet::EMPTY };
}

/// How hard a choice tries to keep a reply in few transmissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Each item as its direction prefers.
    AsAsked,
    /// All items written that may be.
    RatherWritten,
    /// Nothing is placed.
    NothingPlaced,
}

/// The possible choices in order; each differs from the one before.
///
/// # Errors
/// [`SendError::RoomTooSmall`] if an item that may only be written is longer than its memory
/// (wire.md E27).
pub(crate) fn choices(
    matches: &Matches,
    items: &[BulkItem],
    can: Can,
) -> Result<ArrayVec<Apart, 3>, SendError> {
    let mut choices = ArrayVec::<Apart, 3>::new();
    for effort in [Effort::AsAsked, Effort::RatherWritten, Effort::NothingPlaced] {
        let mut apart = Apart::NONE;
        for found in matches {
            let Some(index) = found.item.map(usize::from) else { continue };
            let len = items.get(index).map_or(0, |item| item.len);
            match choose(found, len, can, effort)? {
                Way::Sent => apart.placed.insert(index),
                Way::Written => apart.direct.insert(index),
                Way::InLine => {}
            }
        }
        if choices.last() != Some(&apart) {
            choices.push(apart);
        }
    }
    Ok(choices)
}

/// What becomes of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Sent,
    Written,
    InLine,
}

fn choose(found: &Match, len: u32, can: Can, effort: Effort) -> Result<Way, SendError> {
    let may_send = can.place && found.sends() && effort != Effort::NothingPlaced;
    let may_write = can.write && found.writes();
    let fits = u64::from(len) <= found.room;
    if may_write && !fits && !found.sends() {
        return Err(SendError::RoomTooSmall { need: len, have: found.room });
    }
    let rather_sends = found.rather_sends && effort == Effort::AsAsked;
    Ok(match (may_send, may_write && fits) {
        (true, true) if rather_sends => Way::Sent,
        (_, true) => Way::Written,
        (true, false) => Way::Sent,
        (false, false) => Way::InLine,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::WantKind;
    use crate::placement::direct::ItemKind;

    const WANTS: [WantKind; 4] =
        [WantKind::Exrw, WantKind::Tbsn, WantKind::Choice, WantKind::BySize];

    fn found(kind: WantKind, rather_sends: bool, room: u64) -> Match {
        Match { item: Some(0), is_apart: true, kind, rather_sends, room }
    }

    /// What is done with a single item, choice by choice.
    fn ways(found: Match, can: Can) -> Result<ArrayVec<ItemKind, 3>, SendError> {
        let items = [BulkItem { position: 8, len: 100, origin: 0, pieces: 1 }];
        let mut matches = Matches::new();
        matches.push(found);
        let choices = choices(&matches, &items, can)?;
        Ok(choices
            .iter()
            .map(|apart| match (apart.placed.contains(0), apart.direct.contains(0)) {
                (false, false) => ItemKind::TooShort,
                (true, false) => ItemKind::Tbsn,
                (false, true) => ItemKind::Exrw,
                (true, true) => panic!("in one place at a time"),
            })
            .collect())
    }

    #[test]
    fn every_kind_has_its_ways_in_order() {
        use ItemKind::{Exrw, Tbsn, TooShort};
        let both = Can { place: true, write: true };
        let (sends, writes) = (Can { write: false, ..both }, Can { place: false, ..both });
        let neither = Can { place: false, write: false };
        let table: [(WantKind, bool, [&[ItemKind]; 4]); 6] = [
            (WantKind::Exrw, false, [&[Exrw], &[TooShort], &[Exrw], &[TooShort]]),
            (
                WantKind::Tbsn,
                true,
                [&[Tbsn, TooShort], &[Tbsn, TooShort], &[TooShort], &[TooShort]],
            ),
            (WantKind::Choice, true, [&[Tbsn, Exrw], &[Tbsn, TooShort], &[Exrw], &[TooShort]]),
            (WantKind::BySize, true, [&[Tbsn, Exrw], &[Tbsn, TooShort], &[Exrw], &[TooShort]]),
            (WantKind::BySize, false, [&[Exrw], &[Tbsn, TooShort], &[Exrw], &[TooShort]]),
            (WantKind::Choice, false, [&[Exrw], &[Tbsn, TooShort], &[Exrw], &[TooShort]]),
        ];
        for (kind, rather, due) in table {
            // Only what offers memory has room.
            let room = if kind == WantKind::Tbsn { 0 } else { 100 };
            for (can, due) in [both, sends, writes, neither].into_iter().zip(due) {
                let ways = ways(found(kind, rather, room), can).expect("it fits");
                assert_eq!(&ways[..], due, "{kind:?} {rather} {can:?}");
                // Table 2 holds for every choice.
                assert!(ways.iter().all(|result| kind.duty(*result).is_some()));
            }
        }
    }

    #[test]
    fn rdma_write_is_preferred_to_inline() {
        let item = |position| BulkItem { position, len: 100, origin: 0, pieces: 1 };
        let (items, can) = ([item(8), item(108)], Can { place: true, write: true });
        let mut matches = Matches::new();
        matches.push(found(WantKind::Choice, true, 100));
        matches.push(Match { item: Some(1), ..found(WantKind::Tbsn, true, 0) });
        let tried = choices(&matches, &items, can).expect("it fits");
        let of = |members: &[usize]| {
            let mut set = ItemSet::EMPTY;
            members.iter().for_each(|index| set.insert(*index));
            set
        };
        let apart = |placed, direct| Apart { placed: of(placed), direct: of(direct) };
        assert_eq!(tried[..], [apart(&[0, 1], &[]), apart(&[1], &[0]), apart(&[], &[0])]);
    }

    #[test]
    fn memory_that_is_too_small_is_not_used() {
        let both = Can { place: true, write: true };
        let small = |kind| ways(found(kind, false, 99), both);
        let too_small = SendError::RoomTooSmall { need: 100, have: 99 };
        assert_eq!(small(WantKind::Exrw), Err(too_small));
        for kind in [WantKind::Choice, WantKind::BySize] {
            let ways = small(kind).expect("by Send");
            assert_eq!(ways[..], [ItemKind::Tbsn, ItemKind::TooShort]);
        }
        // No memory at all asks for the item in line.
        let none = ways(found(WantKind::Exrw, false, 0), both).expect("in line");
        assert_eq!(none[..], [ItemKind::TooShort]);
    }

    #[test]
    fn short_items_stay_inline() {
        let both = Can { place: true, write: true };
        for kind in WANTS {
            let short = Match { is_apart: false, ..found(kind, true, 1000) };
            assert_eq!(ways(short, both).expect("in line")[..], [ItemKind::TooShort]);
        }
    }
}
