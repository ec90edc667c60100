//! What other threads have of a shard: its handle, and tickets for its calls.

pub mod ticket;

use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_queue::SegQueue;

use self::ticket::{Dropped, DroppedCall, Finished, Ticket};
use crate::connection_id::ConnectionId;
use crate::mailbox::{Mailbox, ShardEnd, Wakeup};
use crate::resources::ShardResources;
use crate::stats::inspection::{InspectError, Inspections};
use crate::stats::latency::{Latencies, LatencyReport};
use crate::stats::report::ShardReport;
use crate::stats::{SharedStats, Snapshot};

/// A handle to a shard, usable from any thread.
///
/// ```
/// use rpcrdma::{Config, Engine, Fabric, RefuseCalls, ShardState};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut engine = Engine::new(Fabric::new(), Config::default())?;
/// for shard in engine.start(|_shard| RefuseCalls)? {
///     let watched = shard.clone();
///     let calls = std::thread::spawn(move || watched.stats().calls_received).join();
///     assert_eq!(calls.expect("no panic"), 0);
///     assert_eq!((shard.state(), shard.connections()), (ShardState::Running, 0));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ShardHandle(Arc<Shared>);

struct Shared {
    shard: u32,
    resources: ShardResources,
    stats: SharedStats,
    wakeup: Arc<Wakeup>,
    /// Answers: one place for each call of its connections.
    finished: Mailbox<(Ticket, Finished)>,
    /// Answers that do not fit there, because calls of ended connections add to them: no more than
    /// there were tickets.
    further: SegQueue<(Ticket, Finished)>,
    dropped: Arc<Dropped>,
    orders: Mailbox<ShardOrder>,
    inspections: Inspections,
    latencies: Arc<Latencies>,
}

/// The life cycle of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardState {
    /// It works while it is polled.
    Running,
    /// It was asked to stop, and closes its connections.
    Stopping,
    /// It is gone, with all its resources.
    Ended,
    /// A panic left it inconsistent: its connections were ended, and it does no more work.
    Panicked,
}

/// Orders to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShardOrder {
    /// End a connection.
    Close(ConnectionId),
}

impl ShardHandle {
    pub(crate) fn new(
        shard: u32,
        wakeup: Arc<Wakeup>,
        stats: SharedStats,
        latencies: Arc<Latencies>,
        tickets_max: usize,
        resources: ShardResources,
    ) -> ShardHandle {
        ShardHandle(Arc::new(Shared {
            shard,
            resources,
            stats,
            finished: Mailbox::new(tickets_max.max(1), wakeup.clone()),
            further: SegQueue::new(),
            dropped: Arc::new(Dropped::new(shard, wakeup.clone())),
            orders: Mailbox::new(ORDERS_MAX, wakeup.clone()),
            inspections: Inspections::new(shard, wakeup.clone()),
            latencies,
            wakeup,
        }))
    }

    /// The number of the shard, unique in its process.
    pub fn shard(&self) -> u32 {
        self.0.shard
    }

    /// The counters of the shard.
    pub fn stats(&self) -> Snapshot {
        self.0.stats.snapshot()
    }

    /// Reports on the shard and all its connections, as of a moment after this call. The shard
    /// writes the report in its next turns, and sleeps no longer. Threads that ask at one time get
    /// the same report.
    ///
    /// The thread of the shard itself cannot wait for its next turn: there, use
    /// [`Shard::inspect`](crate::Shard::inspect).
    ///
    /// # Errors
    /// [`InspectError`]: the shard has ended, or took no turn within `timeout`.
    pub fn inspect(&self, timeout: Duration) -> Result<ShardReport, InspectError> {
        self.0.inspections.ask(timeout)
    }

    /// The latencies of the calls that were timed. The shard is not asked: this works for one that
    /// is not polled, or has ended. Allocates the distributions.
    pub fn latencies(&self) -> LatencyReport {
        self.0.latencies.report()
    }

    /// The state of its life cycle.
    pub fn state(&self) -> ShardState {
        match self.0.wakeup.ended() {
            Some(ShardEnd::Panicked) => ShardState::Panicked,
            Some(ShardEnd::Dropped) => ShardState::Ended,
            None if self.0.wakeup.is_stop_wanted() => ShardState::Stopping,
            None => ShardState::Running,
        }
    }

    /// What the shard has of its configuration: pages, locked memory, the way of
    /// exposure.
    pub fn resources(&self) -> &ShardResources {
        &self.0.resources
    }

    /// Connections that the shard has.
    pub fn connections(&self) -> usize {
        self.0.wakeup.connections()
    }

    /// Answers a deferred call from any thread. The shard sends the answer in its next turn. If the
    /// connection has ended, the answer is dropped, and its memory returns to its pool.
    ///
    /// # Errors
    /// Returns both, if the ticket belongs to another shard, or if the shard has ended.
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn finish(&self, mut ticket: Ticket, finished: Finished) -> Result<(), (Ticket, Finished)> {
        if ticket.shard != self.0.shard || self.0.wakeup.ended().is_some() {
            return Err((ticket, finished));
        }
        ticket.dropped = None;
        self.leave(ticket, finished);
        Ok(())
    }

    /// Queues an answer. A shard that has ended no longer reads the queue, so this drops the
    /// answer: otherwise its memory would stay in use as long as this handle exists.
    fn leave(&self, ticket: Ticket, finished: Finished) {
        if let Err(both) = self.0.finished.send((ticket, finished)) {
            self.0.further.push(both);
            self.0.wakeup.ring();
        }
        if self.0.wakeup.ended().is_some() {
            self.drop_finished();
        }
    }

    /// Drops queued answers: the shard has ended.
    #[cold]
    pub(crate) fn drop_finished(&self) {
        while self.pop_finished().is_some() {}
    }

    /// Wakes the shard for a turn if it sleeps: for a handler whose
    /// [`on_turn`](crate::Handler::on_turn) reads data that other threads queue elsewhere.
    pub fn wake(&self) {
        self.0.wakeup.ring();
    }

    /// Ends a connection at once: own calls complete with an error, tickets become void, and
    /// messages that the peer has not received may be lost. False if the shard's queue of orders is
    /// full.
    pub fn close(&self, peer: ConnectionId) -> bool {
        self.0.orders.send(ShardOrder::Close(peer)).is_ok()
    }

    /// Stops the shard: it delivers no new calls. It answers delivered calls and completes own
    /// calls until the configured time is over. A connection closes once nothing on it is
    /// outstanding; calls that arrive meanwhile end with their connection.
    pub fn stop(&self) {
        self.0.wakeup.want_stop();
    }

    /// Queued answers.
    pub(crate) fn finished(&self) -> usize {
        self.0.finished.len() + self.0.further.len()
    }

    pub(crate) fn pop_finished(&self) -> Option<(Ticket, Finished)> {
        self.0.finished.pop().or_else(|| self.0.further.pop())
    }

    /// Where tickets of the shard record that they were dropped.
    pub(crate) fn dropped(&self) -> &Arc<Dropped> {
        &self.0.dropped
    }

    /// A call whose ticket was dropped.
    pub(crate) fn pop_dropped(&self) -> Option<DroppedCall> {
        self.0.dropped.pop()
    }

    pub(crate) fn pop_order(&self) -> Option<ShardOrder> {
        self.0.orders.pop()
    }

    pub(crate) fn inspections(&self) -> &Inspections {
        &self.0.inspections
    }

    pub(crate) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.0.wakeup
    }

    pub(crate) fn downgrade(&self) -> WeakShardHandle {
        WeakShardHandle(Arc::downgrade(&self.0))
    }
}

/// A handle that does not keep what the shard shares with its handles.
#[derive(Clone)]
pub(crate) struct WeakShardHandle(Weak<Shared>);

impl WeakShardHandle {
    /// The handle, if the shard or another handle still exists.
    pub fn upgrade(&self) -> Option<ShardHandle> {
        self.0.upgrade().map(ShardHandle)
    }
}

impl core::fmt::Debug for ShardHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ShardHandle({})", self.0.shard)
    }
}

/// The maximum of queued orders.
const ORDERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use rpcrdma_proto::ReplyTo;

    use super::*;
    use crate::message::saved_offer::SavedOffer;
    use crate::provider::Waker;
    use crate::stats::sampling::NO_TIMER;

    #[test]
    fn every_answer_is_announced_and_none_remains_after_its_shard() {
        let wakeup = Arc::new(Wakeup::new(Waker::new().expect("an eventfd")));
        let resources = ShardResources {
            device: String::new(),
            memory: Vec::new(),
            exposure: None,
            windows: 0,
            fetches: 0,
            reads_expose: false,
            inline_max: 0,
        };
        let (stats, latencies) = (SharedStats::default(), Arc::new(Latencies::new()));
        let handle = ShardHandle::new(0, wakeup.clone(), stats, latencies, 1, resources);
        let peer = ConnectionId { index: 0, generation: 0 };
        let to = ReplyTo::plain(1);
        let ticket = |dropped| Ticket::new(peer, dropped, to, NO_TIMER, SavedOffer::none());
        for _ in 0..2 {
            handle.finish(ticket(handle.dropped()), Finished::default()).expect("it has not ended");
            assert!(wakeup.answer(), "each is announced, though there is room for one");
        }
        assert_eq!(handle.finished(), 2);
        wakeup.end(ShardEnd::Dropped);
        handle.drop_finished();
        // As a thread does that saw the shard before it ended.
        for _ in 0..2 {
            let mut late = ticket(handle.dropped());
            late.dropped = None;
            handle.leave(late, Finished::default());
        }
        assert_eq!(handle.finished(), 0);
        let (back, _) =
            handle.finish(ticket(handle.dropped()), Finished::default()).expect_err("too late");
        drop(back);
    }
}
