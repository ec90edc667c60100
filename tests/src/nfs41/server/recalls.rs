//! Recalls of delegations that stand in the way of an open. Each takes a slot of its holder's back
//! channel.
//!
//! ```text
//!   wanted ──▶ under way ──▶ answered
//!      ▲         │    ▲
//!      └ refused ┤    └── again, in its slot and with its number
//!                └──▶ lost with its connection
//! ```
//! Whether a lost call was executed is not known: it is repeated as it was (RFC 8881 2.10.6.2), and the
//! slot waits for that.

use std::collections::{BTreeMap, VecDeque};

use super::back::{Answered, Back, CallBack, Ops};
use super::clients::{BackSlot, Clients, Made};
use super::tree::{Conflict, Tree};
use crate::nfs41::numbers::status;
use crate::nfs41::words::SessionId;

/// The recalls of a server.
#[derive(Debug, Default)]
pub struct Recalls {
    /// To be made as soon as the holder has a connection and a slot is free.
    wanted: VecDeque<Conflict>,
    /// By the number of their call.
    under_way: BTreeMap<u64, Recall>,
    /// Lost, and to be repeated.
    lost: VecDeque<Recall>,
    /// How many were answered with success.
    pub answered: usize,
    /// The statuses of those that were refused.
    pub refused: Vec<u32>,
    /// Why others have no answer.
    pub failed: Vec<String>,
}

/// A call that was made.
#[derive(Debug)]
struct Recall {
    conflict: Conflict,
    session: SessionId,
    slot: usize,
    sequence: u32,
}

impl Recalls {
    /// How many are to be made, or without an answer.
    pub fn open(&self) -> usize {
        self.wanted.len() + self.under_way.len() + self.lost.len()
    }

    /// Takes what has been answered, and makes what can be made now.
    pub fn on_turn(&mut self, clients: &mut Clients, tree: &mut Tree, back: &mut Back) {
        self.wanted.extend(tree.conflicts.drain(..));
        self.take_answers(clients, back);
        for _ in 0..self.lost.len() {
            let Some(recall) = self.lost.pop_front() else { break };
            match clients.made.iter().find(|made| made.id == recall.session) {
                Some(made) if made.is_connected => self.send(recall, made, back),
                Some(_) => self.lost.push_back(recall),
                None => self.wanted.push_back(recall.conflict),
            }
        }
        for _ in 0..self.wanted.len() {
            let Some(conflict) = self.wanted.pop_front() else { break };
            if tree.is_held(&conflict.state) {
                self.begin(conflict, clients, back);
            }
        }
    }

    fn take_answers(&mut self, clients: &mut Clients, back: &mut Back) {
        let numbers: Vec<u64> = self.under_way.keys().copied().collect();
        for number in numbers {
            let refused = back.refused.remove(&number).map(|why| Err(why.to_string()));
            let Some(outcome) = back.done.remove(&number).or(refused) else { continue };
            let recall = self.under_way.remove(&number).expect("it is one of them");
            let answered = match outcome {
                Ok(answered) => answered,
                Err(why) => {
                    self.failed.push(why);
                    self.lost.push_back(recall);
                    continue;
                }
            };
            let Recall { conflict, session, slot, sequence } = recall;
            if let Some(made) = clients.made.iter_mut().find(|made| made.id == session) {
                // CB_SEQUENCE itself uses up the number, whatever becomes of the rest.
                let last = if answered.sequence.is_empty() { sequence - 1 } else { sequence };
                made.back_slots[slot] = BackSlot { sequence: last, is_busy: false };
            }
            match answered {
                Answered { status: status::OK, .. } => self.answered += 1,
                Answered { status, .. } => {
                    self.refused.push(status);
                    self.wanted.push_back(conflict);
                }
            }
        }
    }

    /// Makes a recall in a free slot, or leaves it for later.
    fn begin(&mut self, conflict: Conflict, clients: &mut Clients, back: &mut Back) {
        let mut sessions = clients.made.iter_mut();
        let made = sessions.find(|made| made.client == conflict.client && made.is_connected);
        let found = made.and_then(|made| {
            let slot = made.back_slots.iter().position(|slot| !slot.is_busy)?;
            Some((slot, made))
        });
        let Some((slot, made)) = found else {
            self.wanted.push_back(conflict);
            return;
        };
        made.back_slots[slot].is_busy = true;
        let (session, sequence) = (made.id, made.back_slots[slot].sequence + 1);
        self.send(Recall { conflict, session, slot, sequence }, made, back);
    }

    fn send(&mut self, recall: Recall, made: &Made, back: &mut Back) {
        let Recall { conflict, slot, sequence, .. } = &recall;
        let ops = Ops::default().sequence(made, *slot as u32, *sequence);
        let ops = ops.recall(&conflict.state, &conflict.handle);
        let number = back.call(CallBack::compound(made, b"", &ops));
        self.under_way.insert(number, recall);
    }
}
