//! Doorbell batching: short messages wait for others, to share one doorbell.
//!
//! ```text
//!   wait for `batch` messages ──all are there──▶ doorbell ──next poll finds more──▶ batch doubles
//!             └── none came for a while ──▶ doorbell, batch is as many as there were
//! ```
//! Where a doorbell is a system call it costs more than a message. A batch begins with one message,
//! which is not held, and grows only when the next poll finds that the peer had more messages under
//! way. So a caller that waits for each answer is answered at once.

use std::time::Duration;

use crate::clock::nanos;

/// Decides when pending messages leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DoorbellBatching {
    /// The time without a new message after which held ones leave, in nanoseconds; 0 if none is
    /// held.
    gap: u64,
    /// This number of messages leaves without further waiting.
    batch: usize,
    /// The number of messages at the last check, and the time since which it is unchanged.
    seen: usize,
    since: u64,
    /// Some have left since the last poll.
    has_left: bool,
}

impl DoorbellBatching {
    pub fn new(gap: Duration) -> DoorbellBatching {
        DoorbellBatching { gap: nanos(gap), batch: 1, seen: 0, since: 0, has_left: false }
    }

    /// Whether messages are ever held.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.gap > 0
    }

    /// Whether this number of messages leaves now.
    pub fn lets_go(&mut self, count: usize, now: u64) -> bool {
        if count > self.seen {
            self.seen = count;
            self.since = now;
        }
        let is_batch = count >= self.batch;
        if !is_batch && now.saturating_sub(self.since) < self.gap {
            return false;
        }
        if !is_batch {
            self.batch = count.max(1);
        }
        true
    }

    /// Records that they have left.
    pub fn on_left(&mut self) {
        self.seen = 0;
        self.has_left = true;
    }

    /// Records the number of polled messages.
    pub fn on_polled(&mut self, count: usize) {
        if core::mem::take(&mut self.has_left) && count > 0 {
            self.batch = (self.batch * 2).min(BATCH_MAX);
        }
    }
}

/// The maximum of held messages: a chain.
const BATCH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: u64 = 50_000;

    fn hold() -> DoorbellBatching {
        DoorbellBatching::new(Duration::from_nanos(GAP))
    }

    /// This number of messages arrives together and leaves, with others behind them.
    fn leave(hold: &mut DoorbellBatching, count: usize, behind: usize) {
        assert!(hold.lets_go(count, 0), "{hold:?}");
        hold.on_left();
        hold.on_polled(behind);
    }

    #[test]
    fn messages_sent_one_at_a_time_are_not_held() {
        let mut hold = hold();
        for now in 0..100 {
            assert!(hold.lets_go(1, now));
            hold.on_left();
            hold.on_polled(0);
            hold.on_polled(1);
        }
    }

    #[test]
    fn a_batch_doubles_while_more_arrive_and_ends_with_a_chain() {
        let mut hold = hold();
        for batch in [1, 2, 4, 8, 16, 16] {
            assert!(batch == 1 || !hold.lets_go(batch - 1, 0), "{batch}");
            leave(&mut hold, batch, 3);
        }
    }

    #[test]
    fn a_batch_that_does_not_fill_is_abandoned_and_not_awaited_again() {
        let mut hold = hold();
        leave(&mut hold, 1, 1);
        leave(&mut hold, 2, 1);
        assert!(!hold.lets_go(2, 1_000), "four are waited for");
        assert!(!hold.lets_go(3, 40_000));
        assert!(!hold.lets_go(3, 40_000 + GAP - 1), "the gap begins with the last that came");
        assert!(hold.lets_go(3, 40_000 + GAP));
        hold.on_left();
        hold.on_polled(0);
        assert!(hold.lets_go(3, 200_000), "three are a batch now");
    }

    #[test]
    fn without_a_gap_messages_are_not_held() {
        assert!(!DoorbellBatching::new(Duration::ZERO).is_on());
        assert!(hold().is_on());
    }
}
