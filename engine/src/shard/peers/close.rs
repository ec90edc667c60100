//! How connections and shards end, and what must not take too long.
//!
//! ```text
//!   leave ─▶ the peer takes what was said to it, or time is over ─▶ close
//!   close ─▶ calls completed, groups freed, on_close ─▶ queue pair in error, marker posted
//!         ─▶ marker completed: nothing in flight ─▶ forgotten
//!         └▶ time over: what is in flight is never used again
//! ```

use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_proto::Versions;

use super::Phase;
use crate::api::handler::Handler;
use crate::error::{CallError, CloseReason};
use crate::provider::Provider;
use crate::shard::core::Core;
use crate::shard::send::messages::After;

/// How far the life of a shard has gone, and its times. In nanoseconds of the shard's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    stopping: Option<u64>,
    next_tick: u64,
    next_look: u64,
    group_timeout: u64,
    connect_timeout: u64,
    negotiation_timeout: u64,
    stop_timeout: u64,
    /// `None` if a peer need never take what it is sent.
    send_timeout: Option<u64>,
    /// `None` if a peer that has connected may be silent for ever.
    idle_timeout: Option<u64>,
}

/// How often times are looked at.
pub(crate) const TICK: u64 = 10_000_000;

impl Life {
    pub fn new(config: &Config) -> Life {
        let connections = config.connections();
        Life {
            stopping: None,
            next_tick: 0,
            next_look: 0,
            group_timeout: nanos(connections.group_timeout),
            connect_timeout: nanos(connections.connect_timeout),
            negotiation_timeout: nanos(config.protocol().negotiation_timeout),
            stop_timeout: nanos(connections.stop_timeout),
            send_timeout: connections.send_timeout.map(nanos),
            idle_timeout: connections.idle_timeout.map(nanos),
        }
    }

    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.next_tick
    }

    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Begins to stop.
    pub fn stop(&mut self, now: u64) {
        self.stopping.get_or_insert(now.saturating_add(self.stop_timeout));
        self.next_tick = now;
    }

    /// Until when a shard that stops waits for what is owed.
    pub fn stops_by(&self) -> Option<u64> {
        self.stopping
    }

    /// Begins a tick, and sets the next: of a shard that stops each turn is one. True if deadlines are
    /// to be looked at, which is no oftener than ever.
    fn begin_tick(&mut self, now: u64) -> bool {
        let is_look = now >= self.next_look;
        if is_look {
            self.next_look = now.saturating_add(TICK);
        }
        self.next_tick = if self.is_stopping() { now } else { self.next_look };
        is_look
    }

    /// Whether an answer that is waited for since then is too late.
    pub fn is_answer_late(&self, since: u64, now: u64) -> bool {
        now.saturating_sub(since) >= self.negotiation_timeout
    }

    /// Until when a group may stand open.
    pub fn group_until(&self, now: u64) -> u64 {
        now.saturating_add(self.group_timeout)
    }

    /// How long the rest of a message may take.
    pub fn patience(&self) -> u64 {
        self.group_timeout
    }

    /// Until when the peers must have met.
    pub fn opening_until(&self, now: u64) -> u64 {
        now.saturating_add(self.connect_timeout)
    }

    /// Until when a peer must have answered the first message in version two.
    pub fn negotiation_until(&self, now: u64) -> u64 {
        now.saturating_add(self.negotiation_timeout)
    }

    /// Until when a peer whose connection ends may take what was said to it.
    pub fn farewell_until(&self, now: u64) -> u64 {
        now.saturating_add(self.stop_timeout)
    }

    /// Until when an attempt to connect is over, whatever has become of it: two connections and two
    /// openings, with the end of the first in between.
    pub fn attempt_until(&self, now: u64) -> u64 {
        let twice = self.connect_timeout.saturating_mul(3);
        let between = self.negotiation_timeout.saturating_add(self.stop_timeout);
        now.saturating_add(twice.saturating_add(between))
    }
}

impl<P: Provider> Core<P> {
    /// Ends a connection that is up, once the peer has had the time to take what was said to it last.
    #[cold]
    pub fn leave<H: Handler>(&mut self, index: u32, why: CloseReason, now: u64, handler: &mut H) {
        let until = self.life.farewell_until(now);
        let Some(peer) = self.peers.at(index) else { return };
        if peer.phase != Phase::Up || peer.lane.pending.front().is_none() {
            return self.close(index, why, now, handler);
        }
        peer.phase = Phase::Leaving { until };
        peer.leaves = Some(why);
        self.io.signal_next(&mut peer.lane);
    }

    /// Closes a connection that is leaving, if the peer has what was said to it.
    pub fn see_off<H: Handler>(&mut self, index: u32, now: u64, handler: &mut H) {
        let Some(peer) = self.peers.at(index) else { return };
        let lane = &mut peer.lane;
        if lane.pending.front().is_some() {
            if !lane.ready {
                self.outbox.wake(lane, index);
            }
        } else if lane.outstanding() == 0 {
            self.close(index, CloseReason::Local, now, handler);
        } else if lane.outstanding() == lane.unsignaled() {
            self.io.mark(lane, index);
        }
    }

    /// Ends a connection. Its calls are completed and its handler told before this returns; the
    /// memory that the device still holds comes back later.
    #[cold]
    pub fn close<H: Handler>(&mut self, index: u32, why: CloseReason, now: u64, handler: &mut H) {
        let until = now.saturating_add(self.life.stop_timeout);
        let Some(peer) = self.peers.at(index) else { return };
        let closing = Phase::Closing { until, is_marked: false };
        let was = core::mem::replace(&mut peer.phase, closing);
        if matches!(was, Phase::Closing { .. }) {
            peer.phase = was;
            return;
        }
        let (id, connect) = (peer.id, peer.connect);
        // Whatever ends it earlier, it was leaving.
        let why = peer.leaves.take().unwrap_or(why);
        // Its tickets are void from now on.
        self.stats.calls_unanswered.add(core::mem::take(&mut peer.open_calls).into());
        let again = self.tries_again(index, was, why, now);
        self.free_parked(index);
        self.fetches.give_up(id);
        self.fail_calls(index, why, handler);
        self.outbox.discard_inline(index);
        let Some(peer) = self.peers.at(index) else { return };
        self.outbox.discard_pending(&mut peer.lane);
        self.stats.closed.add(1);
        match (was, connect) {
            // The outcome is that of the next attempt.
            (Phase::Opening { .. }, Some(_)) if again => {}
            (Phase::Opening { .. }, Some(asked)) => {
                handler.on_refused(asked.id, why.as_connect_error());
            }
            (Phase::Opening { .. }, None) => {}
            // Calls that have memory exposed complete later, and their connection ends after them.
            _ => match self.peers.at(index) {
                Some(peer) if peer.exposed > 0 => peer.untold = Some(why),
                _ => handler.on_close(id, why),
            },
        }
        let Some(peer) = self.peers.at(index) else { return };
        peer.again = again;
        let is_marked = self.io.drain(&mut peer.lane, index);
        peer.phase = Phase::Closing { until, is_marked };
        self.finish_close(index, handler);
    }

    /// Forgets a closing connection if nothing of it is in flight.
    pub fn finish_close<H: Handler>(&mut self, index: u32, handler: &mut H) {
        let Some(peer) = self.peers.at(index) else { return };
        if peer.lane.outstanding() > 0 {
            return;
        }
        debug_assert!(peer.lane.flight.front().is_none(), "nothing outstanding, nothing held");
        self.forget(index, false, handler);
    }

    /// Ends every connection.
    #[cold]
    pub fn close_all<H: Handler>(&mut self, why: CloseReason, now: u64, handler: &mut H) {
        for index in 0..self.peers.capacity() {
            self.close(index, why, now, handler);
        }
    }

    /// Looks at everything that has a deadline, and at what is left to be done of a stop.
    #[cold]
    pub fn tick<H: Handler>(&mut self, now: u64, handler: &mut H) {
        if self.life.begin_tick(now) {
            self.check_deadlines(now, handler);
        }
        self.wind_down(now, handler);
    }

    fn check_deadlines<H: Handler>(&mut self, now: u64, handler: &mut H) {
        for index in 0..self.peers.capacity() {
            let Some(peer) = self.peers.at(index) else { continue };
            // wire.md W13: what a peer may send for ever on a connection without calls.
            peer.conn.forgive_idle_messages(1);
            if !peer.conn.has_abandoned() {
                self.outbox.exposures.windows.wake(index);
            }
            match peer.phase {
                Phase::Closing { until, .. } if now >= until => self.leak(index, handler),
                // The send queue had no room for the marker: once more.
                Phase::Closing { until, is_marked: false } => {
                    let is_marked = self.io.drain(&mut peer.lane, index);
                    peer.phase = Phase::Closing { until, is_marked };
                }
                Phase::Leaving { until } if now >= until => {
                    self.close(index, CloseReason::Local, now, handler);
                }
                Phase::Opening { until } if peer.group_until.is_none() => {
                    self.check_opening(index, until, now, handler);
                }
                // wire.md E39: a group is not left open for ever.
                _ if peer.group_until.is_some_and(|until| now >= until) => {
                    self.stats.group_timeouts.add(1);
                    self.expire_group(index, now, handler);
                }
                Phase::Up => {
                    self.give_up_properties(index, now, handler);
                    self.check_first_call(index, now, handler);
                    self.check_reads(index, now, handler);
                    self.check_sends(index, now, handler);
                    self.check_idle(index, now, handler);
                }
                _ => {}
            }
        }
        self.check_call_timeouts(now, handler);
        self.end_late(now, handler);
        self.answer_waiting(now);
    }

    /// Ends the connection of a peer that has taken nothing of what holds memory for too long.
    fn check_sends<H: Handler>(&mut self, index: u32, now: u64, handler: &mut H) {
        let Some(timeout) = self.life.send_timeout else { return };
        let Some(peer) = self.peers.at(index) else { return };
        let seen = peer.lane.waits_behind();
        match (seen, peer.stuck) {
            (Some(done), Some((last, since))) if done == last => {
                if now.saturating_sub(since) >= timeout {
                    self.stats.send_timeouts.add(1);
                    self.close(index, CloseReason::NotTaking, now, handler);
                }
            }
            _ => peer.stuck = seen.map(|done| (done, now)),
        }
    }

    /// Ends a connection that has been opening for too long. wire.md B17: a client that may be silent
    /// keeps its place as long as nobody else needs it, and no longer than one that was idle.
    fn check_opening<H: Handler>(&mut self, index: u32, until: u64, now: u64, handler: &mut H) {
        if now < until {
            return;
        }
        let must_speak = self.settings.properties && self.settings.versions == Versions::TWO;
        let is_asked = self.peers.at(index).is_some_and(|peer| peer.connect.is_some());
        let is_full = self.handle.wakeup().connections() >= self.peers.capacity() as usize;
        let idle = self.life.idle_timeout;
        let is_idle = idle.is_some_and(|idle| now >= until.saturating_add(idle));
        if is_asked || must_speak || is_full || is_idle {
            self.stats.opening_timeouts.add(1);
            self.close(index, CloseReason::TimedOut, now, handler);
        }
    }

    /// Ends a connection that its peer has made and asks nothing of for too long: nothing else tells
    /// that the peer is dead. How long to keep one that this side asked for is its program's choice.
    fn check_idle<H: Handler>(&mut self, index: u32, now: u64, handler: &mut H) {
        let Some(timeout) = self.life.idle_timeout else { return };
        let Some(peer) = self.peers.at(index) else { return };
        // Whatever is asked is answered, and every answer is a work request.
        let is_idle = peer.connect.is_none()
            && (peer.open_calls | peer.fetching | peer.waiting) == 0
            && peer.conn.credits().in_flight() == 0
            && peer.lane.pending.front().is_none();
        let seen = is_idle.then(|| peer.lane.last_seq());
        match (seen, peer.idle) {
            (Some(sent), Some((last, since))) if sent == last => {
                if now.saturating_sub(since) >= timeout {
                    self.stats.idle_timeouts.add(1);
                    self.close(index, CloseReason::Idle, now, handler);
                }
            }
            _ => peer.idle = seen.map(|sent| (sent, now)),
        }
    }

    /// Ends the connections of peers that owe answers for too long.
    fn check_call_timeouts<H: Handler>(&mut self, now: u64, handler: &mut H) {
        for _ in 0..self.call_timeouts.per_tick() {
            if let Some(index) = self.call_timeouts.look(&mut self.outbox.ledger.calls, now) {
                self.stats.call_timeouts.add(1);
                self.close(index, CloseReason::NotAnswering, now, handler);
            }
        }
    }

    /// Completes every call to a peer with the loss of its connection.
    fn fail_calls<H: Handler>(&mut self, index: u32, why: CloseReason, handler: &mut H) {
        let mut start = 0;
        while let Some((id, next)) = self.outbox.ledger.calls.next_of(index, start) {
            self.fail_call(index, id, CallError::ConnectionLost(why), handler);
            start = next;
        }
    }

    /// The device did not give the sends of a closing connection back in time. It may still read
    /// their memory: the messages stay out of use for good.
    fn leak<H: Handler>(&mut self, index: u32, handler: &mut H) {
        let Some(peer) = self.peers.at(index) else { return };
        let mut count = 0;
        while let Some(message) = peer.lane.flight.pop(&self.outbox.messages) {
            count += 1;
            let exposures = &mut self.outbox.exposures;
            match self.outbox.messages.head(message).after {
                After::Fetched(place) => exposures.lose_kept(self.fetches.leak(place)),
                After::Fenced(place) => exposures.at(place).is_lost = true,
                After::Nobody | After::Called(_) => {}
            }
        }
        self.stats.leaked.add(count);
        self.outbox.leaked += count;
        self.forget(index, true, handler);
    }

    /// `leaks` says that the device may still touch what was posted.
    fn forget<H: Handler>(&mut self, index: u32, leaks: bool, handler: &mut H) {
        if self.peers.at(index).is_some_and(|peer| peer.exposed > 0) {
            let lost = self.outbox.exposures.unbind(index, &mut self.io);
            self.stats.windows_lost.add(lost);
        }
        self.io.unbind(index);
        if let Some(peer) = self.peers.at(index) {
            let qp_num = peer.qp_num;
            self.io.forget_events(qp_num);
        }
        if self.peers.at(index).is_some_and(|peer| peer.exposed > 0) {
            if leaks {
                self.leak_exposures(index, handler);
            }
            self.finish_exposures(index, handler);
        }
        self.outbox.exposures.windows.wake(index);
        if let Some(peer) = self.peers.remove(index) {
            if let Some(why) = peer.untold {
                handler.on_close(peer.id, why);
            }
            debug_assert!(peer.lane.pending.front().is_none(), "nothing is sent while closing");
            self.drop_waiting(peer.qp_num);
            peer.conn.close(&mut self.outbox.ledger);
            match peer.connect.filter(|_| peer.again) {
                Some(asked) => self.ask_again(asked, handler),
                None => self.handle.wakeup().disconnected(),
            }
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
