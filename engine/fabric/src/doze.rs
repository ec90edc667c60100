//! Sleep and wake without a fence on the fast path.
//!
//! ```text
//!   the sender                    the sleeper
//!   publish                       asleep = 1
//!   (nothing)                     membarrier: every running thread of the process has a full fence
//!   asleep? ── yes ─▶ ring        check all rings again
//!                                 sleep until rung
//! ```
//!
//! The sender stores, then loads another cache line. Without a fence a processor may execute the
//! load first, and both sides would miss each other. The sleeper, which has time, causes the fence
//! in all threads.

use std::io;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use rpcrdma_provider::Waker;
use rpcrdma_transport::barrier;
use rpcrdma_transport::sync::{AtomicU32, Ordering};

/// Where one thread sleeps; other threads check whether it does.
pub(super) struct Doze {
    asleep: CachePadded<AtomicU32>,
    waker: Waker,
}

impl Doze {
    pub(super) fn new() -> io::Result<Doze> {
        Ok(Doze { asleep: CachePadded::new(AtomicU32::new(0)), waker: Waker::new()? })
    }

    /// Wakes the owner if it sleeps. Called after publishing. Costs one load if the owner is awake.
    #[inline]
    pub(super) fn poke(&self) {
        if is_asleep(&self.asleep) {
            self.wake();
        }
    }

    /// Sleeps until poked, until `other` is rung, or until `timeout` is over. Returns at once if
    /// `ready` is true.
    pub(super) fn sleep(
        &self,
        other: &Waker,
        timeout: Duration,
        ready: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let timeout = if barrier::is_there() { timeout } else { timeout.min(NAP) };
        fall_asleep(&self.asleep);
        let outcome = if ready() { Ok(false) } else { Waker::sleep([&self.waker, other], timeout) };
        self.asleep.store(0, Ordering::Relaxed);
        if let Ok(true) = outcome {
            self.waker.drain();
        }
        outcome.map(drop)
    }

    #[cold]
    fn wake(&self) {
        self.asleep.store(0, Ordering::Relaxed);
        self.waker.ring();
    }
}

/// The sender's half: is the owner asleep, or about to be?
#[inline]
pub(super) fn is_asleep(asleep: &AtomicU32) -> bool {
    barrier::compiler();
    asleep.load(Ordering::Relaxed) != 0
}

/// The sleeper's half. Everything published before a sender saw this side awake is visible now.
pub(super) fn fall_asleep(asleep: &AtomicU32) {
    asleep.store(1, Ordering::Relaxed);
    barrier::heavy();
}

/// The longest sleep when a wake-up may be missed.
const NAP: Duration = Duration::from_micros(200);
