//! What a slot of a ring carries, and what comes back of it.

use crate::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};

/// Bytes of a message that travels in its slot.
pub(crate) const INLINE_LEN: usize = 224;

/// What a slot carries. Plain data: any bytes are a valid value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Body {
    pub(super) acks: Acks,
    /// The queue pair that it is for.
    pub dst: u32,
    /// What it asks for: one of the numbers in `lane.rs`.
    pub op: u8,
    /// How many gather pieces `bytes` holds; 0 when it holds the message itself.
    pub pieces: u8,
    reserved: u16,
    /// Bytes of the message, or of a Read or Write.
    pub byte_len: u32,
    /// The key of the peer that it is about; of a plain Send nothing.
    pub rkey: u32,
    /// The message or its pieces.
    pub bytes: [u8; INLINE_LEN],
}

/// The position behind the last slot of a ring that its consumer has taken.
///
/// Made by a [`Consumer`] only, so that a [`Producer`] can rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub(crate) struct Acks(pub(super) u64);

impl Acks {
    /// The position behind the last slot taken.
    #[inline]
    pub(crate) fn taken(self) -> u64 {
        self.0
    }
}

/// Why a consumer refused a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Refusal {
    /// The message is longer than the Receive that it met.
    TooLong = 1,
    /// No Receive was posted for too long.
    NotReady = 2,
    /// The queue pair is in the error state or gone.
    Gone = 3,
    /// The Receive's own memory could not be written.
    Broken = 4,
    /// The sender's own memory is not there any more.
    Unreadable = 5,
    /// A key of this side is unknown, or its bounds or rights are too narrow.
    Access = 6,
}

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
        Some(match self.outcome.load(Ordering::Relaxed) {
            1 => Err(Refusal::TooLong),
            2 => Err(Refusal::NotReady),
            3 => Err(Refusal::Gone),
            4 => Err(Refusal::Broken),
            5 => Err(Refusal::Unreadable),
            6 => Err(Refusal::Access),
            DONE => Ok(()),
            _ => return None,
        })
    }
}

impl Body {
    pub(crate) fn empty() -> Body {
        Body {
            acks: Acks(0),
            dst: 0,
            op: 0,
            pieces: 0,
            reserved: 0,
            byte_len: 0,
            rkey: 0,
            bytes: [0; INLINE_LEN],
        }
    }

    /// The ack that came along.
    #[inline]
    pub(crate) fn acks(&self) -> Acks {
        self.acks
    }
}

/// Of a verdict: what the slot asks for was done.
const DONE: u32 = 0xff;
