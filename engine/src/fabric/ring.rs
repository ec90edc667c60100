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
//! the transfer of its own lines and of no other. The turn is one more than the position of the
//! slot since the beginning of the ring: a slot of an earlier lap never looks published.
#![expect(unsafe_code, reason = "slots are shared between two threads and handed over by a turn")]

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell, yield_now};
use super::{barrier, prefetch};

/// Bytes of a message that travels in its slot.
pub(super) const INLINE_LEN: usize = 224;

/// What a slot carries. Plain data: any bytes are a valid value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Body {
    acks: Acks,
    /// The queue pair that it is for.
    pub dst: u32,
    /// What it asks for: see `Op`.
    pub op: u8,
    /// How many gather pieces `bytes` holds; 0 when it holds the message itself.
    pub pieces: u8,
    reserved: u16,
    /// Bytes of the message.
    pub byte_len: u32,
    reserved2: u32,
    /// The message or its pieces.
    pub bytes: [u8; INLINE_LEN],
}

/// How much of a ring its consumer has taken, and how many slots of that it refused.
///
/// Made by a [`Consumer`] only, so that a [`Producer`] can rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(super) struct Acks(u64);

impl Acks {
    fn of(taken: u32, refused: u32) -> Acks {
        Acks(u64::from(refused) << 32 | u64::from(taken))
    }

    /// The position behind the last slot taken.
    pub(super) fn taken(self) -> u32 {
        self.0 as u32
    }

    /// How many slots were refused since the beginning, modulo 2^32.
    pub(super) fn refused(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Why a consumer refused a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Refusal {
    /// The message is longer than the Receive that it met.
    TooLong = 1,
    /// No Receive was posted for too long.
    NotReady = 2,
    /// The queue pair is in the error state or gone.
    Gone = 3,
    /// The Receive's own memory could not be written.
    Broken = 4,
    /// The memory that the message is gathered from is not there any more.
    Unreadable = 5,
}

#[repr(C, align(256))]
struct Slot {
    turn: AtomicU32,
    /// The turn in which the producer withdrew the slot, if it is the current one.
    cancel: AtomicU32,
    body: UnsafeCell<Body>,
}

/// What the consumer says of a slot beyond having taken it.
struct Verdict {
    /// Position and [`Refusal`]; anything else than the current position is no refusal.
    refusal: AtomicU64,
    /// When the slot was taken, in ns; written only if the ring has a delay.
    taken_at: AtomicU64,
}

/// The memory of one ring.
pub(super) struct Ring {
    slots: Box<[Slot]>,
    verdicts: Box<[Verdict]>,
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
        body: UnsafeCell::new(body),
    };
    let verdict = |_| Verdict { refusal: AtomicU64::new(0), taken_at: AtomicU64::new(0) };
    let ring = Arc::new(Ring {
        slots: (0..len).map(slot).collect(),
        verdicts: (0..len).map(verdict).collect(),
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
pub(super) struct Vacant<'a>(&'a mut Producer);

impl Producer {
    /// The next slot, if there is one.
    #[inline]
    pub(super) fn claim(&mut self) -> Option<Vacant<'_>> {
        self.has_room().then_some(Vacant(self))
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
        let word =
            self.ring.verdicts[(position & self.mask) as usize].refusal.load(Ordering::Relaxed);
        let refusal = match word as u8 {
            1 => Refusal::TooLong,
            2 => Refusal::NotReady,
            3 => Refusal::Gone,
            4 => Refusal::Broken,
            5 => Refusal::Unreadable,
            _ => return None,
        };
        (word >> 8 == u64::from(position)).then_some(refusal)
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
        let body = self.0.slot(self.0.head).body.with_mut(|body| body);
        // SAFETY: the slot is less than a ring's length ahead of `freed`, so the consumer has
        // released it, and the ack that said so was loaded with acquire. It does not look at it
        // again before it is published, and `self` is the only way to it until then.
        unsafe { &mut *body }
    }

    /// When it was published, in ns, for a ring with a delay.
    #[inline]
    pub(super) fn stamp(&mut self, now_ns: u64) {
        let producer = &self.0;
        if let Some(at) = producer.ring.published_at.get((producer.head & producer.mask) as usize) {
            at.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Hands the slot to the consumer, with an ack for the ring that runs the other way.
    #[inline]
    pub(super) fn publish(mut self, acks: Acks) {
        self.body().acks = acks;
        let producer = self.0;
        let turn = producer.head.wrapping_add(1);
        producer.slot(producer.head).turn.store(turn, Ordering::Release);
        producer.head = turn;
        // Ask for the next slot's lines while nobody waits for them. If the ring is full they are
        // the consumer's, and are left to it.
        if producer.has_room() {
            prefetch::write_behind_first(producer.slot(turn));
        }
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

    /// Asks for the lines of the front behind the first, before they are needed.
    #[inline]
    pub(super) fn prefetch_front(&self) {
        prefetch::read_behind_first(self.slot(self.next));
    }

    /// Whether the producer withdrew the slot at the front.
    pub(super) fn is_cancelled(&self) -> bool {
        self.slot(self.next).cancel.load(Ordering::Relaxed) == self.next.wrapping_add(1)
    }

    /// Runs `copy`, which reads the memory that the front refers to; not if the producer has
    /// withdrawn the slot or is gone.
    #[inline]
    pub(super) fn fetch<R>(&self, copy: impl FnOnce() -> R) -> Option<R> {
        self.ring.fetching.store(u64::from(self.next) + 1, Ordering::Relaxed);
        // Whoever withdraws and then settles has either been seen here or sees `fetching`.
        barrier::light();
        let outcome = (!self.is_cancelled() && !self.is_closed()).then(copy);
        self.ring.fetching.store(0, Ordering::Release);
        outcome
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
        let word = u64::from(self.next) << 8 | u64::from(why as u8);
        self.verdict().refusal.store(word, Ordering::Relaxed);
        self.refused = self.refused.wrapping_add(1);
        self.release();
    }

    /// Says when the front is taken, in a ring with a delay. To be called before it is released.
    #[cold]
    pub(super) fn stamp_taken(&self, now_ns: u64) {
        self.verdict().taken_at.store(now_ns, Ordering::Relaxed);
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

    fn verdict(&self) -> &Verdict {
        &self.ring.verdicts[(self.next & self.mask) as usize]
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

impl Body {
    pub(super) fn empty() -> Body {
        Body {
            acks: Acks(0),
            dst: 0,
            op: 0,
            pieces: 0,
            reserved: 0,
            byte_len: 0,
            reserved2: 0,
            bytes: [0; INLINE_LEN],
        }
    }

    /// The ack that came along.
    #[inline]
    pub(super) fn acks(&self) -> Acks {
        self.acks
    }
}
