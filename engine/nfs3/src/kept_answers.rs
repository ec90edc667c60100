//! Which answers the duplicate request cache keeps: the last ones of each connection.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use rpcrdma_engine::Origin;

/// The calls whose answers are kept, by the connection that they are kept for. `F` identifies a
/// call.
pub struct KeptAnswers<C, F> {
    connections: HashMap<C, Kept<F>>,
    /// The connections that have ended and have answers, in the order of their ends.
    ended: VecDeque<C>,
    /// The maximum number of answers of one connection.
    each_max: usize,
}

struct Kept<F> {
    origin: Origin,
    /// The calls, the oldest answer first.
    calls: VecDeque<F>,
    has_ended: bool,
}

impl<C: Copy + Eq + Hash, F: Clone + PartialEq> KeptAnswers<C, F> {
    /// None yet, and at most `each_max` for one connection.
    pub fn new(each_max: usize) -> KeptAnswers<C, F> {
        KeptAnswers { connections: HashMap::new(), ended: VecDeque::new(), each_max }
    }

    /// Records that a connection is open.
    pub fn begin(&mut self, connection: C, origin: Origin) {
        let none = Kept { origin, calls: VecDeque::new(), has_ended: false };
        self.connections.entry(connection).or_insert(none);
    }

    /// Keeps the answer to a call of this origin. Returns the calls to forget.
    pub fn keep(&mut self, connection: C, origin: Origin, call: &F) -> VecDeque<F> {
        let ended = &mut self.ended;
        let kept = self.connections.entry(connection).or_insert_with(|| {
            // It has ended, and its answers were forgotten.
            ended.push_back(connection);
            Kept { origin, calls: VecDeque::new(), has_ended: true }
        });
        kept.calls.push_back(call.clone());
        if kept.calls.len() > self.each_max {
            return kept.calls.pop_front().into_iter().collect();
        }
        self.forget_ended()
    }

    /// Keeps the answer to a call no longer for this connection.
    pub fn release(&mut self, connection: C, call: &F) {
        let Some(kept) = self.connections.get_mut(&connection) else { return };
        kept.calls.retain(|other| other != call);
        if kept.has_ended && kept.calls.is_empty() {
            self.connections.remove(&connection);
            self.ended.retain(|other| *other != connection);
        }
    }

    /// Records the end of a connection. Returns the calls to forget.
    pub fn end(&mut self, connection: C) -> VecDeque<F> {
        match self.connections.get_mut(&connection) {
            Some(kept) if kept.calls.is_empty() => drop(self.connections.remove(&connection)),
            Some(kept) => {
                kept.has_ended = true;
                self.ended.push_back(connection);
            }
            None => {}
        }
        self.forget_ended()
    }

    /// The number of connections that have not ended.
    #[cfg(test)]
    pub fn open_connections(&self) -> usize {
        self.connections.len() - self.ended.len()
    }

    /// Beyond the limit, the oldest ended connection of the origin that has the most is forgotten.
    fn forget_ended(&mut self) -> VecDeque<F> {
        if self.ended.len() <= ENDED_MAX {
            return VecDeque::new();
        }
        let origin = |connection: &C| self.connections.get(connection).map(|kept| kept.origin);
        let mut counts: HashMap<Option<Origin>, usize> = HashMap::new();
        for connection in &self.ended {
            *counts.entry(origin(connection)).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let is_of_most = |connection: &C| counts.get(&origin(connection)).copied() == most;
        let oldest = self.ended.iter().position(is_of_most);
        let oldest = oldest.and_then(|index| self.ended.remove(index));
        let kept = oldest.and_then(|connection| self.connections.remove(&connection));
        kept.map(|kept| kept.calls).unwrap_or_default()
    }
}

/// The number of ended connections whose answers are kept.
pub const ENDED_MAX: usize = 64;
