//! The receiving end of a ring.
#![expect(unsafe_code, reason = "a slot is the consumer's between its publication and its ack")]

use std::mem::offset_of;
use std::sync::Arc;

use rpcrdma_transport::barrier;
use rpcrdma_transport::body::{Acks, Body, Header, Piece, Refusal, pieces_at};
use rpcrdma_transport::carrier::{DmaError, Incoming};
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::prefetch;
use rpcrdma_transport::rights::Granted;
use rpcrdma_transport::sync::{AtomicU64, Ordering};

use super::memory;
use super::ring::Ring;
use super::slot::Slot;

/// The receiving end.
pub struct Consumer {
    /// The ring's slots, `mask + 1` of them.
    slots: *const Slot,
    mask: u64,
    ring: Arc<Ring>,
    /// Position of the next slot to be taken.
    next: u64,
}

// SAFETY: the pointer leads into memory that `ring` keeps alive and that any thread may use.
unsafe impl Send for Consumer {}

impl Consumer {
    pub(super) fn new(ring: Arc<Ring>, first: u64) -> Consumer {
        let (slots, mask) = (ring.slots.as_ptr(), ring.slots.len() as u64 - 1);
        Consumer { slots, mask, ring, next: first }
    }

    /// Skips `slots` slots of an idle ring: a multiple of its length.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn skip(&mut self, slots: u64) {
        assert_eq!(slots & self.mask, 0, "by whole laps");
        self.next += slots;
        self.announce();
    }

    /// Runs `copy`, which touches the memory that the slot at `position` refers to: the front, or a
    /// slot that was taken and is not finished. Does not run it if the producer has withdrawn the
    /// slot or is gone.
    #[inline(always)]
    pub(crate) fn fetch<R>(&self, position: u64, copy: impl FnOnce() -> R) -> Option<R> {
        // Release: a thread that waits for the end of one copy may see the beginning of the next
        // instead.
        self.ring.fetching.store(position + 1, Ordering::Release);
        // A producer that withdraws and then waits is either seen here, or sees `fetching`.
        barrier::light();
        let _fetching = Fetching(&self.ring.fetching);
        (!self.ring.is_withdrawn(position) && !self.is_closed()).then(copy)
    }

    #[inline]
    fn slot(&self, position: u64) -> &Slot {
        let slot = self.slots.wrapping_add((position & self.mask) as usize);
        // SAFETY: the mask keeps the index below the number of slots, which `ring` keeps alive; all
        // contents of a slot may be shared.
        unsafe { &*slot }
    }

    #[inline]
    fn bytes_of(&self, position: u64) -> *const u8 {
        bytes_of(self.slot(position).body.with(|body| body))
    }

    /// The header of the slot at `position` and its bytes, if it is published.
    #[inline]
    fn header_and_bytes(&self, position: u64) -> Option<(Header, *const u8)> {
        let slot = self.slot(position);
        if slot.turn.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        let body = slot.body.with(|body| body);
        // SAFETY: the producer has published the slot (the turn is this lap's, loaded with acquire)
        // and writes it again only after an ack for it, which takes `&mut self`.
        let header = unsafe { (*body).header };
        Some((header, bytes_of(body)))
    }

    /// The pieces of the slot at `position`: the front, or a Read that is not finished.
    #[inline(always)]
    fn pieces(&self, position: u64, header: &Header) -> impl Iterator<Item = Piece> {
        let bytes = self.bytes_of(position);
        // SAFETY: the bytes are in a slot of this ring, which `ring` keeps alive. The producer does
        // not write them: it has published the slot and keeps it until it has its outcome.
        unsafe { pieces_at(bytes, header.pieces) }
    }
}

/// The bytes of a slot's body.
#[inline]
fn bytes_of(body: *const Body) -> *const u8 {
    body.wrapping_byte_add(offset_of!(Body, bytes)).cast()
}

// SAFETY: only `fetch` touches memory. The memory passed on lies in registered regions. Their owner
// keeps them mapped while a poll looks keys up, and the poster of the request keeps other code from
// writing there.
unsafe impl Incoming for Consumer {
    #[inline]
    fn front(&self) -> Option<Header> {
        self.peek(self.next)
    }

    #[inline]
    fn bytes(&self) -> *const u8 {
        self.bytes_of(self.next)
    }

    #[inline]
    fn front_and_bytes(&self) -> Option<(Header, *const u8)> {
        self.header_and_bytes(self.next)
    }

    #[inline]
    fn peek(&self, position: u64) -> Option<Header> {
        debug_assert!((self.next..=self.next + self.mask).contains(&position));
        self.header_and_bytes(position).map(|(header, _)| header)
    }

    /// Prefetches the lines of the front behind the first, so that they arrive together with it. A
    /// later prefetch would cost a transfer of its own.
    #[inline]
    fn prefetch_front(&self) {
        prefetch::read_behind_first(self.slot(self.next));
    }

    fn is_cancelled(&self) -> bool {
        self.ring.is_withdrawn(self.next)
    }

    #[inline]
    fn target(&self) -> u64 {
        self.ring.remotes[(self.next & self.mask) as usize].load(Ordering::Relaxed)
    }

    #[inline]
    fn published_at(&self) -> u64 {
        let at = self.ring.published_at.get((self.next & self.mask) as usize);
        at.map_or(0, |at| at.load(Ordering::Relaxed))
    }

    #[inline]
    fn next(&self) -> u64 {
        self.next
    }

    #[inline(always)]
    fn pull(
        &self,
        front: &Header,
        keys: &KeyCache,
        put: impl FnMut(*const u8, usize) -> Result<(), DmaError>,
    ) -> Option<Result<(), DmaError>> {
        self.fetch(self.next, || memory::each(self.pieces(self.next, front), keys, put))
    }

    #[inline(always)]
    fn answer(
        &self,
        position: u64,
        read: &Header,
        keys: &KeyCache,
        from: Granted,
    ) -> Option<Result<(), DmaError>> {
        debug_assert_eq!(read.byte_len, from.len());
        self.fetch(position, || memory::fill(self.pieces(position, read), keys, from))
    }

    #[inline]
    fn finish(&mut self, position: u64, outcome: Result<(), Refusal>) {
        self.ring.outcomes[(position & self.mask) as usize].set(position, outcome);
    }

    #[inline]
    fn release(&mut self) {
        debug_assert!(self.front().is_some(), "only what was published can be taken");
        self.next += 1;
    }

    #[cold]
    fn refuse(&mut self, why: Refusal) {
        self.finish(self.next, Err(why));
        // The producer sees it with the ack that releases this slot.
        self.ring.refused.store(self.ring.refused.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.release();
    }

    #[cold]
    fn stamp_taken(&self, now_ns: u64) {
        let outcome = &self.ring.outcomes[(self.next & self.mask) as usize];
        outcome.taken_at.store(now_ns, Ordering::Relaxed);
    }

    #[inline]
    fn acks(&self) -> Acks {
        Acks::up_to(self.next)
    }

    /// Writes to the ack line.
    #[cold]
    fn announce(&self) {
        self.ring.ack_line.store(self.next, Ordering::Release);
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.ring.closed.load(Ordering::Acquire) != 0
    }
}

/// The memory of a slot is in use until this is dropped, also by a panic.
struct Fetching<'a>(&'a AtomicU64);

impl Drop for Fetching<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.ring.abandoned.store(1, Ordering::Release);
    }
}
