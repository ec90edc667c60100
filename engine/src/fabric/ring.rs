//! The ring: fixed slots of four cache lines on their way from one thread to one other.
//!
//! ```text
//!            line 0                                  lines 0 to 3
//!   ┌──────┬────────┬──────┬────────┬────┬────────┬───────────────────────────────────┐
//!   │ turn │ cancel │ acks │ dst qp │ op │ length │ 224 bytes: the message, or pieces │  slot
//!   └──────┴────────┴──────┴────────┴────┴────────┴───────────────────────────────────┘
//!    written last                                                                        ×  2^n
//!
//!   Producer ── claim ── fill ── publish ──▶ slot ──▶ front ── release or refuse ── Consumer
//!      ▲                                                                               │
//!      └── acks: by a slot of the ring that runs the other way, or by the ack line ────┘
//! ```
//!
//! The consumer polls one line, which is also the first of the message, so an inline message costs
//! the transfer of its own lines and of no other, all at once: a consumer that waits for a slot has
//! asked for all of them. The turn is one more than the position of the slot since the beginning of
//! the ring: a slot of an earlier lap never looks published.
#![expect(unsafe_code, reason = "slots are shared between two threads and handed over by a turn")]

mod slot;

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use self::slot::{Slot, Verdict};
use super::sync::{AtomicU32, AtomicU64, Ordering, yield_now};
use super::{barrier, prefetch};

pub(super) use self::slot::{Acks, Body, INLINE_LEN, Refusal};

/// The memory of one ring.
pub(super) struct Ring {
    slots: Box<[Slot]>,
    verdicts: Box<[Verdict]>,
    /// The address of the consumer's memory that each slot is about; of a Read or Write.
    remotes: Box<[AtomicU64]>,
    /// When each slot was published, in ns; empty if the ring has no delay.
    published_at: Box<[AtomicU64]>,
    ack_line: CachePadded<AtomicU64>,
    /// The producer is gone; what is published stays valid.
    closed: CachePadded<AtomicU32>,
    /// The consumer is gone and looks at no slot any more.
    abandoned: AtomicU32,
    /// One more than the position of the slot whose memory the consumer is reading; 0 if none.
    fetching: CachePadded<AtomicU64>,
}

// SAFETY: a slot's body is written only by the one producer while it holds the slot (its position
// is less than a ring's length ahead of the last ack that it saw), and read only by the one consumer
// between the acquiring load of the slot's turn and the ack that releases it. Everything else in it
// is atomic.
unsafe impl Sync for Ring {}

/// Makes a ring of `len` slots, a power of two, and its two ends.
pub(super) fn ring(len: u32, delayed: bool) -> (Producer, Consumer) {
    assert!(len.is_power_of_two() && len >= 2, "slots are found by a mask");
    let body = Body::empty();
    let slot = |_| Slot {
        turn: AtomicU32::new(0),
        cancel: AtomicU32::new(0),
        body: super::sync::UnsafeCell::new(body),
    };
    let ring = Arc::new(Ring {
        slots: (0..len).map(slot).collect(),
        verdicts: (0..len).map(|_| Verdict::new()).collect(),
        remotes: (0..len).map(|_| AtomicU64::new(0)).collect(),
        published_at: (0..if delayed { len } else { 0 }).map(|_| AtomicU64::new(0)).collect(),
        ack_line: CachePadded::new(AtomicU64::new(0)),
        closed: CachePadded::new(AtomicU32::new(0)),
        abandoned: AtomicU32::new(0),
        fetching: CachePadded::new(AtomicU64::new(0)),
    });
    let mask = len - 1;
    let producer =
        Producer { slots: ring.slots.as_ptr(), mask, ring: Arc::clone(&ring), head: 0, freed: 0 };
    let consumer = Consumer { slots: ring.slots.as_ptr(), mask, ring, next: 0, refused: 0 };
    (producer, consumer)
}

/// The sending end.
pub(super) struct Producer {
    /// The ring's slots, `mask + 1` of them.
    slots: *const Slot,
    mask: u32,
    ring: Arc<Ring>,
    /// Position of the next slot to be published.
    head: u32,
    /// Position of the oldest slot that the consumer may still look at.
    freed: u32,
}

// SAFETY: the pointer leads into memory that `ring` keeps alive and that any thread may use.
unsafe impl Send for Producer {}

/// A slot that nobody else looks at until it is published.
pub(super) struct Vacant<'a> {
    producer: &'a mut Producer,
    slot: &'a Slot,
}

impl Producer {
    /// The next slot, if there is one.
    #[inline]
    pub(super) fn claim(&mut self) -> Option<Vacant<'_>> {
        if !self.has_room() {
            return None;
        }
        let slot = self.slots.wrapping_add((self.head & self.mask) as usize);
        // SAFETY: as in `slot`; the producer, and with it `ring`, is borrowed as long as the slot.
        let slot = unsafe { &*slot };
        Some(Vacant { producer: self, slot })
    }

    /// Whether a slot can be claimed.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.head.wrapping_sub(self.freed) <= self.mask
    }

    /// Position of the next slot to be published.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Position of the oldest slot not given back yet.
    #[inline]
    pub(super) fn freed(&self) -> u32 {
        self.freed
    }

    /// Takes the oldest slots back, up to what `acks` says and no further than `until`.
    #[inline]
    pub(super) fn free(&mut self, acks: Acks, until: u32) {
        let acked = acks.taken().wrapping_sub(self.freed);
        let wanted = until.wrapping_sub(self.freed);
        debug_assert!(wanted <= acked, "slots are freed only when they were taken");
        debug_assert!(acked <= self.head.wrapping_sub(self.freed), "what was taken was published");
        self.freed = self.freed.wrapping_add(wanted.min(acked));
    }

    /// What the consumer said last on the ack line.
    #[inline]
    pub(super) fn acks(&self) -> Acks {
        Acks(self.ring.ack_line.load(Ordering::Acquire))
    }

    /// Why the slot at `position` was refused. Valid once it is acked and before it is freed.
    #[cold]
    pub(super) fn refusal(&self, position: u32) -> Option<Refusal> {
        self.verdict(position).and_then(Result::err)
    }

    /// How the slot at `position` ended, if that was said: always of a Read, which ends after it
    /// was taken, of all others when they were refused. Valid before it is freed.
    #[inline]
    pub(super) fn verdict(&self, position: u32) -> Option<Result<(), Refusal>> {
        self.ring.verdicts[(position & self.mask) as usize].read(position)
    }

    /// When the slot at `position` was taken. Valid once it is acked, in a ring with a delay.
    #[cold]
    pub(super) fn taken_at(&self, position: u32) -> u64 {
        self.ring.verdicts[(position & self.mask) as usize].taken_at.load(Ordering::Relaxed)
    }

    /// Withdraws a published slot. A consumer that waits with it gives up; one that fetches the
    /// memory that it refers to may be at it until [`Producer::settle`] has returned.
    #[cold]
    pub(super) fn withdraw(&self, position: u32) {
        self.slot(position).cancel.store(position.wrapping_add(1), Ordering::Relaxed);
    }

    /// Waits until nobody reads the memory that withdrawn slots refer to: not longer than one
    /// message is being copied.
    #[cold]
    pub(super) fn settle(&self) {
        barrier::heavy();
        while self.is_being_fetched() {
            yield_now();
        }
    }

    fn is_being_fetched(&self) -> bool {
        let fetching = self.ring.fetching.load(Ordering::Acquire);
        let Some(position) = fetching.checked_sub(1) else { return false };
        let is_closed = self.ring.closed.load(Ordering::Relaxed) != 0;
        let turn = (position as u32).wrapping_add(1);
        is_closed || self.slot(position as u32).cancel.load(Ordering::Relaxed) == turn
    }

    /// Whether the consumer is gone.
    #[cold]
    pub(super) fn is_abandoned(&self) -> bool {
        self.ring.abandoned.load(Ordering::Acquire) != 0
    }

    /// Takes all slots back, as if they had been acked, if the consumer is gone.
    #[cold]
    pub(super) fn reclaim(&mut self, acks: Acks) -> Acks {
        if !self.is_abandoned() {
            return acks;
        }
        self.freed = self.head;
        Acks::of(self.head, acks.refused())
    }

    #[inline]
    fn slot(&self, position: u32) -> &Slot {
        let slot = self.slots.wrapping_add((position & self.mask) as usize);
        // SAFETY: the mask keeps the index below the number of slots, which `ring` keeps alive; all
        // that is in a slot may be shared.
        unsafe { &*slot }
    }
}

impl Drop for Producer {
    /// Says that nothing more will come. Afterwards nobody reads memory that slots refer to.
    fn drop(&mut self) {
        self.ring.closed.store(1, Ordering::Release);
        if self.freed != self.head {
            self.settle();
        }
    }
}

impl Vacant<'_> {
    /// What the slot will carry. Holds whatever an earlier lap left there.
    #[inline]
    pub(super) fn body(&mut self) -> &mut Body {
        let body = self.slot.body.with_mut(|body| body);
        // SAFETY: the slot is less than a ring's length ahead of `freed`, so the consumer has
        // released it, and the ack that said so was loaded with acquire. It does not look at it
        // again before it is published, and `self` is the only way to it until then.
        unsafe { &mut *body }
    }

    /// When it was published, in ns, for a ring with a delay.
    #[inline]
    pub(super) fn stamp(&mut self, now_ns: u64) {
        let producer = &self.producer;
        if let Some(at) = producer.ring.published_at.get((producer.head & producer.mask) as usize) {
            at.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Which memory of the consumer it is about.
    #[inline]
    pub(super) fn aim(&mut self, addr: u64) {
        let producer = &self.producer;
        let place = &producer.ring.remotes[(producer.head & producer.mask) as usize];
        place.store(addr, Ordering::Relaxed);
    }

    /// Hands the slot to the consumer, with an ack for the ring that runs the other way.
    #[inline]
    pub(super) fn publish(mut self, acks: Acks) {
        self.body().acks = acks;
        let turn = self.producer.head.wrapping_add(1);
        self.slot.turn.store(turn, Ordering::Release);
        self.producer.head = turn;
    }
}

/// The receiving end.
pub(super) struct Consumer {
    /// The ring's slots, `mask + 1` of them.
    slots: *const Slot,
    mask: u32,
    ring: Arc<Ring>,
    /// Position of the next slot to be taken.
    next: u32,
    /// How many slots were refused.
    refused: u32,
}

// SAFETY: the pointer leads into memory that `ring` keeps alive and that any thread may use.
unsafe impl Send for Consumer {}

impl Consumer {
    /// The oldest slot that was published and not yet taken.
    #[inline]
    pub(super) fn front(&self) -> Option<&Body> {
        self.peek(self.next)
    }

    /// The slot at `position`, if it is published. `position` is not before the front, and less
    /// than a ring's length behind it.
    #[inline]
    pub(super) fn peek(&self, position: u32) -> Option<&Body> {
        debug_assert!(position.wrapping_sub(self.next) <= self.mask);
        let slot = self.slot(position);
        if slot.turn.load(Ordering::Acquire) != position.wrapping_add(1) {
            return None;
        }
        let body = slot.body.with(|body| body);
        // SAFETY: the producer has published the slot (the turn is this lap's, loaded with acquire)
        // and writes it again only after an ack for it, which takes `&mut self`.
        Some(unsafe { &*body })
    }

    /// Asks for the lines of the front behind the first, to be called before looking whether it is
    /// published: so they come together with the first line. Asked for when that has come, they
    /// would take a transfer of their own.
    #[inline]
    pub(super) fn prefetch_front(&self) {
        prefetch::read_behind_first(self.slot(self.next));
    }

    /// Whether the producer withdrew the slot at the front.
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_withdrawn(self.next)
    }

    fn is_withdrawn(&self, position: u32) -> bool {
        self.slot(position).cancel.load(Ordering::Relaxed) == position.wrapping_add(1)
    }

    /// Which of our memory the front is about; of a Read or Write.
    #[inline]
    pub(super) fn target(&self) -> u64 {
        self.ring.remotes[(self.next & self.mask) as usize].load(Ordering::Relaxed)
    }

    /// Runs `copy`, which touches the memory that the front refers to; not if the producer has
    /// withdrawn the slot or is gone.
    #[inline(always)]
    pub(super) fn fetch<R>(&self, copy: impl FnOnce() -> R) -> Option<R> {
        self.fetch_for(self.next, copy)
    }

    /// As [`Consumer::fetch`], for a slot that was taken and not finished yet.
    #[inline(always)]
    pub(super) fn fetch_for<R>(&self, position: u32, copy: impl FnOnce() -> R) -> Option<R> {
        self.ring.fetching.store(u64::from(position) + 1, Ordering::Relaxed);
        // Whoever withdraws and then settles has either been seen here or sees `fetching`.
        barrier::light();
        let outcome = (!self.is_withdrawn(position) && !self.is_closed()).then(copy);
        self.ring.fetching.store(0, Ordering::Release);
        outcome
    }

    /// Says how a Read has ended. Its producer keeps the slot until then, taken or not.
    #[inline]
    pub(super) fn finish(&self, position: u32, outcome: Result<(), Refusal>) {
        self.ring.verdicts[(position & self.mask) as usize].give(position, outcome);
    }

    /// When the front was published, in ns; 0 in a ring without a delay.
    #[inline]
    pub(super) fn published_at(&self) -> u64 {
        let at = self.ring.published_at.get((self.next & self.mask) as usize);
        at.map_or(0, |at| at.load(Ordering::Relaxed))
    }

    /// Position of the next slot to be taken.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Gives the front back to the producer; it learns of it by [`Consumer::acks`].
    #[inline]
    pub(super) fn release(&mut self) {
        debug_assert!(self.front().is_some(), "only what was published can be taken");
        self.next = self.next.wrapping_add(1);
    }

    /// Gives the front back without having done what it asks.
    #[cold]
    pub(super) fn refuse(&mut self, why: Refusal) {
        self.finish(self.next, Err(why));
        self.refused = self.refused.wrapping_add(1);
        self.release();
    }

    /// Says when the front is taken, in a ring with a delay. To be called before it is released.
    #[cold]
    pub(super) fn stamp_taken(&self, now_ns: u64) {
        let verdict = &self.ring.verdicts[(self.next & self.mask) as usize];
        verdict.taken_at.store(now_ns, Ordering::Relaxed);
    }

    /// What was taken up to now; to be sent along with a slot of the other ring.
    #[inline]
    pub(super) fn acks(&self) -> Acks {
        Acks::of(self.next, self.refused)
    }

    /// Writes what was taken to the ack line, which the producer looks at when it needs to.
    #[cold]
    pub(super) fn announce(&self) {
        self.ring.ack_line.store(self.acks().0, Ordering::Release);
    }

    /// Whether the producer is gone. Slots published before are to be taken first.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.ring.closed.load(Ordering::Acquire) != 0
    }

    #[inline]
    fn slot(&self, position: u32) -> &Slot {
        let slot = self.slots.wrapping_add((position & self.mask) as usize);
        // SAFETY: the mask keeps the index below the number of slots, which `ring` keeps alive; all
        // that is in a slot may be shared.
        unsafe { &*slot }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.ring.abandoned.store(1, Ordering::Release);
    }
}
