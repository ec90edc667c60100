//! Call timeouts: own calls that are not answered in time.
//!
//! Making and answering calls costs nothing here. Every tick checks a part of the call table, all
//! of it in an eighth of the timeout, and records when it first saw the call in a slot. The table
//! identifies calls: a repeated xid belongs to another call.

use std::time::Duration;

use rpcrdma_proto::CallTable;

use crate::clock::nanos;

/// The time at which each call was first seen.
#[derive(Debug)]
pub(crate) struct CallTimeouts {
    timeout: u64,
    /// By slot, in nanoseconds of the shard's clock. Empty if there is no timeout.
    since: Box<[u64]>,
    next: u32,
    per_tick: u32,
}

impl CallTimeouts {
    /// For `calls` slots, checked every `tick` nanoseconds.
    pub fn new(timeout: Option<Duration>, calls: u32, tick: u64) -> CallTimeouts {
        let Some(timeout) = timeout else {
            return CallTimeouts { timeout: u64::MAX, since: Box::new([]), next: 0, per_tick: 0 };
        };
        let timeout = nanos(timeout);
        let ticks = u32::try_from(timeout / ROUNDS / tick).unwrap_or(u32::MAX).max(1);
        let since = vec![0; calls as usize].into();
        CallTimeouts { timeout, since, next: 0, per_tick: calls.div_ceil(ticks) }
    }

    /// Slots to check in one tick.
    pub fn per_tick(&self) -> u32 {
        self.per_tick
    }

    /// Checks the next slot. Returns the peer of its call, if that has waited for at least the
    /// timeout, and at most a quarter longer if no tick is missed.
    pub fn look(&mut self, calls: &mut CallTable, now: u64) -> Option<u32> {
        let (slot, slots) = (self.next, self.since.len() as u32);
        let since = self.since.get_mut(slot as usize)?;
        self.next = if slot + 1 < slots { slot + 1 } else { 0 };
        let (peer, was_seen) = calls.look_at(slot)?;
        if !was_seen {
            *since = now;
        }
        (now.saturating_sub(*since) >= self.timeout).then_some(peer)
    }
}

/// How often all slots are checked within the timeout.
const ROUNDS: u64 = 8;

#[cfg(test)]
mod tests {
    use rpcrdma_proto::{CallId, CallState, Role};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sent(calls: &mut CallTable) -> CallId {
        let id = calls.open(Role::Client, 7, 0).expect("free");
        calls.find_mut(id.xid(), 7).expect("open").1.state = CallState::Sent;
        id
    }

    #[test]
    fn a_reused_xid_does_not_identify_the_earlier_call() {
        let mut calls = CallTable::new(1);
        let mut call_timeouts = CallTimeouts::new(Some(Duration::from_secs(1)), 1, SECOND / 8);
        let first = sent(&mut calls);
        assert_eq!(call_timeouts.look(&mut calls, 1), None);
        // Its generations wrap, and the slot is free whenever it is checked.
        for now in 1..10 {
            calls.remove(first, 7).expect("open");
            assert_eq!(call_timeouts.look(&mut calls, now * SECOND), None);
            calls.number_from(0);
            assert_eq!(sent(&mut calls), first);
        }
        assert_eq!(call_timeouts.look(&mut calls, 10 * SECOND), None, "it was just made");
        assert_eq!(call_timeouts.look(&mut calls, 11 * SECOND), Some(7), "it is late");
    }

    #[test]
    fn a_call_is_late_one_timeout_after_it_was_first_seen() {
        let mut calls = CallTable::new(1);
        let mut call_timeouts = CallTimeouts::new(Some(Duration::from_secs(1)), 1, SECOND / 8);
        for start in [1, 1000 * SECOND] {
            let id = sent(&mut calls);
            assert_eq!(call_timeouts.look(&mut calls, start), None);
            assert_eq!(call_timeouts.look(&mut calls, start + SECOND - 1), None);
            assert_eq!(call_timeouts.look(&mut calls, start + SECOND), Some(7));
            calls.remove(id, 7).expect("open");
        }
    }
}
