//! Completions: handles the results of one poll of the completion queue, in order.

use rpcrdma_mempool::RecvToken;

use super::Core;
use super::receive::disposition::RecvInfo;
use crate::api::handler::{AsHandler, Handler};
use crate::error::CloseReason;
use crate::provider::{Provider, WcStatus, WorkCompletion};
use crate::state::io::{Io, Work};
use crate::state::peers::Phase;

impl<P: Provider> Core<P> {
    /// Processes all polled completions, and sends the answers.
    #[inline(never)]
    pub(super) fn take_in<H: Handler>(&mut self, now: u64, handler: &mut H) {
        let count = self.batch.len();
        self.parts.stats.completions.add(count as u64);
        self.peers.name(&self.batch, &mut self.names);
        let mut received = 0;
        for at in 0..count {
            let wc = &self.batch[at];
            if Io::<P::Queues>::work(wc.wr_id) == Work::Recv
                && wc.status == WcStatus::Success
                && let Some(token) = self.io.take_recv(wc.wr_id)
            {
                self.parts.stats.bytes_received.add(wc.byte_len.into());
                let recv = RecvInfo { byte_len: wc.byte_len, invalidated: wc.invalidated };
                received += 1;
                let index = self.names[at];
                if let Err(token) = self.receive_short(index, token, recv, true, handler) {
                    self.receive_other(index, token, recv, now, handler);
                }
            } else {
                self.on_other(at, now, handler);
            }
        }
        self.parts.stats.transmissions_received.add(received);
        if self.has_rdma_steps() {
            self.step_rdma(handler);
        }
        // Answers leave before Receives are refilled. The budget has a reserve of Receives for the
        // meantime, so that none of the granted ones is missing.
        self.flush_if_due(now, handler);
    }

    /// Processes a short message of the peer in this place. Returns the buffer of any other
    /// message as an error. With `may_wait`, it waits if no slot is free to answer it; without,
    /// the caller guarantees a slot. Inlined, because every message takes this path.
    #[inline(always)]
    pub(super) fn receive_short<H: AsHandler + ?Sized>(
        &mut self,
        index: u32,
        token: RecvToken,
        recv: RecvInfo,
        may_wait: bool,
        handler: &mut H,
    ) -> Result<(), RecvToken> {
        let Core { peers, receive, parts, .. } = &mut *self;
        let Some((peer, address)) = peers.with_address(index) else {
            parts.stats.completions_late.add(1);
            receive.free_buffer(token);
            return Ok(());
        };
        // Any arrival may be a call, and a call must be answered: without a send slot it is not
        // read. The order of a peer's messages is kept.
        if may_wait && (peer.waiting > 0 || !parts.outbox.has_slot_for(&peer.lane)) {
            receive.wait(peer, token, recv);
            return Ok(());
        }
        let token = receive.deliver_short(peer, address, parts, token, recv, handler)?;
        receive.free_buffer(token);
        Ok(())
    }

    /// A completion other than of a received message.
    #[cold]
    fn on_other(&mut self, at: usize, now: u64, handler: &mut dyn Handler) {
        let wc = self.batch[at];
        if let Work::Sent(name) = Io::<P::Queues>::work(wc.wr_id) {
            return self.on_sent(wc, name, now, handler);
        }
        let Some(token) = self.io.take_recv(wc.wr_id) else {
            return self.on_unasked(wc, now, handler);
        };
        self.receive.free_buffer(token);
        self.on_failure(wc, now, handler);
    }

    fn on_sent(&mut self, wc: WorkCompletion, name: u64, now: u64, handler: &mut dyn Handler) {
        let Some(index) = self.peers.find(wc.qp_num) else {
            self.parts.stats.completions_late.add(1);
            return;
        };
        let Some(peer) = self.peers.at(index) else { return };
        if !self.io.on_sent(&mut self.parts, &mut peer.lane, name) {
            return self.on_unasked(wc, now, handler);
        }
        if peer.phase == Phase::Closing {
            self.finish_close(index, handler);
        } else if wc.status != WcStatus::Success {
            self.on_failure(wc, now, handler);
        } else if peer.phase == Phase::Leaving {
            self.finish_leaving(index, now, handler);
        } else if peer.lane.pending.front().is_some() && !peer.lane.ready {
            self.parts.outbox.wake(&mut peer.lane, index);
        }
        if self.parts.outbox.has_answers() {
            self.answer_waiting(now);
        }
    }

    /// A completion of a work request that is not outstanding: the device refused it, or has
    /// completed it before. A current request with the same number is not complete. The device may
    /// have executed a request that it refused, and reposting would execute it twice: the
    /// connection ends.
    #[cold]
    fn on_unasked(&mut self, wc: WorkCompletion, now: u64, handler: &mut dyn Handler) {
        self.parts.stats.completions_unasked.add(1);
        if let Some(index) = self.peers.find(wc.qp_num) {
            self.close(index, CloseReason::Unasked, now, handler);
        }
    }

    /// A work request failed: only its identifier, status and queue pair are known.
    #[cold]
    fn on_failure(&mut self, wc: WorkCompletion, now: u64, handler: &mut dyn Handler) {
        self.parts.stats.completions_failed.add(1);
        let Some(index) = self.peers.find(wc.qp_num) else {
            self.parts.stats.completions_late.add(1);
            return;
        };
        // A flush states only that the queue pair is in the error state; the queues may have the
        // reason.
        let is_flushed = wc.status == WcStatus::Flushed;
        let said = if is_flushed { self.io.why_failed(wc.qp_num) } else { None };
        self.close(index, said.unwrap_or(CloseReason::Transport(wc.status)), now, handler);
    }
}
