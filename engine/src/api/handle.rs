//! The handle of a shard, for other threads.

use std::sync::Arc;

use crossbeam_queue::SegQueue;
use rpcrdma_proto::ReplyTo;

use super::ticket::{Dropped, Finished, Ticket};
use crate::obtained::Obtained;
use crate::shard::mailbox::{End, Mailbox, Wakeup};
use crate::shard::peers::ConnectionId;
use crate::stats::{SharedStats, Snapshot};

/// Reaches a shard from any thread.
#[derive(Clone)]
pub struct ShardHandle(Arc<Shared>);

struct Shared {
    shard: u32,
    obtained: Obtained,
    stats: SharedStats,
    wakeup: Arc<Wakeup>,
    /// Answers: room for those to all calls of its connections.
    finished: Mailbox<(Ticket, Finished)>,
    /// Those that find no room there, since those of connections that have ended come on top: no more
    /// than there were tickets.
    further: SegQueue<(Ticket, Finished)>,
    dropped: Arc<Dropped>,
    orders: Mailbox<Order>,
}

/// How far the life of a shard has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardState {
    /// It works, if it is polled.
    Running,
    /// It was told to stop, and closes its connections.
    Stopping,
    /// It is gone, and all that it had with it.
    Ended,
    /// A panic has left it half done: its connections were ended, and it does nothing any more.
    Panicked,
}

/// What a shard can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// End a connection.
    Close(ConnectionId),
}

impl ShardHandle {
    pub(crate) fn new(
        shard: u32,
        wakeup: Arc<Wakeup>,
        stats: SharedStats,
        tickets_max: usize,
        obtained: Obtained,
    ) -> ShardHandle {
        ShardHandle(Arc::new(Shared {
            shard,
            obtained,
            stats,
            finished: Mailbox::new(tickets_max.max(1), wakeup.clone()),
            further: SegQueue::new(),
            dropped: Arc::new(Dropped::new(shard, wakeup.clone())),
            orders: Mailbox::new(ORDERS_MAX, wakeup.clone()),
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

    /// How far its life has gone.
    pub fn state(&self) -> ShardState {
        match self.0.wakeup.ended() {
            Some(End::Panicked) => ShardState::Panicked,
            Some(End::Dropped) => ShardState::Ended,
            None if self.0.wakeup.is_stop_wanted() => ShardState::Stopping,
            None => ShardState::Running,
        }
    }

    /// What the shard has got of what its configuration asks for: pages, locked memory, the way that
    /// memory is shown.
    pub fn obtained(&self) -> &Obtained {
        &self.0.obtained
    }

    /// Connections that the shard has.
    pub fn connections(&self) -> usize {
        self.0.wakeup.connections()
    }

    /// Answers a deferred call from any thread. The shard sends it in its next turn; if the
    /// connection has ended meanwhile, the answer is dropped, and its memory goes home.
    ///
    /// # Errors
    /// Both back, if the ticket is another shard's, or if the shard has ended.
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn finish(&self, mut ticket: Ticket, finished: Finished) -> Result<(), (Ticket, Finished)> {
        if ticket.shard != self.0.shard || self.0.wakeup.ended().is_some() {
            return Err((ticket, finished));
        }
        ticket.home = None;
        self.leave(ticket, finished);
        Ok(())
    }

    /// Leaves an answer. A shard that has ended meanwhile reads no more: the answer does not stay here,
    /// or its memory would not go home as long as anybody has this handle.
    fn leave(&self, ticket: Ticket, finished: Finished) {
        if let Err(both) = self.0.finished.send((ticket, finished)) {
            self.0.further.push(both);
            self.0.wakeup.ring();
        }
        if self.0.wakeup.ended().is_some() {
            self.drop_finished();
        }
    }

    /// Drops the answers that were left: the shard has ended.
    #[cold]
    pub(crate) fn drop_finished(&self) {
        while self.pop_finished().is_some() {}
    }

    /// Makes the shard take a turn soon, if it sleeps: for a handler that finds in its
    /// [`on_turn`](crate::Handler::on_turn) what other threads have left it elsewhere.
    pub fn wake(&self) {
        self.0.wakeup.ring();
    }

    /// Ends a connection at once: its own calls are completed with the loss, its tickets are void, and
    /// what its peer has not taken may be lost. False if the shard has a long list of such orders to
    /// work off.
    pub fn close(&self, peer: ConnectionId) -> bool {
        self.0.orders.send(Order::Close(peer)).is_ok()
    }

    /// Stops the shard: it delivers no new call. Calls that were delivered are answered and own calls
    /// completed, for as long as the configuration says; a connection closes as soon as nothing of it
    /// is owed. Calls that come meanwhile end with their connection.
    pub fn stop(&self) {
        self.0.wakeup.want_stop();
    }

    /// Answers that were left and not read.
    pub(crate) fn finished(&self) -> usize {
        self.0.finished.len() + self.0.further.len()
    }

    pub(crate) fn pop_finished(&self) -> Option<(Ticket, Finished)> {
        self.0.finished.pop().or_else(|| self.0.further.pop())
    }

    /// Where tickets of the shard tell that they were dropped.
    pub(crate) fn dropped(&self) -> &Arc<Dropped> {
        &self.0.dropped
    }

    /// A call whose ticket was dropped.
    pub(crate) fn pop_dropped(&self) -> Option<(ConnectionId, ReplyTo)> {
        self.0.dropped.pop()
    }

    pub(crate) fn pop_order(&self) -> Option<Order> {
        self.0.orders.pop()
    }

    pub(crate) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.0.wakeup
    }
}

impl core::fmt::Debug for ShardHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ShardHandle({})", self.0.shard)
    }
}

/// Orders that wait at one time.
const ORDERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use rpcrdma_proto::ReplyTo;

    use super::*;
    use crate::message::saved_offer::SavedOffer;
    use crate::provider::Waker;

    #[test]
    fn every_answer_is_announced_and_none_stays_when_its_shard_has_ended() {
        let wakeup = Arc::new(Wakeup::new(Waker::new().expect("an eventfd")));
        let obtained = Obtained {
            device: String::new(),
            memory: Vec::new(),
            exposure: None,
            windows: 0,
            fetches: 0,
            inline_max: 0,
        };
        let handle = ShardHandle::new(0, wakeup.clone(), SharedStats::default(), 1, obtained);
        let peer = ConnectionId { index: 0, generation: 0 };
        let ticket = |home| Ticket::new(peer, home, ReplyTo::plain(1), SavedOffer::none());
        for _ in 0..2 {
            handle.finish(ticket(handle.dropped()), Finished::default()).expect("it has not ended");
            assert!(wakeup.answer(), "each is announced, though there is room for one");
        }
        assert_eq!(handle.finished(), 2);
        wakeup.end(End::Dropped);
        handle.drop_finished();
        // As by a thread that has seen the shard before it ended.
        for _ in 0..2 {
            let mut late = ticket(handle.dropped());
            late.home = None;
            handle.leave(late, Finished::default());
        }
        assert_eq!(handle.finished(), 0);
        let (back, _) =
            handle.finish(ticket(handle.dropped()), Finished::default()).expect_err("too late");
        drop(back);
    }
}
