//! Answers of other threads, and dropped tickets.
//!
//! ```text
//!   finish, drop of a ticket ──mailbox─▶ sent
//!                                 └─no slot for this peer─▶ waits ──a send has completed──▶ sent
//! ```
//! One peer that takes nothing has its answers wait; those of others go on.

use std::collections::VecDeque;

use rpcrdma_proto::ReplyTo;

use crate::api::ticket::{Finished, Ticket};
use crate::shard::peers::ConnectionId;

/// Answers that wait for a send slot.
#[derive(Default)]
pub(crate) struct Answers {
    /// Those for whose peer no slot was free: no more than calls are open.
    made: VecDeque<(Ticket, Finished)>,
    /// Calls whose tickets were dropped, likewise.
    dropped: Vec<(ConnectionId, ReplyTo)>,
}

impl Answers {
    /// An answer waits behind all others.
    pub fn push(&mut self, ticket: Ticket, finished: Finished) {
        self.made.push_back((ticket, finished));
    }

    /// A call that is to be refused waits.
    pub fn push_dropped(&mut self, peer: ConnectionId, to: ReplyTo) {
        self.dropped.push((peer, to));
    }

    /// The answer that has waited longest.
    pub fn pop(&mut self) -> Option<(Ticket, Finished)> {
        self.made.pop_front()
    }

    /// All calls that are to be refused.
    pub fn take_dropped(&mut self) -> Vec<(ConnectionId, ReplyTo)> {
        core::mem::take(&mut self.dropped)
    }

    /// Whose calls are answered.
    pub fn peers(&self) -> impl Iterator<Item = ConnectionId> {
        let made = self.made.iter().map(|(ticket, _)| ticket.peer);
        made.chain(self.dropped.iter().map(|(peer, _)| *peer))
    }

    /// How many answers wait, refusals apart.
    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// Whether none waits, and no refusal.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty() && self.dropped.is_empty()
    }
}
