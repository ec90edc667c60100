//! The payload of a message under construction: XDR written directly into registered memory.

use std::sync::Arc;

use rpcrdma_mempool::{HEADROOM, SendSlot};
use rpcrdma_proto::{BulkItem, ShortSend};
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};

use crate::api::ticket::Dropped;
use crate::error::CallRefused;
use crate::message::bulk::Bulk;
use crate::message::draft::Draft;
use crate::shard::parts::Parts;
use crate::shard::peers::Peer;
use crate::shard::send::messages::Item;

/// Writes one RPC message and marks the data to send in place.
///
/// The transaction id and the message type are written by the engine; writing begins behind them.
/// Positions count from the start of the RPC message and include the data given to
/// [`Payload::place`]: they are those of the unreduced XDR stream.
///
/// Errors are sticky: later data is not written, and sending the message returns the error.
///
/// Cost: a bounds check and a store for each word.
pub struct Payload<'a> {
    parts: &'a mut Parts,
    /// The current slot, until the message is passed on.
    slot: Option<SendSlot>,
    /// The write position in the slot; its end if nothing more can be written.
    at: usize,
}

impl<'a> Payload<'a> {
    /// Begins a message in a slot, with the two words that the engine writes.
    #[inline(always)]
    pub(crate) fn begin(
        parts: &'a mut Parts,
        mut slot: SendSlot,
        xid: u32,
        kind: MsgType,
    ) -> Payload<'a> {
        let prefix = RpcPrefix { xid, kind };
        slot.payload_mut()[..RpcPrefix::LEN].copy_from_slice(&prefix.bytes());
        if parts.outbox.draft().is_begun {
            Payload::forget(parts);
        }
        let draft = parts.outbox.draft_mut();
        (draft.is_reply, draft.origin) = (kind == MsgType::Reply, 0);
        Payload { parts, slot: Some(slot), at: RpcPrefix::LEN }
    }

    /// Cleans up after an abandoned builder.
    #[cold]
    fn forget(parts: &mut Parts) {
        if let Some(message) = core::mem::take(parts.outbox.draft_mut()).message {
            parts.release(message);
        }
    }

    /// Writes an unsigned integer.
    #[inline]
    pub fn put_u32(&mut self, value: u32) {
        self.put_fixed(&value.to_be_bytes());
    }

    /// Writes an unsigned hyper integer.
    #[inline]
    pub fn put_u64(&mut self, value: u64) {
        self.put_fixed(&value.to_be_bytes());
    }

    /// Writes a boolean.
    #[inline]
    pub fn put_bool(&mut self, value: bool) {
        self.put_u32(value.into());
    }

    /// Writes variable-length opaque data or a string: count, bytes, padding.
    pub fn put_opaque(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.put_fixed(bytes);
    }

    /// Writes fixed-length opaque data: bytes, padding.
    #[inline]
    pub fn put_fixed(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if bytes.len().is_multiple_of(4)
            && let Some(slot) = &mut self.slot
            && let Some(room) = slot.payload_mut().get_mut(self.at..end)
        {
            room.copy_from_slice(bytes);
            self.at = end;
            return;
        }
        self.put_across(bytes);
    }

    /// Writes the count of variable-length opaque data, and sends the bytes from their place.
    ///
    /// The data go to a placement segment of the peer if it requests that, and follow in line
    /// otherwise. The memory is returned when the message has left.
    pub fn place(&mut self, bulk: impl Into<Bulk>) {
        self.place_pieces([bulk.into()]);
    }

    /// As [`Payload::place`], for one data item in several pieces.
    pub fn place_pieces(&mut self, pieces: impl IntoIterator<Item = Bulk>) {
        let Some(message) = self.message() else { return };
        let body = self.parts.outbox.messages_mut().body_mut(message);
        let first = body.pieces.len();
        let mut len = 0_usize;
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            len += piece.len();
            if body.pieces.try_push(piece).is_err() {
                self.refuse(CallRefused::TooManyPieces);
                return;
            }
        }
        let pieces = (body.pieces.len() - first) as u32;
        let Ok(len) = u32::try_from(len) else {
            self.refuse(CallRefused::PayloadTooLong);
            return;
        };
        self.put_u32(len);
        let &Draft { is_reply, origin, bulk_len, .. } = self.parts.outbox.draft();
        // wire.md E16: an item without bytes stays in the stream; in a reply it uses up the memory
        // that was offered for it.
        if len == 0 && !is_reply {
            return;
        }
        let padded = len.checked_next_multiple_of(4);
        let Some(bulk_len) = padded.and_then(|len| bulk_len.checked_add(len)) else {
            self.refuse(CallRefused::PayloadTooLong);
            return;
        };
        let item = BulkItem { position: self.position(), len, origin, pieces };
        let body = self.parts.outbox.messages_mut().body_mut(message);
        if body.items.try_push(Item { item, first: first as u8 }).is_err() {
            self.refuse(CallRefused::TooManyPieces);
            return;
        }
        self.parts.outbox.draft_mut().bulk_len = bulk_len;
    }

    /// The current position in the unreduced XDR stream.
    pub fn position(&self) -> u32 {
        self.written() + self.parts.outbox.draft().bulk_len
    }

    /// Replaces the xid at the beginning of the message.
    #[cold]
    pub(crate) fn set_xid(&mut self, xid: u32) {
        let message = self.parts.outbox.draft().message;
        let messages = self.parts.outbox.messages_mut();
        let before = message.and_then(|index| messages.body_mut(index).slots.first_mut());
        if let Some(slot) = before.or(self.slot.as_mut()) {
            slot.payload_mut()[..4].copy_from_slice(&xid.to_be_bytes());
        }
    }

    /// Items placed from now on are results of the operation that began there in the call.
    pub(crate) fn set_origin(&mut self, origin: u32) {
        self.parts.outbox.draft_mut().origin = origin;
    }

    /// Bytes written, without placed data.
    pub(crate) fn written(&self) -> u32 {
        (self.parts.outbox.draft().before + self.at) as u32
    }

    #[inline]
    pub(crate) fn parts(&mut self) -> &mut Parts {
        self.parts
    }

    /// Where a ticket for the answer records that it was dropped.
    pub(crate) fn dropped_tickets(&self) -> &Arc<Dropped> {
        self.parts.handle.dropped()
    }

    /// Whether the message is one slot of payload and has nothing else.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.parts.outbox.draft().is_begun
    }

    /// The item, if the message is one slot of payload and one item.
    #[inline]
    pub(crate) fn single_item(&self) -> Option<BulkItem> {
        let &Draft { message, refused, .. } = self.parts.outbox.draft();
        let message = message.filter(|_| refused.is_none() && self.slot.is_some())?;
        Some(self.parts.outbox.single_item(message)?.item)
    }

    /// Sends the message as a short one: plain, or with a single item. False, without changes, if
    /// it must take the general path. After true nothing remains to be returned.
    #[inline(always)]
    pub(crate) fn send_short(&mut self, peer: &mut Peer, short: ShortSend<'_>) -> bool {
        let (Parts { outbox, ledger, stats, .. }, len) = (&mut *self.parts, self.at as u32);
        let means = outbox.gather_means();
        let plan = peer.conn.begin_short(ledger, len, short, means);
        let Some(plan) = plan else { return false };
        match short {
            ShortSend::Call { .. } => stats.calls_out.add(1),
            ShortSend::Reply { .. } => stats.replies_out.add(1),
        }
        let slot = self.slot.take().expect("a message has its slot until it is handed on");
        if !plan.has_item() {
            outbox.send_plain(&mut peer.lane, peer.id.index, slot, plan.header(), len);
        } else if let Some(message) = core::mem::take(outbox.draft_mut()).message {
            outbox.send_single_item(peer, (message, slot, len), &plan);
        }
        true
    }

    /// Sends the message with its single item in several placement segments. False, without
    /// changes, if it must take the general path. After true nothing remains to be returned.
    #[inline(never)]
    pub(crate) fn send_continued(&mut self, peer: &mut Peer, short: ShortSend<'_>) -> bool {
        let (Parts { outbox, ledger, stats, .. }, len) = (&mut *self.parts, self.at as u32);
        let means = (outbox.gather_means(), HEADROOM as u32);
        let Some(plan) = peer.conn.begin_continued(ledger, len, short, means) else { return false };
        match short {
            ShortSend::Call { .. } => stats.calls_out.add(1),
            ShortSend::Reply { .. } => stats.replies_out.add(1),
        }
        let slot = self.slot.take().expect("a message has its slot until it is handed on");
        if let Some(message) = core::mem::take(outbox.draft_mut()).message {
            outbox.send_continued(peer, (message, slot, len), &plan);
        }
        true
    }

    /// Collects all written parts in one message, to be laid out.
    #[cold]
    pub(crate) fn assemble(&mut self) -> Result<u32, CallRefused> {
        let message = self.message();
        if let Some(why) = self.parts.outbox.draft().refused {
            return Err(why);
        }
        let message = message.ok_or(CallRefused::Busy)?;
        if let Some(slot) = self.slot.take() {
            // The writer never fills the list without asking for another slot.
            let slots = &mut self.parts.outbox.messages_mut().body_mut(message).slots;
            if let Err(full) = slots.try_push(slot) {
                self.parts.outbox.put_slot(full.element());
                return Err(CallRefused::PayloadTooLong);
            }
        }
        Ok(message)
    }

    /// Takes back a message that could not be laid out: nothing more can be written.
    #[cold]
    pub(crate) fn give_up(&mut self, why: CallRefused) -> CallRefused {
        self.refuse(why);
        why
    }

    /// Returns all placed memory, and the slots of the message.
    pub(crate) fn abandon(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.parts.outbox.put_slot(slot);
        }
        Payload::forget(self.parts);
    }

    /// Releases an assembled message: it is on its way.
    #[cold]
    pub(crate) fn submitted(&mut self) {
        *self.parts.outbox.draft_mut() = Draft::default();
    }

    /// Ends writing: sending returns the reason.
    #[cold]
    fn refuse(&mut self, why: CallRefused) {
        self.parts.outbox.draft_mut().refused = Some(why);
        self.parts.outbox.draft_mut().is_begun = true;
        self.at = self.slot.as_ref().map_or(self.at, SendSlot::payload_len);
    }

    /// The message that holds everything beyond one slot.
    fn message(&mut self) -> Option<u32> {
        if self.parts.outbox.draft().message.is_none() {
            let message = self.parts.outbox.messages_mut().begin();
            self.parts.outbox.draft_mut().message = message;
            self.parts.outbox.draft_mut().is_begun = true;
        }
        if self.parts.outbox.draft().message.is_none() {
            self.refuse(CallRefused::Busy);
        }
        self.parts.outbox.draft().message
    }

    /// Writes data that does not fit the slot, or is not a multiple of four.
    #[cold]
    fn put_across(&mut self, bytes: &[u8]) {
        self.put_raw(bytes);
        self.put_raw(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    fn put_raw(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.parts.outbox.draft().refused.is_none() {
            let Some(slot) = &mut self.slot else { return };
            let room = &mut slot.payload_mut()[self.at..];
            let part = bytes.len().min(room.len());
            let (now, later) = bytes.split_at(part);
            room[..part].copy_from_slice(now);
            self.at += part;
            bytes = later;
            if !bytes.is_empty() {
                self.next_slot();
            }
        }
    }

    /// Continues in another slot.
    fn next_slot(&mut self) {
        let Some(message) = self.message() else { return };
        let slots = &mut self.parts.outbox.messages_mut().body_mut(message).slots;
        if slots.remaining_capacity() < 2 {
            self.refuse(CallRefused::PayloadTooLong);
            return;
        }
        let taken = slots.len() + 1;
        let Some(next) = self.parts.outbox.take_slot() else {
            // A message that holds every slot cannot wait for more.
            let has_all = taken == self.parts.outbox.slots().capacity();
            let why = if has_all { CallRefused::PayloadTooLong } else { CallRefused::Busy };
            self.refuse(why);
            return;
        };
        let slots = &mut self.parts.outbox.messages_mut().body_mut(message).slots;
        slots.extend(self.slot.replace(next));
        self.parts.outbox.draft_mut().before += self.at;
        self.at = 0;
    }
}

impl Drop for Payload<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.slot.is_some() || self.parts.outbox.draft().is_begun {
            self.abandon();
        }
    }
}
