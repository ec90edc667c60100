//! Own calls that end before their reply: their time is over, or the program wants them no more.
//!
//! ```text
//!   not posted ──▶ taken out of its lane ──▶ its slot, credits and memory are free: not executed
//!   posted ──▶ completed now; what the peer may still use of it stays (wire.md W26)
//!         └─ with memory exposed: the rights are taken back first, as for any that fails
//! ```

use rpcrdma_proto::CallId;
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};

use crate::api::handler::Handler;
use crate::error::{CallError, Execution};
use crate::provider::Provider;
use crate::shard::core::Core;
use crate::shard::peers::{Peer, Phase};
use crate::shard::send::messages::After;
use crate::shard::send::outbox::Outbox;

impl<P: Provider> Core<P> {
    /// Ends the calls whose time is over, as many as one tick looks at.
    pub fn end_late<H: Handler>(&mut self, now: u64, handler: &mut H) {
        for _ in 0..self.outbox.deadlines.looks() {
            let Outbox { deadlines, ledger, .. } = &mut self.outbox;
            if let Some((id, index)) = deadlines.look(&ledger.calls, now) {
                let is_ended = self.end_early(index, id, CallError::DeadlineExceeded, handler);
                self.stats.call_deadlines.add(is_ended.into());
            }
        }
    }

    /// Ends the calls that the program has given up.
    pub fn end_cancelled<H: Handler>(&mut self, handler: &mut H) {
        loop {
            let Outbox { deadlines, ledger, .. } = &mut self.outbox;
            let Some((id, index)) = deadlines.next_cancelled(&ledger.calls) else { return };
            let is_ended = self.end_early(index, id, CallError::Cancelled, handler);
            self.stats.calls_cancelled.add(is_ended.into());
        }
    }

    /// Ends a call before its reply. False if it ends by itself: all of it is over but for its memory,
    /// or its connection has ended.
    #[cold]
    fn end_early<H: Handler>(
        &mut self,
        index: u32,
        id: CallId,
        error: fn(Execution) -> CallError,
        handler: &mut H,
    ) -> bool {
        let place = self.exposure_of(index, id);
        let Core { peers, outbox, .. } = &mut *self;
        let is_over = place.is_some_and(|place| outbox.exposures.get(place).outcome.is_some());
        let Some(peer) = peers.at(index).filter(|peer| peer.phase == Phase::Up && !is_over) else {
            return false;
        };
        if outbox.unsend(peer, id, place) {
            peer.conn.withdraw_call(&mut outbox.ledger, id);
            self.fail_call(index, id, error(Execution::NotExecuted), handler);
            // The exposure has waited for its message.
            self.step_rdma(handler);
            return true;
        }
        let error = error(Execution::Unknown);
        match place.filter(|&place| outbox.exposures.is_shown_for_good(place)) {
            Some(place) => self.tell_and_withhold(place, index, id, error, handler),
            None => self.fail_call(index, id, error, handler),
        }
        true
    }

    /// Completes a call without its memory, which its peer may write to as long as it is connected.
    #[cold]
    fn tell_and_withhold<H: Handler>(
        &mut self,
        place: u32,
        index: u32,
        id: CallId,
        error: CallError,
        handler: &mut H,
    ) {
        let exposure = self.outbox.exposures.at(place);
        exposure.outcome = Some(Err(error));
        (exposure.is_told, exposure.is_withheld) = (true, true);
        self.tell_failed(index, id, error, handler);
    }
}

impl Outbox {
    /// Takes the message of a call back, if nothing of it was posted. False if something was.
    fn unsend(&mut self, peer: &mut Peer, id: CallId, place: Option<u32>) -> bool {
        // What a call's payload begins with, and nothing else that leaves: the second word of a reply
        // is another, as is that of a header.
        let words = RpcPrefix { xid: id.xid(), kind: MsgType::Call }.bytes();
        let index = peer.id.index;
        let short = self
            .inline_sends
            .iter_mut()
            .position(|it| it.peer == index && it.slot.payload_mut().starts_with(&words));
        if let Some(at) = short {
            let message = self.inline_sends.remove(at);
            self.send.put(message.slot);
            return true;
        }
        let mut next = peer.lane.pending.front();
        while let Some(message) = next {
            next = self.messages.next(message);
            let is_it = match place {
                Some(place) => self.messages.head(message).after == After::Called(place),
                None => self.messages.begins_with(message, &words),
            };
            if !is_it {
                continue;
            }
            if self.messages.head(message).posted > 0 {
                return false;
            }
            peer.lane.pending.remove(&mut self.messages, message);
            if let Some(place) = place {
                self.exposures.at(place).on_unposted();
            }
            self.release(message);
            return true;
        }
        false
    }
}
