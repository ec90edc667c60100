//! Events other than completions: of the mailbox, and of the queues.

use super::Core;
use crate::api::handler::Handler;
use crate::error::CloseReason;
use crate::provider::{Provider, QueueEvent, WorkCompletion};
use crate::state::io::{Io, Work};
use crate::trace;

impl<P: Provider> Core<P> {
    /// Ends a sleep, and processes messages of other threads. Whether there may have been any; none
    /// if a panic has left the shard inconsistent.
    #[cold]
    pub(super) fn on_wakeup(&mut self, now: u64, handler: &mut dyn Handler) -> Option<bool> {
        self.disarm();
        let has_messages = self.parts.handle.wakeup().answer();
        if self.is_broken() {
            // Ends the next turn here as well.
            self.parts.handle.wakeup().ring();
            return None;
        }
        if !has_messages {
            return Some(false);
        }
        // Messages sent before an order to close a connection are posted before the order is
        // executed.
        if self.parts.outbox.holds() {
            self.flush(now, handler);
        }
        self.read_mailbox(now, handler);
        self.step_inspection();
        self.end_cancelled(handler);
        Some(true)
    }

    /// Reports to doorbell batching how many messages arrived together. Waiting messages go first.
    #[cold]
    pub(super) fn before_batch(&mut self, now: u64, handler: &mut dyn Handler) {
        if self.parts.outbox.holds() {
            let is_receive = |wc: &&WorkCompletion| Io::<P::Queues>::work(wc.wr_id) == Work::Recv;
            self.parts.outbox.on_polled(self.batch.iter().filter(is_receive).count());
        }
        self.serve_waiting(now, handler);
    }

    /// Processes events of the queues. True if there were any. Inlined, because every turn looks.
    #[inline(always)]
    pub(super) fn poll_events(&mut self, now: u64, handler: &mut dyn Handler) -> bool {
        let Some(event) = self.next_event(now) else { return false };
        self.on_events(event, now, handler);
        true
    }

    /// Messages that arrived before the end of their connection go first, but a message that waits
    /// for a slot does not delay the ends of other connections for long.
    #[inline(always)]
    fn next_event(&mut self, now: u64) -> Option<QueueEvent> {
        let is_polled = self.receive.waiting().is_empty() || self.parts.timers.is_due(now);
        if is_polled && !self.batch.is_full() { self.io.next_event() } else { None }
    }

    #[cold]
    fn on_events(&mut self, first: QueueEvent, now: u64, handler: &mut dyn Handler) {
        let mut event = Some(first);
        while let Some(happened) = event {
            self.on_event(happened, now, handler);
            event = self.next_event(now);
        }
    }

    fn on_event(&mut self, event: QueueEvent, now: u64, handler: &mut dyn Handler) {
        let (stats, shard) = (&self.parts.stats, self.parts.handle.shard());
        let (qp_num, why) = match event {
            QueueEvent::Disconnected { qp_num } => (qp_num, CloseReason::PeerGone),
            QueueEvent::Failed { qp_num } => (qp_num, CloseReason::Failed),
            QueueEvent::DeviceLost => {
                stats.devices_lost.add(1);
                return self.lose_all(CloseReason::DeviceLost, now, handler);
            }
            QueueEvent::PortDown => {
                trace::port_down(shard);
                return stats.ports_down.add(1);
            }
            QueueEvent::PortUp => {
                trace::port_up(shard);
                return stats.ports_up.add(1);
            }
        };
        if let Some(index) = self.peers.find(qp_num) {
            self.close(index, why, now, handler);
        }
    }

    /// The queues have failed: the shard ends, and gets no more connections.
    #[cold]
    pub(super) fn lose_all(&mut self, why: CloseReason, now: u64, handler: &mut dyn Handler) {
        trace::device_lost(self.parts.handle.shard(), why);
        self.close_all(why, now, handler);
        self.parts.handle.stop();
        self.parts.timers.stop(now);
    }
}
