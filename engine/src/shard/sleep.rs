//! Sleeping: a shard waits until there may be work.

use std::time::Duration;

use super::Core;
use crate::provider::{Provider, Queues};

impl<P: Provider> Core<P> {
    /// Sleeps until there may be work, at most `timeout`.
    pub fn sleep(&mut self, timeout: Duration) {
        // A shard with time to sleep can post Receives that wait for a longer chain.
        self.receive.top_up(&mut self.io, &self.parts.timers);
        if !self.parts.outbox.is_idle()
            || !self.receive.is_topped_up()
            || self.receive.waiting().can_serve(&mut self.peers, &self.parts.outbox)
            || self.can_step_rdma()
        {
            return;
        }
        let wakeup = self.parts.handle.wakeup().clone();
        if self.parts.outbox.can_answer(&mut self.peers) {
            return wakeup.ring();
        }
        if wakeup.fall_asleep() {
            self.parts.stats.sleeps.add(1);
            // A device that cannot wait is polled; polling reports the error.
            let _ = self.io.queues().wait(&wakeup.waker, timeout);
            wakeup.wake_up();
            wakeup.waker.drain();
        }
    }
}
