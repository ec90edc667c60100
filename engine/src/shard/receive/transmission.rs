//! The way in: completion, transmission, group, call or reply, and the buffer back to the device.

use std::net::SocketAddr;

use rpcrdma_mempool::{RecvPool, RecvToken};
use rpcrdma_proto::{
    Aborted, CallId, Complete, Control, Ignored, Ingress, Part, PropertyOutcome, Received, ReplyTo,
    Short, ShortKind, Via, Violation,
};
use rpcrdma_xdr::onc::MsgType;

use super::prepare::{Whole, first_segment, prepare_call, prepare_reply};
use super::waiting::Waiting;
use crate::api::call::Call;
use crate::api::completion::Completion;
use crate::api::handler::Handler;
use crate::api::reply::{Reply, ReplyContext};
use crate::error::{CallError, CloseReason};
use crate::message::incoming::{Buffers, Incoming};
use crate::message::map::Map;
use crate::message::payload::Payload;
use crate::message::rdma_target::RdmaTarget;
use crate::message::saved_offer::SavedOffer;
use crate::provider::Provider;
use crate::shard::core::Core;
use crate::shard::peers::close::Life;
use crate::shard::peers::{Peer, Phase};
use crate::shard::send::outbox::Outbox;
use crate::stats::SharedStats;

/// What a completion says of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecvInfo {
    /// Bytes received.
    pub byte_len: u32,
    /// The key of ours that the peer has given up with it.
    pub invalidated: Option<u32>,
}

/// What became of a transmission.
pub(crate) enum Disposition {
    /// The transmission is done with.
    Done,
    /// The buffer is a part of a group that is not whole.
    Park,
    /// The buffer is the last of a group.
    Complete(Complete),
    /// It ended a group and is a message of its own: once more.
    Again,
    /// It ended a group that was the reply to a call of ours; and whether it is a message of its own.
    Aborted { again: bool, id: CallId, why: Violation },
    /// It answers our request for changes of properties.
    Settled(PropertyOutcome),
    /// It is a call.
    Call(ReplyTo),
    /// It is a call whose data are in the memory of its caller; they take so many buffers.
    Fetch(ReplyTo, Part, usize),
    /// It is the reply to a call.
    Reply(CallId),
    /// It is the reply to a call that has memory exposed, in this place.
    Exposed(u32, Part),
    /// A call of ours failed.
    Failed(CallId, CallError),
    /// The connection must go.
    Close(CloseReason),
}

impl<P: Provider> Core<P> {
    /// A transmission has arrived on this queue pair.
    #[inline(always)]
    pub fn on_receive<H: Handler>(
        &mut self,
        token: RecvToken,
        recv: RecvInfo,
        qp_num: u32,
        now: u64,
        handler: &mut H,
    ) {
        let Some(index) = self.peers.find(qp_num) else {
            self.stats.late.add(1);
            self.free_buffer(token);
            return;
        };
        self.receive(index, token, (recv, true), now, handler);
    }

    /// A transmission has arrived. With `may_wait`, it waits where no slot is free to answer it;
    /// without, there is one. In the way of every message, and so a part of whoever calls it.
    #[inline(always)]
    pub fn receive<H: Handler>(
        &mut self,
        index: u32,
        mut token: RecvToken,
        (recv, may_wait): (RecvInfo, bool),
        now: u64,
        handler: &mut H,
    ) {
        let Core { peers, pool, outbox, stats, life, waiting, map, saved_offer, .. } = &mut *self;
        let Some((peer, address)) = peers.with_address(index) else {
            return self.free_buffer(token);
        };
        // Whatever arrives may be a call, and a call must be answered: without a send slot it is
        // not even looked at. The order of a peer's messages is kept.
        if may_wait && (peer.waiting > 0 || !outbox.has_slot_for(&peer.lane)) {
            let qp_num = peer.qp_num;
            return waiting.push(peer, Waiting { token, recv, qp_num });
        }
        let first = first_segment(pool, &token, recv.byte_len);
        if peer.phase != Phase::Up || recv.invalidated.is_some() {
            return self.receive_other(index, token, recv, now, handler);
        }
        match peer.conn.on_short(&mut outbox.ledger, recv.byte_len, first) {
            Some(Short::Plain { kind: ShortKind::Call(to), payload }) => {
                let (incoming, ends) = (Incoming::plain(payload), (peer, address, outbox));
                deliver(ends, (to.xid, None), incoming, life, handler);
            }
            Some(Short::Plain { kind: ShortKind::Reply(finished), payload }) => {
                stats.calls_done.add(1);
                let incoming = Incoming::plain(payload);
                handler.on_reply(Completion::new(peer.id, finished.token, incoming));
            }
            Some(Short::SingleItem(message)) => {
                saved_offer.set_directions(message.directions);
                map.set_single_item((message.payload_start, message.payload_len), message.item);
                let (ends, kind) = ((peer, address, outbox), (message.kind, &*saved_offer));
                let parts = (pool, map, &*stats);
                token = deliver_single_item(ends, kind, parts, token, life, handler);
            }
            None => return self.receive_other(index, token, recv, now, handler),
        }
        self.free_buffer(token);
    }

    /// A transmission that is not a short message.
    #[inline(never)]
    fn receive_other<H: Handler>(
        &mut self,
        index: u32,
        mut token: RecvToken,
        recv: RecvInfo,
        now: u64,
        handler: &mut H,
    ) {
        loop {
            let mut disposition = self.interpret(index, recv.byte_len, &token);
            // Any message may be the one that says that the peer speaks our version.
            self.note_ready(index, now, handler);
            if !matches!(
                disposition,
                Disposition::Exposed(..) | Disposition::Complete(_) | Disposition::Park
            ) {
                self.note_invalidated(index, recv);
            }
            if let Disposition::Aborted { again, id, why } = disposition {
                self.fail_call(index, id, CallError::BadReply(why), handler);
                disposition = if again { Disposition::Again } else { Disposition::Done };
            }
            let buffers = core::slice::from_mut(&mut token);
            match disposition {
                Disposition::Done | Disposition::Aborted { .. } => break,
                // The report may have taken the slot that was there to answer the message.
                Disposition::Again if self.outbox.send.free() == 0 => {
                    let Some(peer) = self.peers.at(index) else { break };
                    let qp_num = peer.qp_num;
                    return self.waiting.push_first(peer, Waiting { token, recv, qp_num });
                }
                Disposition::Again => continue,
                Disposition::Settled(outcome) => {
                    self.settle_properties(index, &outcome, handler);
                    break;
                }
                Disposition::Call(to) => {
                    self.deliver_call(index, to, buffers, handler);
                    break;
                }
                Disposition::Reply(id) => {
                    self.deliver_reply(index, id, buffers, handler);
                    break;
                }
                Disposition::Failed(id, error) => {
                    self.fail_call(index, id, error, handler);
                    break;
                }
                Disposition::Fetch(to, part, needs) => {
                    let came = (Buffers::from_iter([token]), &[part][..]);
                    return self.fetch_call(index, to, needs, came);
                }
                Disposition::Exposed(place, part) => {
                    let reply = Ok((Buffers::from_iter([token]), &[part][..]));
                    return self.end_exposed(place, reply, recv.invalidated, handler);
                }
                Disposition::Park => {
                    self.note_invalidated(index, recv);
                    return self.park(index, token, now);
                }
                Disposition::Complete(complete) => {
                    self.on_group(index, complete, token, recv, handler);
                    return;
                }
                Disposition::Close(why) => {
                    self.close(index, why, now, handler);
                    break;
                }
            }
        }
        self.free_buffer(token);
        self.offer_properties(index);
    }

    /// A message that is not the reply to a call with memory exposed may have taken a right back.
    #[inline]
    pub fn note_invalidated(&mut self, index: u32, recv: RecvInfo) {
        if let Some(rkey) = recv.invalidated {
            self.outbox.exposures.on_invalidated(index, rkey);
        }
    }

    /// wire.md B2: to a client that began with a call the properties follow behind the reply, or
    /// behind a later one if nothing can be sent now.
    pub fn offer_properties(&mut self, index: u32) {
        let Core { peers, outbox, .. } = self;
        let Some(peer) = peers.at(index).filter(|peer| peer.phase == Phase::Up) else { return };
        if peer.conn.owes_properties()
            && outbox.takes_control(peer)
            && let Some(send) = peer.conn.next_control()
        {
            outbox.control(peer, &send);
        }
    }

    /// Asks the protocol what a transmission means.
    #[inline]
    fn interpret(&mut self, index: u32, byte_len: u32, token: &RecvToken) -> Disposition {
        let Core { peers, pool, outbox, map, saved_offer, stats, .. } = self;
        let Some(peer) = peers.at(index) else { return Disposition::Done };
        if matches!(peer.phase, Phase::Closing { .. } | Phase::Leaving { .. }) {
            stats.late.add(1);
            return Disposition::Done;
        }
        let at = Received { buffer: token.index(), byte_len };
        let first = first_segment(pool, token, byte_len);
        match peer.conn.on_transmission(&mut outbox.ledger, at, first) {
            Ingress::Call(message) => {
                let parts = core::slice::from_ref(&message.part);
                let result = prepare_call(
                    &peer.conn,
                    &message,
                    parts,
                    (map, saved_offer),
                    &outbox.exposures,
                );
                let to = message.reply_to();
                let part = message.part;
                self.judge_call(index, to, part, result)
            }
            Ingress::Reply(id, message) => {
                let parts = core::slice::from_ref(&message.part);
                let result = prepare_reply(&peer.conn, outbox, id, &message, parts, map);
                let (via, part) = (message.via, message.part);
                self.judge_reply(index, id, (via, part), result)
            }
            Ingress::Partial => Disposition::Park,
            Ingress::Control(Control { answer, .. }) => {
                if let Some(send) = answer {
                    outbox.control(peer, &send);
                }
                Disposition::Done
            }
            Ingress::Settled(outcome) => Disposition::Settled(outcome),
            Ingress::Failed(id, refusal) => Disposition::Failed(id, CallError::Rejected(refusal)),
            Ingress::Again(id, refusal) => Disposition::Failed(id, CallError::FormRefused(refusal)),
            Ingress::ReplyRefused { .. } => {
                stats.reported.add(1);
                Disposition::Done
            }
            Ingress::BadReply { id, violation, report } => {
                // The call fails here, whether the responder learns of it or not.
                let _is_told = outbox.report(peer, &report);
                Disposition::Failed(id, CallError::BadReply(violation))
            }
            Ingress::Reject(report) => told(outbox.report(peer, &report)),
            Ingress::Ignored(reason) => {
                stats.ignored.add(1);
                stats.late_replies.add((reason == Ignored::LateReply).into());
                Disposition::Done
            }
            Ingress::Fatal(why) => Disposition::Close(CloseReason::Protocol(why)),
            Ingress::Complete(complete) => Disposition::Complete(complete),
            Ingress::Aborted(Aborted { report, again, failed }) => {
                match (self.abort(index, &report), failed) {
                    (false, _) => Disposition::Close(CloseReason::NotTaking),
                    (true, Some((id, why))) => Disposition::Aborted { again, id, why },
                    (true, None) if again => Disposition::Again,
                    (true, None) => Disposition::Done,
                }
            }
        }
    }

    /// A call that breaks a rule of placement is reported; it was not executed.
    pub fn judge_call(
        &mut self,
        index: u32,
        to: ReplyTo,
        part: Part,
        result: Result<Whole, Violation>,
    ) -> Disposition {
        let violation = match result {
            Ok(Whole::Here) => return Disposition::Call(to),
            Ok(Whole::Remote(needs)) => return Disposition::Fetch(to, part, needs),
            Err(violation) => violation,
        };
        let Core { peers, outbox, .. } = self;
        if let Some(peer) = peers.at(index) {
            outbox.reject(peer, &to, violation);
        }
        Disposition::Done
    }

    /// A reply that breaks a rule of placement is reported, and its call fails.
    pub fn judge_reply(
        &mut self,
        index: u32,
        id: CallId,
        (via, part): (Via, Part),
        result: Result<(), Violation>,
    ) -> Disposition {
        let Err(violation) = result else {
            return match self.exposure_of(index, id) {
                None => Disposition::Reply(id),
                Some(place) => Disposition::Exposed(place, part),
            };
        };
        let Core { peers, outbox, .. } = self;
        if let Some(peer) = peers.at(index)
            && let Some(report) = peer.conn.reject_reply(id, via, violation)
        {
            // The call fails here, whether the responder learns of it or not.
            let _is_told = outbox.report(peer, &report);
        }
        Disposition::Failed(id, CallError::BadReply(violation))
    }

    pub fn deliver_call<H: Handler>(
        &mut self,
        index: u32,
        to: ReplyTo,
        buffers: &mut [RecvToken],
        handler: &mut H,
    ) {
        let Core { peers, pool, outbox, map, saved_offer, stats, life, .. } = self;
        let Some((peer, address)) = peers.with_address(index) else { return };
        if peer.phase != Phase::Up {
            return;
        }
        let incoming = Incoming::mapped(pool, buffers, RdmaTarget::nothing(), map, stats);
        let kind = ShortKind::Call(to);
        deliver_mapped((peer, address, outbox), (kind, saved_offer), incoming, life, handler);
    }

    pub fn deliver_reply<H: Handler>(
        &mut self,
        index: u32,
        id: CallId,
        buffers: &mut [RecvToken],
        handler: &mut H,
    ) {
        let Core { peers, pool, outbox, map, stats, .. } = self;
        let Some(peer) = peers.at(index) else { return };
        let Some(finished) = peer.conn.finish_call(&mut outbox.ledger, id) else { return };
        stats.calls_done.add(1);
        let incoming = Incoming::mapped(pool, buffers, RdmaTarget::nothing(), map, stats);
        handler.on_reply(Completion::new(peer.id, finished.token, incoming));
    }

    /// Completes a call of ours with an error.
    #[cold]
    pub fn fail_call<H: Handler>(
        &mut self,
        index: u32,
        call: CallId,
        error: CallError,
        handler: &mut H,
    ) {
        if let Some(place) = self.exposure_of(index, call) {
            return self.end_exposed(place, Err(error), None, handler);
        }
        self.tell_failed(index, call, error, handler);
    }

    /// Completes a call of ours with an error, and without its memory.
    #[cold]
    pub fn tell_failed<H: Handler>(
        &mut self,
        index: u32,
        call: CallId,
        error: CallError,
        handler: &mut H,
    ) {
        let Some(peer) = self.peers.at(index) else { return };
        let finished = peer.end_call(&mut self.outbox.ledger, call);
        let Some(finished) = finished else { return };
        self.stats.calls_done.add(1);
        self.stats.calls_failed.add(1);
        let (id, token) = (peer.id, finished.token);
        handler.on_reply(Completion::failed(id, token, (call, error), RdmaTarget::nothing()));
    }
}

/// Hands a call up, with a send slot for its answer. A shard that stops drops it, and one that has no
/// slot refuses it.
#[inline(always)]
pub fn deliver<'a, H: Handler>(
    (peer, address, outbox): (&'a mut Peer, &'a SocketAddr, &'a mut Outbox),
    (xid, asked): (u32, Option<ReplyContext<'a>>),
    incoming: Incoming<'a>,
    life: &Life,
    handler: &mut H,
) {
    let slot = if life.is_stopping() { None } else { outbox.send.take() };
    let Some(slot) = slot else {
        let to = asked.map_or(ReplyTo::plain(xid), |asked| *asked.to);
        return turn_back(peer, outbox, &to, life);
    };
    outbox.stats.calls_in.add(1);
    peer.open_calls += 1;
    let call = Call::new(peer.id, address, xid, incoming);
    let payload = Payload::begin(outbox, slot, xid, MsgType::Reply);
    let _answer = handler.on_call(call, Reply::new(payload, peer, xid, asked));
}

/// Hands a message with a single item up, and gives its buffer back as far as it was left. The buffer
/// is passed by value: those of other messages stay in a register.
#[inline(never)]
fn deliver_single_item<H: Handler>(
    ends: (&mut Peer, &SocketAddr, &mut Outbox),
    message: (ShortKind, &SavedOffer),
    (pool, map, stats): (&mut RecvPool, &mut Map, &SharedStats),
    mut token: RecvToken,
    life: &Life,
    handler: &mut H,
) -> RecvToken {
    let buffers = core::slice::from_mut(&mut token);
    let incoming = Incoming::mapped(pool, buffers, RdmaTarget::nothing(), map, stats);
    deliver_mapped(ends, message, incoming, life, handler);
    token
}

/// Hands a message up whose parts the map names.
#[inline(never)]
pub fn deliver_mapped<'a, H: Handler>(
    (peer, address, outbox): (&'a mut Peer, &'a SocketAddr, &'a mut Outbox),
    (kind, saved_offer): (ShortKind, &'a SavedOffer),
    incoming: Incoming<'a>,
    life: &Life,
    handler: &mut H,
) {
    match kind {
        ShortKind::Call(to) => {
            let asked = (to.xid, Some(ReplyContext { to: &to, saved_offer }));
            deliver((peer, address, outbox), asked, incoming, life, handler);
        }
        ShortKind::Reply(finished) => {
            outbox.stats.calls_done.add(1);
            handler.on_reply(Completion::new(peer.id, finished.token, incoming));
        }
    }
}

/// A call that is not delivered. Its caller is told that it failed; but a shard that stops says
/// nothing, and ends the connection: who loses it makes the call elsewhere, who is told of a failure
/// believes it.
#[cold]
pub(crate) fn turn_back(peer: &mut Peer, outbox: &mut Outbox, to: &ReplyTo, life: &Life) {
    if life.is_stopping() {
        // It keeps its credit: a peer that goes on sending comes to the end of its grant.
        peer.dropped += 1;
        outbox.stats.calls_dropped.add(1);
        return;
    }
    outbox.stats.calls_turned_back.add(1);
    outbox.refuse(peer, to);
}

/// What becomes of a connection whose peer was, or was not, told of its error.
fn told(is_told: bool) -> Disposition {
    if is_told { Disposition::Done } else { Disposition::Close(CloseReason::NotTaking) }
}
