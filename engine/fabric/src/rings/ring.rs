//! The ring: a single-producer, single-consumer queue with slots of four cache lines.
//!
//! ```text
//!            line 0                                  lines 0 to 3
//!   ┌──────┬──────┬────────┬────┬────────┬───────────────────────────────────┐
//!   │ turn │ acks │ dst qp │ op │ length │ 224 bytes: the message, or pieces │  slot
//!   └──────┴──────┴────────┴────┴────────┴───────────────────────────────────┘
//!    written last                                                               ×  2^n
//!
//!   Producer ── claim ── fill ── publish ──▶ slot ──▶ front ── release or refuse ── Consumer
//!      ▲                                                                               │
//!      └── acks: by a slot of the ring that runs the other way, or by the ack line ────┘
//! ```
//!
//! The consumer polls one line, which is also the first of the message. An inline message costs the
//! transfer of its own lines only, all at once: a consumer that waits for a slot has prefetched all
//! of them. The turn is the position of the slot since the beginning of the ring, plus one: a slot
//! of an earlier lap never looks published. Positions have 64 bits and never repeat, so a
//! withdrawal or an outcome of an earlier lap is never taken for one of this lap.
#![expect(unsafe_code, reason = "slots are shared between two threads and handed over by a turn")]

use std::mem::offset_of;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use rpcrdma_transport::barrier;
use rpcrdma_transport::body::{Acks, Body, Header, Piece, Refusal, pieces_at};
use rpcrdma_transport::carrier::{DmaError, Incoming, Outgoing, Vacant};
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::prefetch;
use rpcrdma_transport::rights::Granted;
use rpcrdma_transport::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell, yield_now};

use super::memory;
use super::slot::{Slot, Verdict};

/// The memory of one ring.
pub(crate) struct Ring {
    slots: Box<[Slot]>,
    verdicts: Box<[Verdict]>,
    /// The turn in which the producer last withdrew each slot.
    withdrawn: Box<[AtomicU64]>,
    /// For a Read or Write: the address in the consumer's memory that each slot names.
    remotes: Box<[AtomicU64]>,
    /// When each slot was published, in ns; empty if the ring has no delay.
    published_at: Box<[AtomicU64]>,
    ack_line: CachePadded<AtomicU64>,
    /// The number of slots that the consumer has refused. The producer reads it with every ack, so
    /// it shares no line with data that is written often.
    refused: CachePadded<AtomicU64>,
    /// The producer is gone; published slots stay valid.
    closed: CachePadded<AtomicU32>,
    /// The consumer is gone and reads no more slots.
    abandoned: AtomicU32,
    /// One more than the position of the slot whose memory the consumer is reading; 0 if none.
    fetching: CachePadded<AtomicU64>,
}

// SAFETY: only the one producer writes a slot's body, while it holds the slot (its position is less
// than a ring's length ahead of the last ack that it saw). Only the one consumer reads it, between
// the acquiring load of the slot's turn and the ack that releases it. All else in a slot is atomic.
unsafe impl Sync for Ring {}

impl Ring {
    /// Whether the producer has withdrawn the slot at `position`.
    fn is_withdrawn(&self, position: u64) -> bool {
        self.withdrawn(position).load(Ordering::Relaxed) == position + 1
    }

    fn withdrawn(&self, position: u64) -> &AtomicU64 {
        &self.withdrawn[position as usize & (self.withdrawn.len() - 1)]
    }
}

/// Makes a ring of `len` slots, a power of two, and its two ends. The first slot has the position
/// `first`.
pub(crate) fn ring(len: u32, delayed: bool, first: u64) -> (Producer, Consumer) {
    assert!(len.is_power_of_two() && len >= 2, "slots are found by a mask");
    let body = Body::empty();
    let slot = |_| Slot { turn: AtomicU64::new(0), body: UnsafeCell::new(body) };
    let ring = Arc::new(Ring {
        slots: (0..len).map(slot).collect(),
        verdicts: (0..len).map(|_| Verdict::new()).collect(),
        withdrawn: (0..len).map(|_| AtomicU64::new(0)).collect(),
        remotes: (0..len).map(|_| AtomicU64::new(0)).collect(),
        published_at: (0..if delayed { len } else { 0 }).map(|_| AtomicU64::new(0)).collect(),
        ack_line: CachePadded::new(AtomicU64::new(first)),
        refused: CachePadded::new(AtomicU64::new(0)),
        closed: CachePadded::new(AtomicU32::new(0)),
        abandoned: AtomicU32::new(0),
        fetching: CachePadded::new(AtomicU64::new(0)),
    });
    let mask = u64::from(len - 1);
    let slots = ring.slots.as_ptr();
    let (head, freed, limit) = (first, first, first + u64::from(len));
    let producer = Producer { slots, mask, ring: Arc::clone(&ring), head, freed, limit };
    let consumer = Consumer { slots, mask, ring, next: first };
    (producer, consumer)
}

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
}

// SAFETY: the pointer leads into memory that `ring` keeps alive and that any thread may use.
unsafe impl Send for Producer {}

/// A slot that the consumer does not read until it is published.
pub struct Claimed<'a> {
    producer: &'a mut Producer,
    slot: &'a Slot,
}

impl Producer {
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
// after the slot is withdrawn, and `settle` waits for a copy in progress.
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
        Some(Claimed { producer: self, slot })
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
    fn verdict(&self, position: u64) -> Option<Result<(), Refusal>> {
        self.ring.verdicts[(position & self.mask) as usize].read(position)
    }

    /// The consumer has put them there.
    #[inline]
    fn land(&mut self, _position: u64, _keys: &KeyCache) -> Result<(), Refusal> {
        Ok(())
    }

    #[cold]
    fn taken_at(&self, position: u64) -> u64 {
        self.ring.verdicts[(position & self.mask) as usize].taken_at.load(Ordering::Relaxed)
    }

    #[cold]
    fn withdraw(&self, position: u64) {
        self.ring.withdrawn(position).store(position + 1, Ordering::Relaxed);
    }

    #[cold]
    fn settle(&self) {
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

impl Drop for Producer {
    /// Closes the ring. Afterwards the consumer does not read memory that slots refer to.
    fn drop(&mut self) {
        self.ring.closed.store(1, Ordering::Release);
        if self.freed != self.head {
            self.settle();
        }
    }
}

impl Vacant for Claimed<'_> {
    #[inline]
    fn body(&mut self) -> &mut Body {
        let body = self.slot.body.with_mut(|body| body);
        // SAFETY: the slot is less than a ring's length ahead of `freed`, so the consumer has
        // released it, and the ack for it was loaded with acquire. The consumer does not read it
        // again before it is published, and `self` is the only way to it until then.
        unsafe { &mut *body }
    }

    #[inline]
    fn stamp(&mut self, now_ns: u64) {
        let producer = &self.producer;
        if let Some(at) = producer.ring.published_at.get((producer.head & producer.mask) as usize) {
            at.store(now_ns, Ordering::Relaxed);
        }
    }

    #[inline]
    fn aim(&mut self, addr: u64) {
        let producer = &self.producer;
        let place = &producer.ring.remotes[(producer.head & producer.mask) as usize];
        place.store(addr, Ordering::Relaxed);
    }

    #[inline]
    fn publish(mut self, acks: Acks, _keys: &KeyCache) {
        self.body().header.acks = acks;
        let turn = self.producer.head + 1;
        self.slot.turn.store(turn, Ordering::Release);
        self.producer.head = turn;
    }
}

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
    /// Runs `copy`, which touches the memory that the slot at `position` refers to: the front, or a
    /// slot that was taken and is not finished. Does not run it if the producer has withdrawn the
    /// slot or is gone.
    #[inline(always)]
    pub(crate) fn fetch<R>(&self, position: u64, copy: impl FnOnce() -> R) -> Option<R> {
        // Release: a thread that waits for the end of one copy may see the beginning of the next
        // instead.
        self.ring.fetching.store(position + 1, Ordering::Release);
        // A producer that withdraws and then settles is either seen here, or sees `fetching`.
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
        // not write them: it has published the slot and keeps it until it has its verdict.
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
    fn finish(&self, position: u64, outcome: Result<(), Refusal>) {
        self.ring.verdicts[(position & self.mask) as usize].give(position, outcome);
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
        let verdict = &self.ring.verdicts[(self.next & self.mask) as usize];
        verdict.taken_at.store(now_ns, Ordering::Relaxed);
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

/// Skips `slots` slots of an idle ring: a multiple of its length.
#[cfg(all(test, not(loom)))]
pub(crate) fn skip(tx: &mut Producer, rx: &mut Consumer, slots: u64) {
    assert!(std::sync::Arc::ptr_eq(&tx.ring, &rx.ring), "two ends of one ring");
    assert_eq!((tx.freed, slots & tx.mask), (rx.next, 0), "between messages, and by whole laps");
    rx.next += slots;
    tx.head = rx.next;
    tx.freed_until(rx.next);
    rx.announce();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn no_keys() -> KeyCache {
        KeyCache::of(Arc::default())
    }

    #[test]
    fn a_copy_that_panics_counts_as_ended() {
        let (mut tx, rx) = ring(2, false, 0);
        tx.claim(0).expect("room").publish(Acks::default(), &no_keys());
        let copy = || rx.fetch(0, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(copy)).is_err());
        tx.withdraw(0);
        tx.settle();
        assert_eq!(rx.fetch(0, || ()), None);
    }
}
