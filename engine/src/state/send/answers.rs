//! Answers of other threads, and dropped tickets.
//!
//! ```text
//!   finish, drop of a ticket ──mailbox─▶ sent
//!                                 └─no slot for this peer─▶ waits ──a send has completed──▶ sent
//! ```
//! A peer that accepts no messages delays only its own answers.

use std::collections::VecDeque;

use crate::connection_id::ConnectionId;
use crate::handle::ticket::{DroppedCall, Finished, Ticket};

/// Answers that wait for a send slot.
#[derive(Default)]
pub(crate) struct Answers {
    /// Those whose peer had no free slot: no more than there are open calls.
    made: VecDeque<(Ticket, Finished)>,
    /// Calls with dropped tickets, likewise.
    dropped: Vec<DroppedCall>,
}

impl Answers {
    /// Adds an answer behind all others.
    pub fn push(&mut self, ticket: Ticket, finished: Finished) {
        self.made.push_back((ticket, finished));
    }

    /// Adds a call whose ticket was dropped.
    pub fn push_dropped(&mut self, call: DroppedCall) {
        self.dropped.push(call);
    }

    /// The answer that has waited longest.
    pub fn pop(&mut self) -> Option<(Ticket, Finished)> {
        self.made.pop_front()
    }

    /// All calls whose tickets were dropped.
    pub fn take_dropped(&mut self) -> Vec<DroppedCall> {
        core::mem::take(&mut self.dropped)
    }

    /// The peers of the waiting answers and dropped tickets.
    pub fn peers(&self) -> impl Iterator<Item = ConnectionId> {
        let made = self.made.iter().map(|(ticket, _)| ticket.peer);
        made.chain(self.dropped.iter().map(|call| call.peer))
    }

    /// The number of waiting answers, without dropped tickets.
    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// Whether no answer and no dropped ticket waits.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty() && self.dropped.is_empty()
    }
}
