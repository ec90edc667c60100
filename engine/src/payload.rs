//! The payload of a message under construction: XDR written straight into registered memory.

use crate::error::CallRefused;
use crate::shard::message::{Bulk, Item, NONE};
use crate::shard::outbox::Outbox;
use rpcrdma_proto::BulkItem;

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
    index: u32,
    /// The slot written to.
    slot: usize,
    /// Bytes written to it.
    at: usize,
    /// Bytes in the slots before.
    before: usize,
    /// Bytes of bulk, with their padding.
    bulk_len: u32,
    refused: Option<CallRefused>,
}

impl<'a> Payload<'a> {
    /// Begins a message with the two words that the engine writes.
    #[inline]
    pub(crate) fn begin(outbox: &'a mut Outbox, index: u32, xid: u32, kind: u32) -> Payload<'a> {
        let mut payload =
            Payload { outbox, index, slot: 0, at: 0, before: 0, bulk_len: 0, refused: None };
        let mut words = [0; 8];
        words[..4].copy_from_slice(&xid.to_be_bytes());
        words[4..].copy_from_slice(&kind.to_be_bytes());
        payload.put_fixed(&words);
        payload
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
        if bytes.len().is_multiple_of(4)
            && self.refused.is_none()
            && let Some(area) = self.outbox.payload_mut(self.index, self.slot)
            && let Some(room) = area.get_mut(self.at..self.at + bytes.len())
        {
            room.copy_from_slice(bytes);
            self.at += bytes.len();
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
        let body = self.outbox.messages.body_mut(self.index);
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
        // wire.md E16: an item without bytes is never taken out of the stream.
        if len == 0 {
            return;
        }
        let item = BulkItem { position: self.position(), len, origin: 0, pieces };
        let body = self.outbox.messages.body_mut(self.index);
        if body.items.try_push(Item { item, first: first as u8 }).is_err() {
            self.refused = Some(CallRefused::TooManyPieces);
            return;
        }
        self.bulk_len += len.next_multiple_of(4);
    }

    /// The position in the unreduced XDR stream: what follows is written there.
    pub fn position(&self) -> u32 {
        self.written() + self.bulk_len
    }

    /// Bytes written, placed data not counted.
    pub(crate) fn written(&self) -> u32 {
        (self.before + self.at) as u32
    }

    pub(crate) fn refused(&self) -> Option<CallRefused> {
        self.refused
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.outbox
    }

    /// Whether the message is one slot of payload and nothing else.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.slot == 0 && self.bulk_len == 0
    }

    /// Lets go of the message: it is enqueued, and no longer this value's to give back.
    #[inline]
    pub(crate) fn submitted(&mut self) {
        self.index = NONE;
    }

    /// Writes what does not fit the slot, or is not a multiple of four.
    #[cold]
    fn put_across(&mut self, bytes: &[u8]) {
        self.put_raw(bytes);
        self.put_raw(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    fn put_raw(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.refused.is_none() {
            let Some(area) = self.outbox.payload_mut(self.index, self.slot) else { return };
            let part = bytes.len().min(area.len() - self.at);
            let (now, later) = bytes.split_at(part);
            area[self.at..self.at + part].copy_from_slice(now);
            self.at += part;
            bytes = later;
            if self.at == area.len() && !bytes.is_empty() {
                self.before += self.at;
                self.at = 0;
                self.slot += 1;
                if !self.outbox.extend(self.index) {
                    self.refused = Some(CallRefused::PayloadTooLong);
                }
            }
        }
    }
}

impl Drop for Payload<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.index != NONE {
            self.outbox.release(self.index);
        }
    }
}
