//! The stop of a shard: it delivers no new calls, answers the delivered ones, and ends each
//! connection when nothing is outstanding.
//!
//! ```text
//!   told to stop ─▶ calls that come are dropped, calls whose data are awaited are given up
//!                ─▶ of each connection: tickets answered, own calls over, answers taken ─▶ closed
//!                └▶ time over: closed as it is
//! ```
//! A dropped call is not answered: its caller loses the connection, and with it learns no more than
//! that the call may have been executed or not. An error would tell it that the call has failed.

use rpcrdma_proto::Role;

use super::Core;
use super::mailbox::End;
use super::peers::{Peer, Phase};
use crate::api::handler::Handler;
use crate::error::CloseReason;
use crate::provider::Provider;

/// What a connection still owes or is owed while its shard stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing.
    Nothing,
    /// Only that the peer takes what was sent without a signal: nobody would be told.
    Silence,
    /// Something that ends by itself.
    Something,
}

impl<P: Provider> Core<P> {
    /// Begins to stop. Told once more it changes nothing.
    #[cold]
    pub fn begin_stop(&mut self, now: u64) {
        self.parts.timers.stop(now);
        self.io.signal_all();
        for index in 0..self.peers.capacity() {
            if let Some(peer) = self.peers.at(index) {
                self.fetches.give_up(peer.id);
            }
        }
    }

    /// Whether the shard was told to stop and has, or can do nothing else.
    pub fn is_stopped(&self) -> bool {
        self.parts.timers.is_stopping() && (self.peers.len() == 0 || self.is_broken())
    }

    /// A panic has left the shard half done. Its peers are told by the end of their connections, and
    /// it gets no more; what the device has of its memory stays as it is until the queues are gone.
    #[cold]
    pub fn break_down(&mut self) {
        self.link.detach();
        self.parts.handle.wakeup().end(End::Panicked);
        self.parts.timers.stop(0);
        for index in 0..self.peers.capacity() {
            if let Some(peer) = self.peers.at(index) {
                // No ticket is answered any more, and no deadline is looked at.
                peer.phase = Phase::Closing { until: u64::MAX, is_marked: true };
                self.io.disconnect(index);
            }
        }
    }

    /// Whether a panic has left the shard half done.
    pub fn is_broken(&self) -> bool {
        self.parts.handle.wakeup().ended().is_some()
    }

    /// Closes the connections that have nothing left to finish; all of them if time is over.
    pub(super) fn wind_down<H: Handler>(&mut self, now: u64, handler: &mut H) {
        let Some(until) = self.parts.timers.stops_by() else { return };
        for index in 0..self.peers.capacity() {
            let Some(peer) = self.peers.at(index) else { continue };
            if matches!(peer.phase, Phase::Closing { .. }) {
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
    /// Brings all memory home before it is unmapped, whether the shard has stopped, was never quite
    /// made, or its handler has panicked.
    fn drop(&mut self) {
        self.link.detach();
        self.parts.handle.wakeup().end(End::Dropped);
        self.parts.handle.drop_finished();
        let Core { io, receive, fetches, parts, .. } = self;
        receive.bring_home(fetches.drain().chain(parts.rdma.drain()));
        if !parts.rdma.retire_all(io) {
            parts.outbox.abandon_messages();
        }
        io.destroy(receive.pool_mut(), &mut parts.outbox);
    }
}

fn rest_of(peer: &Peer) -> Rest {
    let Peer { lane, conn, .. } = peer;
    if let Phase::Opening { .. } = peer.phase {
        return Rest::Nothing;
    }
    // Two shards that stop may have dropped a call of each other, and would wait for each other's
    // answers. Who was connected to gives way.
    let gives_way = peer.dropped > 0 && conn.role() == Role::Server;
    let is_calling = conn.is_calling() && !gives_way;
    let is_answering = peer.open_calls > 0 || peer.fetching > 0 || lane.pending.front().is_some();
    if is_calling || is_answering || lane.outstanding() > lane.unsignaled() {
        Rest::Something
    } else if lane.outstanding() > 0 {
        Rest::Silence
    } else {
        Rest::Nothing
    }
}
