//! Answers that come from elsewhere: made on other threads, or never, because a ticket was dropped.
//!
//! ```text
//!   finish, drop of a ticket ──mailbox─▶ sent
//!                                 └─no slot for this peer─▶ waits ──a send has completed──▶ sent
//! ```
//! One peer that takes nothing has its answers wait; those of others go on.

use rpcrdma_proto::ReplyTo;

use crate::api::ticket::{Finished, Ticket};
use crate::provider::Provider;
use crate::shard::core::Core;
use crate::shard::peers::{ConnectionId, Phase};

impl<P: Provider> Core<P> {
    /// Reads the answers that other threads have left.
    #[cold]
    pub fn read_answers(&mut self, now: u64) {
        self.answer_waiting(now);
        while let Some((ticket, finished)) = self.handle.pop_finished() {
            self.answer(ticket, finished, now);
        }
        while let Some((peer, to)) = self.handle.pop_dropped() {
            self.give_up(peer, to);
        }
    }

    /// Sends the answers that wait, as far as there are slots now.
    #[cold]
    pub fn answer_waiting(&mut self, now: u64) {
        for _each_once in 0..self.unanswered.len() {
            let Some((ticket, finished)) = self.unanswered.pop_front() else { break };
            self.answer(ticket, finished, now);
        }
        for (peer, to) in core::mem::take(&mut self.dropped) {
            self.give_up(peer, to);
        }
    }

    /// Whether answers wait.
    pub fn has_answers(&self) -> bool {
        !self.unanswered.is_empty() || !self.dropped.is_empty()
    }

    /// Whether one of the answers that wait can be sent now.
    pub fn can_answer(&mut self) -> bool {
        let Core { unanswered, dropped, peers, outbox, .. } = self;
        let waiting = unanswered.iter().map(|(ticket, _)| ticket.peer);
        waiting.chain(dropped.iter().map(|(peer, _)| *peer)).any(|id| {
            // What cannot be answered any more does not wait.
            peers.named(id).is_none_or(|peer| outbox.has_slot_for(&peer.lane))
        })
    }

    fn answer(&mut self, ticket: Ticket, finished: Finished, now: u64) {
        let mut turn = self.lend(now);
        if let Err((ticket, finished)) = turn.finish(ticket, finished)
            && turn.is_open(&ticket)
        {
            self.unanswered.push_back((ticket, finished));
        }
    }

    /// Nobody will answer this call: its ticket was dropped. Its caller is told, or, by a shard that
    /// stops, loses its connection.
    fn give_up(&mut self, id: ConnectionId, to: ReplyTo) {
        let Core { peers, outbox, life, dropped, .. } = self;
        let Some(peer) = peers.named(id).filter(|peer| peer.phase == Phase::Up) else { return };
        if !life.is_stopping() && !outbox.has_slot_for(&peer.lane) {
            return dropped.push((id, to));
        }
        peer.open_calls = peer.open_calls.saturating_sub(1);
        if life.is_stopping() {
            peer.dropped += 1;
            outbox.stats.calls_unanswered.add(1);
        } else {
            outbox.stats.refusals_out.add(1);
            outbox.refuse(peer, &to);
        }
    }
}
