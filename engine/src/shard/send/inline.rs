//! Inline sends of a turn: short messages that are copied while they are posted, before those in
//! the lanes.

use rpcrdma_mempool::SendSlot;

use super::lane::Lane;
use super::messages::InlineSend;
use super::outbox::Outbox;
use crate::shard::peers::Peers;

impl Outbox {
    /// The short messages that are posted before the lanes.
    #[inline]
    pub fn inline_sends(&self) -> &[InlineSend] {
        &self.inline_sends
    }

    /// Empties the list of short messages after all were posted: their slots are free.
    #[inline]
    pub fn free_inline(&mut self) {
        for InlineSend { token, .. } in self.inline_sends.drain(..) {
            self.slots.push(token);
        }
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
        let short = InlineSend { peer, token: slot.into_token(), sge };
        let is_short = sge.length <= self.inline_len;
        // It must not overtake pending messages.
        if is_short && lane.pending.front().is_none() && !self.inline_sends.is_full() {
            self.inline_sends.push(short);
        } else {
            self.send_in_line(lane, short);
        }
    }

    /// Sends a message behind the pending ones of its lane.
    #[inline(never)]
    fn send_in_line(&mut self, lane: &mut Lane, short: InlineSend) {
        let InlineSend { peer, token, sge } = short;
        let message = self.message(self.slots.open(token), sge);
        self.enqueue(lane, peer, message);
    }

    /// Empties the list of short messages, of which the first `done` are posted or have lost their
    /// peer: the others go to the front of their lanes, in order.
    #[cold]
    pub fn requeue_inline(&mut self, peers: &mut Peers, done: usize) {
        while let Some(InlineSend { peer: to, token, sge }) = self.inline_sends.pop() {
            let peer = if self.inline_sends.len() < done { None } else { peers.at(to) };
            let Some(peer) = peer else {
                self.slots.push(token);
                continue;
            };
            let message = self.message(self.slots.open(token), sge);
            peer.lane.push_front(&mut self.messages, message);
            self.wake(&mut peer.lane, to);
        }
    }

    /// Removes the short message to a peer whose payload begins with these bytes.
    #[cold]
    pub fn take_back_inline(&mut self, peer: u32, bytes: &[u8]) -> bool {
        let slots = &self.slots;
        let is_it =
            |it: &InlineSend| it.peer == peer && slots.payload(&it.token).starts_with(bytes);
        let Some(at) = self.inline_sends.iter().position(is_it) else { return false };
        let message = self.inline_sends.remove(at);
        self.slots.push(message.token);
        true
    }

    /// Discards the short messages to a peer.
    #[cold]
    pub fn discard_inline(&mut self, peer: u32) {
        let mut at = 0;
        while let Some(it) = self.inline_sends.get(at) {
            if it.peer == peer {
                let InlineSend { token, .. } = self.inline_sends.remove(at);
                self.slots.push(token);
            } else {
                at += 1;
            }
        }
    }
}
