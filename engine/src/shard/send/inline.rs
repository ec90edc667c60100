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

    /// Removes the last short message.
    #[inline]
    pub fn pop_inline(&mut self) -> Option<InlineSend> {
        self.inline_sends.pop()
    }

    /// Puts a short message back that was not posted.
    #[cold]
    pub fn put_inline(&mut self, message: InlineSend) {
        self.inline_sends.push(message);
    }

    /// Sends a message that is a header and one slot of payload.
    #[inline]
    pub fn send_plain(
        &mut self,
        lane: &mut Lane,
        peer: u32,
        mut slot: SendSlot,
        header: &[u8],
        payload_len: u32,
    ) {
        slot.header_mut(header.len()).copy_from_slice(header);
        let header_len = header.len() as u32;
        let is_short = header_len + payload_len <= self.inline_len;
        let short = InlineSend { peer, header_len, payload_len, slot };
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
        let InlineSend { peer, header_len, payload_len, slot } = short;
        let message = self.message(slot, header_len, payload_len);
        self.enqueue(lane, peer, message);
    }

    /// Empties the list of short messages after a partial post (`taken` has a bit for each posted
    /// one): the others go to the front of their lanes, in order.
    #[cold]
    pub fn requeue_inline(&mut self, peers: &mut Peers, taken: u64) {
        while let Some(short) = self.inline_sends.pop() {
            let InlineSend { peer: to, header_len, payload_len, slot } = short;
            if taken >> self.inline_sends.len() & 1 == 1 {
                self.slots.put(slot);
                continue;
            }
            let Some(peer) = peers.at(to) else {
                self.slots.put(slot);
                continue;
            };
            let message = self.message(slot, header_len, payload_len);
            peer.lane.pending.push_front(&mut self.messages, message);
            self.wake(&mut peer.lane, to);
        }
    }

    /// Removes the short message to a peer whose payload begins with these bytes.
    #[cold]
    pub fn take_back_inline(&mut self, peer: u32, bytes: &[u8]) -> bool {
        let is_it =
            |it: &mut InlineSend| it.peer == peer && it.slot.payload_mut().starts_with(bytes);
        let Some(at) = self.inline_sends.iter_mut().position(is_it) else { return false };
        let message = self.inline_sends.remove(at);
        self.slots.put(message.slot);
        true
    }

    /// Discards the short messages to a peer.
    #[cold]
    pub fn discard_inline(&mut self, peer: u32) {
        let mut at = 0;
        while let Some(it) = self.inline_sends.get(at) {
            if it.peer == peer {
                let InlineSend { slot, .. } = self.inline_sends.remove(at);
                self.slots.put(slot);
            } else {
                at += 1;
            }
        }
    }
}
