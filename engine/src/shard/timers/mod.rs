//! The timers of a shard, and the progress of a stop.
//!
//! All times are nanoseconds of the clock that the shard is polled with. They are looked at every
//! 10 ms ([`TICK`]), and with every turn of a shard that stops.

pub(crate) mod call_timeouts;
mod cancellation;
pub(crate) mod deadlines;
mod tick;

use std::time::Duration;

use rpcrdma_config::Config;
use rpcrdma_proto::{CallId, CallName, CallTable};

use self::call_timeouts::CallTimeouts;
use self::deadlines::Deadlines;
use super::peers::Peer;

/// The times of a shard.
pub(crate) struct Timers {
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
    /// How long peers may owe answers.
    call_timeouts: CallTimeouts,
    /// Until when own calls may take.
    deadlines: Deadlines,
}

/// How often times are looked at.
const TICK: u64 = 10_000_000;

impl Timers {
    /// For so many own calls outstanding, of a table with so many slots.
    pub fn new(config: &Config, calls: u32, slots: u32) -> Timers {
        let connections = config.connections();
        Timers {
            stopping: None,
            next_tick: 0,
            next_look: 0,
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

    /// Until when a peer whose connection ends may take what was said to it, and the device may keep
    /// what it has.
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

    /// Whether a peer that has been opening until then has been silent for as long as one that is idle.
    fn is_opening_idle(&self, until: u64, now: u64) -> bool {
        self.idle_timeout.is_some_and(|idle| now >= until.saturating_add(idle))
    }

    /// Whether a peer has taken nothing of what holds memory for too long.
    fn is_stuck(&self, peer: &mut Peer, now: u64) -> bool {
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

    /// Whether a peer that has made its connection has asked nothing of it for too long: nothing else
    /// tells that it is dead. How long to keep a connection that this side asked for is its program's
    /// choice.
    fn is_idle(&self, peer: &mut Peer, now: u64) -> bool {
        let Some(timeout) = self.idle_timeout else { return false };
        // Whatever is asked is answered, and every answer is a work request.
        let is_idle = peer.connect.is_none()
            && (peer.open_calls | peer.fetching | peer.waiting) == 0
            && peer.conn.credits().in_flight() == 0
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

    /// Notes until when the own call in a slot may take. Its entry is to say that it is so.
    pub fn arm(&mut self, slot: u32, at: u64) {
        self.deadlines.arm(slot, at);
    }

    /// Notes that the program has given the own call in a slot up.
    pub fn cancel(&mut self, slot: u32, call: CallName) {
        self.deadlines.cancel(slot, call);
    }

    /// An own call that the program has given up, with its peer, if it is still open.
    fn next_cancelled(&mut self, calls: &CallTable) -> Option<(CallId, u32)> {
        self.deadlines.next_cancelled(calls)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
