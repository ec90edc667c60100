//! What a turn posts: messages that are pending, and Receives.

use super::outbox::UNSOLICITED_MAX;
use crate::api::handler::Handler;
use crate::error::CloseReason;
use crate::io::Flush;
use crate::provider::{PostError, Provider};
use crate::shard::core::Core;

impl<P: Provider> Core<P> {
    /// Whether there is anything to post that is not held.
    #[inline]
    pub fn is_due(&mut self, now: u64) -> bool {
        !self.outbox.is_idle() && (!self.doorbell.is_on() || self.lets_go(now))
    }

    /// Whether what is pending leaves now. Held are short messages only, while slots are left.
    fn lets_go(&mut self, now: u64) -> bool {
        let Core { outbox, doorbell, life, .. } = self;
        let is_held = outbox.is_short_only() && outbox.send.free() > 0 && !life.is_stopping();
        !is_held || doorbell.lets_go(outbox.inline_sends.len(), now)
    }

    /// Posts everything that is pending.
    #[inline]
    pub fn flush<H: Handler>(&mut self, now: u64, handler: &mut H) {
        self.doorbell.on_left();
        if !self.outbox.inline_sends.is_empty() {
            let Core { io, outbox, peers, .. } = self;
            io.flush_inline(outbox, peers);
        }
        if !self.outbox.is_short_only() {
            self.flush_lanes(now, handler);
        }
    }

    /// Posts what waits in lanes.
    #[inline(never)]
    fn flush_lanes<H: Handler>(&mut self, now: u64, handler: &mut H) {
        let mut again = None;
        while let Some(index) = self.outbox.pop_ready() {
            let Some(peer) = self.peers.at(index) else { continue };
            peer.lane.ready = false;
            match self.io.flush(&mut self.outbox, &mut peer.lane, index) {
                Flush::Empty => {}
                // A full lane is taken up again when one of its sends has completed. wire.md W7: a
                // lawful peer has Receives for all that it is owed.
                Flush::Full => {
                    let conn = &peer.conn;
                    let owed = conn.inflow().granted() + conn.credits_limit() + UNSOLICITED_MAX;
                    if peer.lane.pending.len() > owed {
                        self.close(index, CloseReason::NotTaking, now, handler);
                    }
                }
                // At most one refusal a turn: whoever refuses has trouble beyond this lane.
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
            self.outbox.retry(&mut peer.lane, index);
        }
    }

    /// Posts Receives until every buffer at home is posted again, or the device refuses.
    #[inline]
    pub fn top_up(&mut self) {
        if self.pool.free() > 0 || !self.refill.is_empty() {
            self.post_receives();
        }
    }

    #[inline(never)]
    fn post_receives(&mut self) {
        while self.pool.free() > 0 || !self.refill.is_empty() {
            while !self.refill.is_full()
                && let Some(token) = self.pool.take()
            {
                self.refill.push(token);
            }
            match self.io.post_recv(&self.pool, &mut self.refill) {
                None => {}
                // It is not lost: the buffers stay in `refill` and are posted with the next chain.
                Some(PostError::QueueFull) => return,
                // Without Receives nobody can be heard any more, and nobody would say so.
                Some(PostError::QpGone | PostError::Invalid) => {
                    if !self.life.is_stopping() {
                        self.io.on_lost();
                    }
                    return;
                }
            }
        }
    }
}
