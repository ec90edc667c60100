//! Outgoing single-item messages, without general plan and layout.

use rpcrdma_mempool::SendSlot;
use rpcrdma_proto::{GatherMeans, ShortPlan};

use super::messages::Item;
use super::outbox::Outbox;
use crate::provider::SendOp;
use crate::shard::peers::Peer;

impl Outbox {
    /// The resources for sending messages with a single item.
    #[inline]
    pub fn gather_means(&self) -> GatherMeans {
        GatherMeans { gather_max: self.gather_max, zeros_max: self.zero.len() as u32 }
    }

    /// The item of a message with exactly one, and with payload only in the last slot.
    #[inline]
    pub fn single_item(&self, message: u32) -> Option<&Item> {
        let body = self.messages.body(message);
        match &body.items[..] {
            [item] if body.slots.is_empty() => Some(item),
            _ => None,
        }
    }

    /// Sends a message with a single item, as planned.
    #[inline]
    pub fn send_single_item(
        &mut self,
        peer: &mut Peer,
        (message, slot, payload_len): (u32, SendSlot, u32),
        plan: &ShortPlan,
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
        // Entries outnumber pieces, and the whole message is one request.
        let gathered = body.gather_pieces();
        let ended = body.end_request(SendOp::Send);
        debug_assert!(gathered.and(ended).is_some(), "an empty list has room");
        let head = messages.head_mut(message);
        head.slot = Some(slot);
        head.requests = 1;
        self.enqueue(&mut peer.lane, peer.id.index, message);
    }
}
