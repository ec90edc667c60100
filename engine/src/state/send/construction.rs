//! Construction of a message in one slot. A message of the slab has the rest of a longer one.
//!
//! ```text
//!   begin ─▶ put, place, want ─┬─ plain, single item ─▶ posted or pending
//!                │             └─ assemble ─▶ laid out ─▶ submitted
//!                └─ abandon ─▶ slots and memory return
//! ```

use arrayvec::ArrayVec;
use rpcrdma_mempool::{HEADROOM, SendSlot};
use rpcrdma_proto::{BulkItem, ShardLedger, ShortSend};
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};

use super::outbox::Outbox;
use crate::error::CallRefused;
use crate::message::bulk::Bulk;
use crate::message::draft::Draft;
use crate::message::owned_call::OwnedCall;
use crate::message::wanted::{OPEN, WANTS_MAX, Wanted};
use crate::state::lane::messages::GatherItem;
use crate::state::peers::Peer;

impl Outbox {
    /// Begins a message in its slot, with the two words that the engine writes.
    #[inline(always)]
    pub fn begin(&mut self, prefix: RpcPrefix) {
        if self.draft.is_begun {
            // The program has forgotten a builder (`core::mem::forget`).
            self.abandon();
        }
        if let Some(slot) = self.batch.slot_mut() {
            slot.begin();
            let has_room = slot.append(&prefix.bytes());
            debug_assert!(has_room, "a slot has room for two words");
        }
        let draft = &mut self.draft;
        (draft.is_reply, draft.origin) = (prefix.kind == MsgType::Reply, 0);
    }

    /// Writes fixed-length opaque data: bytes, padding.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) {
        if bytes.len().is_multiple_of(4)
            && let Some(slot) = self.batch.slot_mut()
            && slot.append(bytes)
        {
            return;
        }
        self.put_across(bytes);
    }

    /// Writes the count of one data item, and keeps its pieces to be sent from their place.
    pub fn place(&mut self, pieces: impl IntoIterator<Item = Bulk>) {
        let Some(message) = self.drafted() else { return };
        let body = self.messages.body_mut(message);
        let first = body.pieces.len();
        let mut len = 0_usize;
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            len += piece.len();
            if body.pieces.try_push(piece).is_err() {
                return self.refuse(CallRefused::TooManyPieces);
            }
        }
        let pieces = (body.pieces.len() - first) as u32;
        self.place_item(message, first, pieces, len);
    }

    /// As [`Outbox::place`], for one piece.
    pub fn place_one(&mut self, piece: Bulk) {
        if piece.is_empty() {
            return self.place([]);
        }
        let Some(message) = self.drafted() else { return };
        let body = self.messages.body_mut(message);
        let (first, len) = (body.pieces.len(), piece.len());
        if body.pieces.try_push(piece).is_err() {
            return self.refuse(CallRefused::TooManyPieces);
        }
        self.place_item(message, first, 1, len);
    }

    /// Writes the count of a data item, whose pieces are kept.
    #[inline]
    fn place_item(&mut self, message: u32, first: usize, pieces: u32, len: usize) {
        let Ok(len) = u32::try_from(len) else { return self.refuse(CallRefused::PayloadTooLong) };
        self.put(&len.to_be_bytes());
        let Draft { is_reply, origin, bulk_len, .. } = self.draft;
        // wire.md E16: an item without bytes stays in the stream; in a reply it uses up the memory
        // that was offered for it.
        if len == 0 && !is_reply {
            return;
        }
        let padded = len.checked_next_multiple_of(4);
        let Some(bulk_len) = padded.and_then(|len| bulk_len.checked_add(len)) else {
            return self.refuse(CallRefused::PayloadTooLong);
        };
        let item = BulkItem { position: self.position(), len, origin, pieces };
        let body = self.messages.body_mut(message);
        if body.items.try_push(GatherItem { item, first: first as u8 }).is_err() {
            return self.refuse(CallRefused::TooManyPieces);
        }
        self.draft.bulk_len = bulk_len;
    }

    /// Requests a result of the call.
    ///
    /// # Panics
    /// If there are [`WANTS_MAX`] already.
    #[inline(always)]
    pub fn want(&mut self, wanted: Wanted) {
        assert!(self.wants.len() < WANTS_MAX, "a call has at most {WANTS_MAX} wants");
        self.draft.is_begun = true;
        self.wants.push(wanted);
    }

    /// Ends the operation that is being written. Returns where the next begins.
    pub fn end_operation(&mut self) -> u32 {
        let begin = self.position();
        for wanted in self.wants.iter_mut().filter(|wanted| wanted.end == OPEN) {
            wanted.end = begin;
        }
        begin
    }

    /// The current position in the unreduced XDR stream.
    pub fn position(&self) -> u32 {
        self.written() + self.draft.bulk_len
    }

    /// Bytes written, without placed data.
    #[inline]
    pub fn written(&self) -> u32 {
        self.draft.before + self.batch.slot().map_or(0, SendSlot::appended)
    }

    /// Replaces the xid at the beginning of the message.
    #[cold]
    pub fn set_xid(&mut self, xid: u32) {
        let Outbox { draft: Draft { message, .. }, messages, batch, .. } = self;
        let before = message.and_then(|index| messages.body_mut(index).slots.first_mut());
        if let Some(slot) = before.or(batch.slot_mut()) {
            slot.payload_mut()[..4].copy_from_slice(&xid.to_be_bytes());
        }
    }

    /// Items placed from now on are results of the operation that began there in the call.
    pub fn set_origin(&mut self, origin: u32) {
        self.draft.origin = origin;
    }

    /// Whether the message is one slot of payload and has nothing else.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.draft.is_begun
    }

    /// The item, if the message is one slot of payload and one item.
    #[inline]
    pub fn single_item(&self) -> Option<BulkItem> {
        let Draft { message, refused, .. } = &self.draft;
        let is_whole = refused.is_none() && self.batch.slot().is_some();
        let body = self.messages.body(message.filter(|_| is_whole)?);
        match &body.items[..] {
            [item] if body.slots.is_empty() => Some(item.item),
            _ => None,
        }
    }

    /// Whether the message is one slot of payload, and requests results.
    #[inline]
    pub fn has_only_wants(&self) -> bool {
        let Draft { message, refused, .. } = &self.draft;
        message.is_none() && refused.is_none() && self.batch.slot().is_some()
    }

    /// A call was sent: its requests are the protocol's from now on.
    #[inline]
    pub fn end_wants(&mut self) {
        self.wants.clear();
        self.draft.is_begun = false;
    }

    /// Whether there is anything to abandon. The slot of a plain message stays for the next.
    #[inline(always)]
    pub fn has_draft(&self) -> bool {
        self.draft.is_begun
    }

    /// Discards the message: all placed memory, and the slots before the current one, return to
    /// their pools.
    #[cold]
    pub fn abandon(&mut self) {
        self.wants.clear();
        let Draft { message, .. } = core::mem::take(&mut self.draft);
        if let Some(message) = message {
            self.empty(message);
            self.free(message);
        }
    }

    /// Sends the message as a short one: plain, or with a single item. False, without changes, if
    /// it must take the general way. After true nothing remains to be returned; the caller counts
    /// the message.
    #[inline(always)]
    pub fn send_short(
        &mut self,
        peer: &mut Peer,
        ledger: &mut ShardLedger,
        short: ShortSend<'_>,
    ) -> bool {
        let Some(len) = self.batch.slot().map(SendSlot::appended) else { return false };
        let means = self.gather_means();
        let Some(plan) = peer.conn.begin_short(ledger, len, short, means) else { return false };
        if !plan.has_item() {
            self.send_plain(&mut peer.lane, peer.id.index, plan.header(), len);
        } else if let Some(message) = core::mem::take(&mut self.draft).message {
            self.send_single_item(peer, message, len, &plan);
        }
        true
    }

    /// Sends the message with its single item in several placement segments. False, without
    /// changes, if it must take the general way. After true nothing remains to be returned.
    #[inline(never)]
    pub fn send_continued(
        &mut self,
        peer: &mut Peer,
        ledger: &mut ShardLedger,
        short: ShortSend<'_>,
    ) -> bool {
        let Some(len) = self.batch.slot().map(SendSlot::appended) else { return false };
        let (means, headroom) = (self.gather_means(), HEADROOM as u32);
        let Some(plan) = peer.conn.begin_continued(ledger, len, short, means, headroom) else {
            return false;
        };
        let slot = self.batch.take().expect("its length was just read");
        if let Some(message) = core::mem::take(&mut self.draft).message {
            self.enqueue_continued(peer, message, slot, len, &plan);
        }
        true
    }

    /// Collects all written parts in one message, to be laid out.
    #[cold]
    pub fn assemble(&mut self) -> Result<u32, CallRefused> {
        let message = self.drafted();
        if let Some(why) = self.draft.refused {
            return Err(why);
        }
        let message = message.ok_or(CallRefused::Busy)?;
        if let Some(slot) = self.batch.take() {
            self.draft.before += slot.appended();
            // The writer never fills the list without asking for another slot.
            let slots = &mut self.messages.body_mut(message).slots;
            if let Err(full) = slots.try_push(slot) {
                self.slots.put(full.element());
                return Err(CallRefused::PayloadTooLong);
            }
        }
        Ok(message)
    }

    /// Releases an assembled message: it is on its way.
    #[cold]
    pub fn submitted(&mut self) {
        self.draft = Draft::default();
    }

    /// Takes the call out of the slots that it was written into. False beside it if not all of it
    /// was written: it did not fit.
    #[cold]
    pub fn take_back_call(&mut self, reply_payload_max: u32) -> (OwnedCall, bool) {
        let Outbox { draft, messages, wants, batch, .. } = self;
        let is_whole = draft.refused.is_none();
        let mut body = draft.message.map(|message| messages.body_mut(message));
        let pieces = match &mut body {
            Some(body) => body.pieces.take(),
            None => ArrayVec::new(),
        };
        let (slots, items) = body.map_or((&[][..], &[][..]), |body| (&body.slots, &body.items));
        let written = slots.iter().chain(batch.slot()).map(SendSlot::written);
        let items =
            items.iter().map(|GatherItem { item, .. }| (item.position, item.pieces as usize));
        let wants = wants.drain(..);
        let call = OwnedCall::of_draft(written, items, pieces, wants, reply_payload_max);
        (call, is_whole)
    }

    /// Ends writing: sending returns the reason.
    #[cold]
    pub fn refuse(&mut self, why: CallRefused) {
        self.draft.refused = Some(why);
        self.draft.is_begun = true;
        if let Some(slot) = self.batch.slot_mut() {
            slot.close();
        }
    }

    /// The message that holds everything beyond one slot.
    #[inline]
    fn drafted(&mut self) -> Option<u32> {
        if self.draft.message.is_none() {
            self.draft.message = self.messages.begin();
            self.draft.is_begun = true;
        }
        if self.draft.message.is_none() {
            self.refuse(CallRefused::Busy);
        }
        self.draft.message
    }

    /// Writes data that does not fit the slot, or is not a multiple of four.
    #[cold]
    fn put_across(&mut self, bytes: &[u8]) {
        self.put_raw(bytes);
        self.put_raw(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }

    fn put_raw(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.draft.refused.is_none() {
            let Some(slot) = self.batch.slot_mut() else { return };
            let (now, later) = bytes.split_at(bytes.len().min(slot.room()));
            let has_room = slot.append(now);
            debug_assert!(has_room, "no more than there is room for");
            bytes = later;
            if !bytes.is_empty() {
                self.next_slot();
            }
        }
    }

    /// Continues in another slot.
    fn next_slot(&mut self) {
        let Some(message) = self.drafted() else { return };
        let slots = &self.messages.body(message).slots;
        if slots.remaining_capacity() < 2 {
            return self.refuse(CallRefused::PayloadTooLong);
        }
        let held = slots.len() + 1;
        let Some(next) = self.take_next_slot() else {
            // A message that holds every slot cannot wait for more.
            let has_all = held == self.slots.capacity();
            let why = if has_all { CallRefused::PayloadTooLong } else { CallRefused::Busy };
            return self.refuse(why);
        };
        let full = self.batch.replace(next);
        self.draft.before += full.as_ref().map_or(0, SendSlot::appended);
        self.messages.body_mut(message).slots.extend(full);
    }
}
