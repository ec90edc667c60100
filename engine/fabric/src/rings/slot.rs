//! A slot of a ring, and its result for the sender.

use rpcrdma_transport::body::{Body, Refusal};
use rpcrdma_transport::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

#[repr(C, align(256))]
pub(super) struct Slot {
    pub(super) turn: AtomicU64,
    pub(super) body: UnsafeCell<Body>,
}

/// The consumer's result for a slot, apart from having taken it.
pub(super) struct Outcome {
    /// The turn that `outcome` belongs to; any other than the current one is stale.
    turn: AtomicU64,
    outcome: AtomicU32,
    /// When the slot was taken, in ns; written only if the ring has a delay.
    pub(super) taken_at: AtomicU64,
}

impl Outcome {
    pub(super) fn new() -> Outcome {
        let [turn, taken_at] = [0; 2].map(AtomicU64::new);
        Outcome { turn, outcome: AtomicU32::new(0), taken_at }
    }

    /// A reader of the result sees all memory accesses before it.
    pub(super) fn set(&self, position: u64, outcome: Result<(), Refusal>) {
        self.outcome.store(Refusal::code_of(outcome), Ordering::Relaxed);
        self.turn.store(position + 1, Ordering::Release);
    }

    /// The result of the slot at `position` in this lap. The producer holds the slot until it has
    /// read this, so that the next lap's outcome is not written before.
    pub(super) fn read(&self, position: u64) -> Option<Result<(), Refusal>> {
        if self.turn.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        Refusal::outcome_of(self.outcome.load(Ordering::Relaxed))
    }
}
