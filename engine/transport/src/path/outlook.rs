//! What a poll of a path will find, and when: how long its thread may sleep.

use super::{CHORE_SEND, Path};
use crate::carrier::{Carrier, Incoming, Outgoing};
use crate::outlook::Outlook;
use crate::queue_set::QueueSet;

impl<C: Carrier> Path<C> {
    /// Whether a poll would find work, and if not, when it might: time in ns.
    pub(crate) fn outlook(&self, set: &QueueSet) -> Outlook {
        if self.is_dead {
            return Outlook::Nothing;
        }
        let chores = self.outlook_of_reads(set).sooner(self.outlook_of_requests());
        chores.sooner(self.outlook_of_slots(set))
    }

    fn outlook_of_slots(&self, set: &QueueSet) -> Outlook {
        if self.rx.front().is_some() {
            let due = self.rx.published_at().saturating_add(set.settings.delay_ns);
            let is_blocked = set.srq.front().is_none()
                && self.blocked.is_some_and(|(position, _)| position == self.rx.next());
            if set.settings.delay_ns != 0 && set.settings.clock.now_ns() < due {
                return Outlook::At(due);
            }
            if !is_blocked {
                return Outlook::Now;
            }
            // Only the program or the peer's retry limit can end it.
            return Outlook::Soon;
        }
        // A peer that says only one of both is there, and what it says next wakes this side.
        if self.rx.is_closed() && self.tx.is_abandoned() {
            return Outlook::Now;
        }
        let acked = self.newer(self.tx.acks());
        if acked.taken() == self.tx.freed() || self.is_read_under_way(self.tx.freed()) {
            return Outlook::Nothing;
        }
        if set.settings.delay_ns == 0 {
            return Outlook::Now;
        }
        let due = self.tx.taken_at(self.tx.freed()).saturating_add(set.settings.delay_ns);
        if set.settings.clock.now_ns() < due { Outlook::At(due) } else { Outlook::Now }
    }

    /// When this side's waiting requests can proceed, as far as it does not depend on the peer.
    pub(crate) fn outlook_of_requests(&self) -> Outlook {
        if self.chores & CHORE_SEND == 0 || !self.tx.has_room() {
            Outlook::Nothing
        } else if self.tx.freed() == self.tx.head() {
            Outlook::Now
        } else {
            // A request that fails here waits for those before it.
            Outlook::Soon
        }
    }

    /// When the peer's next Read is due.
    pub(crate) fn outlook_of_reads(&self, set: &QueueSet) -> Outlook {
        match self.reads.front() {
            None => Outlook::Nothing,
            // Room for its answer wakes this side.
            Some(_) if !self.rx.can_answer() => Outlook::Nothing,
            Some(read) if set.settings.delay_ns != 0 && set.settings.clock.now_ns() < read.due => {
                Outlook::At(read.due)
            }
            Some(_) => Outlook::Now,
        }
    }
}
