//! The stop of a shard: it delivers no new calls, answers the delivered ones, and ends each
//! connection when nothing is outstanding.
//!
//! ```text
//!   asked to stop ─▶ new calls are dropped, calls that wait for data are abandoned
//!                 ─▶ of each connection: tickets answered, own calls over, answers taken ─▶ closed
//!                 └▶ time over: closed as it is
//! ```
//! A dropped call is not answered: its caller loses the connection, and learns only that the call
//! may or may not have been executed. An error would state that the call has failed.

use rpcrdma_proto::Role;

use super::Core;
use crate::api::handler::Handler;
use crate::error::CloseReason;
use crate::mailbox::ShardEnd;
use crate::provider::Provider;
use crate::state::peers::{Peer, Phase};
use crate::trace;

/// What is outstanding on a connection while its shard stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing.
    Nothing,
    /// Only that the peer takes unsignaled sends, for which no completion will arrive.
    Silence,
    /// Something that ends by itself.
    Something,
}

impl<P: Provider> Core<P> {
    /// Begins to stop. A repetition has no effect.
    #[cold]
    pub fn begin_stop(&mut self, now: u64) {
        if !self.parts.timers.is_stopping() {
            trace::shard_stopping(self.parts.handle.shard());
        }
        self.parts.timers.stop(now);
        self.io.signal_all();
        for index in 0..self.peers.capacity() {
            if let Some(peer) = self.peers.at(index) {
                self.fetches.give_up(peer.id);
            }
        }
    }

    /// Whether the shard was asked to stop and has stopped, or can do no more work.
    pub fn is_stopped(&self) -> bool {
        self.parts.timers.is_stopping() && (self.peers.len() == 0 || self.is_broken())
    }

    /// A panic left the shard inconsistent. It ends all connections, which notifies the peers, and
    /// accepts no new ones. The device keeps its memory until the queues are destroyed.
    #[cold]
    pub fn break_down(&mut self) {
        self.link.detach();
        // Connections on their way end as well, and nothing more arrives.
        while self.link.arrivals().pop().is_some() {}
        self.parts.handle.wakeup().end(ShardEnd::Panicked);
        self.parts.handle.inspections().end();
        self.parts.timers.stop(0);
        for index in 0..self.peers.capacity() {
            if let Some(peer) = self.peers.at(index) {
                // Answers no more tickets and checks no deadlines.
                peer.phase = Phase::Closing;
                (peer.until, peer.is_marked) = (u64::MAX, true);
                self.io.disconnect(index);
            }
        }
        // Its program may keep it.
        self.peers.release_quotas();
    }

    /// Whether a panic left the shard inconsistent.
    pub fn is_broken(&self) -> bool {
        self.parts.handle.wakeup().ended().is_some()
    }

    /// Closes connections without outstanding work; all of them when the time limit has passed.
    pub(super) fn wind_down(&mut self, now: u64, handler: &mut dyn Handler) {
        let Some(until) = self.parts.timers.stops_by() else { return };
        for index in 0..self.peers.capacity() {
            let Some(peer) = self.peers.at(index) else { continue };
            if peer.phase == Phase::Closing {
                continue;
            }
            match rest_of(peer) {
                Rest::Something if now < until => {}
                Rest::Silence if now < until => self.io.mark(&mut peer.lane, index),
                _ => self.close(index, CloseReason::Stopped, now, handler),
            }
        }
    }
}

impl<P: Provider> Drop for Core<P> {
    /// Returns all memory to its pools before it is unmapped: after a stop, a failed start or a
    /// panic of the handler.
    fn drop(&mut self) {
        self.link.detach();
        self.parts.handle.wakeup().end(ShardEnd::Dropped);
        self.parts.handle.inspections().end();
        self.parts.handle.drop_finished();
        let Core { io, receive, fetches, parts, .. } = self;
        receive.free_all(fetches.drain().chain(parts.rdma.drain()));
        if !parts.rdma.retire_all(io) {
            parts.outbox.abandon_messages();
        }
        fetches.close_all(io);
        io.destroy(receive.pool_mut(), &mut parts.outbox);
        trace::shard_ended(parts.handle.shard());
    }
}

fn rest_of(peer: &Peer) -> Rest {
    let Peer { lane, conn, .. } = peer;
    if peer.phase == Phase::Opening {
        return Rest::Nothing;
    }
    // Two stopping shards may have dropped calls of each other, and would wait for each other's
    // answers. The side that accepted the connection gives way.
    let gives_way = peer.dropped > 0 && conn.role() == Role::Server;
    let is_calling = conn.is_calling() && !gives_way;
    let is_answering = peer.open_calls() > 0 || peer.fetching > 0 || lane.pending.front().is_some();
    if is_calling || is_answering || lane.outstanding() > lane.unsignaled() {
        Rest::Something
    } else if lane.outstanding() > 0 {
        Rest::Silence
    } else {
        Rest::Nothing
    }
}
