//! The call table: own outstanding calls, found by XID without hashing.
//!
//! ```text
//!   xid   31      30 .. bits      bits-1 .. 0
//!       | role |  generation   |    slot     |      role: client 0, server 1 (wire.md B9)
//! ```
//! The generation of a slot grows with every use, so a late reply to an earlier call in the same
//! slot has another xid. A slot whose generations are used up is not used again until those of all others are:
//! servers recognize repeated calls by their xids. Generation 0 is never used for a call: `role | 0
//! | n` are the xids of our control messages, at least 16 of them, so they collide with no call
//! (wire.md P9).
//!
//! The program may choose the xid of a call, which is then independent of its slot: see
//! `calls/chosen.rs`.

mod chosen;

use alloc::boxed::Box;

use thiserror::Error;

use crate::placement::direct::WantSet;
use crate::settings::Role;

/// The most calls that a table can hold.
pub const CALLS_MAX: u32 = 1 << 20;

/// Smaller xids, with the bit of our role, belong to our control messages.
pub(crate) const CONTROL_XIDS: u32 = 16;

/// Identifies an own call; its value is the xid of the RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(u32);

impl CallId {
    /// The xid that the first word of the payload and the transport header carry.
    #[inline]
    #[must_use]
    pub fn xid(self) -> u32 {
        self.0
    }
}

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// It has its xid; nothing is planned.
    Opened,
    /// It is planned: its credits and receives are taken, its reply may arrive.
    Sent,
    /// The first transmission of its reply has arrived, the last has not.
    Replying,
    /// Its complete reply, an invalid one, or an error has arrived: the program has to finish it.
    Answered,
    /// The program has cancelled it. Its reply may still come.
    Abandoned,
}

/// The record of an outstanding call.
#[derive(Debug, Clone, Copy)]
pub struct CallEntry {
    /// Its state.
    pub state: CallState,
    /// Credits that it holds: the transmissions of the call.
    pub credits: u32,
    /// Receives reserved for the rest of its reply.
    pub receives: u32,
    /// The most transmissions that its reply may have (`optxrq_rsbuf`, at least 1).
    pub reply_count_max: u32,
    /// The allowed forms of the reply's items.
    pub wants: WantSet,
    /// Whether it was sent by the extension's operations, the only ones that may answer it.
    pub is_xmt: bool,
    /// The program's name for the call.
    pub token: u64,
    /// The engine's name for the call's exposed memory; [`NO_MARK`] if there is none.
    pub mark: u32,
    /// The engine's name for the timing of the call; [`NO_MARK`] if it is not timed.
    pub timer: u32,
    /// Whether the engine has a deadline for it.
    pub is_timed: bool,
}

/// Identifies a call among all others that its table ever has: an xid may be chosen again, and
/// those of a slot repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallName {
    /// The call, while it is open.
    pub id: CallId,
    /// Distinguishes calls with the same xid. It is constant for the calls of a slot until their
    /// xids repeat.
    serial: u64,
}

/// The mark of a call without exposed memory, and the timer of one that is not timed.
pub const NO_MARK: u32 = u32::MAX;

/// The table is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("all {max} calls are outstanding")]
pub struct TableFull {
    /// The size of the table.
    pub max: u32,
}

/// No slot, or no connection.
pub(crate) const NONE: u32 = u32::MAX;
/// The largest number of a connection.
pub(crate) const PEER_MAX: u32 = !CHOSEN;

/// The bit of the role in an xid.
const ROLE: u32 = 1 << 31;

/// A flag in the connection number: the xid of the call is chosen.
const CHOSEN: u32 = 1 << 31;

/// In the field of the next free slot: the call in this slot was visited. When the call ends, the
/// field names the next free slot again.
const SEEN: u32 = NONE - 1;

/// A place for a call. It is free while it has no peer.
#[derive(Debug, Clone, Copy)]
struct Slot {
    xid: u32,
    /// With [`CHOSEN`] if the xid is chosen: the short way finds no such call.
    peer: u32,
    /// The xid, without a role, at which the slot checks for chosen xids: that of generation 0, or
    /// a chosen one.
    stop: u32,
    /// Of a free slot, and of one that is used [`SEEN`] or anything else.
    next_free: u32,
    entry: CallEntry,
}

/// The data of a slot that chosen xids need.
#[derive(Debug, Clone, Copy)]
struct Aside {
    /// The slot's own newest xid, while it holds a call with a chosen one.
    xid: u32,
    /// The first call whose chosen xid has the low bits of this slot.
    first: u32,
    /// The next such call after the call in this slot.
    next: u32,
    /// With the xid, the name of the call in it: it changes whenever an xid may repeat.
    serial: u64,
}

impl Aside {
    const NOTHING: Self = Self { xid: 0, first: NONE, next: NONE, serial: 0 };
}

const NO_CALL: CallEntry = CallEntry {
    state: CallState::Opened,
    credits: 0,
    receives: 0,
    reply_count_max: 1,
    wants: WantSet::NONE,
    is_xmt: false,
    token: 0,
    mark: NO_MARK,
    timer: NO_MARK,
    is_timed: false,
};

/// What an ended call releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Credits that it held.
    pub credits: u32,
    /// Receives that were reserved for it.
    pub receives: u32,
    /// The program's name for it.
    pub token: u64,
    /// The engine's name for its timing; [`NO_MARK`] if it is not timed.
    pub timer: u32,
}

/// What a call needs to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallNeeds {
    /// Transmissions of the call.
    pub(crate) credits: u32,
    /// Transmissions that its reply may have.
    pub(crate) receives: u32,
    pub(crate) wants: WantSet,
    /// Whether it is a transmit request.
    pub(crate) is_xmt: bool,
}

/// The outstanding calls of all connections of a shard. Every operation is O(1) if chosen xids
/// differ in their low bits.
#[derive(Debug)]
pub struct CallTable {
    slots: Box<[Slot]>,
    free: u32,
    /// The first and the last of the free slots whose generations are used up.
    exhausted: (u32, u32),
    len: u32,
    slot_bits: u32,
    /// The bits of a slot in an xid.
    slot_mask: u32,
    /// The data of each slot that chosen xids need.
    aside: Box<[Aside]>,
    /// The number of serials used in names.
    serials: u64,
}

impl CallTable {
    /// A table for `calls_max` calls. This is the only allocation of the crate.
    ///
    /// # Panics
    /// If `calls_max` is 0 or above [`CALLS_MAX`].
    #[must_use]
    pub fn new(calls_max: u32) -> Self {
        assert!((1..=CALLS_MAX).contains(&calls_max), "1 to {CALLS_MAX} calls, not {calls_max}");
        let slots = (0..calls_max)
            .map(|index| {
                let next_free = if index + 1 < calls_max { index + 1 } else { NONE };
                Slot { xid: index, peer: NONE, stop: index, next_free, entry: NO_CALL }
            })
            .collect();
        let aside = (0..calls_max).map(|_| Aside::NOTHING).collect();
        let slot_bits = u32::BITS - (calls_max.max(CONTROL_XIDS) - 1).leading_zeros();
        let slot_mask = (1 << slot_bits) - 1;
        let (free, exhausted) = (0, (NONE, NONE));
        Self { slots, free, exhausted, len: 0, slot_bits, slot_mask, aside, serials: 0 }
    }

    /// Sets the first generation of all slots from `seed`: servers recognize repeated calls by
    /// their xids, not by the connection (wire.md W24).
    ///
    /// # Panics
    /// If a call is outstanding.
    pub fn number_from(&mut self, seed: u32) {
        assert!(self.is_empty(), "the xids of calls that are outstanding stay");
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.xid = seed << self.slot_bits | index as u32;
            slot.stop = index as u32;
        }
    }

    /// Assigns a new call of the connection `peer` its xid. The slot used last is reused first.
    /// Numbers from 2^31 on are no connections.
    ///
    /// # Errors
    /// [`TableFull`] if as many calls are outstanding as the table holds.
    #[inline]
    pub fn open(&mut self, role: Role, peer: u32, token: u64) -> Result<CallId, TableFull> {
        let Some(slot) = self.slots.get_mut(self.free as usize) else {
            return self.open_exhausted(role, peer, token);
        };
        // The next generation; the bits of the slot stay.
        let next = slot.xid.wrapping_add(self.slot_mask + 1) & !ROLE;
        if next == slot.stop {
            return self.open_exhausted(role, peer, token);
        }
        self.free = slot.next_free;
        self.len += 1;
        slot.xid = role.xid_bit() | next;
        slot.peer = peer;
        (slot.entry.state, slot.entry.is_timed) = (CallState::Opened, false);
        // The plan sets the rest; an unplanned call holds nothing.
        (slot.entry.credits, slot.entry.receives, slot.entry.token) = (0, 0, token);
        (slot.entry.mark, slot.entry.timer) = (NO_MARK, NO_MARK);
        Ok(CallId(slot.xid))
    }

    /// As [`CallTable::open`], if the slot used last has used up its generations, another call has
    /// the next one, or there is no such slot: such slots go to the end of the exhausted ones, which
    /// start anew when no other slot is free.
    #[cold]
    #[inline(never)]
    fn open_exhausted(&mut self, role: Role, peer: u32, token: u64) -> Result<CallId, TableFull> {
        let bits = self.slot_bits;
        loop {
            while self.free != NONE {
                let index = self.free;
                self.pass(index);
                let slot = &mut self.slots[index as usize];
                if next_generation(slot.xid >> bits, bits) != 0 {
                    return self.open(role, peer, token);
                }
                (slot.xid, self.free, slot.next_free) = (index, slot.next_free, NONE);
                self.rename(index as usize);
                self.set_stop(index);
                let last = core::mem::replace(&mut self.exhausted.1, index);
                match self.slots.get_mut(last as usize) {
                    Some(last) => last.next_free = index,
                    None => self.exhausted.0 = index,
                }
            }
            (self.free, _) = core::mem::replace(&mut self.exhausted, (NONE, NONE));
            if self.free == NONE {
                return Err(TableFull { max: self.slots() });
            }
        }
    }

    /// Ends a call and frees its slot.
    #[inline]
    pub fn remove(&mut self, id: CallId, peer: u32) -> Option<Ended> {
        match self.remove_own(id, peer) {
            Some(ended) => Some(ended),
            None => self.remove_chosen(id, peer),
        }
    }

    /// As [`CallTable::remove`], if the table has chosen the xid.
    #[inline(always)]
    pub(crate) fn remove_own(&mut self, id: CallId, peer: u32) -> Option<Ended> {
        let index = self.index_of(id.0);
        let slot = self.slots.get_mut(index as usize)?;
        if slot.xid != id.0 || slot.peer != peer {
            return None;
        }
        slot.peer = NONE;
        slot.next_free = self.free;
        self.free = index;
        self.len -= 1;
        let CallEntry { credits, receives, token, timer, .. } = slot.entry;
        Some(Ended { credits, receives, token, timer })
    }

    /// The call that a message from `peer` names.
    #[inline]
    #[must_use]
    pub fn find(&self, xid: u32, peer: u32) -> Option<(CallId, &CallEntry)> {
        self.find_own(xid, peer).or_else(|| self.find_chosen(xid, peer))
    }

    /// As [`CallTable::find`], if the table has chosen the xid.
    #[inline(always)]
    pub(crate) fn find_own(&self, xid: u32, peer: u32) -> Option<(CallId, &CallEntry)> {
        let slot = self.slots.get(self.index_of(xid) as usize)?;
        (slot.xid == xid && slot.peer == peer).then_some((CallId(xid), &slot.entry))
    }

    /// As [`CallTable::find`], mutable.
    #[inline]
    pub fn find_mut(&mut self, xid: u32, peer: u32) -> Option<(CallId, &mut CallEntry)> {
        if self.find_own(xid, peer).is_some() {
            return self.find_own_mut(xid, peer);
        }
        self.find_chosen_mut(xid, peer)
    }

    /// As [`CallTable::find_own`], mutable.
    #[inline]
    pub(crate) fn find_own_mut(&mut self, xid: u32, peer: u32) -> Option<(CallId, &mut CallEntry)> {
        let index = self.index_of(xid) as usize;
        let slot = self.slots.get_mut(index)?;
        (slot.xid == xid && slot.peer == peer).then_some((CallId(xid), &mut slot.entry))
    }

    /// The next call of a connection in the slots from `start` on, and the slot to continue from,
    /// for the end of the connection. Visits every slot between them.
    #[must_use]
    pub fn next_of(&self, peer: u32, start: u32) -> Option<(CallId, u32)> {
        let slots = self.slots.get(start as usize..)?;
        let at = slots.iter().position(|slot| slot.owner() == Some(peer))?;
        Some((CallId(slots[at].xid), start + at as u32 + 1))
    }

    /// The peer of the call in a slot, if it was sent and has not ended, and whether an earlier
    /// visit has seen the same call. The xid does not identify it: another call may have it by then.
    pub fn look_at(&mut self, slot: u32) -> Option<(u32, bool)> {
        let slot = self.slots.get_mut(slot as usize)?;
        let peer = slot.owner().filter(|_| slot.entry.state != CallState::Opened)?;
        Some((peer, core::mem::replace(&mut slot.next_free, SEEN) == SEEN))
    }

    /// The call in a slot, and its peer.
    #[must_use]
    pub fn in_slot(&self, slot: u32) -> Option<(CallName, u32, &CallEntry)> {
        let place = self.slots.get(slot as usize)?;
        Some((self.name_in(slot as usize), place.owner()?, &place.entry))
    }

    /// The identity of an open call.
    #[must_use]
    pub fn name(&self, id: CallId, peer: u32) -> Option<CallName> {
        Some(self.name_in(self.place_of(id.0, peer)?))
    }

    /// The slot of an open call.
    #[must_use]
    pub fn slot(&self, id: CallId, peer: u32) -> Option<u32> {
        self.place_of(id.0, peer).map(|slot| slot as u32)
    }

    /// Notes that the engine has a deadline for an open call, and returns its slot.
    #[inline]
    pub fn note_deadline(&mut self, id: CallId, peer: u32) -> Option<u32> {
        if let Some((_, entry)) = self.find_own_mut(id.0, peer) {
            entry.is_timed = true;
            return Some(self.index_of(id.0));
        }
        let (_, entry) = self.find_chosen_mut(id.0, peer)?;
        entry.is_timed = true;
        self.slot(id, peer)
    }

    /// Whether the peer of a call may still answer it, or continue an answer.
    #[must_use]
    pub fn may_be_answered(&self, id: CallId, peer: u32) -> bool {
        let state = self.find(id.xid(), peer).map(|(_, entry)| entry.state);
        matches!(state, Some(CallState::Sent | CallState::Replying | CallState::Abandoned))
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Calls outstanding.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no call is outstanding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn index_of(&self, xid: u32) -> u32 {
        xid & self.slot_mask
    }
}

impl Slot {
    /// The connection of its call.
    #[inline]
    fn owner(&self) -> Option<u32> {
        (self.peer != NONE).then_some(self.peer & !CHOSEN)
    }
}

/// The generation after `last`, whose bits above the generation's own are ignored; 0 after the last
/// one.
#[inline]
fn next_generation(last: u32, slot_bits: u32) -> u32 {
    (last + 1) & generations(slot_bits)
}

/// All bits of a generation.
#[inline]
fn generations(slot_bits: u32) -> u32 {
    (1 << (31 - slot_bits)) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_top_bit_states_the_role_and_no_call_has_the_control_xid() {
        let mut table = CallTable::new(1);
        for round in 0..5000 {
            let role = if round % 2 == 0 { Role::Client } else { Role::Server };
            let id = table.open(role, 0, 0).expect("free");
            assert_eq!(id.xid() >> 31 == 1, role == Role::Server);
            assert_ne!(id.xid(), role.xid_bit());
            table.remove(id, 0).expect("open");
        }
    }

    #[test]
    fn the_last_generation_is_followed_by_none() {
        assert_eq!(next_generation(0, 4), 1);
        assert_eq!(next_generation((1 << 27) - 1, 4), 0);
        // The role's bit above the generation is not part of it.
        assert_eq!(next_generation(1 << 27 | 5, 4), 6);
        assert_eq!(next_generation((1 << 11) - 1, 20), 0);
    }

    /// A table of 16 slots with 7 generations each, so that all cases occur soon.
    pub(super) fn short_lived(seed: u32) -> CallTable {
        let mut table = CallTable::new(16);
        (table.slot_bits, table.slot_mask) = (28, (1 << 28) - 1);
        table.number_from(seed);
        table
    }

    #[test]
    fn no_xid_comes_again_before_all_others_were_used() {
        for seed in 0..7 {
            let mut table = short_lived(seed);
            let mut used = HashMap::new();
            // Those after the seed come first, and all others before any repeats.
            let first = 16 * (7 - seed);
            for round in 0..2000 {
                let id = table.open(Role::Client, 0, 0).expect("free");
                assert!(id.xid() >> 28 != 0, "no control message has it");
                let last = used.insert(id.xid(), round);
                let least = if last < Some(first) { first } else { 16 * 7 };
                assert!(last.is_none_or(|last| round - last >= least), "{last:?} {round}");
                table.remove(id, 0).expect("open");
            }
            assert_eq!(used.len(), 16 * 7, "all were used");
        }
    }

    #[test]
    fn calls_under_way_over_the_end_of_generations_keep_their_xids() {
        let mut random = 1_u64;
        let mut draw = |bound: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % bound
        };
        for seed in 0..8 {
            let mut table = short_lived(seed);
            let (mut open, mut used) = (Vec::new(), HashMap::new());
            for round in 0..20_000 {
                let peer = draw(3) as u32;
                let is_full = open.len() == 16;
                match table.open(Role::Server, peer, round) {
                    Ok(id) => {
                        let last = used.insert(id.xid(), round);
                        assert!(last.is_none_or(|last| round - last > 16), "{last:?} {round}");
                        open.push((id, peer, round));
                    }
                    Err(full) => assert!(is_full && full.max == 16),
                }
                while open.len() > draw(24) {
                    let (id, peer, token) = open.swap_remove(draw(open.len()));
                    assert!(table.find(id.xid(), peer + 1).is_none());
                    assert_eq!(table.remove(id, peer).map(|ended| ended.token), Some(token));
                    assert!(table.find(id.xid(), peer).is_none());
                }
                assert_eq!(table.len() as usize, open.len());
            }
        }
    }

    #[test]
    fn calls_are_numbered_from_anywhere_and_keep_their_role_and_slot() {
        for seed in [0, 1, (1 << 27) - 2, (1 << 27) - 1, 1 << 27, u32::MAX] {
            let mut table = CallTable::new(16);
            table.number_from(seed);
            let ids: Vec<_> =
                (0..16).map(|_| table.open(Role::Client, 0, 0).expect("free")).collect();
            for (slot, id) in ids.iter().enumerate() {
                let generation = next_generation(seed & 0x0fff_ffff, 4).max(1);
                assert_eq!(id.xid() >> 4, generation, "from {seed:#x}");
                assert_eq!((id.xid() & 15, id.xid() >> 31), (slot as u32, 0));
                assert!(id.xid() >= CONTROL_XIDS, "no control message has it");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outstanding stay")]
    fn outstanding_calls_are_not_numbered_anew() {
        let mut table = CallTable::new(2);
        table.open(Role::Client, 0, 0).expect("free");
        table.number_from(7);
    }

    #[test]
    fn a_late_reply_finds_nothing_in_the_reused_slot() {
        let mut table = CallTable::new(1);
        let old = table.open(Role::Client, 5, 1).expect("free");
        assert_eq!(table.open(Role::Client, 5, 2), Err(TableFull { max: 1 }));
        table.remove(old, 5).expect("open");
        let new = table.open(Role::Client, 5, 3).expect("free again");
        assert!(table.find(old.xid(), 5).is_none());
        assert!(table.remove(old, 5).is_none());
        assert_eq!(table.find(new.xid(), 5).map(|(_, entry)| entry.token), Some(3));
    }

    #[test]
    fn a_call_is_new_once_whatever_xid_it_has() {
        let mut table = CallTable::new(4);
        for round in 0..10 {
            // As if all generations of its slot had been used.
            table.number_from(0);
            let id = table.open(Role::Client, 5, 0).expect("free");
            assert_eq!((id.xid(), table.look_at(0)), (1 << 4, None), "it was not sent");
            table.find_mut(id.xid(), 5).expect("open").1.state = CallState::Sent;
            assert_eq!(table.look_at(0), Some((5, false)), "round {round}");
            assert_eq!([table.look_at(0), table.look_at(0)], [Some((5, true)); 2]);
            table.remove(id, 5).expect("open");
            assert_eq!([table.look_at(0), table.look_at(1), table.look_at(4)], [None; 3]);
        }
    }

    #[test]
    fn another_peer_does_not_find_the_call() {
        let mut table = CallTable::new(4);
        let id = table.open(Role::Client, 1, 9).expect("free");
        assert!(table.find(id.xid(), 2).is_none());
        assert!(table.find_mut(id.xid(), 2).is_none());
        assert!(table.remove(id, 2).is_none());
        assert!(table.find(id.xid(), 1).is_some());
        // Nor does an xid of the other direction.
        assert!(table.find(id.xid() ^ 1 << 31, 1).is_none());
    }

    #[test]
    fn the_calls_of_a_lost_peer_are_found_one_by_one() {
        let mut table = CallTable::new(8);
        let ids: Vec<_> =
            (0..6).map(|n| table.open(Role::Client, n % 2, 0).expect("free")).collect();
        let mut found = Vec::new();
        let mut start = 0;
        while let Some((id, next)) = table.next_of(1, start) {
            table.remove(id, 1).expect("open");
            found.push(id);
            start = next;
        }
        assert_eq!(found, [ids[1], ids[3], ids[5]]);
        assert_eq!(table.len(), 3);
    }

    proptest! {
        #[test]
        fn the_table_behaves_as_a_map(
            size in 1u32..9,
            ops in proptest::collection::vec((any::<bool>(), 0u32..3, any::<u8>()), 0..200),
        ) {
            let mut table = CallTable::new(size);
            let mut model: HashMap<u32, (u32, u64)> = HashMap::new();
            let mut ids = Vec::new();
            for (serial, (open, peer, pick)) in ops.into_iter().enumerate() {
                if open {
                    match table.open(Role::Client, peer, serial as u64) {
                        Ok(id) => {
                            prop_assert!(model.insert(id.xid(), (peer, serial as u64)).is_none());
                            ids.push(id);
                        }
                        Err(full) => {
                            prop_assert_eq!(full.max, size);
                            prop_assert_eq!(model.len() as u32, size);
                        }
                    }
                } else if !ids.is_empty() {
                    let id = ids[usize::from(pick) % ids.len()];
                    let expected = model.get(&id.xid()).copied().filter(|(of, _)| *of == peer);
                    let found = table.find(id.xid(), peer).map(|(_, entry)| entry.token);
                    prop_assert_eq!(found, expected.map(|(_, token)| token));
                    let removed = table.remove(id, peer).map(|entry| entry.token);
                    prop_assert_eq!(removed, expected.map(|(_, token)| token));
                    if expected.is_some() {
                        model.remove(&id.xid());
                    }
                }
                prop_assert_eq!(table.len() as usize, model.len());
                prop_assert_eq!(table.is_empty(), model.is_empty());
            }
        }
    }
}
