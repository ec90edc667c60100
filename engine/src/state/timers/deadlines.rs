//! The deadlines of own calls, and cancelled calls.
//!
//! Indexed by call slot, and written only for calls with a deadline. A call that ends leaves its
//! slot in the wheel: the next call with a deadline sets another time, and of any other the entry
//! in the call table states that it has none.

use rpcrdma_proto::{CallId, CallName, CallState, CallTable};

use super::wheel::Wheel;

/// The calls that have a deadline, by slot, and those that were cancelled.
pub(crate) struct Deadlines {
    wheel: Wheel,
    /// Of each slot, whether it is in the list of cancelled calls.
    is_cancelled: Box<[bool]>,
    /// Cancelled calls; at most one per slot.
    cancelled: Vec<(u32, CallName)>,
}

impl Deadlines {
    /// For this number of slots.
    pub fn new(slots: u32) -> Deadlines {
        let count = slots as usize;
        Deadlines {
            wheel: Wheel::new(slots),
            is_cancelled: vec![false; count].into(),
            cancelled: Vec::with_capacity(count),
        }
    }

    /// Records the deadline of the call in a slot. The caller marks the call's entry. True if
    /// [`Deadlines::next`] may have changed.
    #[inline]
    pub fn arm(&mut self, slot: u32, at: u64) -> bool {
        self.wheel.arm(slot, at)
    }

    /// The time before which no deadline passes.
    #[inline]
    pub fn next(&self) -> u64 {
        self.wheel.next()
    }

    /// Records that the program cancelled the call in a slot.
    pub fn cancel(&mut self, slot: u32, call: CallName) {
        let Some(is_cancelled) = self.is_cancelled.get_mut(slot as usize) else { return };
        if core::mem::replace(is_cancelled, true) {
            // An earlier call in the slot, which has ended since, or the same.
            self.cancelled.retain(|(of, _)| *of != slot);
        }
        self.cancelled.push((slot, call));
    }

    /// A cancelled call, with its peer, if it is still open.
    pub fn next_cancelled(&mut self, calls: &CallTable) -> Option<(CallId, u32)> {
        while let Some((slot, call)) = self.cancelled.pop() {
            self.is_cancelled[slot as usize] = false;
            if let Some((name, peer, _)) = calls.in_slot(slot)
                && name == call
            {
                return Some((call.id, peer));
            }
        }
        None
    }

    /// A call whose deadline has passed, with its peer. Each of at most `looks` calls is looked at;
    /// if that were too few, the next call continues.
    pub fn next_late(
        &mut self,
        calls: &CallTable,
        now: u64,
        looks: &mut u32,
    ) -> Option<(CallId, u32)> {
        while let Some(slot) = self.wheel.due(now, looks) {
            if let Some((name, peer, entry)) = calls.in_slot(slot)
                && entry.is_timed
                && !matches!(entry.state, CallState::Opened | CallState::Abandoned)
            {
                return Some((name.id, peer));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_proto::settings::Role;

    use super::*;
    use crate::state::timers::wheel::GRANULARITY;

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
        let mut looks = u32::MAX;
        let next = || deadlines.next_late(table, now, &mut looks).map(|(id, _)| id);
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn a_deadline_does_not_apply_to_the_next_call_in_the_slot() {
        let (mut table, mut deadlines) = (CallTable::new(1), Deadlines::new(1));
        let [first_at, third_at] = [1, 3].map(|at| at * GRANULARITY);
        let first = sent(&mut table, &mut deadlines, Some(first_at));
        assert!(late(&table, &mut deadlines, first_at - 1).is_empty());
        table.remove(first, 0).expect("open");
        // Without a deadline, and with the xid of the first.
        let second = sent(&mut table, &mut deadlines, None);
        assert!(late(&table, &mut deadlines, first_at).is_empty());
        table.remove(second, 0).expect("open");
        let third = sent(&mut table, &mut deadlines, Some(third_at));
        assert!(late(&table, &mut deadlines, third_at - 1).is_empty());
        assert_eq!(late(&table, &mut deadlines, third_at), [third]);
        assert!(late(&table, &mut deadlines, third_at + 1).is_empty(), "once");
        assert_eq!(deadlines.next(), u64::MAX);
    }

    #[test]
    fn twenty_thousand_deadlines_are_kept_to_a_millisecond() {
        const CALLS: u32 = 20_000;
        const STEP: u64 = GRANULARITY / 4;
        let (mut table, mut deadlines) = (CallTable::new(CALLS), Deadlines::new(CALLS));
        let mut until = std::collections::HashMap::new();
        for spread in 0..u64::from(CALLS) {
            // Over 1000 ticks; some beyond the end.
            let at = (1 + spread * 7919 % 1000) * GRANULARITY + spread % GRANULARITY;
            until.insert(sent(&mut table, &mut deadlines, Some(at)), at);
        }
        let (mut looks_max, mut turns) = (0, 0);
        for now in (1..4000).map(|turn| turn * STEP) {
            if now < deadlines.next() {
                continue;
            }
            turns += 1;
            let mut looks = 256;
            while let Some((id, _)) = deadlines.next_late(&table, now, &mut looks) {
                let at = until.remove(&id).expect("once");
                assert!(at <= now && now < at + GRANULARITY + 2 * STEP, "{at} at {now}");
                table.remove(id, 0).expect("open");
            }
            looks_max = looks_max.max(256 - looks);
        }
        assert!(until.values().all(|at| *at + GRANULARITY > 3999 * STEP), "{}", until.len());
        // A turn in which no bucket comes looks at nothing.
        assert!(turns <= 2000 && looks_max == 256, "{turns} {looks_max}");
    }

    #[test]
    fn a_call_in_a_slot_has_its_own_deadline_earlier_or_later_than_the_last() {
        let (mut table, mut deadlines) = (CallTable::new(1), Deadlines::new(1));
        for at in [50, 70, 60, 1 << 20, 80, 81].map(|at| at * GRANULARITY) {
            let passed = sent(&mut table, &mut deadlines, Some(at));
            assert!(late(&table, &mut deadlines, at - GRANULARITY).is_empty());
            table.remove(passed, 0).expect("open");
        }
        let last = sent(&mut table, &mut deadlines, Some((1 << 20 | 5) * GRANULARITY));
        assert!(late(&table, &mut deadlines, (1 << 20 | 4) * GRANULARITY).is_empty());
        assert_eq!(late(&table, &mut deadlines, (1 << 20 | 5) * GRANULARITY), [last]);
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
