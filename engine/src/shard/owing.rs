//! What peers owe: calls of ours that are not answered in time.
//!
//! Nothing is kept while calls are made and answered. Every tick looks at some of the table of
//! calls, so that it comes round in an eighth of the timeout, and notes which call it saw in a slot
//! and since when: the name of a call tells it from all others in its slot.

use std::time::Duration;

use rpcrdma_proto::CallTable;

/// The calls that were seen, by their slot.
#[derive(Debug)]
pub(crate) struct Owing {
    timeout: u64,
    /// Empty if a peer may owe an answer for ever.
    seen: Box<[Seen]>,
    next: u32,
    per_tick: u32,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The xid, which no other call in this slot has.
    xid: u32,
    /// In nanoseconds of the shard's clock.
    since: u64,
}

impl Owing {
    /// For `calls` slots, looked at every `tick` nanoseconds.
    pub fn new(timeout: Option<Duration>, calls: u32, tick: u64) -> Owing {
        let Some(timeout) = timeout else {
            return Owing { timeout: u64::MAX, seen: Box::new([]), next: 0, per_tick: 0 };
        };
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let ticks = u32::try_from(timeout / ROUNDS / tick).unwrap_or(u32::MAX).max(1);
        let seen = vec![Seen { xid: 0, since: 0 }; calls as usize].into();
        Owing { timeout, seen, next: 0, per_tick: calls.div_ceil(ticks) }
    }

    /// Slots to be looked at in one tick.
    pub fn per_tick(&self) -> u32 {
        self.per_tick
    }

    /// Looks at the next slot. Returns the peer of its call, if that has waited for too long: at
    /// least the timeout, and no more than a quarter longer if no tick is left out.
    pub fn look(&mut self, calls: &CallTable, now: u64) -> Option<u32> {
        let (slot, slots) = (self.next, self.seen.len() as u32);
        let seen = self.seen.get_mut(slot as usize)?;
        self.next = if slot + 1 < slots { slot + 1 } else { 0 };
        let (id, peer) = calls.sent_in(slot)?;
        if seen.xid != id.xid() {
            *seen = Seen { xid: id.xid(), since: now };
            return None;
        }
        (now.saturating_sub(seen.since) >= self.timeout).then_some(peer)
    }
}

/// How often all slots are looked at within the timeout.
const ROUNDS: u64 = 8;
