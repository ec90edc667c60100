//! Inline sends of a turn: messages that are posted before those in the lanes. Short ones are
//! copied while they are posted; those with a single item are in flight afterwards.

use core::ops::Range;

use rpcrdma_mempool::SendSlot;

use super::lane::Lane;
use super::messages::{InlineSend, NONE};
use super::outbox::Outbox;
use crate::provider::SendOp;
use crate::shard::peers::Peers;

impl Outbox {
    /// The short messages that are posted before the lanes.
    #[inline]
    pub fn inline_sends(&self) -> &[InlineSend] {
        &self.inline_sends
    }

    /// Whether any of them may have an item.
    #[inline]
    pub fn has_items(&self) -> bool {
        self.has_items
    }

    /// Empties the list of short messages after all were posted: their slots are free.
    #[inline]
    pub fn free_inline(&mut self) {
        for InlineSend { token, item, .. } in self.inline_sends.drain(..) {
            debug_assert_eq!(item, NONE, "its slot is in use");
            self.slots.push(token);
        }
    }

    /// As [`Outbox::free_inline`], where messages with an item are in flight.
    #[inline]
    pub fn end_posted(&mut self) {
        self.has_items = false;
        for InlineSend { token, item, .. } in self.inline_sends.drain(..) {
            match item {
                NONE => self.slots.push(token),
                _ => self.messages.head_mut(item).slot = Some(self.slots.open(token)),
            }
        }
    }

    /// Records that the message at this place was posted with this sequence number. Returns whether
    /// it has an item, and so is in flight.
    #[inline]
    pub fn on_inline_posted(&mut self, lane: &mut Lane, at: usize, seq: u32) -> bool {
        let item = self.inline_sends[at].item;
        if item != NONE {
            self.messages.head_mut(item).seq = seq;
            lane.hold_counted(&mut self.messages, item);
        }
        item != NONE
    }

    /// Sends a message that is a header and one slot of payload.
    #[inline(always)]
    pub fn send_plain(
        &mut self,
        lane: &mut Lane,
        peer: u32,
        mut slot: SendSlot,
        header: &[u8],
        payload_len: u32,
    ) {
        slot.header_mut(header.len()).copy_from_slice(header);
        let sge = slot.sge(header.len(), payload_len as usize);
        let short = InlineSend { peer, token: slot.into_token(), sge, item: NONE };
        let is_short = sge.length <= self.inline_len;
        if is_short && self.goes_first(lane) {
            self.inline_sends.push(short);
        } else {
            self.send_in_line(lane, short);
        }
    }

    /// Whether a message can be posted before the lanes: it must not overtake pending messages.
    #[inline(always)]
    pub(super) fn goes_first(&self, lane: &Lane) -> bool {
        lane.pending.front().is_none() && !self.inline_sends.is_full()
    }

    /// Sends a message behind the pending ones of its lane.
    #[inline(never)]
    pub(super) fn send_in_line(&mut self, lane: &mut Lane, short: InlineSend) {
        let peer = short.peer;
        let message = self.in_slab(short);
        self.enqueue(lane, peer, message);
    }

    /// The message as one of the slab, for its lane.
    fn in_slab(&mut self, InlineSend { token, sge, item, .. }: InlineSend) -> u32 {
        let slot = self.slots.open(token);
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

    /// Frees the items of messages whose peer is gone; their slots are freed with the others.
    #[cold]
    pub fn drop_items(&mut self, places: Range<usize>) {
        for at in places {
            let item = core::mem::replace(&mut self.inline_sends[at].item, NONE);
            if item != NONE {
                self.empty(item);
                self.free(item);
            }
        }
    }

    /// Frees what a message has that does not leave.
    #[cold]
    fn discard(&mut self, lane: Option<&mut Lane>, InlineSend { token, item, .. }: InlineSend) {
        self.slots.push(token);
        if item != NONE {
            self.empty(item);
            self.free(item);
            if let Some(lane) = lane {
                lane.uncount_slot();
            }
        }
    }

    /// Empties the list of short messages, of which the first `done` are posted: the others go to
    /// the front of their lanes, in order.
    #[cold]
    pub fn requeue_inline(&mut self, peers: &mut Peers, done: usize) {
        while self.inline_sends.len() > done
            && let Some(short) = self.inline_sends.pop()
        {
            let to = short.peer;
            let Some(peer) = peers.at(to) else {
                self.discard(None, short);
                continue;
            };
            if short.item != NONE {
                peer.lane.uncount_slot();
            }
            let message = self.in_slab(short);
            peer.lane.push_front(&mut self.messages, message);
            self.wake(&mut peer.lane, to);
        }
        self.end_posted();
    }

    /// Removes the short message to a peer whose payload begins with these bytes.
    #[cold]
    pub fn take_back_inline(&mut self, lane: &mut Lane, peer: u32, bytes: &[u8]) -> bool {
        let slots = &self.slots;
        let is_it =
            |it: &InlineSend| it.peer == peer && slots.payload(&it.token).starts_with(bytes);
        let Some(at) = self.inline_sends.iter().position(is_it) else { return false };
        let message = self.inline_sends.remove(at);
        self.discard(Some(lane), message);
        true
    }

    /// Discards the short messages to a peer.
    #[cold]
    pub fn discard_inline(&mut self, lane: &mut Lane, peer: u32) {
        let mut at = 0;
        while let Some(it) = self.inline_sends.get(at) {
            if it.peer == peer {
                let message = self.inline_sends.remove(at);
                self.discard(Some(lane), message);
            } else {
                at += 1;
            }
        }
    }
}
