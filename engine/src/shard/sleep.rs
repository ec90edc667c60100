//! Sleeping: a shard announces that its thread sleeps, and wakes up in its next turn.
//!
//! ```text
//!   arm ─▶ Ready ──────────────────────────────────────────────▶ turn
//!    └───▶ AtMost ─▶ sleep until the wait set is readable ─▶ turn: disarm, then as always
//! ```
//! What rings from the announcement on keeps the wait set readable until the next turn.

use std::time::Duration;

use super::Core;
use crate::clock::nanos;
use crate::provider::{Armed, Provider, Queues, ring_of};
use crate::state::parts::Parts;
use crate::state::timers::PLACES_PER_LOOK;

impl<P: Provider> Core<P> {
    /// Announces that the thread is about to sleep, and looks once more. The next turn ends it.
    #[cold]
    pub fn arm(&mut self) -> Armed {
        self.disarm();
        // A shard with time to sleep can post Receives that wait for a longer chain.
        self.receive.top_up(&mut self.io, &self.parts.timers);
        if !self.parts.outbox.is_idle()
            || !self.receive.is_topped_up()
            || self.receive.waiting().can_serve(&mut self.peers, &self.parts.outbox)
            || self.can_step_rdma()
        {
            return Armed::Ready;
        }
        let wakeup = self.parts.handle.wakeup();
        if self.parts.outbox.can_answer(&mut self.peers) {
            wakeup.ring();
            return Armed::Ready;
        }
        if !wakeup.fall_asleep() {
            return Armed::Ready;
        }
        // A device that cannot wait is polled; polling reports the error.
        let armed = self.io.queues().arm().unwrap_or(Armed::Ready);
        match armed {
            Armed::Ready => self.parts.handle.wakeup().wake_up(),
            Armed::AtMost(_) => self.parts.stats.sleeps.add(1),
        }
        armed
    }

    /// The thread is awake. Silences what has rung.
    #[cold]
    pub(super) fn disarm(&mut self) {
        let wakeup = self.parts.handle.wakeup();
        if !wakeup.is_asleep() {
            return;
        }
        wakeup.wake_up();
        let queues = self.io.queues();
        let rung = ring_of(queues.bells(), &wakeup.waker, Duration::ZERO);
        // What is not known to be silent is silenced.
        let [is_rung, bells @ ..] = rung.unwrap_or([true; 3]);
        if is_rung {
            wakeup.waker.drain();
        }
        // Polling reports the error.
        let _ = queues.disarm(bells.contains(&true));
    }

    /// Sleeps until there may be work, at most `timeout`.
    pub fn sleep(&mut self, timeout: Duration) {
        if let Armed::AtMost(most) = self.arm() {
            // If the system cannot wait, the shard polls.
            let _ = self.wait_set.sleep(timeout.min(most));
        }
    }

    /// As [`Core::sleep`], and no longer than the shard's times permit. `now` is that of the last
    /// turn.
    pub fn sleep_at(&mut self, now: u64, timeout: Duration) {
        let until_due = self.until_due(now);
        if !until_due.is_zero() {
            self.sleep(timeout.min(until_due));
        }
    }

    /// How long the thread may sleep for the sake of times: until the next deadline of a call, and
    /// until the next look at all other times, which is far if it would find nothing.
    #[cold]
    pub fn until_due(&mut self, now: u64) -> Duration {
        let Core { parts: Parts { timers, outbox, .. }, receive, peers, fetches, .. } = self;
        if timers.is_stopping() {
            // Each turn looks; what it waits for is work.
            return STOPPING;
        }
        let until_due = timers.until_due(now);
        // Each look is followed by one search, so that a busy shard does not search all the time.
        if until_due.is_zero() || !timers.take_look() {
            return until_due;
        }
        let is_waiting = !receive.waiting().is_empty() || !outbox.answers().is_empty();
        if is_waiting || fetches.waiting() != 0 {
            return until_due;
        }
        // A search takes as long as a look at all of them, which is done some at a time.
        if peers.capacity() > PLACES_PER_LOOK && peers.len() > 0 {
            return until_due;
        }
        let mut longest = if peers.len() == 0 { ALONE } else { QUIET };
        for index in 0..peers.capacity() {
            let Some(peer) = peers.at(index) else { continue };
            let Some(until) = timers.quiet_until(peer) else { return until_due };
            longest = longest.min(Duration::from_nanos(until.saturating_sub(now)));
        }
        let until = now.saturating_add(nanos(longest));
        timers.until_deadline(now, until).max(until_due)
    }
}

/// The longest sleep of a shard that stops.
const STOPPING: Duration = Duration::from_millis(10);
/// The longest sleep of a shard with connections on which nothing is outstanding.
const QUIET: Duration = Duration::from_millis(100);
/// The longest sleep of a shard without connections.
const ALONE: Duration = Duration::from_secs(1);
