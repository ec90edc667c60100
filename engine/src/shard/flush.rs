//! Sends the answers of other threads, and all pending messages of a turn.

use super::Core;
use crate::api::handler::Handler;
use crate::error::CloseReason;
use crate::handle::ticket::{Finished, Ticket};
use crate::provider::Provider;
use crate::state::io::Flush;
use crate::state::send::outbox::UNSOLICITED_MAX;

impl<P: Provider> Core<P> {
    /// Posts pending messages, unless they are held for others.
    #[inline]
    pub fn flush_if_due(&mut self, now: u64, handler: &mut dyn Handler) {
        if self.parts.outbox.is_due(now, &self.parts.timers) {
            self.flush(now, handler);
        }
    }

    /// Posts everything that is pending.
    #[inline]
    pub fn flush(&mut self, now: u64, handler: &mut dyn Handler) {
        let outbox = &mut self.parts.outbox;
        outbox.on_left();
        if outbox.has_others() {
            self.flush_others();
        } else if !outbox.inline_sends().is_empty() {
            self.io.flush_inline::<false>(&mut self.parts, &mut self.peers);
        }
        if !self.parts.outbox.is_short_only() {
            self.flush_lanes(now, handler);
        }
    }

    /// Posts the messages that precede the lanes, where some are not plain.
    #[inline(never)]
    fn flush_others(&mut self) {
        self.io.flush_inline::<true>(&mut self.parts, &mut self.peers);
    }

    /// Posts the pending messages of lanes.
    #[inline(never)]
    fn flush_lanes(&mut self, now: u64, handler: &mut dyn Handler) {
        let mut again = None;
        while let Some(index) = self.parts.outbox.pop_ready() {
            let Some(peer) = self.peers.at(index) else { continue };
            peer.lane.ready = false;
            match self.io.flush(&mut self.parts, &mut peer.lane, index) {
                Flush::Empty => {}
                // A full lane continues when one of its sends has completed. wire.md W7: a
                // conforming peer has Receives for all transmissions that it can be sent.
                Flush::Full => {
                    let conn = &peer.conn;
                    let owed = conn.inflow().granted() + conn.credits_limit() + UNSOLICITED_MAX;
                    if peer.lane.pending.len() > owed {
                        self.close(index, CloseReason::NotTaking, now, handler);
                    }
                }
                // At most one refusal a turn: a device that refuses has a problem beyond this lane.
                Flush::Refused => {
                    again = Some(index);
                    break;
                }
                Flush::Gone => self.close(index, CloseReason::PeerGone, now, handler),
                Flush::Invalid => self.close(index, CloseReason::Invalid, now, handler),
            }
        }
        if let Some(index) = again
            && let Some(peer) = self.peers.at(index)
        {
            self.parts.outbox.retry(&mut peer.lane, index);
        }
    }

    /// Reads the answers of other threads.
    #[cold]
    pub fn read_answers(&mut self, now: u64) {
        self.answer_waiting(now);
        while let Some((ticket, finished)) = self.parts.handle.pop_finished() {
            self.answer(ticket, finished, now);
        }
        while let Some(call) = self.parts.handle.pop_dropped() {
            self.parts.answer_dropped(&mut self.peers, call);
        }
    }

    /// Sends the waiting answers, as far as slots are free.
    #[cold]
    pub fn answer_waiting(&mut self, now: u64) {
        for _each_once in 0..self.parts.outbox.answers().len() {
            let Some((ticket, finished)) = self.parts.outbox.answers().pop() else { break };
            self.answer(ticket, finished, now);
        }
        for call in self.parts.outbox.answers().take_dropped() {
            self.parts.answer_dropped(&mut self.peers, call);
        }
    }

    fn answer(&mut self, ticket: Ticket, finished: Finished, now: u64) {
        let mut turn = self.lend(now);
        if let Err((ticket, finished)) = turn.finish(ticket, finished)
            && turn.is_open(&ticket)
        {
            self.parts.outbox.answers().push(ticket, finished);
        }
    }
}
