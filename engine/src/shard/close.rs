//! The end of connections.
//!
//! ```text
//!   leave ─▶ the peer has received the last messages, or timeout ─▶ close
//!   close ─▶ calls completed, groups freed, on_close ─▶ queue pair in error, marker posted
//!         ─▶ marker completed: nothing in flight ─▶ forgotten
//!         └▶ timeout: memory in flight is never used again
//! ```

use super::Core;
use crate::api::handler::Handler;
use crate::error::{CallError, CloseReason};
use crate::provider::{ConnectError, Provider};
use crate::state::lane::messages::After;
use crate::state::peers::Phase;
use crate::trace;

impl<P: Provider> Core<P> {
    /// Ends an established connection, after the peer had time to receive the last messages.
    #[cold]
    pub fn leave(&mut self, index: u32, why: CloseReason, now: u64, handler: &mut dyn Handler) {
        let until = self.parts.timers.farewell_until(now);
        let Some(peer) = self.peers.at(index) else { return };
        if peer.phase != Phase::Up || peer.lane.pending.front().is_none() {
            return self.close(index, why, now, handler);
        }
        (peer.phase, peer.until) = (Phase::Leaving, until);
        peer.leaves = Some(why);
        self.io.signal_next(&mut peer.lane);
    }

    /// Closes a leaving connection, if the peer has received the last messages.
    pub fn finish_leaving(&mut self, index: u32, now: u64, handler: &mut dyn Handler) {
        let Some(peer) = self.peers.at(index) else { return };
        let lane = &mut peer.lane;
        if lane.pending.front().is_some() {
            if !lane.ready {
                self.parts.outbox.wake(lane, index);
            }
        } else if lane.outstanding() == 0 {
            self.close(index, CloseReason::Local, now, handler);
        } else if lane.outstanding() == lane.unsignaled() {
            self.io.mark(lane, index);
        }
    }

    /// Ends a connection. Completes its calls and notifies the handler before it returns; memory
    /// that the device still holds returns later.
    #[cold]
    pub fn close(&mut self, index: u32, why: CloseReason, now: u64, handler: &mut dyn Handler) {
        let until = self.parts.timers.farewell_until(now);
        let Some((peer, address)) = self.peers.with_address(index) else { return };
        let was = core::mem::replace(&mut peer.phase, Phase::Closing);
        if was == Phase::Closing {
            return;
        }
        (peer.until, peer.is_marked) = (until, false);
        let (id, connect) = (peer.id, peer.connect);
        // The first reason counts: the connection was already leaving.
        let why = peer.leaves.take().unwrap_or(why);
        // Its tickets become void.
        let unanswered = peer.tally.end_open(&mut peer.totals);
        self.parts.stats.calls_unanswered.add(unanswered.into());
        peer.totals.counted.calls_unanswered += u64::from(unanswered);
        self.parts.sampling.forget_services(id, None);
        trace::closed(self.parts.handle.shard(), id, *address, unanswered, why);
        let again = self.link.tries_again(peer, address, was, why, now, &self.parts);
        self.receive.free_group(peer);
        self.fetches.give_up(id);
        self.fail_calls(index, why, handler);
        let Some(peer) = self.peers.at(index) else { return };
        self.parts.outbox.discard_inline(&mut peer.lane, index);
        self.parts.discard_pending(&mut peer.lane);
        self.parts.stats.connections_closed.add(1);
        match (was, connect) {
            // The next attempt decides the outcome.
            (Phase::Opening, Some(_)) if again => {}
            (Phase::Opening, Some(asked)) => {
                handler.on_refused(asked.id, why.as_connect_error());
            }
            (Phase::Opening, None) => {}
            // Calls with exposed memory complete later, and their connection ends after them.
            _ => match self.peers.at(index) {
                Some(peer) if peer.exposed > 0 => peer.unreported_end = Some(why),
                _ => handler.on_close(id, why),
            },
        }
        let Some(peer) = self.peers.at(index) else { return };
        peer.again = again;
        peer.is_marked = self.io.drain(&mut peer.lane, index);
        self.finish_close(index, handler);
    }

    /// Forgets a closing connection if it has nothing in flight.
    pub fn finish_close(&mut self, index: u32, handler: &mut dyn Handler) {
        let Some(peer) = self.peers.at(index) else { return };
        if peer.lane.outstanding() > 0 {
            return;
        }
        debug_assert!(peer.lane.flight.front().is_none(), "nothing outstanding, nothing held");
        self.forget(index, false, handler);
    }

    /// Ends every connection.
    #[cold]
    pub fn close_all(&mut self, why: CloseReason, now: u64, handler: &mut dyn Handler) {
        for index in 0..self.peers.capacity() {
            self.close(index, why, now, handler);
        }
    }

    /// Completes every call to a peer with the loss of its connection.
    fn fail_calls(&mut self, index: u32, why: CloseReason, handler: &mut dyn Handler) {
        let mut start = 0;
        while let Some((id, next)) = self.parts.ledger.calls.next_of(index, start) {
            start = next;
            let Some(peer) = self.peers.at(index) else { return };
            let sent = self.parts.unsend(peer, id);
            let lost = CallError::of(sent, |known| CallError::ConnectionLost(why, known));
            self.fail_call(index, id, lost, handler);
        }
    }

    /// The device did not complete the sends of a closing connection in time. It may still read
    /// their memory: the messages are permanently out of use.
    pub fn leak(&mut self, index: u32, handler: &mut dyn Handler) {
        let Some(peer) = self.peers.at(index) else { return };
        let mut count = 0;
        let parts = &mut self.parts;
        while let Some(message) = peer.lane.pop_flight(parts.outbox.messages()) {
            count += 1;
            match parts.outbox.messages().head(message).after {
                After::Fetched(place) => {
                    parts.on_buffers_lost(self.fetches.leak(place, &mut self.io));
                }
                After::Fenced(place) => parts.rdma.on_fence_lost(place),
                After::Nothing | After::Called(_) => {}
            }
        }
        trace::leaked(parts.handle.shard(), peer.id, count);
        parts.outbox.on_leaked(count);
        self.forget(index, true, handler);
    }

    /// `leaks` states that the device may still touch posted memory.
    fn forget(&mut self, index: u32, leaks: bool, handler: &mut dyn Handler) {
        if self.peers.at(index).is_some_and(|peer| peer.exposed > 0) {
            let lost = self.parts.rdma.unbind(index, &mut self.io);
            self.parts.stats.windows_lost.add(lost);
        }
        self.io.unbind(index);
        if let Some(peer) = self.peers.at(index) {
            self.io.forget_events(peer.qp_num);
        }
        if self.peers.at(index).is_some_and(|peer| peer.exposed > 0) {
            if leaks {
                self.leak_exposures(index, handler);
            }
            self.finish_exposures(index, handler);
        }
        self.parts.rdma.release_windows(index);
        self.outdate_report(index);
        if let Some((peer, address)) = self.peers.remove(index) {
            if let Some(why) = peer.unreported_end {
                handler.on_close(peer.id, why);
            }
            debug_assert!(peer.lane.pending.front().is_none(), "nothing is sent while closing");
            self.receive.drop_waiting(peer.qp_num);
            peer.conn.close(&mut self.parts.ledger);
            match peer.connect.filter(|_| peer.again) {
                Some(asked)
                    if self.link.ask_again(asked.id, address, self.parts.handle.shard()) => {}
                asked => {
                    self.parts.handle.wakeup().disconnected();
                    if let Some(asked) = asked {
                        handler.on_refused(asked.id, ConnectError::Stopped);
                    }
                }
            }
        }
    }
}
