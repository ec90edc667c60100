//! The deadlines of own calls, and cancelled calls.
//!
//! ```text
//!   arm ──▶ listed, a slot once ──looked at: its call is over──▶ not listed
//!                                 └─────── its time has come ──▶ not listed, to be ended
//! ```
//! Indexed by call slot, and written only for calls with a deadline. The entry in the call table
//! states whether the record belongs to the slot's current call.

use rpcrdma_proto::{CallId, CallName, CallState, CallTable};

/// The calls that have a deadline, by slot, and those that were cancelled.
pub(crate) struct Deadlines {
    slots: Box<[Until]>,
    /// Slots that had a call with a deadline; each once.
    listed: Vec<u32>,
    /// The position of the next one to check.
    next: usize,
    /// The number of checks in one tick.
    per_tick: usize,
    /// Cancelled calls; at most one per slot.
    cancelled: Vec<(u32, CallName)>,
}

#[derive(Debug, Clone, Copy)]
struct Until {
    /// In nanoseconds of the shard's clock.
    at: u64,
    is_listed: bool,
    is_cancelled: bool,
}

impl Deadlines {
    /// For this number of slots.
    pub fn new(slots: u32) -> Deadlines {
        let count = slots as usize;
        Deadlines {
            slots: vec![Until { at: 0, is_listed: false, is_cancelled: false }; count].into(),
            listed: Vec::with_capacity(count),
            next: 0,
            per_tick: count.div_ceil(ROUND).max(LOOKS_MIN),
            cancelled: Vec::with_capacity(count),
        }
    }

    /// Records the deadline of the call in a slot. The caller marks the call's entry.
    pub fn arm(&mut self, slot: u32, at: u64) {
        let Some(until) = self.slots.get_mut(slot as usize) else { return };
        until.at = at;
        if !core::mem::replace(&mut until.is_listed, true) {
            self.listed.push(slot);
        }
    }

    /// Records that the program cancelled the call in a slot.
    pub fn cancel(&mut self, slot: u32, call: CallName) {
        let Some(until) = self.slots.get_mut(slot as usize) else { return };
        if core::mem::replace(&mut until.is_cancelled, true) {
            // An earlier call in the slot, which has ended since, or the same.
            self.cancelled.retain(|(of, _)| *of != slot);
        }
        self.cancelled.push((slot, call));
    }

    /// A cancelled call, with its peer, if it is still open.
    pub fn next_cancelled(&mut self, calls: &CallTable) -> Option<(CallId, u32)> {
        while let Some((slot, call)) = self.cancelled.pop() {
            self.slots[slot as usize].is_cancelled = false;
            if let Some((name, peer, _)) = calls.in_slot(slot)
                && name == call
            {
                return Some((call.id, peer));
            }
        }
        None
    }

    /// The number of calls to check in one tick.
    pub fn looks(&self) -> usize {
        self.per_tick.min(self.listed.len())
    }

    /// Checks the next call. Returns it, with its peer, if its deadline has passed.
    pub fn look(&mut self, calls: &CallTable, now: u64) -> Option<(CallId, u32)> {
        if self.next >= self.listed.len() {
            self.next = 0;
        }
        let slot = *self.listed.get(self.next)?;
        let until = &mut self.slots[slot as usize];
        let call = calls.in_slot(slot).filter(|(_, _, entry)| {
            let is_waited_for = !matches!(entry.state, CallState::Opened | CallState::Abandoned);
            entry.is_timed && is_waited_for
        });
        if call.is_some() && now < until.at {
            self.next += 1;
            return None;
        }
        until.is_listed = false;
        self.listed.swap_remove(self.next);
        call.map(|(name, peer, _)| (name.id, peer))
    }
}

/// The number of ticks in which every call is checked.
const ROUND: usize = 8;
/// The minimum of calls checked in one tick, if there are so many.
const LOOKS_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use rpcrdma_proto::settings::Role;

    use super::*;

    fn sent(table: &mut CallTable, deadlines: &mut Deadlines, at: Option<u64>) -> CallId {
        let id = table.open(Role::Client, 0, 0).expect("free");
        let slot = table.slot(id, 0).expect("open");
        let (_, entry) = table.find_mut(id.xid(), 0).expect("open");
        (entry.state, entry.is_timed) = (CallState::Sent, at.is_some());
        if let Some(at) = at {
            deadlines.arm(slot, at);
        }
        id
    }

    fn late(table: &CallTable, deadlines: &mut Deadlines, now: u64) -> Vec<CallId> {
        let looks = deadlines.looks();
        (0..looks).filter_map(|_| deadlines.look(table, now)).map(|(id, _)| id).collect()
    }

    #[test]
    fn a_deadline_does_not_apply_to_the_next_call_in_the_slot() {
        let (mut table, mut deadlines) = (CallTable::new(1), Deadlines::new(1));
        let first = sent(&mut table, &mut deadlines, Some(100));
        assert!(late(&table, &mut deadlines, 99).is_empty());
        table.remove(first, 0).expect("open");
        // Without a deadline, and with the xid of the first.
        let second = sent(&mut table, &mut deadlines, None);
        assert!(late(&table, &mut deadlines, 100).is_empty());
        table.remove(second, 0).expect("open");
        let third = sent(&mut table, &mut deadlines, Some(300));
        assert!(late(&table, &mut deadlines, 299).is_empty());
        assert_eq!(late(&table, &mut deadlines, 300), [third]);
        assert!(late(&table, &mut deadlines, 301).is_empty(), "once");
        assert_eq!(deadlines.looks(), 0);
    }

    #[test]
    fn every_call_is_examined_within_eight_ticks() {
        let calls = 20_000;
        let (mut table, mut deadlines) = (CallTable::new(calls), Deadlines::new(calls));
        let mut open: Vec<CallId> = (0..calls)
            .map(|at| sent(&mut table, &mut deadlines, Some(1 + u64::from(at % 2))))
            .collect();
        let mut ended = Vec::new();
        for _tick in 0..ROUND {
            assert!(deadlines.looks() <= calls as usize / ROUND);
            for id in late(&table, &mut deadlines, 1) {
                table.remove(id, 0).expect("open");
                ended.push(id);
            }
        }
        open.retain(|id| !ended.contains(id));
        assert_eq!((ended.len(), open.len()), (10_000, 10_000));
        assert_eq!(deadlines.looks(), calls as usize / ROUND);
    }

    #[test]
    fn an_ended_call_is_not_confused_with_the_next_in_its_slot() {
        let (mut table, mut deadlines) = (CallTable::new(1), Deadlines::new(1));
        let first = sent(&mut table, &mut deadlines, None);
        deadlines.cancel(0, table.name(first, 0).expect("open"));
        table.remove(first, 0).expect("open");
        let second = sent(&mut table, &mut deadlines, None);
        assert_eq!(deadlines.next_cancelled(&table), None);
        for _twice in 0..2 {
            deadlines.cancel(0, table.name(second, 0).expect("open"));
        }
        assert_eq!(deadlines.next_cancelled(&table), Some((second, 0)));
        assert_eq!(deadlines.next_cancelled(&table), None);
    }
}
