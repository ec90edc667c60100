//! The sending end of a ring.
#![expect(unsafe_code, reason = "a slot is the producer's between its ack and its publication")]

use std::mem::offset_of;
use std::ptr::copy_nonoverlapping;
use std::sync::Arc;

use rpcrdma_transport::barrier;
use rpcrdma_transport::body::{Acks, Body, Header, Refusal};
use rpcrdma_transport::carrier::{Outgoing, Vacant};
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::sync::{Ordering, yield_now};

use super::ring::Ring;
use super::slot::Slot;

/// The sending end.
pub struct Producer {
    /// The ring's slots, `mask + 1` of them.
    slots: *const Slot,
    mask: u64,
    ring: Arc<Ring>,
    /// Position of the next slot to be published.
    head: u64,
    /// Position of the oldest slot that the consumer may still read.
    freed: u64,
    /// A ring's length behind it: the position of the first slot that cannot be claimed yet.
    limit: u64,
    /// The request that is being written. A store to its slot while it is made would have to fetch
    /// the line back from the consumer, which polls it.
    draft: Body,
}

// SAFETY: the pointer leads into memory that `ring` keeps alive and that any thread may use.
unsafe impl Send for Producer {}

/// A slot that the consumer does not read until it is published.
pub struct Claimed<'a> {
    producer: &'a mut Producer,
    slot: &'a Slot,
    /// The header of a message whose bytes are in the slot, and not in the draft.
    put: Option<Header>,
}

impl Producer {
    pub(super) fn new(ring: Arc<Ring>, first: u64) -> Producer {
        let (slots, mask) = (ring.slots.as_ptr(), ring.slots.len() as u64 - 1);
        let limit = first + mask + 1;
        Producer { slots, mask, ring, head: first, freed: first, limit, draft: Body::empty() }
    }

    /// Skips `slots` slots of an idle ring: a multiple of its length.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn skip(&mut self, slots: u64) {
        assert_eq!((self.freed, slots & self.mask), (self.head, 0), "by whole laps, and idle");
        self.head += slots;
        self.freed_until(self.head);
    }

    #[inline]
    fn freed_until(&mut self, position: u64) {
        (self.freed, self.limit) = (position, position + self.mask + 1);
    }

    fn is_being_fetched(&self) -> bool {
        let fetching = self.ring.fetching.load(Ordering::Acquire);
        let Some(position) = fetching.checked_sub(1) else { return false };
        let is_closed = self.ring.closed.load(Ordering::Relaxed) != 0;
        is_closed || self.ring.is_withdrawn(position)
    }
}

// SAFETY: the consumer touches the memory of a slot only in `Consumer::fetch`, which does not begin
// after the slot is withdrawn, and `quiesce` waits for a copy in progress.
unsafe impl Outgoing for Producer {
    type Vacant<'a> = Claimed<'a>;

    #[inline]
    fn slots(&self) -> u64 {
        self.mask + 1
    }

    #[inline]
    fn claim(&mut self, _byte_len: u32) -> Option<Claimed<'_>> {
        if !self.has_room() {
            return None;
        }
        let slot = self.slots.wrapping_add((self.head & self.mask) as usize);
        // SAFETY: the mask keeps the index below the number of slots, which `ring` keeps alive; the
        // producer, and with it `ring`, is borrowed as long as the slot. All contents of a slot may
        // be shared.
        let slot = unsafe { &*slot };
        Some(Claimed { producer: self, slot, put: None })
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.head != self.limit
    }

    #[inline]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    fn freed(&self) -> u64 {
        self.freed
    }

    #[inline]
    fn free(&mut self, acks: Acks, until: u64) {
        debug_assert!(until >= self.freed, "no slot is freed twice");
        debug_assert!(until <= acks.taken(), "slots are freed only when they were taken");
        debug_assert!(acks.taken() <= self.head, "what was taken was published");
        self.freed_until(until.min(acks.taken()));
    }

    #[inline]
    fn acks(&self) -> Acks {
        Acks::up_to(self.ring.ack_line.load(Ordering::Acquire))
    }

    #[inline]
    fn refused(&self) -> u64 {
        self.ring.refused.load(Ordering::Relaxed)
    }

    #[inline]
    fn outcome(&self, position: u64) -> Option<Result<(), Refusal>> {
        self.ring.outcomes[(position & self.mask) as usize].read(position)
    }

    /// The consumer has put them there.
    #[inline]
    fn place_read(&mut self, _position: u64, _keys: &KeyCache) -> Result<(), Refusal> {
        Ok(())
    }

    #[cold]
    fn taken_at(&self, position: u64) -> u64 {
        self.ring.outcomes[(position & self.mask) as usize].taken_at.load(Ordering::Relaxed)
    }

    #[cold]
    fn withdraw(&self, position: u64) {
        self.ring.withdrawn(position).store(position + 1, Ordering::Relaxed);
    }

    #[cold]
    fn quiesce(&self) {
        barrier::heavy();
        while self.is_being_fetched() {
            yield_now();
        }
    }

    #[cold]
    fn is_abandoned(&self) -> bool {
        self.ring.abandoned.load(Ordering::Acquire) != 0
    }

    #[cold]
    fn reclaim(&mut self, acks: Acks) -> Acks {
        if !self.is_abandoned() {
            return acks;
        }
        self.freed_until(self.head);
        Acks::up_to(self.head)
    }
}

impl Claimed<'_> {
    /// Where the slot's header and bytes are. They may be written: the slot is less than a ring's
    /// length ahead of `freed`, so the consumer has released it, and the ack for it was loaded with
    /// acquire. The consumer does not read it again before it is published, and `self` is the only
    /// way to it until then.
    #[inline(always)]
    fn place(&self) -> (*mut Header, *mut u8) {
        let body = self.slot.body.with_mut(|body| body);
        let at = |offset| body.wrapping_byte_add(offset);
        (at(offset_of!(Body, header)).cast(), at(offset_of!(Body, bytes)).cast())
    }
}

impl Drop for Producer {
    /// Closes the ring. Afterwards the consumer does not read memory that slots refer to.
    fn drop(&mut self) {
        self.ring.closed.store(1, Ordering::Release);
        if self.freed != self.head {
            self.quiesce();
        }
    }
}

impl Vacant for Claimed<'_> {
    #[inline]
    fn body(&mut self) -> &mut Body {
        &mut self.producer.draft
    }

    #[inline(always)]
    unsafe fn put(&mut self, header: Header, from: *const u8) {
        self.put = Some(header);
        let len = header.byte_len as usize;
        // SAFETY: the caller guarantees the source and the length; the slot is the producer's, as
        // `Claimed::place` states.
        unsafe { copy_nonoverlapping(from, self.place().1, len) };
    }

    #[inline]
    fn stamp(&mut self, now_ns: u64) {
        let producer = &self.producer;
        if let Some(at) = producer.ring.published_at.get((producer.head & producer.mask) as usize) {
            at.store(now_ns, Ordering::Relaxed);
        }
    }

    #[inline]
    fn set_target(&mut self, addr: u64) {
        let producer = &self.producer;
        let place = &producer.ring.remotes[(producer.head & producer.mask) as usize];
        place.store(addr, Ordering::Relaxed);
    }

    #[inline]
    fn publish(self, acks: Acks, _keys: &KeyCache) {
        let (to, bytes) = self.place();
        let Claimed { producer, slot, put } = self;
        let header = put.unwrap_or_else(|| {
            let Body { header, bytes: from } = &producer.draft;
            // SAFETY: the slot is the producer's, as `place` states, and has as many bytes as the
            // draft, which is no part of it.
            unsafe { copy_nonoverlapping(from.as_ptr(), bytes, header.slot_len()) };
            *header
        });
        // SAFETY: as above; a header has these words, and the alignment of one.
        unsafe { to.cast::<[u64; 3]>().write(Header { acks, ..header }.words()) };
        let turn = producer.head + 1;
        slot.turn.store(turn, Ordering::Release);
        producer.head = turn;
    }
}
