//! Messages with a lone item, on their short way in and out: no plan, no layout, no search.

use rpcrdma_mempool::{RecvToken, SendSlot};
use rpcrdma_proto::{LoneKind, LoneMeans, LonePlan};

use super::core::Core;
use super::message::Item;
use super::outbox::Outbox;
use super::peers::Peer;
use super::prepare::first_segment;
use super::rx::deliver;
use crate::client::completion::Completion;
use crate::incoming::Incoming;
use crate::provider::{Provider, SendOp};
use crate::rdma_target::RdmaTarget;
use crate::server::handler::Handler;
use crate::server::reply::ReplyContext;

impl<P: Provider> Core<P> {
    /// Delivers a transmission of a peer that is up, if it is a message with a lone item that breaks
    /// no rule. Its buffer is free then, as far as the handler left it; else nothing has happened.
    #[inline(never)]
    pub(super) fn receive_lone<H: Handler>(
        &mut self,
        index: u32,
        token: &mut RecvToken,
        byte_len: u32,
        handler: &mut H,
    ) -> bool {
        let Core { peers, pool, outbox, map, saved_offer, stats, life, .. } = self;
        let Some((peer, address)) = peers.with_address(index) else { return false };
        let first = first_segment(pool, token, byte_len);
        let lone = peer.conn.on_lone_message(&mut outbox.ledger, byte_len, first);
        let Some(lone) = lone else { return false };
        saved_offer.set_directions(lone.directions);
        map.set_lone((lone.payload_start, lone.payload_len), lone.item);
        let kind = lone.kind;
        let buffers = core::slice::from_mut(token);
        let incoming = Incoming::mapped(pool, buffers, RdmaTarget::nothing(), map, stats);
        match kind {
            LoneKind::Call(to) => {
                let asked = (to.xid, Some(ReplyContext { to: &to, saved_offer }));
                deliver((peer, address, outbox), asked, incoming, life, handler);
            }
            LoneKind::Reply(finished) => {
                stats.calls_done.add(1);
                handler.on_reply(Completion::new(peer.id, finished.token, incoming));
            }
        }
        true
    }
}

impl Outbox {
    /// What messages with a lone item are sent with.
    #[inline]
    pub fn lone_means(&self) -> LoneMeans {
        LoneMeans { gather_max: self.gather_max, zeros_max: self.zero.len() as u32 }
    }

    /// The item of a message that has one and no payload beside that in the last slot.
    #[inline]
    pub fn lone_item(&self, message: u32) -> Option<&Item> {
        let body = self.messages.body(message);
        match &body.items[..] {
            [item] if body.slots.is_empty() => Some(item),
            _ => None,
        }
    }

    /// Sends a message with a lone item, as planned.
    #[inline]
    pub fn send_lone(
        &mut self,
        peer: &mut Peer,
        (message, slot, payload_len): (u32, SendSlot, u32),
        plan: &LonePlan,
    ) {
        let mut slot = slot;
        let header = plan.header();
        slot.header_mut(header.len()).copy_from_slice(header);
        let Outbox { messages, zero, .. } = self;
        let body = messages.body_mut(message);
        body.gather.push(slot.sge(header.len(), payload_len as usize));
        if plan.zeros > 0 {
            body.gather.push(zero.sge(plan.zeros as usize));
        }
        // There are more entries than pieces, and all of the message is one request.
        let gathered = body.gather_pieces();
        let ended = body.end_request(SendOp::Send);
        debug_assert!(gathered.and(ended).is_some(), "an empty list has room");
        let head = messages.head_mut(message);
        head.slot = Some(slot);
        head.requests = 1;
        self.enqueue(&mut peer.lane, peer.id.index, message);
    }
}
