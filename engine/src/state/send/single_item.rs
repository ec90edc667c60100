//! Outgoing single-item messages, in one transmission or more, without general plan and layout.

use rpcrdma_mempool::{HEADROOM, SendSlot};
use rpcrdma_proto::{ContinuedPlan, GatherMeans, ShortPlan};
use rpcrdma_xdr::rtr::fixed::IntoBytes;

use super::outbox::Outbox;
use crate::provider::SendOp;
use crate::state::peers::Peer;

impl Outbox {
    /// The resources for sending messages with a single item.
    #[inline]
    pub fn gather_means(&self) -> GatherMeans {
        GatherMeans { gather_max: self.gather_max, zeros_max: self.zero.len() as u32 }
    }

    /// Sends a message with a single item, as planned.
    #[inline]
    pub(super) fn send_single_item(
        &mut self,
        peer: &mut Peer,
        message: u32,
        payload_len: u32,
        plan: &ShortPlan,
    ) {
        let (lane, to) = (&mut peer.lane, peer.id.index);
        let Outbox { messages, zero, batch, .. } = self;
        let Some(slot) = batch.slot_mut() else { return };
        let header = plan.header();
        slot.header_mut(header.len()).copy_from_slice(header);
        let sge = slot.sge(header.len(), payload_len as usize);
        let body = messages.body_mut(message);
        body.gather.push(sge);
        if plan.zeros > 0 {
            body.gather.push(zero.sge(plan.zeros as usize));
        }
        let gathered = body.gather_pieces();
        debug_assert!(gathered.is_some(), "entries outnumber pieces");
        if self.goes_first(lane, to, message, sge) {
            lane.count_slot();
            self.has_items = true;
        } else {
            self.send_in_line(lane, to, message, sge);
        }
    }

    /// Sends a message with a single item in several segments, as planned. The headers that
    /// continue it are in the headroom, in front of the first.
    pub(super) fn enqueue_continued(
        &mut self,
        peer: &mut Peer,
        message: u32,
        mut slot: SendSlot,
        payload_len: u32,
        plan: &ContinuedPlan,
    ) {
        let header_len = plan.header_len() as usize;
        plan.write_header(slot.header_mut(header_len));
        let Outbox { messages, zero, .. } = self;
        let body = messages.body_mut(message);
        let mut header = slot.sge(header_len, payload_len as usize);
        let mut end = HEADROOM - header_len;
        let mut is_whole = true;
        for stretch in plan.stretches() {
            if stretch.index > 0 {
                let range = end - ContinuedPlan::CONT_LEN as usize..end;
                let continuation = plan.continuation(stretch.index);
                slot.headroom_mut()[range.clone()].copy_from_slice(continuation.as_bytes());
                end = range.start;
                header = slot.headroom_sge(range);
            }
            body.gather.push(header);
            if stretch.zeros > 0 {
                body.gather.push(zero.sge(stretch.zeros as usize));
            }
            let gathered = body.gather_item(0, stretch.start, stretch.len);
            let ended = body.end_request(SendOp::Send);
            is_whole &= gathered.and(ended).is_some();
        }
        debug_assert!(is_whole, "an empty list has room for all headers of a headroom");
        let requests = body.requests.len() as u16;
        let head = messages.head_mut(message);
        head.slot = Some(slot);
        head.requests = requests;
        self.enqueue(&mut peer.lane, peer.id.index, message);
    }
}
