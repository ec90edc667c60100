//! Inline sends of a turn: messages that are posted before those in the lanes. Short ones are
//! copied while they are posted; those with a single item are in flight afterwards.

use rpcrdma_mempool::{SendSlot, Sge};

use super::batch::InlineSend;
use super::outbox::Outbox;
use crate::provider::SendOp;
use crate::state::lane::Lane;
use crate::state::lane::messages::NONE;
use crate::state::peers::Peers;

impl Outbox {
    /// The messages that are posted before the lanes.
    #[inline]
    pub fn inline_sends(&self) -> &[InlineSend] {
        self.batch.messages()
    }

    /// Whether any of them may have an item.
    #[inline]
    pub fn has_items(&self) -> bool {
        self.has_items
    }

    /// Ends the batch after all were posted: their slots are free.
    #[inline]
    pub fn free_inline(&mut self) {
        let is_short = |it: &InlineSend| it.item == NONE;
        debug_assert!(self.batch.messages().iter().all(is_short), "the slot of an item is in use");
        self.batch.clear();
    }

    /// As [`Outbox::free_inline`], where messages with an item are in flight.
    #[inline]
    pub fn end_posted(&mut self) {
        self.has_items = false;
        for at in 0..self.batch.messages().len() {
            let item = self.batch.messages()[at].item;
            if item != NONE {
                self.messages.head_mut(item).slot = self.batch.take_of(at);
            }
        }
        self.batch.clear();
    }

    /// Records that the message at this place was posted with this sequence number. Returns whether
    /// it has an item, and so is in flight.
    #[inline]
    pub fn on_inline_posted(&mut self, lane: &mut Lane, at: usize, seq: u32) -> bool {
        let item = self.batch.messages()[at].item;
        if item != NONE {
            self.messages.head_mut(item).seq = seq;
            lane.hold_counted(&mut self.messages, item);
        }
        item != NONE
    }

    /// Sends the draft, a message that is a header and one slot of payload.
    #[inline(always)]
    pub fn send_plain(&mut self, lane: &mut Lane, peer: u32, header: &[u8], payload_len: u32) {
        let Some(slot) = self.batch.slot_mut() else { return };
        slot.header_mut(header.len()).copy_from_slice(header);
        let sge = slot.sge(header.len(), payload_len as usize);
        if !(sge.length <= self.inline_len && self.goes_first(lane, peer, NONE, sge)) {
            self.send_in_line(lane, peer, NONE, sge);
        }
    }

    /// Adds the draft to the batch, if it can be posted before the lanes: it must not overtake
    /// pending messages.
    #[inline(always)]
    pub(super) fn goes_first(&mut self, lane: &Lane, peer: u32, item: u32, sge: Sge) -> bool {
        lane.pending.front().is_none() && self.batch.push(peer, item, sge)
    }

    /// Sends the draft behind the pending messages of its lane.
    #[inline(never)]
    pub(super) fn send_in_line(&mut self, lane: &mut Lane, peer: u32, item: u32, sge: Sge) {
        if let Some(slot) = self.batch.take() {
            let message = self.in_slab(slot, item, sge);
            self.enqueue(lane, peer, message);
        }
    }

    /// A message as one of the slab, for its lane.
    fn in_slab(&mut self, slot: SendSlot, item: u32, sge: Sge) -> u32 {
        if item == NONE {
            return self.message(slot, sge);
        }
        let ended = self.messages.body_mut(item).end_request(SendOp::Send);
        debug_assert!(ended.is_some(), "the whole message is one request");
        let head = self.messages.head_mut(item);
        head.slot = Some(slot);
        head.requests = 1;
        item
    }

    /// Frees the item of a message that does not leave, if it has one.
    #[cold]
    fn discard(&mut self, lane: &mut Lane, item: u32) {
        if item != NONE {
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
            && let Some(&InlineSend { peer: to, item, sge, .. }) = self.batch.pop()
        {
            let Some(peer) = peers.at(to) else {
                debug_assert!(false, "the end of a connection takes its messages along");
                continue;
            };
            if item != NONE {
                peer.lane.uncount_slot();
            }
            let at = self.batch.messages().len();
            let slot = self.batch.take_of(at).expect("a message has a slot");
            let message = self.in_slab(slot, item, sge);
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
        let item = self.batch.remove(at);
        self.discard(lane, item);
        true
    }

    /// Discards the messages to a peer.
    #[cold]
    pub fn discard_inline(&mut self, lane: &mut Lane, peer: u32) {
        let mut at = 0;
        while let Some(it) = self.batch.messages().get(at) {
            if it.peer == peer {
                let item = self.batch.remove(at);
                self.discard(lane, item);
            } else {
                at += 1;
            }
        }
    }
}
