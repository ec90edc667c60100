//! What a poll of a path will find, and when: how long its thread may sleep.

use super::{PENDING_SEND, Path};
use crate::carrier::{Carrier, Incoming, Outgoing};
use crate::queue_set::QueueSet;
use crate::readiness::Readiness;

impl<C: Carrier> Path<C> {
    /// Whether a poll would find work, and if not, when it might: time in ns.
    pub(crate) fn readiness(&self, set: &QueueSet) -> Readiness {
        if self.is_dead {
            return Readiness::Nothing;
        }
        let requests = self.readiness_of_reads(set).sooner(self.readiness_of_requests());
        requests.sooner(self.readiness_of_slots(set))
    }

    fn readiness_of_slots(&self, set: &QueueSet) -> Readiness {
        if self.rx.front().is_some() {
            let due = self.rx.published_at().saturating_add(set.settings.delay_ns);
            let is_blocked = set.srq.front().is_none()
                && self.blocked.is_some_and(|(position, _)| position == self.rx.next());
            if set.settings.delay_ns != 0 && set.settings.clock.now_ns() < due {
                return Readiness::At(due);
            }
            if !is_blocked {
                return Readiness::Now;
            }
            // Only the program or the peer's retry limit can end it.
            return Readiness::Soon;
        }
        // A peer that has closed only one of both is there, and what it does next wakes this side.
        if self.rx.is_closed() && self.tx.is_abandoned() {
            return Readiness::Now;
        }
        let acked = self.newer(self.tx.acks());
        if acked.taken() == self.tx.freed() || self.is_read_under_way(self.tx.freed()) {
            return Readiness::Nothing;
        }
        if set.settings.delay_ns == 0 {
            return Readiness::Now;
        }
        let due = self.tx.taken_at(self.tx.freed()).saturating_add(set.settings.delay_ns);
        if set.settings.clock.now_ns() < due { Readiness::At(due) } else { Readiness::Now }
    }

    /// When this side's waiting requests can proceed, as far as it does not depend on the peer.
    pub(crate) fn readiness_of_requests(&self) -> Readiness {
        if self.pending & PENDING_SEND == 0 || !self.tx.has_room() {
            Readiness::Nothing
        } else if self.tx.freed() == self.tx.head() {
            Readiness::Now
        } else {
            // A request that fails here waits for those before it.
            Readiness::Soon
        }
    }

    /// When the peer's next Read is due.
    pub(crate) fn readiness_of_reads(&self, set: &QueueSet) -> Readiness {
        match self.reads.front() {
            None => Readiness::Nothing,
            // Room for its answer wakes this side.
            Some(_) if !self.rx.can_answer() => Readiness::Nothing,
            Some(read) if set.settings.delay_ns != 0 && set.settings.clock.now_ns() < read.due => {
                Readiness::At(read.due)
            }
            Some(_) => Readiness::Now,
        }
    }
}
