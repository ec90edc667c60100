//! Inline sends of a turn: messages that are posted before those in the lanes. Short ones are
//! copied while they are posted; those with a single item are in flight afterwards.

use rpcrdma_mempool::{SendSlot, Sge};
use rpcrdma_proto::{ReplyTo, ShardLedger};
use rpcrdma_xdr::rtr::fixed::IntoBytes;

use super::batch::{InlineSend, With};
use super::outbox::Outbox;
use crate::provider::SendOp;
use crate::state::lane::Lane;
use crate::state::peers::{Peer, Peers};

impl Outbox {
    /// The messages that are posted before the lanes.
    #[inline]
    pub fn inline_sends(&self) -> &[InlineSend] {
        self.batch.messages()
    }

    /// Whether any of them may be other than plain.
    #[inline]
    pub fn has_others(&self) -> bool {
        self.has_others
    }

    /// Ends the batch after all were posted: their slots are free.
    #[inline]
    pub fn free_inline(&mut self) {
        let is_short = |it: &InlineSend| it.with == With::Nothing;
        debug_assert!(self.batch.messages().iter().all(is_short), "the slot of an item is in use");
        self.batch.clear();
    }

    /// As [`Outbox::free_inline`], where messages with an item are in flight.
    #[inline]
    pub fn end_posted(&mut self) {
        self.has_others = false;
        for at in 0..self.batch.messages().len() {
            if let With::Item(item) = self.batch.messages()[at].with {
                self.messages.head_mut(item).slot = self.batch.take_of(at);
            }
        }
        self.batch.clear();
    }

    /// Records that the message at this place was posted with this sequence number. Returns whether
    /// it has an item, and so is in flight.
    #[inline]
    pub fn on_inline_posted(&mut self, lane: &mut Lane, at: usize, seq: u32) -> bool {
        let With::Item(item) = self.batch.messages()[at].with else { return false };
        self.messages.head_mut(item).seq = seq;
        lane.hold_counted(&mut self.messages, item);
        true
    }

    /// Sends the draft, a message that is a header and one slot of payload.
    #[inline(always)]
    pub fn send_plain(&mut self, lane: &mut Lane, peer: u32, header: &[u8], payload_len: u32) {
        let Some(slot) = self.batch.slot_mut() else { return };
        slot.header_mut(header.len()).copy_from_slice(header);
        let sge = slot.sge(header.len(), payload_len as usize);
        if !(sge.length <= self.inline_len && self.goes_first(lane, peer, With::Nothing, sge)) {
            self.send_in_line(lane, peer, With::Nothing, sge);
        }
    }

    /// Sends the draft, a plain reply, if it invalidates a key of the peer. False, without changes,
    /// if it does not, or must take the general way.
    pub fn send_invalidating(
        &mut self,
        peer: &mut Peer,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
    ) -> bool {
        let Some(slot) = self.batch.slot_mut() else { return false };
        let len = slot.appended();
        let Some(plan) = peer.conn.begin_invalidating_reply(ledger, to, len) else { return false };
        let header = plan.header.as_bytes();
        slot.header_mut(header.len()).copy_from_slice(header);
        let sge = slot.sge(header.len(), len as usize);
        let (lane, to, with) = (&mut peer.lane, peer.id.index, With::Invalidate(plan.handle));
        if sge.length <= self.inline_len && self.goes_first(lane, to, with, sge) {
            self.has_others = true;
        } else {
            self.send_in_line(lane, to, with, sge);
        }
        true
    }

    /// Adds the draft to the batch, if it can be posted before the lanes: it must not overtake
    /// pending messages.
    #[inline(always)]
    pub(super) fn goes_first(&mut self, lane: &Lane, peer: u32, with: With, sge: Sge) -> bool {
        lane.pending.front().is_none() && self.batch.push(peer, with, sge)
    }

    /// Sends the draft behind the pending messages of its lane.
    #[inline(never)]
    pub(super) fn send_in_line(&mut self, lane: &mut Lane, peer: u32, with: With, sge: Sge) {
        if let Some(slot) = self.batch.take() {
            let message = self.in_slab(slot, with, sge);
            self.enqueue(lane, peer, message);
        }
    }

    /// A message as one of the slab, for its lane.
    fn in_slab(&mut self, slot: SendSlot, with: With, sge: Sge) -> u32 {
        let (message, op) = match with {
            With::Nothing => return self.message(slot, sge),
            With::Item(item) => (item, SendOp::Send),
            With::Invalidate(rkey) => {
                let message = self.messages.begin();
                let message = message.expect("there are as many messages as slots");
                self.messages.body_mut(message).gather.push(sge);
                (message, SendOp::SendInvalidate { rkey })
            }
        };
        let ended = self.messages.body_mut(message).end_request(op);
        debug_assert!(ended.is_some(), "the whole message is one request");
        let head = self.messages.head_mut(message);
        head.slot = Some(slot);
        head.requests = 1;
        message
    }

    /// Frees the item of a message that does not leave, if it has one.
    #[cold]
    fn discard(&mut self, lane: &mut Lane, with: With) {
        if let With::Item(item) = with {
            self.empty(item);
            self.free(item);
            lane.uncount_slot();
        }
    }

    /// Ends the batch, of which the first `done` messages are posted: the others go to the front of
    /// their lanes, in order.
    #[cold]
    pub fn requeue_inline(&mut self, peers: &mut Peers, done: usize) {
        while self.batch.messages().len() > done
            && let Some(&InlineSend { peer: to, with, sge, .. }) = self.batch.pop()
        {
            let Some(peer) = peers.at(to) else {
                debug_assert!(false, "the end of a connection takes its messages along");
                continue;
            };
            if with.item().is_some() {
                peer.lane.uncount_slot();
            }
            let at = self.batch.messages().len();
            let slot = self.batch.take_of(at).expect("a message has a slot");
            let message = self.in_slab(slot, with, sge);
            peer.lane.push_front(&mut self.messages, message);
            self.wake(&mut peer.lane, to);
        }
        self.end_posted();
    }

    /// Removes the message to a peer whose payload begins with these bytes.
    #[cold]
    pub fn take_back_inline(&mut self, lane: &mut Lane, peer: u32, bytes: &[u8]) -> bool {
        let mut places = 0..self.batch.messages().len();
        let is_it = |at: &usize| {
            self.batch.messages()[*at].peer == peer
                && self.batch.payload_mut(*at).starts_with(bytes)
        };
        let Some(at) = places.find(is_it) else { return false };
        let with = self.batch.remove(at);
        self.discard(lane, with);
        true
    }

    /// Discards the messages to a peer.
    #[cold]
    pub fn discard_inline(&mut self, lane: &mut Lane, peer: u32) {
        let mut at = 0;
        while let Some(it) = self.batch.messages().get(at) {
            if it.peer == peer {
                let with = self.batch.remove(at);
                self.discard(lane, with);
            } else {
                at += 1;
            }
        }
    }
}
