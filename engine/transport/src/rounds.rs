//! The rounds: which paths a poll visits, when there are many.
//!
//! ```text
//!   new, a request ──▶ hot: every poll visits it ── IDLE_VISITS without a message or a request ─┐
//!                       ▲                                                                       ▼
//!                       └── a message, a request ── cold: COLD_VISITS of them a poll, in turn ──┘
//! ```
//!
//! A visit of an idle path costs a line that the peer writes. Up to [`COLD_VISITS`] paths, all are
//! hot. A path that is dead is not visited.

use std::collections::VecDeque;

/// The queues of the paths that are visited.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    hot: VecDeque<Hot>,
    /// Each cold path once, and some that were cold before.
    cold: VecDeque<u32>,
    /// By path.
    places: Vec<Place>,
}

/// A hot path.
#[derive(Debug, Clone, Copy)]
struct Hot {
    path: u32,
    /// Visits since it was last busy.
    idle: u32,
}

/// Where a path is.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    heat: Heat,
    /// It is in the queue of the cold ones, maybe from an earlier time.
    is_queued: bool,
}

/// How often a path is visited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Heat {
    /// Not at all.
    #[default]
    Dead,
    /// In turn with the others that are cold.
    Cold,
    /// By every poll.
    Hot,
}

/// The visits that a poll has left.
#[derive(Debug)]
pub(crate) struct Round {
    hot: usize,
    cold: usize,
}

/// A path that is visited now, and is put back afterwards.
#[derive(Debug)]
pub(crate) struct Visit {
    /// Its index.
    pub path: u32,
    idle: u32,
}

/// What a visit has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A message, or requests that are not completed.
    Work,
    /// Nothing.
    Nothing,
    /// The path is dead.
    Dead,
}

impl Rounds {
    /// Makes a path hot: a new one, or one that is about to have requests.
    #[cold]
    pub(crate) fn warm(&mut self, path: u32) {
        let index = path as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, Place::default());
            let paths = self.places.len();
            self.hot.reserve(paths - self.hot.len());
            self.cold.reserve(paths - self.cold.len());
        }
        if std::mem::replace(&mut self.places[index].heat, Heat::Hot) != Heat::Hot {
            self.hot.push_back(Hot { path, idle: 0 });
        }
    }

    /// A path is gone, and the last one has its index from now on.
    #[cold]
    pub(crate) fn swap_remove(&mut self, path: u32) {
        debug_assert!((path as usize) < self.places.len(), "every path was warm once");
        let last = self.places.len().saturating_sub(1) as u32;
        self.hot.retain(|hot| hot.path != path);
        self.cold.retain(|cold| *cold != path);
        self.hot.iter_mut().filter(|hot| hot.path == last).for_each(|hot| hot.path = path);
        self.cold.iter_mut().filter(|cold| **cold == last).for_each(|cold| *cold = path);
        self.places.swap_remove(path as usize);
    }

    /// Begins a poll: it visits some cold paths, then all that are hot now.
    #[inline]
    pub(crate) fn begin(&self) -> Round {
        Round { hot: self.hot.len(), cold: self.cold.len().min(COLD_VISITS) }
    }

    /// The next path of the poll. A poll may end early: the next one continues there.
    #[inline]
    pub(crate) fn next(&mut self, round: &mut Round) -> Option<Visit> {
        while round.cold > 0 {
            round.cold -= 1;
            let path = self.cold.pop_front()?;
            let place = &mut self.places[path as usize];
            place.is_queued = false;
            if place.heat == Heat::Cold {
                return Some(Visit { path, idle: IDLE_VISITS });
            }
        }
        round.hot = round.hot.checked_sub(1)?;
        let Hot { path, idle } = self.hot.pop_front()?;
        Some(Visit { path, idle })
    }

    /// Ends a visit. False if the path is cold now.
    #[inline]
    pub(crate) fn put_back(&mut self, Visit { path, idle }: Visit, found: Found) -> bool {
        let has_few = self.places.len() <= COLD_VISITS;
        let place = &mut self.places[path as usize];
        let idle = if found == Found::Work || has_few { 0 } else { idle + 1 };
        place.heat = match found {
            Found::Dead => Heat::Dead,
            Found::Nothing if idle >= IDLE_VISITS => Heat::Cold,
            Found::Work | Found::Nothing => Heat::Hot,
        };
        if place.heat == Heat::Hot {
            self.hot.push_back(Hot { path, idle });
        } else if place.heat == Heat::Cold && !std::mem::replace(&mut place.is_queued, true) {
            self.cold.push_back(path);
        }
        place.heat == Heat::Hot
    }
}

/// Cold paths that a poll visits.
pub(crate) const COLD_VISITS: usize = 16;
/// Visits of a path without work until it is cold: for longer than a peer takes to answer.
const IDLE_VISITS: u32 = 64;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What becomes of the paths, and what polls must visit.
    #[derive(Debug, Default)]
    struct Model {
        /// Visits of each path since it was last busy; none if it is dead.
        idle: Vec<Option<u32>>,
        /// Polls since each path was visited.
        waits: Vec<usize>,
        /// Paths whose next visit finds work.
        busy: BTreeSet<usize>,
        dying: BTreeSet<usize>,
    }

    impl Model {
        fn is_hot(&self, path: usize) -> bool {
            self.idle[path].is_some_and(|idle| idle < IDLE_VISITS)
        }

        fn warm(&mut self, rounds: &mut Rounds, path: usize) {
            if self.idle[path].is_some() {
                rounds.warm(path as u32);
                if !self.is_hot(path) {
                    self.idle[path] = Some(0);
                }
            }
        }

        fn visit(&mut self, path: usize) -> Found {
            self.waits[path] = 0;
            let idle = self.idle[path].expect("no dead path is visited");
            if self.dying.remove(&path) {
                self.idle[path] = None;
                return Found::Dead;
            }
            let is_busy = self.busy.remove(&path);
            let has_few = self.idle.len() <= COLD_VISITS;
            self.idle[path] = Some(if is_busy || has_few { 0 } else { idle + 1 });
            if is_busy { Found::Work } else { Found::Nothing }
        }

        /// The last path gets the index of one that is gone.
        fn swap_remove(&mut self, rounds: &mut Rounds, path: usize) {
            let last = self.idle.len() - 1;
            rounds.swap_remove(path as u32);
            self.idle.swap_remove(path);
            self.waits.swap_remove(path);
            for set in [&mut self.busy, &mut self.dying] {
                set.remove(&path);
                if set.remove(&last) && path != last {
                    set.insert(path);
                }
            }
        }

        /// A poll that ends after so many visits.
        fn poll(&mut self, rounds: &mut Rounds, limit: usize) {
            let hot: BTreeSet<usize> = (0..self.idle.len()).filter(|at| self.is_hot(*at)).collect();
            self.waits.iter_mut().for_each(|polls| *polls += 1);
            let mut visited = BTreeSet::new();
            let mut round = rounds.begin();
            while visited.len() < limit
                && let Some(visit) = rounds.next(&mut round)
            {
                let path = visit.path as usize;
                assert!(visited.insert(path), "{path} is visited twice");
                let found = self.visit(path);
                assert_eq!(rounds.put_back(visit, found), self.is_hot(path), "{path}");
            }
            let cold = visited.difference(&hot).count();
            assert!(cold <= COLD_VISITS, "{cold} cold paths are visited");
            let is_whole = visited.len() < limit;
            assert!(!is_whole || hot.is_subset(&visited), "a hot path is missed");
        }
    }

    proptest! {
        #[test]
        fn behaves_as_the_naive_model(
            count in 1_usize..100,
            steps in prop::collection::vec((0_u8..7, any::<usize>(), 1_usize..70), 1..40),
        ) {
            let (mut rounds, mut model) = (Rounds::default(), Model::default());
            for (what, path, times) in [(5, 0, count)].into_iter().chain(steps) {
                let paths = model.idle.len().max(1);
                match what {
                    0 => model.busy.extend((0..times).map(|at| (path ^ at) % paths)),
                    1 => model.warm(&mut rounds, path % paths),
                    2 if model.idle[path % paths].is_some() => {
                        model.dying.insert(path % paths);
                    }
                    6 if model.idle.len() > times => for _ in 0..times.min(4) {
                        let path = path % model.idle.len();
                        model.swap_remove(&mut rounds, path);
                    },
                    3 => (0..times).for_each(|_| model.poll(&mut rounds, path % 40)),
                    5 if paths < 200 => for path in 0..times {
                        // A new path takes the place of a dead one.
                        let dead = model.idle.iter().position(|idle| idle.is_none());
                        let path = dead.filter(|_| path % 2 == 0).unwrap_or(model.idle.len());
                        if path == model.idle.len() {
                            model.idle.push(None);
                            model.waits.push(0);
                        }
                        (model.idle[path], model.waits[path]) = (Some(0), 0);
                        model.busy.remove(&path);
                        rounds.warm(path as u32);
                    },
                    _ => (0..times).for_each(|_| model.poll(&mut rounds, usize::MAX)),
                }
            }
            // Every living path is visited in a lap.
            model.waits.fill(0);
            let polls = model.idle.len().div_ceil(COLD_VISITS);
            (0..polls).for_each(|_| model.poll(&mut rounds, usize::MAX));
            for (path, idle) in model.idle.iter().enumerate() {
                prop_assert!(idle.is_none() || model.waits[path] < polls, "{} waits", path);
            }
        }
    }

    #[test]
    fn hot_paths_are_visited_in_turn_by_polls_that_end_early() {
        let mut rounds = Rounds::default();
        (0..50).for_each(|path| rounds.warm(path));
        let mut visits = [0; 50];
        for _ in 0..100 {
            let mut round = rounds.begin();
            for _ in 0..7 {
                let visit = rounds.next(&mut round).expect("there are more");
                visits[visit.path as usize] += 1;
                rounds.put_back(visit, Found::Work);
            }
        }
        assert_eq!(visits, [14; 50]);
    }
}
