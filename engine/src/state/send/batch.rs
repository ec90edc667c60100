//! The batch of a turn: messages that are posted before those in the lanes, each in a place that
//! has its slot.
//!
//! ```text
//!   draft ──push──▶ │◀─── messages ───▶│ more places, with a slot or without │
//!         ◀─────────────── slot ─────────┘ of the next place
//! ```
//! A program writes into the slot of the draft. A message takes the next place, and the slot that
//! was there is that of the next draft. A short message is copied while it is posted: then its
//! place is free and keeps the slot. The slot of any other leaves, and comes from the pool again
//! when a draft has none.

use rpcrdma_mempool::{SendSlot, Sge};

/// The messages that are posted before those in the lanes, and the slot of the draft.
pub(crate) struct Batch {
    /// The slot that a program writes to.
    draft: Option<SendSlot>,
    /// Messages.
    len: u32,
    /// Slots of the draft and of all places: one for each message, and free ones.
    slots: u32,
    places: [InlineSend; PLACES],
}

/// A message with no messages of its lane before it: short enough to be copied while posting, so
/// that its slot is free as soon as it is posted; or with an item that leaves from its place.
pub(crate) struct InlineSend {
    pub peer: u32,
    pub with: With,
    /// The gather entry: bytes of the slot.
    pub sge: Sge,
    /// Has its bytes.
    slot: Option<SendSlot>,
}

/// What a message of the batch has beside its gather entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum With {
    /// It is plain.
    Nothing,
    /// It is a plain reply that invalidates this key of the peer.
    Invalidate(u32),
    /// The message of the slab that has the item and the whole gather list.
    Item(u32),
}

impl With {
    /// The message of the item, if there is one.
    #[inline]
    pub fn item(self) -> Option<u32> {
        match self {
            With::Item(message) => Some(message),
            With::Nothing | With::Invalidate(_) => None,
        }
    }
}

impl InlineSend {
    const EMPTY: InlineSend = InlineSend {
        peer: 0,
        with: With::Nothing,
        sge: Sge { addr: 0, length: 0, lkey: 0 },
        slot: None,
    };
}

impl Batch {
    pub fn new() -> Batch {
        Batch { draft: None, len: 0, slots: 0, places: [InlineSend::EMPTY; PLACES] }
    }

    /// Gives the draft a slot. It must have none.
    #[inline]
    pub fn put(&mut self, slot: SendSlot) {
        debug_assert!(self.draft.is_none(), "its slot would be lost");
        self.draft = Some(slot);
        self.slots += 1;
    }

    /// Takes the slot of the draft.
    #[inline]
    pub fn take(&mut self) -> Option<SendSlot> {
        let slot = self.draft.take()?;
        self.slots -= 1;
        Some(slot)
    }

    /// Replaces the slot of the draft.
    #[cold]
    pub fn replace(&mut self, slot: SendSlot) -> Option<SendSlot> {
        let before = self.take();
        self.put(slot);
        before
    }

    /// Takes a slot that neither a message nor the draft has.
    #[cold]
    pub fn take_spare(&mut self) -> Option<SendSlot> {
        let spares = &mut self.places[self.len as usize..];
        let mut slot = spares.iter_mut().find_map(|place| place.slot.take())?;
        // As one of the pool: nothing is appended.
        slot.begin();
        self.slots -= 1;
        Some(slot)
    }

    /// Adds the draft as a message to a peer, with its gather entry and what it has beside. False
    /// if there is no room.
    #[inline(always)]
    pub fn push(&mut self, peer: u32, with: With, sge: Sge) -> bool {
        debug_assert!(self.draft.is_some(), "a message has a slot");
        let Some(place) = self.places.get_mut(self.len as usize) else { return false };
        (place.peer, place.with, place.sge) = (peer, with, sge);
        core::mem::swap(&mut place.slot, &mut self.draft);
        self.len += 1;
        true
    }

    /// Ends the batch: short messages are copied, and their slots stay for others.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes the slot of a message that is in flight, before the batch ends.
    #[inline]
    pub fn take_of(&mut self, at: usize) -> Option<SendSlot> {
        let slot = self.places[at].slot.take()?;
        self.slots -= 1;
        Some(slot)
    }

    /// Removes the last message, and returns it. Its slot is free.
    #[cold]
    pub fn pop(&mut self) -> Option<&InlineSend> {
        self.len = self.len.checked_sub(1)?;
        Some(&self.places[self.len as usize])
    }

    /// Removes a message, and returns what it had beside. Its slot is free.
    #[cold]
    pub fn remove(&mut self, at: usize) -> With {
        self.places[at..self.len as usize].rotate_left(1);
        self.pop().map_or(With::Nothing, |place| place.with)
    }

    /// Writes `byte` over all free slots, for tests.
    pub fn poison(&mut self, byte: u8) {
        let spares = self.places[self.len as usize..].iter_mut().filter_map(|it| it.slot.as_mut());
        for slot in spares.chain(&mut self.draft) {
            slot.headroom_mut().fill(byte);
            slot.payload_mut().fill(byte);
        }
    }

    /// The slot of the draft, to be written to.
    #[inline(always)]
    pub fn slot_mut(&mut self) -> Option<&mut SendSlot> {
        self.draft.as_mut()
    }

    /// The slot of the draft.
    #[inline(always)]
    pub fn slot(&self) -> Option<&SendSlot> {
        self.draft.as_ref()
    }

    /// The payload area of a message.
    #[cold]
    pub fn payload_mut(&mut self, at: usize) -> &mut [u8] {
        self.places[at].slot.as_mut().map_or(&mut [], SendSlot::payload_mut)
    }

    /// The messages, in the order in which they leave.
    #[inline]
    pub fn messages(&self) -> &[InlineSend] {
        &self.places[..self.len as usize]
    }

    /// Slots that no message has.
    #[inline]
    pub fn free(&self) -> usize {
        (self.slots - self.len) as usize
    }
}

/// The maximum of messages of one turn.
const PLACES: usize = 64;
