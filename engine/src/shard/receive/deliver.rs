//! Delivery: a call with a send slot for its reply, a reply as the completion of its call; then the
//! buffers are free.

use rpcrdma_mempool::RecvToken;
use rpcrdma_proto::{CallId, ReplyTo, Short, ShortKind, SingleItem};
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};

use super::Receive;
use super::disposition::RecvInfo;
use crate::api::call::Call;
use crate::api::completion::Completion;
use crate::api::handler::{AsHandler, Handler};
use crate::api::payload::Payload;
use crate::api::reply::{Reply, ReplyContext};
use crate::message::incoming::{Buffers, Incoming};
use crate::message::rdma_target::RdmaTarget;
use crate::message::reading::first_segment;
use crate::provider::Address;
use crate::state::parts::Parts;
use crate::state::peers::{Peer, Phase};
use crate::stats::sampling::NO_TIMER;

impl Receive {
    /// Delivers a short message and returns its buffer, without the segments that the program took.
    /// Returns the buffer of any other message as an error, without changes. Inlined, because every
    /// message takes this path.
    #[inline(always)]
    pub fn deliver_short<H: AsHandler + ?Sized>(
        &mut self,
        peer: &mut Peer,
        address: &Address,
        parts: &mut Parts,
        token: RecvToken,
        RecvInfo { byte_len, invalidated }: RecvInfo,
        handler: &mut H,
    ) -> Result<RecvToken, RecvToken> {
        let first = first_segment(&self.pool, &token, byte_len);
        if peer.phase != Phase::Up || invalidated.is_some() {
            return Err(token);
        }
        match peer.conn.on_short(&mut parts.ledger, byte_len, first) {
            Some(Short::Plain { kind: ShortKind::Call(to), payload }) => {
                let incoming = Incoming::plain(payload);
                deliver(peer, address, parts, to.xid, None, incoming, handler);
            }
            Some(Short::Plain { kind: ShortKind::Reply(finished), payload }) => {
                parts.count_reply(peer, &finished);
                let incoming = Incoming::plain(payload);
                handler.on_reply(Completion::new(peer.id, finished.token, incoming));
            }
            Some(Short::SingleItem(message)) => {
                let SingleItem { kind, payload_start, payload_len, item, directions } = message;
                self.map.set_single_item((payload_start, payload_len), item);
                let has_offer = directions.is_some();
                if let Some(directions) = directions {
                    self.saved_offer.set_directions(directions);
                }
                let what = (&kind, has_offer);
                return Ok(self.deliver_single_item((peer, address), parts, what, token, handler));
            }
            None => return Err(token),
        }
        Ok(token)
    }

    /// Delivers a message with a single item, and returns its remaining buffer. The buffer is
    /// passed by value, so that those of other messages stay in a register.
    #[inline(never)]
    fn deliver_single_item<H: AsHandler + ?Sized>(
        &mut self,
        peer: (&mut Peer, &Address),
        parts: &mut Parts,
        what: (&ShortKind, bool),
        mut token: RecvToken,
        handler: &mut H,
    ) -> RecvToken {
        let buffers = (core::slice::from_mut(&mut token), RdmaTarget::nothing());
        self.deliver_mapped(peer, parts, what, buffers, handler);
        token
    }

    /// Delivers a message whose parts are in the map.
    #[inline(never)]
    pub(super) fn deliver_mapped<H: AsHandler + ?Sized>(
        &mut self,
        (peer, address): (&mut Peer, &Address),
        parts: &mut Parts,
        (kind, has_offer): (&ShortKind, bool),
        (buffers, rdma_target): (&mut [RecvToken], RdmaTarget<'_>),
        handler: &mut H,
    ) {
        let Receive { pool, map, saved_offer, stats, .. } = self;
        let incoming = Incoming::mapped(pool, buffers, rdma_target, map, stats);
        match kind {
            ShortKind::Call(to) => {
                let saved_offer = if has_offer { Some(&*saved_offer) } else { None };
                let asked = ReplyContext { to, saved_offer, timer: NO_TIMER };
                deliver(peer, address, parts, to.xid, Some(&asked), incoming, handler);
            }
            ShortKind::Reply(finished) => {
                parts.count_reply(peer, finished);
                handler.on_reply(Completion::new(peer.id, finished.token, incoming));
            }
        }
    }

    /// Delivers a call from these buffers and its fetched data.
    pub fn deliver_call(
        &mut self,
        peer: (&mut Peer, &Address),
        parts: &mut Parts,
        to: ReplyTo,
        buffers: (&mut [RecvToken], RdmaTarget<'_>),
        handler: &mut dyn Handler,
    ) {
        if peer.0.phase == Phase::Up {
            let has_offer = !self.saved_offer.is_empty();
            self.deliver_mapped(peer, parts, (&ShortKind::Call(to), has_offer), buffers, handler);
        }
    }

    /// Delivers a reply, unless its call is over.
    pub(super) fn deliver_reply(
        &mut self,
        peer: &mut Peer,
        parts: &mut Parts,
        id: CallId,
        buffers: &mut [RecvToken],
        handler: &mut dyn Handler,
    ) {
        let Some(finished) = peer.conn.finish_call(&mut parts.ledger, id) else { return };
        parts.count_reply(peer, &finished);
        let incoming = self.incoming(buffers, RdmaTarget::nothing());
        handler.on_reply(Completion::new(peer.id, finished.token, incoming));
    }

    /// A buffer without users: to be posted with the next chain of Receives.
    #[inline]
    pub fn free_buffer(&mut self, token: RecvToken) {
        if let Err(full) = self.refill.try_push(token) {
            self.pool.put(full.element());
        }
    }

    /// Buffers without users.
    pub fn free_buffers(&mut self, buffers: Buffers) {
        for token in buffers {
            self.free_buffer(token);
        }
    }
}

/// Delivers a call, with a send slot for its answer. A stopping shard drops it; without a slot the
/// call is rejected.
#[inline(always)]
fn deliver<'a, H: AsHandler + ?Sized>(
    peer: &'a mut Peer,
    address: &'a Address,
    parts: &'a mut Parts,
    xid: u32,
    asked: Option<&'a ReplyContext<'a>>,
    incoming: Incoming<'a>,
    handler: &mut H,
) {
    if parts.timers.is_stopping() || !parts.outbox.allots_slot() {
        let to = asked.map_or(ReplyTo::plain(xid), |asked| *asked.to);
        return parts.reject_call(peer, &to);
    }
    parts.stats.calls_received.add(1);
    if peer.tally.call_in() {
        let call = Call::new(peer.id, address, xid, incoming);
        return deliver_folded(peer, parts, call, asked, handler.as_handler());
    }
    parts.outbox.begin(RpcPrefix { xid, kind: MsgType::Reply });
    // Made last: a handler that is inlined here has it in registers.
    let call = Call::new(peer.id, address, xid, incoming);
    let _answer = handler.on_call(call, Reply::new(Payload::new(parts), peer, xid, asked));
}

/// As [`deliver`], and folds the count of the peer's calls. This call is timed. Not generic: the
/// handler of a program is inlined where it is called from one place.
#[cold]
#[inline(never)]
fn deliver_folded<'a>(
    peer: &'a mut Peer,
    parts: &'a mut Parts,
    call: Call<'a>,
    asked: Option<&'a ReplyContext<'a>>,
    handler: &mut dyn Handler,
) {
    peer.tally.fold_in(&mut peer.totals, parts.sampling.gap());
    let (id, xid, over) = (peer.id, call.xid(), peer.tally.over());
    let timer = parts.sampling.begin_service(id, xid);
    let plain = ReplyTo::plain(xid);
    let (to, saved_offer) = asked.map_or((&plain, None), |asked| (asked.to, asked.saved_offer));
    let timed = ReplyContext { to, saved_offer, timer };
    parts.outbox.begin(RpcPrefix { xid, kind: MsgType::Reply });
    let reply = Reply::new(Payload::new(&mut *parts), &mut *peer, xid, Some(&timed));
    let _answer = handler.on_call(call, reply);
    if peer.tally.over() != over {
        parts.sampling.end_service(timer, id, xid);
    }
}
