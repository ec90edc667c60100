//! Own calls that end before their reply, by a deadline or cancellation.
//!
//! ```text
//!   not posted ──▶ taken out of its lane ──▶ its slot, credits and memory are free: not executed
//!   posted ──▶ completed now; resources that the peer may still use stay (wire.md W26)
//!         └─ with memory exposed: the rights are taken back first, as for any that fails
//! ```

use rpcrdma_proto::CallId;

use super::Core;
use crate::api::handler::Handler;
use crate::error::{CallError, Execution, Sent};
use crate::provider::Provider;
use crate::state::parts::Parts;
use crate::state::peers::Phase;

impl<P: Provider> Core<P> {
    /// Ends the calls whose deadline has passed, as many as one turn looks at.
    pub fn end_late(&mut self, now: u64, handler: &mut dyn Handler) {
        let mut looks = LOOKS;
        while let Some((id, index)) = self.next_late(now, &mut looks) {
            let is_ended = self.end_early(index, id, CallError::DeadlineExceeded, handler);
            self.parts.stats.call_deadlines.add(is_ended.into());
        }
    }

    fn next_late(&mut self, now: u64, looks: &mut u32) -> Option<(CallId, u32)> {
        let Parts { timers, ledger, .. } = &mut self.parts;
        timers.next_late(&ledger.calls, now, looks)
    }

    /// Ends the calls that the program has cancelled.
    pub fn end_cancelled(&mut self, handler: &mut dyn Handler) {
        while let Some((id, index)) = self.parts.timers.next_cancelled(&self.parts.ledger.calls) {
            let is_ended = self.end_early(index, id, CallError::Cancelled, handler);
            self.parts.stats.calls_cancelled.add(is_ended.into());
        }
    }

    /// Ends a call before its reply. False if it ends by itself: it only waits for its memory, or
    /// its connection has ended.
    #[cold]
    fn end_early(
        &mut self,
        index: u32,
        id: CallId,
        error: fn(Execution) -> CallError,
        handler: &mut dyn Handler,
    ) -> bool {
        let Core { peers, parts, .. } = &mut *self;
        let place = parts.exposure_of(index, id);
        let is_over = place.is_some_and(|place| parts.rdma.is_ended(place));
        let Some(peer) = peers.at(index).filter(|peer| peer.phase == Phase::Up && !is_over) else {
            return false;
        };
        let sent = parts.unsend(peer, id);
        let error = CallError::of(sent, error);
        if sent == Sent::Nothing {
            peer.conn.withdraw_call(&mut parts.ledger, id);
            self.fail_call(index, id, error, handler);
            // The exposure was waiting for its message.
            self.step_rdma(handler);
            return true;
        }
        if let Some(place) = place.filter(|&place| parts.rdma.is_exposed_permanently(place)) {
            // Its peer may write to the memory while it is connected.
            parts.rdma.withhold(place, error);
            self.report_failed(index, id, error, handler);
        } else {
            self.fail_call(index, id, error, handler);
        }
        true
    }
}

/// The most calls with a deadline that one turn looks at.
const LOOKS: u32 = 256;
