//! Calls with an XID chosen by the program: a repeated call has the XID of the first, so that its
//! server recognizes it.
//!
//! ```text
//!   slot of the low bits of the xid ──first──▶ slot of a call ──next──▶ slot of another ──▶ ...
//! ```
//! Such a call lies in any slot, which saves its own newest generation. For each value of the low
//! bits there is a list of calls, which is searched when the short way finds nothing. The slot that
//! the low bits name skips the generation of the xid.

use super::{
    CHOSEN, CONTROL_XIDS, CallEntry, CallId, CallName, CallState, CallTable, Ended, NONE,
    generations, next_generation,
};
use crate::error::SendError;
use crate::settings::Role;

impl CallTable {
    /// Replaces the xid of a newly opened call by this one.
    ///
    /// # Errors
    /// [`SendError`] if calls of this role cannot have the xid, or a call of the connection has it.
    #[cold]
    pub fn choose(
        &mut self,
        role: Role,
        id: CallId,
        peer: u32,
        xid: u32,
    ) -> Result<CallId, SendError> {
        let (min, max) = (role.xid_bit() | CONTROL_XIDS, role.xid_bit() | !CHOSEN);
        if !(min..=max).contains(&xid) {
            return Err(SendError::XidNotOurs { xid, min, max });
        }
        let at = self.place_of(id.0, peer).ok_or(SendError::UnknownCall)?;
        if self.slots[at].entry.state != CallState::Opened {
            return Err(SendError::UnknownCall);
        }
        if xid == id.0 {
            return Ok(id);
        }
        if self.place_of(xid, peer).is_some() {
            return Err(SendError::XidInUse { xid });
        }
        let natural = self.index_of(xid);
        // A slot must keep a generation of its own.
        if self.list(natural).count() as u32 >= generations(self.slot_bits) - 1 {
            return Err(SendError::TableFull { max: self.slots() });
        }
        match self.slots[at].peer & CHOSEN {
            0 => self.aside[at].xid = self.slots[at].xid,
            _ => self.unlink(at),
        }
        let list = self.list_of(natural);
        self.rename(at);
        self.aside[at].next = core::mem::replace(&mut self.aside[list].first, at as u32);
        (self.slots[at].xid, self.slots[at].peer) = (xid, peer | CHOSEN);
        self.set_stop(natural);
        Ok(CallId(xid))
    }

    /// Makes a slot skip the generations of chosen xids that would be next.
    #[cold]
    pub(super) fn pass(&mut self, index: u32) {
        let bits = self.slot_bits;
        let mut last = self.slots[index as usize].xid >> bits;
        while let next @ 1.. = next_generation(last, bits)
            && self.chosen_of(index).any(|chosen| chosen == next)
        {
            last = next;
        }
        self.slots[index as usize].xid = (last & generations(bits)) << bits | index;
        self.set_stop(index);
    }

    #[cold]
    pub(super) fn find_chosen(&self, xid: u32, peer: u32) -> Option<(CallId, &CallEntry)> {
        let at = self.chosen_place(xid, peer)?;
        Some((CallId(xid), &self.slots[at].entry))
    }

    #[cold]
    pub(super) fn find_chosen_mut(
        &mut self,
        xid: u32,
        peer: u32,
    ) -> Option<(CallId, &mut CallEntry)> {
        let at = self.chosen_place(xid, peer)?;
        Some((CallId(xid), &mut self.slots[at].entry))
    }

    #[cold]
    pub(super) fn remove_chosen(&mut self, id: CallId, peer: u32) -> Option<Ended> {
        self.chosen_place(id.0, peer)?;
        let (at, ended) = self.take_out(id, peer)?;
        let slot = &mut self.slots[at];
        (slot.peer, slot.next_free) = (NONE, self.free);
        self.free = at as u32;
        self.len -= 1;
        Some(ended)
    }

    /// Restores the own xid of a call's slot, and returns what the call held.
    pub(super) fn take_out(&mut self, id: CallId, peer: u32) -> Option<(usize, Ended)> {
        let at = self.place_of(id.0, peer)?;
        if self.slots[at].peer & CHOSEN != 0 {
            self.unlink(at);
            (self.slots[at].xid, self.slots[at].peer) = (self.aside[at].xid, peer);
            // The slot may assign the chosen xid later.
            self.rename(at);
        }
        let CallEntry { credits, receives, token, timer, .. } = self.slots[at].entry;
        Some((at, Ended { credits, receives, token, timer }))
    }

    /// The slot of a call with an own or a chosen xid.
    pub(super) fn place_of(&self, xid: u32, peer: u32) -> Option<usize> {
        let index = self.index_of(xid) as usize;
        let slot = self.slots.get(index);
        let is_it = slot.is_some_and(|slot| slot.xid == xid && slot.peer == peer);
        if is_it { Some(index) } else { self.chosen_place(xid, peer) }
    }

    /// The identity of the call in a slot.
    pub(super) fn name_in(&self, at: usize) -> CallName {
        CallName { id: CallId(self.slots[at].xid), serial: self.aside[at].serial }
    }

    /// From now on the calls in a slot have new names, with any xid.
    #[cold]
    pub(super) fn rename(&mut self, at: usize) {
        self.serials += 1;
        self.aside[at].serial = self.serials;
    }

    fn chosen_place(&self, xid: u32, peer: u32) -> Option<usize> {
        let is_it = |&at: &usize| {
            let slot = &self.slots[at];
            slot.xid == xid && slot.peer == peer | CHOSEN
        };
        self.list(self.index_of(xid)).find(is_it)
    }

    /// The slots of the calls whose chosen xid may have these low bits.
    fn list(&self, natural: u32) -> impl Iterator<Item = usize> + '_ {
        let first = self.aside[self.list_of(natural)].first;
        let here = |at: u32| (at != NONE).then_some(at as usize);
        core::iter::successors(here(first), move |&at| here(self.aside[at].next))
    }

    /// The head of the list of these low bits: there are fewer slots than values.
    fn list_of(&self, natural: u32) -> usize {
        natural as usize % self.slots.len()
    }

    /// Removes a slot from its list.
    fn unlink(&mut self, at: usize) {
        let (natural, next) = (self.index_of(self.slots[at].xid), self.aside[at].next);
        let before = self.list(natural).find(|&it| self.aside[it].next == at as u32);
        match before {
            Some(before) => self.aside[before].next = next,
            None => {
                let list = self.list_of(natural);
                self.aside[list].first = next;
            }
        }
    }

    /// Makes a slot check before the next generation that it must skip.
    pub(super) fn set_stop(&mut self, index: u32) {
        let Some(slot) = self.slots.get(index as usize) else { return };
        let is_chosen = slot.peer != NONE && slot.peer & CHOSEN != 0;
        let newest = if is_chosen { self.aside[index as usize].xid } else { slot.xid };
        let (bits, mask) = (self.slot_bits, generations(self.slot_bits));
        // From the next one on, once around.
        let ahead = |to: &u32| to.wrapping_sub(newest >> bits).wrapping_sub(1) & mask;
        let stop = self.chosen_of(index).chain([0]).min_by_key(ahead);
        self.slots[index as usize].stop = stop.unwrap_or(0) << bits | index;
    }

    /// The generations of chosen xids with the low bits of a slot.
    fn chosen_of(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let xids = self.list(index).map(|at| self.slots[at].xid);
        let xids = xids.filter(move |&xid| self.index_of(xid) == index);
        xids.map(|xid| (xid & !CHOSEN) >> self.slot_bits)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::calls::TableFull;
    use crate::calls::tests::short_lived;

    const ROLE: Role = Role::Client;

    fn chosen(table: &mut CallTable, peer: u32, xid: u32) -> CallId {
        let id = table.open(ROLE, peer, u64::from(xid)).expect("free");
        table.choose(ROLE, id, peer, xid).expect("no other call has it")
    }

    #[test]
    fn an_xid_is_refused_that_is_not_of_this_side_or_in_use() {
        let mut table = CallTable::new(16);
        table.number_from(1000);
        for (role, bit) in [(Role::Client, 0), (Role::Server, 1 << 31)] {
            let id = table.open(role, 0, 0).expect("free");
            let (min, max) = (bit | 16, bit | 0x7fff_ffff);
            for xid in [bit, bit | 15, bit ^ 1 << 31, bit ^ 1 << 31 | 16, !bit] {
                let refused = SendError::XidNotOurs { xid, min, max };
                assert_eq!(table.choose(role, id, 0, xid), Err(refused));
            }
            for xid in [min, max] {
                let id = table.open(role, 0, 0).expect("free");
                assert_eq!(table.choose(role, id, 0, xid).map(CallId::xid), Ok(xid));
            }
        }
        let own = table.open(ROLE, 0, 0).expect("free");
        let other = table.open(ROLE, 0, 0).expect("free");
        assert_eq!(table.choose(ROLE, own, 0, own.xid()), Ok(own));
        let refused = SendError::XidInUse { xid: own.xid() };
        assert_eq!(table.choose(ROLE, other, 0, own.xid()), Err(refused));
        assert!(table.find(other.xid(), 0).is_some(), "it is as before");
        // Another connection has xids of its own.
        let elsewhere = table.open(ROLE, 1, 7).expect("free");
        assert!(table.choose(ROLE, elsewhere, 1, own.xid()).is_ok());
        assert_eq!(table.find(own.xid(), 1).map(|(_, entry)| entry.token), Some(7));
        assert_eq!(table.find(own.xid(), 0).map(|(_, entry)| entry.token), Some(0));
        let (_, entry) = table.find_mut(own.xid(), 0).expect("open");
        entry.state = CallState::Sent;
        assert_eq!(table.choose(ROLE, own, 0, 99), Err(SendError::UnknownCall), "it was sent");
    }

    #[test]
    fn no_slot_gives_out_an_xid_that_is_chosen() {
        let sets = [&[1, 2, 3][..], &[7, 1], &[5, 4, 6, 7, 3], &[2], &[1, 3, 5, 7], &[4, 3, 2, 1]];
        for (seed, generations) in (0..8).flat_map(|seed| sets.map(|set| (seed, set))) {
            let mut table = short_lived(seed);
            // Low bits of a slot that is used over and over again, and of none.
            let xids = generations.iter().flat_map(|it| [it << 28 | 9, it << 28 | 16]);
            let xids: Vec<u32> = xids.filter(|xid| xid % 16 == 9 || seed % 2 == 0).collect();
            // The slots before hold them when that is free again.
            let before: Vec<_> = (0..10).map(|_| table.open(ROLE, 3, 0).expect("free")).collect();
            let used = before.iter().map(|id| id.xid()).collect::<Vec<_>>();
            let free: Vec<u32> = xids.iter().copied().filter(|xid| !used.contains(xid)).collect();
            before.iter().take(9).for_each(|id| _ = table.remove(*id, 3).expect("open"));
            let held: Vec<CallId> =
                free.iter().take(9).map(|&xid| chosen(&mut table, 3, xid)).collect();
            table.remove(before[9], 3).expect("open");
            let mut seen = HashMap::new();
            for _ in 0..16 * 7 * 3 {
                let id = table.open(ROLE, 3, 0).expect("free");
                assert!(!held.contains(&id) && id.xid() >> 28 != 0, "{:#x}", id.xid());
                *seen.entry(id).or_insert(0) += 1;
                table.remove(id, 3).expect("open");
            }
            let barred = held.iter().filter(|id| id.xid() % (1 << 28) == 9).count();
            assert_eq!(seen.len(), (16 - held.len()) * 7 - barred, "all others are used");
            held.iter().for_each(|id| _ = table.remove(*id, 3).expect("open"));
            assert!(table.is_empty());
        }
    }

    #[test]
    fn chosen_xids_leave_each_slot_one_generation() {
        let mut table = short_lived(0);
        let mut refused = None;
        for generation in 1..=7 {
            let id = table.open(ROLE, 3, 0).expect("free");
            if let Err(why) = table.choose(ROLE, id, 3, generation << 28 | 15) {
                assert_eq!(why, SendError::TableFull { max: 16 });
                refused = Some(generation);
            }
        }
        assert_eq!(refused, Some(7));
        let all: Vec<_> = (7..16).map(|_| table.open(ROLE, 3, 0).expect("free")).collect();
        assert_eq!(all.last().map(|id| id.xid()), Some(7 << 28 | 15), "the one that is left");
        assert_eq!(table.open(ROLE, 3, 0), Err(TableFull { max: 16 }));
        for id in all {
            table.remove(id, 3).expect("open");
        }
    }

    #[test]
    fn a_slot_goes_on_where_it_was_when_a_chosen_xid_has_left_it() {
        let mut table = CallTable::new(1);
        table.number_from(100);
        for round in 0..5 {
            // That of its own slot, before and behind its own generations, and another's.
            for xid in [50 << 4, 5000 << 4, 77 << 4 | 13] {
                let id = chosen(&mut table, 2, xid);
                assert_eq!(table.open(ROLE, 2, 0), Err(TableFull { max: 1 }));
                assert!(table.remove(id, 2).is_some() && table.remove(id, 2).is_none());
            }
            let id = table.open(ROLE, 2, 0).expect("free");
            assert_eq!(id.xid() >> 4, 100 + (round + 1) * 4);
            table.remove(id, 2).expect("open");
        }
    }

    #[test]
    fn a_repetition_has_another_name() {
        let mut table = CallTable::new(4);
        let mut names = Vec::new();
        for _ in 0..3 {
            let id = chosen(&mut table, 2, 0x1234);
            names.push(table.name(id, 2).expect("open"));
            table.remove(id, 2).expect("open");
        }
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
        assert_eq!(names[0].id, names[2].id);
    }

    #[test]
    fn no_call_has_the_name_of_another_although_its_xid_comes_again() {
        for seed in 0..7 {
            let (mut table, mut names) = (short_lived(seed), HashMap::new());
            let mut see = |table: &CallTable, id, round: u32| {
                let name = table.name(id, 3).expect("open");
                assert_eq!(names.insert(name, round), None, "{name:?} {round}");
            };
            for round in 0..16 * 7 * 4 {
                let id = table.open(ROLE, 3, 0).expect("free");
                see(&table, id, round);
                // What its slot gives out later, an xid of another slot, and one of the slot's own.
                let later = id.xid() % (6 << 28) + (1 << 28);
                let other = match round % 4 {
                    0 => table.choose(ROLE, id, 3, later).expect("free"),
                    1 => table.choose(ROLE, id, 3, 3 << 28 | 9).expect("free"),
                    _ => id,
                };
                if other != id {
                    see(&table, other, round);
                }
                let id = other;
                table.remove(id, 3).expect("open");
            }
        }
    }

    proptest! {
        #[test]
        fn the_table_behaves_as_a_map_for_own_and_chosen_xids(
            size in 1u32..24,
            ops in proptest::collection::vec((0u8..4, 0u32..3, any::<u8>(), 0u32..64), 0..300),
        ) {
            let mut table = CallTable::new(size);
            let mut model: HashMap<(u32, u32), u64> = HashMap::new();
            let mut ids = Vec::new();
            for (serial, (op, peer, pick, xid)) in ops.into_iter().enumerate() {
                let token = serial as u64;
                if op < 3 {
                    let Ok(id) = table.open(ROLE, peer, token) else {
                        prop_assert_eq!(model.len() as u32, size);
                        continue;
                    };
                    prop_assert!(!model.contains_key(&(peer, id.xid())), "{:#x}", id.xid());
                    let mut id = id;
                    if op > 0 {
                        // Few low bits, so that they meet; and what the slots give out next.
                        let xid = 16 + xid;
                        let is_in_use = model.contains_key(&(peer, xid));
                        match table.choose(ROLE, id, peer, xid) {
                            Ok(chosen) => id = chosen,
                            Err(why) => prop_assert_eq!(why, SendError::XidInUse { xid }),
                        }
                        prop_assert_eq!(id.xid() == xid, !is_in_use);
                    }
                    model.insert((peer, id.xid()), token);
                    ids.push(id);
                } else if !ids.is_empty() {
                    let id = ids[usize::from(pick) % ids.len()];
                    let expected = model.remove(&(peer, id.xid()));
                    let found = table.find(id.xid(), peer).map(|(_, entry)| entry.token);
                    prop_assert_eq!(found, expected);
                    prop_assert_eq!(table.remove(id, peer).map(|it| it.token), expected);
                }
                prop_assert_eq!(table.len() as usize, model.len());
                for (&(peer, xid), &token) in &model {
                    prop_assert_eq!(table.find(xid, peer).map(|(_, it)| it.token), Some(token));
                    prop_assert_eq!(
                        table.find_mut(xid, peer).map(|(_, it)| it.token),
                        Some(token)
                    );
                }
                for peer in 0..3 {
                    let (mut start, mut count) = (0, 0);
                    while let Some((id, next)) = table.next_of(peer, start) {
                        prop_assert!(model.contains_key(&(peer, id.xid())));
                        (start, count) = (next, count + 1);
                    }
                    prop_assert_eq!(count, model.keys().filter(|(of, _)| *of == peer).count());
                }
            }
        }
    }
}
