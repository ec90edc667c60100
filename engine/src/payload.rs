//! The payload of a message under construction: XDR written straight into registered memory.

use rpcrdma_mempool::SendSlot;
use rpcrdma_proto::{BulkItem, LonePlan};

use crate::error::CallRefused;
use crate::shard::message::{Bulk, Item};
use crate::shard::outbox::Outbox;
use crate::shard::peers::Peer;
use crate::shard::turn::REPLY;

/// Writes one RPC message and says which of its data leave from where they are.
///
/// The transaction id and the message type are written by the engine; writing begins behind them.
/// Positions count from the start of the RPC message and include the data given to
/// [`Payload::place`]: they are those of the unreduced XDR stream.
///
/// An error sticks: what follows is not written, and sending the message returns it.
///
/// Cost: a bounds check and a store for each word.
pub struct Payload<'a> {
    outbox: &'a mut Outbox,
    /// The slot written to, until the message is handed on.
    slot: Option<SendSlot>,
    /// Bytes written to it.
    at: usize,
    /// Bytes in the slots before.
    before: usize,
    /// Bytes of bulk, with their padding.
    bulk_len: u32,
    /// In a reply: where in the call the operation began that produced what follows.
    origin: u32,
    is_reply: bool,
    /// The message that holds the slots before and the bulk, if there are any.
    message: Option<u32>,
    refused: Option<CallRefused>,
}

impl<'a> Payload<'a> {
    /// Begins a message in a slot, with the two words that the engine writes.
    #[inline]
    pub(crate) fn begin(
        outbox: &'a mut Outbox,
        mut slot: SendSlot,
        xid: u32,
        kind: u32,
    ) -> Payload<'a> {
        let words = u64::from(xid) << 32 | u64::from(kind);
        slot.payload_mut()[..8].copy_from_slice(&words.to_be_bytes());
        Payload {
            outbox,
            slot: Some(slot),
            at: 8,
            before: 0,
            bulk_len: 0,
            origin: 0,
            is_reply: kind == REPLY,
            message: None,
            refused: None,
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
            && self.refused.is_none()
        {
            room.copy_from_slice(bytes);
            self.at = end;
            return;
        }
        self.put_across(bytes);
    }

    /// Writes the count of variable-length opaque data whose bytes leave from where they are.
    ///
    /// The data go to a placement segment of the peer where it wants that, and follow in line
    /// where not. The memory is given back when the message has left.
    pub fn place(&mut self, bulk: impl Into<Bulk>) {
        self.place_pieces([bulk.into()]);
    }

    /// As [`Payload::place`], for one data item that lies in several pieces.
    pub fn place_pieces(&mut self, pieces: impl IntoIterator<Item = Bulk>) {
        let Some(message) = self.message() else { return };
        let body = self.outbox.messages.body_mut(message);
        let first = body.pieces.len();
        let mut len = 0_usize;
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            len += piece.len();
            if body.pieces.try_push(piece).is_err() {
                self.refused = Some(CallRefused::TooManyPieces);
                return;
            }
        }
        let pieces = (body.pieces.len() - first) as u32;
        let Ok(len) = u32::try_from(len) else {
            self.refused = Some(CallRefused::PayloadTooLong);
            return;
        };
        self.put_u32(len);
        // wire.md E16: an item without bytes is never taken out of the stream; in a reply it uses up
        // the memory that was offered for it.
        if len == 0 && !self.is_reply {
            return;
        }
        let padded = len.checked_next_multiple_of(4);
        let Some(bulk_len) = padded.and_then(|len| self.bulk_len.checked_add(len)) else {
            self.refused = Some(CallRefused::PayloadTooLong);
            return;
        };
        let item = BulkItem { position: self.position(), len, origin: self.origin, pieces };
        let body = self.outbox.messages.body_mut(message);
        if body.items.try_push(Item { item, first: first as u8 }).is_err() {
            self.refused = Some(CallRefused::TooManyPieces);
            return;
        }
        self.bulk_len = bulk_len;
    }

    /// The position in the unreduced XDR stream: what follows is written there.
    pub fn position(&self) -> u32 {
        self.written() + self.bulk_len
    }

    /// What is placed from now on is a result of the operation that began there in the call.
    pub(crate) fn set_origin(&mut self, origin: u32) {
        self.origin = origin;
    }

    /// Bytes written, placed data not counted.
    pub(crate) fn written(&self) -> u32 {
        (self.before + self.at) as u32
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.outbox
    }

    /// The outbox and the slot, if the message is one slot of payload and nothing else.
    #[inline]
    pub(crate) fn plain(&mut self) -> Option<&mut Outbox> {
        (self.message.is_none() && self.refused.is_none()).then_some(&mut *self.outbox)
    }

    /// Sends the message, which is a plain one.
    #[inline]
    pub(crate) fn send_plain<const N: usize>(&mut self, peer: &mut Peer, header: &[u8; N]) {
        let Some(slot) = self.slot.take() else { return };
        let len = self.written();
        self.outbox.send_plain(&mut peer.lane, peer.id.index, slot, header, len);
    }

    /// The outbox and the item, if the message is one slot of payload and one item.
    #[inline]
    pub(crate) fn lone(&mut self) -> Option<(&mut Outbox, BulkItem)> {
        let message = self.message.filter(|_| self.refused.is_none() && self.slot.is_some())?;
        let item = self.outbox.lone_item(message)?.item;
        Some((&mut *self.outbox, item))
    }

    /// Sends the message, which has a lone item.
    #[inline]
    pub(crate) fn send_lone(&mut self, peer: &mut Peer, plan: &LonePlan) {
        let len = self.written();
        if let Some((message, slot)) = self.message.take().zip(self.slot.take()) {
            self.outbox.send_lone(peer, (message, slot, len), plan);
        }
    }

    /// Gathers everything that was written in one message, to be laid out.
    #[cold]
    pub(crate) fn assemble(&mut self) -> Result<u32, CallRefused> {
        let message = self.message();
        if let Some(why) = self.refused {
            return Err(why);
        }
        let message = message.ok_or(CallRefused::Busy)?;
        if let Some(slot) = self.slot.take() {
            // The writer never fills the list without asking for another slot.
            let slots = &mut self.outbox.messages.body_mut(message).slots;
            if let Err(full) = slots.try_push(slot) {
                self.outbox.send.put(full.element());
                return Err(CallRefused::PayloadTooLong);
            }
        }
        Ok(message)
    }

    /// Takes a message back that could not be laid out: nothing more can be written.
    #[cold]
    pub(crate) fn give_up(&mut self, why: CallRefused) -> CallRefused {
        self.refused = Some(why);
        why
    }

    /// Gives back everything that was written, and the slots that it was written to.
    pub(crate) fn abandon(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.outbox.send.put(slot);
        }
        if let Some(message) = self.message.take() {
            self.outbox.release(message);
        }
    }

    /// Lets go of an assembled message: it is on its way.
    #[cold]
    pub(crate) fn submitted(&mut self) {
        self.message = None;
    }

    /// The message that holds what is more than one slot.
    fn message(&mut self) -> Option<u32> {
        if self.message.is_none() {
            self.message = self.outbox.messages.begin();
        }
        if self.message.is_none() {
            self.refused = Some(CallRefused::Busy);
        }
        self.message
    }

    /// Writes what does not fit the slot, or is not a multiple of four.
    #[cold]
    fn put_across(&mut self, bytes: &[u8]) {
        self.put_raw(bytes);
        self.put_raw(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    fn put_raw(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.refused.is_none() {
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

    /// Goes on in another slot.
    fn next_slot(&mut self) {
        let Some(message) = self.message() else { return };
        let slots = &mut self.outbox.messages.body_mut(message).slots;
        if slots.remaining_capacity() < 2 {
            self.refused = Some(CallRefused::PayloadTooLong);
            return;
        }
        let taken = slots.len() + 1;
        let Some(next) = self.outbox.send.take() else {
            // With every slot that there is in its hands it waits for nobody.
            let has_all = taken == self.outbox.send.capacity();
            let why = if has_all { CallRefused::PayloadTooLong } else { CallRefused::Busy };
            self.refused = Some(why);
            return;
        };
        let slots = &mut self.outbox.messages.body_mut(message).slots;
        slots.extend(self.slot.replace(next));
        self.before += self.at;
        self.at = 0;
    }
}

impl Drop for Payload<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.slot.is_some() || self.message.is_some() {
            self.abandon();
        }
    }
}
