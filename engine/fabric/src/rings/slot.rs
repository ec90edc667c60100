//! A slot of a ring, and its result for the sender.

use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::transport::body::{Body, Refusal};

#[repr(C, align(256))]
pub(super) struct Slot {
    pub(super) turn: AtomicU64,
    pub(super) body: UnsafeCell<Body>,
}

/// What the consumer says of a slot beyond having taken it.
pub(super) struct Verdict {
    /// The turn that `outcome` is of: anything else than the current one says nothing.
    turn: AtomicU64,
    outcome: AtomicU32,
    /// When the slot was taken, in ns; written only if the ring has a delay.
    pub(super) taken_at: AtomicU64,
}

impl Verdict {
    pub(super) fn new() -> Verdict {
        let [turn, taken_at] = [0; 2].map(AtomicU64::new);
        Verdict { turn, outcome: AtomicU32::new(0), taken_at }
    }

    /// Whoever reads it sees all that was done to memory before.
    pub(super) fn give(&self, position: u64, outcome: Result<(), Refusal>) {
        let code = outcome.map_or_else(|why| why as u32, |()| DONE);
        self.outcome.store(code, Ordering::Relaxed);
        self.turn.store(position + 1, Ordering::Release);
    }

    /// What was said of the slot at `position` in this lap. The producer has the slot until it has
    /// read this, so that the next lap's outcome is not written before.
    pub(super) fn read(&self, position: u64) -> Option<Result<(), Refusal>> {
        if self.turn.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        match self.outcome.load(Ordering::Relaxed) {
            DONE => Some(Ok(())),
            code => Refusal::of(code).map(Err),
        }
    }
}

/// Of a verdict: what the slot asks for was done.
const DONE: u32 = 0xff;
