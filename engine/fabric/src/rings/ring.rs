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
//! A header is made in memory of the producer, and stored when the bytes are there: the consumer
//! polls the line of both, and a store to it between two looks waits until the line has come back.
//!
//! The consumer polls one line, which is also the first of the message. An inline message costs the
//! transfer of its own lines only, all at once: a consumer that waits for a slot has prefetched all
//! of them. The turn is the position of the slot since the beginning of the ring, plus one: a slot
//! of an earlier lap never looks published. Positions have 64 bits and never repeat, so a
//! withdrawal or an outcome of an earlier lap is never taken for one of this lap.
#![expect(unsafe_code, reason = "slots are shared between two threads and handed over by a turn")]

use crossbeam_utils::CachePadded;
use rpcrdma_transport::body::Body;
use rpcrdma_transport::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

use super::slot::{Outcome, Slot};

/// The memory of one ring.
pub(super) struct Ring {
    pub slots: Box<[Slot]>,
    pub outcomes: Box<[Outcome]>,
    /// The turn in which the producer last withdrew each slot.
    pub withdrawn: Box<[AtomicU64]>,
    /// For a Read or Write: the address in the consumer's memory that each slot names.
    pub remotes: Box<[AtomicU64]>,
    /// When each slot was published, in ns; empty if the ring has no delay.
    pub published_at: Box<[AtomicU64]>,
    pub ack_line: CachePadded<AtomicU64>,
    /// The number of slots that the consumer has refused. The producer reads it with every ack, so
    /// it shares no line with data that is written often.
    pub refused: CachePadded<AtomicU64>,
    /// The producer is gone; published slots stay valid.
    pub closed: CachePadded<AtomicU32>,
    /// The consumer is gone and reads no more slots.
    pub abandoned: AtomicU32,
    /// One more than the position of the slot whose memory the consumer is reading; 0 if none.
    pub fetching: CachePadded<AtomicU64>,
}

// SAFETY: only the one producer writes a slot's body, while it holds the slot (its position is less
// than a ring's length ahead of the last ack that it saw). Only the one consumer reads it, between
// the acquiring load of the slot's turn and the ack that releases it. All else in a slot is atomic.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `len` slots, a power of two, whose first slot has the position `first`.
    pub(super) fn new(len: u32, is_delayed: bool, first: u64) -> Ring {
        assert!(len.is_power_of_two() && len >= 2, "slots are found by a mask");
        let body = Body::empty();
        let slot = |_| Slot { turn: AtomicU64::new(0), body: UnsafeCell::new(body) };
        let words = |len| (0..len).map(|_| AtomicU64::new(0)).collect();
        Ring {
            slots: (0..len).map(slot).collect(),
            outcomes: (0..len).map(|_| Outcome::new()).collect(),
            withdrawn: words(len),
            remotes: words(len),
            published_at: words(if is_delayed { len } else { 0 }),
            ack_line: CachePadded::new(AtomicU64::new(first)),
            refused: CachePadded::new(AtomicU64::new(0)),
            closed: CachePadded::new(AtomicU32::new(0)),
            abandoned: AtomicU32::new(0),
            fetching: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Whether the producer has withdrawn the slot at `position`.
    pub(super) fn is_withdrawn(&self, position: u64) -> bool {
        self.withdrawn(position).load(Ordering::Relaxed) == position + 1
    }

    pub(super) fn withdrawn(&self, position: u64) -> &AtomicU64 {
        &self.withdrawn[position as usize & (self.withdrawn.len() - 1)]
    }
}
