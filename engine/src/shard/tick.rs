//! The tick: ends whatever exceeds its time limit.

use rpcrdma_proto::Versions;

use super::Core;
use super::version_choice::has_asked;
use crate::api::handler::Handler;
use crate::error::CloseReason;
use crate::provider::Provider;
use crate::state::parts::Parts;
use crate::state::peers::Phase;

impl<P: Provider> Core<P> {
    /// Checks the deadlines of calls; every 10 ms all other times, those of connections at most
    /// [`PLACES_PER_LOOK`](crate::state::timers::PLACES_PER_LOOK) at a time; and the remaining work
    /// of a stop. True if a call or a connection has ended: the program was notified.
    #[cold]
    pub fn tick(&mut self, now: u64, handler: &mut dyn Handler) -> bool {
        let ends = |Parts { stats, .. }: &Parts| {
            (stats.calls_completed.count(), stats.connections_closed.count())
        };
        let before = ends(&self.parts);
        if let Some(intervals) = self.parts.timers.begin_tick(now) {
            self.check_all(intervals, now, handler);
        }
        self.end_late(now, handler);
        self.wind_down(now, handler);
        self.parts.timers.end_tick(now);
        ends(&self.parts) != before
    }

    fn check_all(&mut self, intervals: u64, now: u64, handler: &mut dyn Handler) {
        let (places, looks) = self.parts.timers.places(self.peers.capacity());
        let forgiven = u8::try_from(intervals.saturating_mul(looks)).unwrap_or(u8::MAX);
        for index in places {
            let Some(peer) = self.peers.at(index) else { continue };
            // wire.md W13: messages that a peer may send indefinitely on a connection without
            // calls.
            peer.conn.forgive_idle_messages(forgiven);
            if !peer.conn.has_abandoned() {
                self.parts.rdma.release_windows(index);
            }
            let until = peer.until;
            match peer.phase {
                Phase::Closing if now >= until => self.leak(index, handler),
                // The send queue had no room for the marker: retry.
                Phase::Closing if !peer.is_marked => {
                    peer.is_marked = self.io.drain(&mut peer.lane, index);
                }
                Phase::Leaving if now >= until => {
                    self.close(index, CloseReason::Local, now, handler);
                }
                Phase::Opening if peer.group_until.is_none() => {
                    self.check_opening(index, until, now, handler);
                }
                // wire.md E39: a group does not stay open indefinitely.
                _ if peer.group_until.is_some_and(|until| now >= until) => {
                    self.parts.stats.group_timeouts.add(1);
                    self.expire_group(index, now, handler);
                }
                Phase::Up => {
                    peer.give_up_properties(now, &self.parts.timers, handler);
                    self.check_first_call(index, now, handler);
                    self.check_peer(index, now, handler);
                }
                _ => {}
            }
        }
        self.check_call_timeouts(now, handler);
        self.answer_waiting(now);
    }

    /// Ends the connection of a peer whose data does not arrive, that accepts no messages, or is
    /// idle.
    fn check_peer(&mut self, index: u32, now: u64, handler: &mut dyn Handler) {
        let Core { parts, fetches, peers, .. } = &mut *self;
        let (timers, stats) = (&parts.timers, &parts.stats);
        // An open message has its own time limit.
        if fetches.is_late(index, now, timers.patience()) {
            stats.read_timeouts.add(1);
            return self.close(index, CloseReason::TimedOut, now, handler);
        }
        let Some(peer) = peers.at(index) else { return };
        let why = if timers.is_stuck(peer, now) {
            stats.send_timeouts.add(1);
            CloseReason::NotTaking
        } else if timers.is_idle(peer, now) {
            stats.idle_timeouts.add(1);
            CloseReason::Idle
        } else {
            return;
        };
        self.close(index, why, now, handler);
    }

    /// Ends a connection that was opening for too long. wire.md B17: a client that may be silent
    /// keeps its place until another peer needs it, and no longer than an idle one.
    fn check_opening(&mut self, index: u32, until: u64, now: u64, handler: &mut dyn Handler) {
        if now < until {
            return;
        }
        let settings = self.link.settings();
        let must_speak = settings.properties && settings.versions == Versions::TWO;
        let is_asked = self.peers.at(index).is_some_and(|peer| peer.connect.is_some());
        let connections = self.parts.handle.wakeup().connections();
        let is_full = connections >= self.peers.capacity() as usize;
        let is_idle = self.parts.timers.is_opening_idle(until, now);
        if is_asked || must_speak || is_full || is_idle {
            self.parts.stats.opening_timeouts.add(1);
            self.close(index, CloseReason::TimedOut, now, handler);
        }
    }

    /// An unanswered first call is an unanswered first message.
    fn check_first_call(&mut self, index: u32, now: u64, handler: &mut dyn Handler) {
        let until = self.parts.timers.negotiation_until(now);
        let is_free = self.link.is_free_to_choose();
        let Some(peer) = self.peers.at(index) else { return };
        let waits = is_free && has_asked(peer);
        let Some(asked) = peer.connect.as_mut().filter(|asked| asked.is_trying && waits) else {
            return;
        };
        if now >= *asked.until.get_or_insert(until) {
            self.close(index, CloseReason::TimedOut, now, handler);
        }
    }

    /// Ends the connections of peers that did not answer a call in time.
    fn check_call_timeouts(&mut self, now: u64, handler: &mut dyn Handler) {
        for _ in 0..self.parts.timers.call_timeouts().per_tick() {
            let calls = &mut self.parts.ledger.calls;
            if let Some(index) = self.parts.timers.call_timeouts().look(calls, now) {
                self.parts.stats.call_timeouts.add(1);
                self.close(index, CloseReason::NotAnswering, now, handler);
            }
        }
    }
}
