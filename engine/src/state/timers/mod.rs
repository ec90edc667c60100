//! The timers of a shard, and the progress of a stop.
//!
//! All times are nanoseconds of the clock that the shard is polled with. They are checked
//! every 10 ms ([`TICK`]), and in every turn of a stopping shard; those of connections in a shard
//! with places for many ([`PLACES_PER_LOOK`]) some at a time; deadlines of own calls when the wheel
//! states that one may have passed ([`wheel`]).

pub(crate) mod call_timeouts;
pub(crate) mod deadlines;
pub(crate) mod wheel;

use core::ops::Range;
use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_proto::{CallId, CallName, CallTable};

use self::call_timeouts::CallTimeouts;
use self::deadlines::Deadlines;
use super::peers::{Peer, Phase};
use crate::clock::nanos;

/// The timers of a shard.
pub(crate) struct Timers {
    stopping: Option<u64>,
    /// The next look at all times, or the next deadline of a call.
    next_tick: u64,
    next_look: u64,
    /// Whether there was a look since [`Timers::take_look`].
    has_looked: bool,
    /// The first place for a connection of the next look.
    next_place: u32,
    group_timeout: u64,
    connect_timeout: u64,
    negotiation_timeout: u64,
    stop_timeout: u64,
    /// `None` if a peer may refuse sent messages indefinitely.
    send_timeout: Option<u64>,
    /// `None` if a peer that has connected may be silent indefinitely.
    idle_timeout: Option<u64>,
    /// The time limit for answers of peers.
    call_timeouts: CallTimeouts,
    /// The deadlines of own calls.
    deadlines: Deadlines,
}

/// The interval between checks.
const TICK: u64 = 10_000_000;
/// Places for connections that one look checks. A connection takes several cache lines, which are
/// cold in a shard with thousands: a look at 10,000 takes a quarter of a millisecond, in which no
/// message is handled.
pub(crate) const PLACES_PER_LOOK: u32 = 1024;

impl Timers {
    /// For this number of outstanding own calls, and of slots in their table.
    pub fn new(config: &Config, calls: u32, slots: u32) -> Timers {
        let connections = config.connections();
        Timers {
            stopping: None,
            next_tick: 0,
            next_look: 0,
            has_looked: false,
            next_place: 0,
            group_timeout: nanos(connections.group_timeout),
            connect_timeout: nanos(connections.connect_timeout),
            negotiation_timeout: nanos(config.protocol().negotiation_timeout),
            stop_timeout: nanos(connections.stop_timeout),
            send_timeout: connections.send_timeout.map(nanos),
            idle_timeout: connections.idle_timeout.map(nanos),
            call_timeouts: CallTimeouts::new(connections.call_timeout, calls, TICK),
            deadlines: Deadlines::new(slots),
        }
    }

    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.next_tick
    }

    /// How long the thread may sleep, towards the next look or deadline.
    pub fn until_due(&self, now: u64) -> Duration {
        Duration::from_nanos(self.next_tick.saturating_sub(now))
    }

    /// As [`Timers::until_due`], if no look before `until` has anything to find.
    pub fn until_deadline(&self, now: u64, until: u64) -> Duration {
        Duration::from_nanos(self.deadlines.next().min(until).saturating_sub(now))
    }

    /// Whether there was a look since this was last asked.
    pub fn take_look(&mut self) -> bool {
        core::mem::take(&mut self.has_looked)
    }

    /// Until when no look finds anything about this peer, if nothing happens. `None` if the next
    /// look may.
    pub fn quiet_until(&self, peer: &Peer) -> Option<u64> {
        let is_asking = peer.connect.is_some_and(|asked| asked.is_trying)
            || peer.asking_since.is_some()
            || (self.call_timeouts.per_tick() > 0 && peer.conn.credits().in_flight() > 0);
        let is_busy = (peer.open_calls() | peer.fetching | peer.waiting | peer.exposed) != 0
            || peer.group_until.is_some()
            || peer.lane.pending.front().is_some()
            || peer.lane.waits_behind().is_some();
        if peer.phase != Phase::Up || is_asking || is_busy {
            return None;
        }
        let (_, since) = peer.idle.unwrap_or((0, u64::MAX));
        Some(since.saturating_add(self.idle_timeout.unwrap_or(u64::MAX)))
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

    /// The time limit of a stop.
    pub fn stops_by(&self) -> Option<u64> {
        self.stopping
    }

    /// Begins a tick; each turn of a stopping shard is one. Returns the number of intervals since
    /// the last look if all times must be checked, which happens no more often than without a stop.
    pub fn begin_tick(&mut self, now: u64) -> Option<u64> {
        let late = now.checked_sub(self.next_look)?;
        self.next_look = now.saturating_add(TICK);
        self.has_looked = true;
        Some(1 + late / TICK)
    }

    /// The places to check in this look, of so many; and the number of looks that check all.
    pub fn places(&mut self, capacity: u32) -> (Range<u32>, u64) {
        let first = if self.next_place < capacity { self.next_place } else { 0 };
        let end = capacity.min(first.saturating_add(PLACES_PER_LOOK));
        self.next_place = end;
        (first..end, capacity.div_ceil(PLACES_PER_LOOK).into())
    }

    /// Ends a tick, and sets the next.
    pub fn end_tick(&mut self, now: u64) {
        let next = self.next_look.min(self.deadlines.next());
        self.next_tick = if self.is_stopping() { now } else { next };
    }

    /// Whether an answer awaited since `since` is too late.
    pub fn is_answer_late(&self, since: u64, now: u64) -> bool {
        now.saturating_sub(since) >= self.negotiation_timeout
    }

    /// The time limit of a group that is open now.
    pub fn group_until(&self, now: u64) -> u64 {
        now.saturating_add(self.group_timeout)
    }

    /// The time limit for the rest of a message.
    pub fn patience(&self) -> u64 {
        self.group_timeout
    }

    /// The time limit for opening a connection.
    pub fn opening_until(&self, now: u64) -> u64 {
        now.saturating_add(self.connect_timeout)
    }

    /// The time limit for the answer to the first message in version two.
    pub fn negotiation_until(&self, now: u64) -> u64 {
        now.saturating_add(self.negotiation_timeout)
    }

    /// The time limit for a peer to receive the last messages of an ending connection, and for the
    /// device to complete its sends.
    pub fn farewell_until(&self, now: u64) -> u64 {
        now.saturating_add(self.stop_timeout)
    }

    /// The time limit of an attempt to connect: two connections and two openings, and the end of
    /// the first in between.
    pub fn attempt_until(&self, now: u64) -> u64 {
        let twice = self.connect_timeout.saturating_mul(3);
        let between = self.negotiation_timeout.saturating_add(self.stop_timeout);
        now.saturating_add(twice.saturating_add(between))
    }

    /// Whether a peer that was opening until `until` has been silent for as long as one that is
    /// idle.
    pub fn is_opening_idle(&self, until: u64, now: u64) -> bool {
        self.idle_timeout.is_some_and(|idle| now >= until.saturating_add(idle))
    }

    /// Whether a peer has, for too long, not accepted any message that holds memory.
    pub fn is_stuck(&self, peer: &mut Peer, now: u64) -> bool {
        let Some(timeout) = self.send_timeout else { return false };
        let seen = peer.lane.waits_behind();
        match (seen, peer.stuck) {
            (Some(done), Some((last, since))) if done == last => {
                now.saturating_sub(since) >= timeout
            }
            _ => {
                peer.stuck = seen.map(|done| (done, now));
                false
            }
        }
    }

    /// Whether a peer that made its connection has sent no request for too long: no other sign
    /// shows that it is dead. The program decides how long to keep a connection that this side
    /// requested.
    pub fn is_idle(&self, peer: &mut Peer, now: u64) -> bool {
        let Some(timeout) = self.idle_timeout else { return false };
        // Every request is answered, and every answer is a work request. A call that was given up
        // may never be answered.
        let is_idle = peer.connect.is_none()
            && (peer.open_calls() | peer.fetching | peer.waiting) == 0
            && !peer.conn.is_calling()
            && peer.lane.pending.front().is_none();
        let seen = is_idle.then(|| peer.lane.last_seq());
        match (seen, peer.idle) {
            (Some(sent), Some((last, since))) if sent == last => {
                now.saturating_sub(since) >= timeout
            }
            _ => {
                peer.idle = seen.map(|sent| (sent, now));
                false
            }
        }
    }

    /// Records the deadline of the own call in a slot. The caller marks the call's entry.
    #[inline]
    pub fn arm(&mut self, slot: u32, at: u64) {
        if self.deadlines.arm(slot, at) {
            self.next_tick = self.next_tick.min(self.deadlines.next());
        }
    }

    /// Records that the program cancelled the own call in a slot.
    pub fn cancel(&mut self, slot: u32, call: CallName) {
        self.deadlines.cancel(slot, call);
    }

    /// The time limit of own calls for their replies.
    pub fn call_timeouts(&mut self) -> &mut CallTimeouts {
        &mut self.call_timeouts
    }

    /// An own call whose deadline has passed, with its peer.
    pub fn next_late(
        &mut self,
        calls: &CallTable,
        now: u64,
        looks: &mut u32,
    ) -> Option<(CallId, u32)> {
        self.deadlines.next_late(calls, now, looks)
    }

    /// A cancelled own call, with its peer, if it is still open.
    pub fn next_cancelled(&mut self, calls: &CallTable) -> Option<(CallId, u32)> {
        self.deadlines.next_cancelled(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::lane::messages::Messages;
    use crate::state::peers::Attempt;

    fn timers() -> Timers {
        Timers::new(&Config::default(), 4, 4)
    }

    #[test]
    fn a_look_states_how_many_intervals_have_passed_since_it_was_due() {
        let mut timers = timers();
        assert!(timers.is_due(0) && !timers.take_look());
        assert_eq!(timers.begin_tick(0), Some(1));
        timers.end_tick(0);
        assert!(timers.take_look() && !timers.take_look());
        assert_eq!(timers.begin_tick(TICK - 1), None);
        assert!(!timers.is_due(TICK - 1) && timers.is_due(TICK) && !timers.take_look());
        assert_eq!(timers.until_due(TICK - 3), Duration::from_nanos(3));
        assert_eq!(timers.until_deadline(3, 10), Duration::from_nanos(7));
        assert_eq!(timers.begin_tick(3 * TICK + 5), Some(3));
        assert_eq!(timers.begin_tick(4 * TICK + 4), None);
        assert_eq!(timers.begin_tick(4 * TICK + 5), Some(1));
    }

    #[test]
    fn looks_check_all_places_in_turn() {
        let mut timers = timers();
        let mut looks = |capacity| timers.places(capacity);
        assert_eq!([looks(4), looks(4)], [(0..4, 1), (0..4, 1)]);
        let [first, second] = [PLACES_PER_LOOK, 2 * PLACES_PER_LOOK];
        let capacity = second + 7;
        assert_eq!(looks(capacity), (4..first + 4, 3));
        assert_eq!(looks(capacity), (first + 4..second + 4, 3));
        assert_eq!(looks(capacity), (second + 4..capacity, 3));
        assert_eq!(looks(capacity), (0..first, 3));
    }

    #[test]
    fn a_stop_has_one_time_limit_and_looks_in_each_turn() {
        let mut timers = timers();
        timers.begin_tick(0);
        timers.end_tick(0);
        assert!(!timers.is_stopping() && timers.stops_by().is_none() && !timers.is_due(7));
        timers.stop(7);
        timers.stop(9);
        assert_eq!(timers.stops_by(), Some(7 + timers.stop_timeout));
        timers.end_tick(9);
        assert!(timers.is_stopping() && timers.is_due(9) && !timers.is_due(8));
    }

    #[test]
    fn each_time_limit_is_that_of_the_configuration() {
        let mut timers = timers();
        let config = Config::default();
        let connections = config.connections();
        let answer = nanos(config.protocol().negotiation_timeout);
        let [group, connect, stop] =
            [connections.group_timeout, connections.connect_timeout, connections.stop_timeout]
                .map(nanos);
        assert_eq!((timers.group_until(5), timers.patience()), (5 + group, group));
        assert_eq!(timers.opening_until(5), 5 + connect);
        assert_eq!(timers.negotiation_until(5), 5 + answer);
        assert_eq!(timers.farewell_until(5), 5 + stop);
        assert_eq!(timers.attempt_until(5), 5 + 3 * connect + answer + stop);
        assert!(!timers.is_answer_late(5, 5 + answer - 1) && timers.is_answer_late(5, 5 + answer));
        timers.idle_timeout = Some(3);
        assert!(!timers.is_opening_idle(5, 7) && timers.is_opening_idle(5, 8));
        timers.idle_timeout = None;
        assert!(!timers.is_opening_idle(5, u64::MAX));
    }

    /// A change of a peer that is idle.
    type Change = fn(&mut Peer);

    /// Calls of either kind, each alone and two at a time.
    const BUSY: [Change; 6] = [
        |peer| peer.fetching = 1,
        |peer| peer.waiting = 1,
        |peer| assert!(!peer.tally.call_in()),
        |peer| (peer.fetching, peer.waiting) = (1, 1),
        |peer| {
            peer.fetching = 1;
            assert!(!peer.tally.call_in());
        },
        |peer| {
            peer.waiting = 1;
            assert!(!peer.tally.call_in());
        },
    ];

    fn attempt(is_trying: bool) -> Attempt {
        Attempt { id: crate::provider::ConnectId(1), is_trying, until: None }
    }

    fn queue_a_message(peer: &mut Peer) {
        let mut messages = Messages::new(1);
        let message = messages.begin().expect("one");
        peer.lane.push(&mut messages, message);
    }

    #[test]
    fn a_peer_is_idle_that_has_sent_nothing_for_the_timeout() {
        let (mut timers, mut peer) = (timers(), Peer::up());
        timers.idle_timeout = Some(10);
        assert_eq!([5, 14, 15].map(|now| timers.is_idle(&mut peer, now)), [false, false, true]);
        peer.lane.on_posted(true);
        assert_eq!([20, 29, 30].map(|now| timers.is_idle(&mut peer, now)), [false, false, true]);
        timers.idle_timeout = None;
        assert!(!timers.is_idle(&mut peer, u64::MAX));
    }

    #[test]
    fn a_peer_with_a_call_or_a_message_or_that_was_requested_is_not_idle() {
        let others: [Change; 2] = [|peer| peer.connect = Some(attempt(false)), queue_a_message];
        for (case, change) in BUSY.iter().chain(&others).enumerate() {
            let (mut timers, mut peer) = (timers(), Peer::up());
            timers.idle_timeout = Some(10);
            assert!(!timers.is_idle(&mut peer, 0));
            change(&mut peer);
            assert!(!timers.is_idle(&mut peer, 100) && peer.idle.is_none(), "{case}");
        }
    }

    #[test]
    fn a_look_may_find_something_about_a_peer_that_is_not_quiet() {
        let mut timers = timers();
        timers.idle_timeout = None;
        let mut peer = Peer::up();
        assert_eq!(timers.quiet_until(&peer), Some(u64::MAX));
        timers.idle_timeout = Some(10);
        assert_eq!(timers.quiet_until(&peer), Some(u64::MAX));
        peer.idle = Some((0, 5));
        assert_eq!(timers.quiet_until(&peer), Some(15));
        let others: [Change; 8] = [
            |peer| peer.exposed = 1,
            |peer| (peer.exposed, peer.waiting) = (1, 1),
            |peer| (peer.exposed, peer.fetching) = (1, 1),
            |peer| peer.group_until = Some(20),
            |peer| peer.asking_since = Some(1),
            |peer| peer.phase = Phase::Leaving,
            |peer| peer.connect = Some(attempt(true)),
            queue_a_message,
        ];
        for (case, change) in BUSY.iter().chain(&others).enumerate() {
            let mut peer = Peer::up();
            peer.idle = Some((0, 5));
            change(&mut peer);
            assert_eq!(timers.quiet_until(&peer), None, "{case}");
        }
    }
}
