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
    /// The number of their answers.
    ended_answers: usize,
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
        let (connections, ended) = (HashMap::new(), VecDeque::new());
        KeptAnswers { connections, ended, ended_answers: 0, each_max }
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
        self.ended_answers += usize::from(kept.has_ended);
        self.forget_ended()
    }

    /// Keeps the answer to a call no longer for this connection.
    pub fn release(&mut self, connection: C, call: &F) {
        let Some(kept) = self.connections.get_mut(&connection) else { return };
        let count = kept.calls.len();
        kept.calls.retain(|other| other != call);
        if kept.has_ended {
            self.ended_answers -= count - kept.calls.len();
        }
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
                self.ended_answers += kept.calls.len();
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

    /// While there are too many answers, the oldest ended connection of the origin that has the most
    /// is forgotten. Looks at all ended connections, and only then.
    fn forget_ended(&mut self) -> VecDeque<F> {
        let mut forgotten = VecDeque::new();
        while self.ended_answers > ENDED_MAX * self.each_max {
            let connections = &self.connections;
            let origin = |connection: &C| connections.get(connection).map(|kept| kept.origin);
            let mut counts: HashMap<Option<Origin>, usize> = HashMap::new();
            for connection in &self.ended {
                let count = connections.get(connection).map_or(0, |kept| kept.calls.len());
                *counts.entry(origin(connection)).or_default() += count;
            }
            let most = counts.values().copied().max();
            let is_of_most = |connection: &C| counts.get(&origin(connection)).copied() == most;
            let Some(oldest) = self.ended.iter().position(is_of_most) else { break };
            let oldest = self.ended.remove(oldest);
            let kept = oldest.and_then(|connection| self.connections.remove(&connection));
            let calls = kept.map(|kept| kept.calls).unwrap_or_default();
            self.ended_answers -= calls.len();
            forgotten.extend(calls);
        }
        forgotten
    }
}

/// The answers of ended connections that are kept, in full connections.
pub const ENDED_MAX: usize = 64;
