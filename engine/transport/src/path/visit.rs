//! Visits of a path by polls: whether each poll is to visit it.

use super::{COLD, Path};
use crate::carrier::{Carrier, Incoming, Outgoing};
use crate::rounds::{Found, Rounds, Visit};

impl<C: Carrier> Path<C> {
    /// From now on every poll visits the path: it may have messages.
    #[cold]
    pub(crate) fn admit(&mut self, rounds: &mut Rounds) {
        self.pending &= !COLD;
        rounds.warm(self.index);
    }

    /// From now on every poll visits the path: it is going to have requests.
    #[inline]
    pub(crate) fn warm(&mut self, rounds: &mut Rounds) {
        if self.pending & COLD != 0 && !self.is_dead {
            self.admit(rounds);
        }
    }

    /// Ends a visit.
    #[inline]
    pub(crate) fn end_visit(&mut self, visit: Visit, rounds: &mut Rounds) {
        let is_hot = rounds.put_back(visit, self.found());
        self.pending = if is_hot { self.pending & !COLD } else { self.pending | COLD };
    }

    /// What the last visit has found.
    #[inline]
    fn found(&self) -> Found {
        let has_work = self.is_streaming
            || self.pending & !COLD != 0
            || self.tx.freed() != self.tx.head()
            || self.announced != self.rx.next()
            || self.rx.front().is_some();
        match (self.is_dead, has_work) {
            (true, _) => Found::Dead,
            (false, true) => Found::Work,
            (false, false) => Found::Nothing,
        }
    }
}
