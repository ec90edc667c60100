//! The trace of a run: a hash for comparing runs, and the last events as text.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use rpcrdma::provider::ConnectId;
use rpcrdma::{CallError, CallRefused, CloseReason, ConnectionId};

/// An event. Shards are counted from zero.
#[derive(Debug, Clone)]
pub enum Event {
    /// A shard was polled at a time in nanoseconds.
    Poll {
        /// The shard.
        shard: usize,
        /// The time.
        now: u64,
        /// Whether it had work.
        busy: bool,
    },
    /// A connection manager was stepped.
    Control(usize),
    /// A shard requested a connection to another engine.
    Connect(usize, ConnectId),
    /// A connection was established.
    Up(usize, ConnectionId),
    /// A connection failed.
    NotUp(usize, ConnectId),
    /// A connection ended.
    Closed(usize, ConnectionId, CloseReason),
    /// A program closes a connection.
    Close(usize, ConnectionId),
    /// A program stops its shard.
    Stop(usize),
    /// A call was submitted.
    Called(usize, ConnectionId, u32),
    /// A call could not be submitted.
    NotCalled(usize, ConnectionId, CallRefused),
    /// A call arrived.
    Arrived(usize, ConnectionId, u32),
    /// A message that is not a call arrived.
    Garbled(usize, ConnectionId),
    /// A call was answered.
    Answered(usize, u32),
    /// A call was rejected by the program.
    Refused(usize, u32),
    /// A call is complete.
    Done(usize, u32, Result<(), CallError>),
    /// The faults and the callers stop.
    Drain,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Closed(shard, peer, why) => write!(f, "Closed({shard}, {peer:?}): {why}"),
            Event::NotCalled(shard, peer, why) => write!(f, "NotCalled({shard}, {peer:?}): {why}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The recorded events.
#[derive(Debug)]
pub struct Trace {
    hasher: DefaultHasher,
    count: u64,
    last: VecDeque<Event>,
}

/// Events that are kept for the report.
const KEPT: usize = 80;

impl Default for Trace {
    fn default() -> Trace {
        // Its keys are constants: the same events give the same number in every process.
        Trace { hasher: DefaultHasher::new(), count: 0, last: VecDeque::with_capacity(KEPT) }
    }
}

impl Trace {
    /// Records an event.
    pub fn note(&mut self, event: Event) {
        self.count += 1;
        self.mix(&event);
        // Turns without work are part of the hash, but not of the text.
        if matches!(event, Event::Poll { busy: false, .. } | Event::Control(_)) {
            return;
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(event);
    }

    /// Adds a number to the hash.
    pub fn number(&mut self, number: u64) {
        self.hasher.write_u64(number);
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// The number of events so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last events, as text.
    pub fn story(&self) -> Vec<String> {
        self.last.iter().map(|event| event.to_string()).collect()
    }

    fn mix(&mut self, event: &Event) {
        std::mem::discriminant(event).hash(&mut self.hasher);
        match event {
            Event::Poll { shard, now, busy } => (shard, now, busy).hash(&mut self.hasher),
            Event::Control(which) | Event::Stop(which) => which.hash(&mut self.hasher),
            Event::Connect(shard, id) | Event::NotUp(shard, id) => {
                (shard, id).hash(&mut self.hasher);
            }
            Event::Up(shard, peer)
            | Event::Closed(shard, peer, _)
            | Event::Close(shard, peer)
            | Event::NotCalled(shard, peer, _)
            | Event::Garbled(shard, peer) => (shard, peer).hash(&mut self.hasher),
            Event::Called(shard, peer, id) | Event::Arrived(shard, peer, id) => {
                (shard, peer, id).hash(&mut self.hasher);
            }
            Event::Answered(shard, id) | Event::Refused(shard, id) => {
                (shard, id).hash(&mut self.hasher);
            }
            Event::Done(shard, id, result) => (shard, id, result.is_ok()).hash(&mut self.hasher),
            Event::Drain => {}
        }
    }
}
