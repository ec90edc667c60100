//! Outgoing single-item messages, without general plan and layout: the item by Send, in one
//! transmission or more, or by RDMA Write.

use rpcrdma_mempool::{HEADROOM, SendSlot};
use rpcrdma_proto::{
    BulkItem, ChunkCallPlan, ContinuedPlan, GatherMeans, ReplyTo, ShardLedger, ShortPlan,
};
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::rtr::fixed::IntoBytes;

use super::batch::With;
use super::layout::{self, send_op};
use super::outbox::Outbox;
use crate::error::CallRefused;
use crate::provider::{Remote, SendOp};
use crate::state::peers::Peer;
use crate::state::rdma::windows::Grant;

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
        if self.goes_first(lane, to, With::Item(message), sge) {
            lane.count_slot();
            self.has_others = true;
        } else {
            self.send_in_line(lane, to, With::Item(message), sge);
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
    /// Sends a reply whose single item is written to the chunk of this Write list. False, without
    /// changes, if it must take the general way. After true nothing remains to be returned.
    #[inline(never)]
    pub fn send_written(
        &mut self,
        peer: &mut Peer,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        item: &BulkItem,
        list: &[u8],
    ) -> bool {
        let Some(len) = self.batch.slot().map(SendSlot::appended) else { return false };
        let (means, headroom) = (self.gather_means(), HEADROOM as u32);
        let plan = peer.conn.begin_chunk_reply(ledger, to, (len, item), list, means, headroom);
        let Some(plan) = plan else { return false };
        let mut slot = self.batch.take().expect("its length was just read");
        let message = core::mem::take(&mut self.draft).message.expect("it has the item");
        let body = self.messages.body_mut(message);
        let (mut start, mut is_whole) = (0, true);
        for RdmaSegment { handle: rkey, length, offset: addr } in plan.writes() {
            let gathered = body.gather_item(0, start, length);
            let ended = body.end_request(SendOp::Write(Remote { addr, rkey }));
            is_whole &= gathered.and(ended).is_some();
            start += length;
        }
        let (header_len, writes) = (plan.header_len() as usize, body.requests.len() as u64);
        let encoded = plan.encode_header(&mut Writer::new(slot.header_mut(header_len)));
        body.gather.push(slot.sge(header_len, len as usize));
        let ended = body.end_request(send_op(plan.invalidate));
        debug_assert!(is_whole && encoded.is_ok() && ended.is_some(), "few segments, one item");
        let requests = body.requests.len() as u16;
        let head = self.messages.head_mut(message);
        head.slot = Some(slot);
        head.requests = requests;
        self.stats.rdma_writes.add(writes);
        self.stats.bytes_written.add(item.len.into());
        peer.totals.counted.bytes_written += u64::from(item.len);
        self.enqueue(&mut peer.lane, peer.id.index, message);
        true
    }
    /// Bytes that the header of an assembled call may have in front of its payload; none if that is
    /// not in one slot.
    #[inline]
    pub fn call_headroom(&self, message: u32) -> u32 {
        if self.messages.body(message).slots.len() == 1 { HEADROOM as u32 } else { 0 }
    }

    /// Lays a call with chunks out, whose payload is in one slot, behind the rights that it grants
    /// to the peer.
    pub fn lay_out_chunk_call(
        &mut self,
        message: u32,
        plan: &ChunkCallPlan<'_>,
        grants: &mut [Grant],
    ) -> Result<(), CallRefused> {
        layout::lay_out_chunk_call(&mut self.messages, message, plan, grants)
            .ok_or(CallRefused::TooManyPieces)
    }
}
