//! Which answers the duplicate request cache keeps: the last ones of each connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use rpcrdma::Origin;

/// The calls whose answers are kept, by the connection that they are kept for. `F` identifies a
/// call.
pub struct KeptAnswers<C, F> {
    connections: HashMap<C, KeptOf<F>>,
    ended: Ended<C>,
    /// The maximum number of answers of one connection.
    each_max: usize,
}

struct KeptOf<F> {
    origin: Origin,
    /// The calls, the oldest answer first.
    calls: VecDeque<F>,
    /// The number of its end, if it has ended.
    end: Option<u64>,
}

/// The connections that have ended and have answers.
struct Ended<C> {
    origins: HashMap<Origin, EndedOf<C>>,
    /// The origins; last the one with the most answers, and of several the one whose connection
    /// ended first.
    ranks: BTreeMap<Rank, Origin>,
    /// The number of all answers.
    answers: usize,
    /// The number of ends.
    ends: u64,
}

/// The ended connections of an origin.
struct EndedOf<C> {
    /// By the numbers of their ends.
    connections: BTreeMap<u64, C>,
    answers: usize,
}

/// A number of answers, and that of the first end.
type Rank = (usize, Reverse<u64>);

impl<C: Copy + Eq + Hash, F: Clone + PartialEq> KeptAnswers<C, F> {
    /// None yet, and at most `each_max` for one connection.
    pub fn new(each_max: usize) -> KeptAnswers<C, F> {
        KeptAnswers { connections: HashMap::new(), ended: Ended::new(), each_max }
    }

    /// Records that a connection is open.
    pub fn begin(&mut self, connection: C, origin: Origin) {
        let none = KeptOf { origin, calls: VecDeque::new(), end: None };
        self.connections.entry(connection).or_insert(none);
    }

    /// Keeps the answer to a call of this origin. Returns the calls to forget.
    pub fn keep(&mut self, connection: C, origin: Origin, call: &F) -> VecDeque<F> {
        let ended = &mut self.ended;
        let kept = self.connections.entry(connection).or_insert_with(|| {
            // It has ended, and its answers were forgotten.
            let end = Some(ended.add(origin, connection, 0));
            KeptOf { origin, calls: VecDeque::new(), end }
        });
        kept.calls.push_back(call.clone());
        if kept.calls.len() > self.each_max {
            return kept.calls.pop_front().into_iter().collect();
        }
        if kept.end.is_some() {
            ended.change(kept.origin, |of| of.answers += 1);
        }
        self.forget_ended()
    }

    /// Keeps the answer to a call no longer for this connection.
    pub fn release(&mut self, connection: C, call: &F) {
        let Some(kept) = self.connections.get_mut(&connection) else { return };
        let count = kept.calls.len();
        kept.calls.retain(|other| other != call);
        let Some(end) = kept.end else { return };
        let (released, is_empty) = (count - kept.calls.len(), kept.calls.is_empty());
        self.ended.change(kept.origin, |of| {
            of.answers -= released;
            if is_empty {
                of.connections.remove(&end);
            }
        });
        if is_empty {
            self.connections.remove(&connection);
        }
    }

    /// Records the end of a connection. Returns the calls to forget.
    pub fn end(&mut self, connection: C) -> VecDeque<F> {
        match self.connections.get_mut(&connection) {
            Some(kept) if kept.calls.is_empty() => drop(self.connections.remove(&connection)),
            Some(kept) => {
                kept.end = Some(self.ended.add(kept.origin, connection, kept.calls.len()))
            }
            None => {}
        }
        self.forget_ended()
    }

    /// The number of connections that have not ended.
    #[cfg(test)]
    pub fn open_connections(&self) -> usize {
        self.connections.values().filter(|kept| kept.end.is_none()).count()
    }

    /// While there are too many answers, the oldest ended connection of the origin that has the most
    /// is forgotten.
    fn forget_ended(&mut self) -> VecDeque<F> {
        let mut forgotten = VecDeque::new();
        while self.ended.answers > ENDED_FULL * self.each_max {
            let Some(oldest) = self.ended.oldest_of_most() else { break };
            let Some(kept) = self.connections.remove(&oldest) else { break };
            self.ended.change(kept.origin, |of| {
                of.answers -= kept.calls.len();
                of.connections.pop_first();
            });
            forgotten.extend(kept.calls);
        }
        forgotten
    }
}

impl<C: Copy> Ended<C> {
    fn new() -> Ended<C> {
        Ended { origins: HashMap::new(), ranks: BTreeMap::new(), answers: 0, ends: 0 }
    }

    /// Adds a connection that has ended. Returns the number of its end.
    fn add(&mut self, origin: Origin, connection: C, answers: usize) -> u64 {
        let end = self.ends;
        self.ends += 1;
        self.change(origin, |of| {
            of.connections.insert(end, connection);
            of.answers += answers;
        });
        end
    }

    fn change(&mut self, origin: Origin, change: impl FnOnce(&mut EndedOf<C>)) {
        let none = || EndedOf { connections: BTreeMap::new(), answers: 0 };
        let of = self.origins.entry(origin).or_insert_with(none);
        of.rank().map(|rank| self.ranks.remove(&rank));
        self.answers -= of.answers;
        change(of);
        self.answers += of.answers;
        match of.rank() {
            Some(rank) => drop(self.ranks.insert(rank, origin)),
            None => drop(self.origins.remove(&origin)),
        }
    }

    fn oldest_of_most(&self) -> Option<C> {
        let (_, origin) = self.ranks.last_key_value()?;
        let of = self.origins.get(origin)?;
        of.connections.first_key_value().map(|(_, connection)| *connection)
    }
}

impl<C> EndedOf<C> {
    /// `None` if it has no connection.
    fn rank(&self) -> Option<Rank> {
        self.connections.first_key_value().map(|(end, _)| (self.answers, Reverse(*end)))
    }
}

/// As many answers of ended connections are kept as this number of full connections have.
pub const ENDED_FULL: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// As many ended connections as there is room for, each of a user of its own, with one answer.
    fn full() -> KeptAnswers<u32, u32> {
        let mut kept = KeptAnswers::new(1);
        for number in 0..ENDED_FULL as u32 {
            kept.begin(number, Origin::User(number));
            assert!(kept.keep(number, Origin::User(number), &number).is_empty());
            assert!(kept.end(number).is_empty());
        }
        kept
    }

    #[test]
    fn of_clients_with_as_many_answers_the_one_whose_connection_ended_first_loses_them() {
        let mut kept = full();
        for number in 1000..1003 {
            assert_eq!(kept.keep(number, Origin::User(number), &number), [number - 1000]);
        }
        // One that gets a second answer.
        assert_eq!(kept.keep(2000, Origin::User(10), &2000), [10]);
        assert_eq!(kept.keep(2001, Origin::User(10), &2001), [2000]);
    }

    #[test]
    fn an_answer_that_is_released_makes_room() {
        let mut kept = full();
        kept.release(0, &0);
        kept.release(5, &77);
        assert!(kept.keep(1000, Origin::User(0), &1000).is_empty());
        assert_eq!(kept.keep(1001, Origin::User(0), &1001), [1000], "it has two");
        assert_eq!(kept.ended.origins.len(), ENDED_FULL);
        assert_eq!(kept.ended.ranks.len(), ENDED_FULL);
        assert_eq!(kept.open_connections(), 0);
    }
}
