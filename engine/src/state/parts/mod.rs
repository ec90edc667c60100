//! The parts of a shard that calls and replies under construction use. A builder holds one
//! reference to all of them.
//!
//! `Receive` is not one of them: a message is read while it is answered. Functions that use two
//! parts are here, or are steps of the turn.

pub(crate) mod expose;
mod unsend;

use rpcrdma_proto::{
    CallDemand, CallId, CallRoute, Exposed, Finished, NO_MARK, Offer, ReplyDemand, ReplyTo,
    SendError, ShardLedger, Violation,
};
use rpcrdma_xdr::onc::{AcceptStatus, MsgType, ReplyHeader, RpcPrefix};

use super::lane::Lane;
use super::lane::messages::After;
use super::peers::{Peer, Peers, Phase};
use super::rdma::Rdma;
use super::rdma::fetches::Lost;
use super::send::outbox::Outbox;
use super::timers::Timers;
use crate::error::{CallError, CallRefused};
use crate::handle::ShardHandle;
use crate::handle::ticket::DroppedCall;
use crate::stats::sampling::{NO_TIMER, Sampling};
use crate::stats::{Counter, SharedStats, Stats};

/// The outbox, explicit RDMA and the timers, with their shared state.
pub(crate) struct Parts {
    pub outbox: Outbox,
    pub rdma: Rdma,
    pub timers: Timers,
    /// The credits, grants and calls of all connections.
    pub ledger: ShardLedger,
    /// The shard, for the tickets of its calls.
    pub handle: ShardHandle,
    pub stats: SharedStats,
    pub sampling: Sampling,
}

/// A call under construction with the route that was found for it.
#[derive(Clone, Copy)]
pub(crate) struct RoutedCall<'a> {
    pub id: CallId,
    /// The message that it is written to.
    pub message: u32,
    pub demand: &'a CallDemand<'a>,
    pub route: &'a CallRoute,
}

impl Parts {
    /// Releases a message: discarded, or completed.
    #[inline]
    pub fn release(&mut self, index: u32) {
        if self.outbox.messages().head(index).body {
            self.release_body(index);
        }
        self.outbox.free(index);
    }

    /// Records what the end of Reads has left out of use.
    #[cold]
    pub fn on_buffers_lost(&mut self, lost: Lost) {
        if lost != Lost::default() {
            self.rdma.on_buffers_lost(lost.buffers);
            self.stats.rights_lost.add(lost.has_rights.into());
        }
    }

    #[inline(never)]
    fn release_body(&mut self, index: u32) {
        let after = self.outbox.messages().head(index).after;
        if after != After::Nothing {
            self.end_wait(index, after);
        }
        self.outbox.empty(index);
    }

    /// Notifies the waiter for a message's completion.
    #[cold]
    fn end_wait(&mut self, index: u32, after: After) {
        let Parts { outbox, rdma, .. } = self;
        if let After::Called(exposure) = after {
            // The peer may read them until its rights have ended.
            rdma.keep(exposure, outbox.messages_mut().body_mut(index).pieces.drain(..));
        }
        rdma.on_released(after);
    }

    /// Discards the unposted messages of a lane. A partly posted message stays in flight.
    #[cold]
    pub fn discard_pending(&mut self, lane: &mut Lane) {
        while let Some(index) = lane.pop(self.outbox.messages()) {
            if self.outbox.messages().head(index).posted == 0 || lane.outstanding() == 0 {
                self.release(index);
            } else {
                let messages = self.outbox.messages_mut();
                messages.head_mut(index).seq = lane.last_seq();
                lane.hold(messages, index);
            }
        }
    }

    /// Plans a call on a route that exposes nothing, and lays it out.
    #[cold]
    pub fn begin_call(&mut self, peer: &mut Peer, call: RoutedCall<'_>) -> Result<(), CallRefused> {
        let RoutedCall { id, message, demand, route } = call;
        let conn = &mut peer.conn;
        let planned = conn.begin_call(&mut self.ledger, id, demand, route, &Exposed::NONE);
        let plan = planned.map_err(CallRefused::Protocol)?;
        self.outbox.lay_out(message, conn, plan)
    }

    /// Answers a call that violates a rule; it was not executed.
    #[cold]
    pub fn reject(&mut self, peer: &mut Peer, to: &ReplyTo, violation: Violation) {
        self.stats.violations.add(1);
        let report = peer.conn.reject_call(&mut self.ledger, to, violation);
        self.outbox.answer(peer, &report);
    }

    /// Reports that a call has no reply, whether it was executed or not.
    #[cold]
    pub fn refuse(&mut self, peer: &mut Peer, to: &ReplyTo) {
        let report = peer.conn.refuse(&mut self.ledger, to);
        self.outbox.answer(peer, &report);
    }

    /// Answers a call that is not delivered with an error. A stopping shard ends the connection
    /// instead: a caller repeats the call elsewhere after a lost connection, but not after an
    /// error.
    #[cold]
    pub fn reject_call(&mut self, peer: &mut Peer, to: &ReplyTo) {
        if self.timers.is_stopping() {
            // The call keeps its credit: a peer that goes on sending exhausts its grant.
            peer.dropped += 1;
            peer.totals.counted.calls_dropped += 1;
            self.stats.calls_dropped.add(1);
            return;
        }
        peer.totals.counted.calls_rejected += 1;
        self.stats.calls_rejected.add(1);
        self.refuse(peer, to);
    }

    /// Answers a call whose ticket was dropped with SYSTEM_ERR. A stopping shard ends the connection
    /// instead.
    #[cold]
    pub fn answer_dropped(&mut self, peers: &mut Peers, call: DroppedCall) {
        let Some(peer) = peers.named(call.peer).filter(|peer| peer.phase == Phase::Up) else {
            return;
        };
        let is_stopping = self.timers.is_stopping();
        if !is_stopping && !self.outbox.has_slot_for(&peer.lane) {
            return self.outbox.answers().push_dropped(call);
        }
        peer.end_open_call();
        self.sampling.forget_services(call.peer, Some(call.to.xid));
        if is_stopping {
            peer.dropped += 1;
            peer.totals.counted.calls_unanswered += 1;
            self.stats.calls_unanswered.add(1);
        } else {
            peer.totals.counted.refusals_sent += 1;
            peer.totals.counted.refusals_dropped += 1;
            self.stats.refusals_sent.add(1);
            self.stats.refusals_dropped.add(1);
            if !self.reply_system_error(peer, &call) {
                self.refuse(peer, &call.to);
            }
        }
    }

    /// Sends the reply of RFC 5531 to a call that its program has failed to answer, without counting
    /// it as one. False if it cannot be sent.
    fn reply_system_error(&mut self, peer: &mut Peer, call: &DroppedCall) -> bool {
        if !self.outbox.allots_slot() {
            return false;
        }
        // It takes no right back: a caller that has given the call up may have ended it, and a key
        // that names nothing would end the connection (wire.md P12).
        let to = ReplyTo { handle: None, ..call.to };
        self.outbox.begin(RpcPrefix { xid: to.xid, kind: MsgType::Reply });
        self.outbox.put(&ReplyHeader::accepted(AcceptStatus::SystemError).bytes());
        let sent = self.send_reply(peer, &to, call.offer.offer());
        if sent.is_err() {
            self.outbox.abandon();
        }
        sent.is_ok()
    }

    /// Plans the reply that is written, lays it out, and puts it into the lane of its peer.
    #[cold]
    pub fn send_reply(
        &mut self,
        peer: &mut Peer,
        to: &ReplyTo,
        offer: Offer<'_>,
    ) -> Result<(), CallRefused> {
        let Parts { outbox, ledger, stats, .. } = self;
        let message = outbox.assemble()?;
        let conn = &mut peer.conn;
        let mut lay_out = |outbox: &mut Outbox, payload| {
            let demand = ReplyDemand {
                payload,
                items: &outbox.items(message),
                offer,
                gather_max: outbox.gather_max(),
                copy_max: outbox.slots().payload_len() as u32,
            };
            match conn.begin_reply(ledger, to, &demand) {
                Ok(plan) => {
                    outbox.lay_out(message, conn, plan).inspect_err(|_| conn.withdraw_reply(to))
                }
                Err(why) => Err(CallRefused::Protocol(why)),
            }
        };
        let mut laid_out = lay_out(outbox, outbox.written());
        if laid_out.is_err_and(|why| has_many_pieces(why, &offer))
            && let Some(payload) = outbox.copy_items(message)
        {
            laid_out = lay_out(outbox, payload);
        }
        // Nothing more can be written.
        laid_out.inspect_err(|why| outbox.refuse(*why))?;
        let (writes, bytes) = outbox.messages().body(message).writes();
        stats.rdma_writes.add(writes);
        stats.bytes_written.add(bytes);
        peer.totals.counted.bytes_written += bytes;
        outbox.enqueue(&mut peer.lane, peer.id.index, message);
        outbox.submitted();
        Ok(())
    }

    /// Counts an own call that begins. It may be one that is timed.
    #[inline(always)]
    pub fn count_call(&mut self, peer: &mut Peer, id: CallId) {
        if peer.tally.call_out() {
            self.fold_calls(peer, id);
        }
    }

    #[cold]
    #[inline(never)]
    fn fold_calls(&mut self, peer: &mut Peer, id: CallId) {
        let Parts { sampling, ledger, .. } = self;
        peer.tally.fold_out(&mut peer.totals, sampling.gap());
        if let Some((_, entry)) = ledger.calls.find_mut(id.xid(), peer.id.index) {
            entry.timer = sampling.begin_call(id.xid());
        }
    }

    /// Ends an own call that was not sent.
    #[cold]
    #[inline(never)]
    pub fn uncount_call(&mut self, peer: &mut Peer, id: CallId) {
        let Some(finished) = peer.conn.finish_call(&mut self.ledger, id) else { return };
        peer.tally.uncall_out();
        if finished.timer != NO_TIMER {
            self.sampling.discard_call(finished.timer);
        }
    }

    /// Counts an own call that has its reply.
    #[inline(always)]
    pub fn count_reply(&mut self, peer: &mut Peer, finished: &Finished) {
        count_done(&self.stats, &mut self.sampling, peer, finished, None);
    }

    /// Counts an own call that has ended with an error.
    pub fn count_failed(&mut self, peer: &mut Peer, finished: &Finished, error: &CallError) {
        count_done(&self.stats, &mut self.sampling, peer, finished, Some(error));
    }

    /// The place of an own call's exposure.
    #[inline]
    pub fn exposure_of(&self, peer: u32, id: CallId) -> Option<u32> {
        let (_, entry) = self.ledger.calls.find(id.xid(), peer)?;
        (entry.mark != NO_MARK).then_some(entry.mark)
    }
}

/// Whether a reply may fit if its items are copied into its payload: the device gathers fewer pieces
/// than the caller has reckoned with, which has kept receives for so many transmissions. Items whose
/// memory the caller has named stay apart.
fn has_many_pieces(why: CallRefused, offer: &Offer<'_>) -> bool {
    use SendError::{NeedsExplicitRdma, TooManyPieces};
    let is_crowded = match why {
        CallRefused::TooManyPieces => true,
        CallRefused::Protocol(why) => {
            matches!(why, TooManyPieces { .. } | NeedsExplicitRdma { .. })
        }
        _ => false,
    };
    is_crowded && !matches!(offer, Offer::Chunks { .. })
}

/// Counts an own call that has ended.
#[inline(always)]
pub(crate) fn count_done(
    stats: &Stats,
    sampling: &mut Sampling,
    peer: &mut Peer,
    finished: &Finished,
    error: Option<&CallError>,
) {
    stats.calls_completed.add(1);
    peer.tally.call_done();
    if finished.timer != NO_TIMER {
        sampling.end_call(finished.timer);
    }
    if let Some(error) = error {
        let is_late = matches!(error, CallError::DeadlineExceeded(_));
        peer.totals.counted.calls_failed += 1;
        peer.totals.counted.failed_deadline += u64::from(is_late);
        stats.calls_failed.add(1);
        by_reason(stats, error).add(1);
    }
}

/// The counter of failed calls with this error.
#[cold]
fn by_reason<'a>(stats: &'a Stats, error: &CallError) -> &'a Counter {
    match error {
        CallError::ConnectionLost(..) => &stats.failed_lost,
        CallError::Rejected(..) => &stats.failed_rejected,
        CallError::FormRefused(..) => &stats.failed_form,
        CallError::BadReply(_) => &stats.failed_reply,
        CallError::MemoryLost => &stats.failed_memory,
        CallError::DeadlineExceeded(_) => &stats.failed_deadline,
        CallError::Cancelled(_) => &stats.failed_cancelled,
    }
}
