//! Sleep and wake without a fence on the fast path.
//!
//! ```text
//!   the one who sends             the one who sleeps
//!   publish                       asleep = 1
//!   (nothing)                     membarrier: every running thread of the process has a full fence
//!   asleep? ── yes ─▶ ring        look at all rings once more
//!                                 sleep until rung
//! ```
//!
//! Sender: a store, then a load of another line. Without a fence a processor may do the load first
//! and both sides would miss each other. The sleeper, who has time, puts the fence into everybody.
#![expect(unsafe_code, reason = "membarrier(2) has no binding but syscall(2)")]

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::sync::{AtomicU32, Ordering};
use crate::waker::Waker;

/// Where one thread sleeps and others look whether it does.
pub(super) struct Doze {
    asleep: CachePadded<AtomicU32>,
    waker: Waker,
}

impl Doze {
    pub(super) fn new() -> io::Result<Doze> {
        barrier_is_there();
        Ok(Doze { asleep: CachePadded::new(AtomicU32::new(0)), waker: Waker::new()? })
    }

    /// Wakes the owner if it sleeps. To be called after publishing; one load if it does not.
    #[inline]
    pub(super) fn poke(&self) {
        if is_asleep(&self.asleep) {
            self.wake();
        }
    }

    /// Sleeps unless `ready` says that something is there; until poked, until `other` is rung, or
    /// until `timeout` is over.
    pub(super) fn sleep(
        &self,
        other: &Waker,
        timeout: Duration,
        ready: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let timeout = if barrier_is_there() { timeout } else { timeout.min(NAP) };
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
    light_barrier();
    asleep.load(Ordering::Relaxed) != 0
}

/// The sleeper's half. Whatever was published before a sender found us awake is visible now.
pub(super) fn fall_asleep(asleep: &AtomicU32) {
    asleep.store(1, Ordering::Relaxed);
    heavy_barrier();
}

/// Keeps the compiler from moving the load before the store; the processor may.
#[cfg(not(loom))]
#[inline]
fn light_barrier() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// A full fence on every thread of the process that runs, this one included.
#[cfg(not(loom))]
fn heavy_barrier() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    if barrier_is_there() {
        // SAFETY: membarrier takes three integers and no pointer.
        unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    }
}

/// Loom knows no asymmetric fences: two full ones order what one on both threads orders.
#[cfg(loom)]
fn light_barrier() {
    super::sync::fence(Ordering::SeqCst);
}

#[cfg(loom)]
fn heavy_barrier() {
    super::sync::fence(Ordering::SeqCst);
}

/// Registers the process for membarrier, once; false where the kernel has none. Sleeps are then
/// cut into naps.
fn barrier_is_there() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        if cfg!(miri) {
            return false;
        }
        // SAFETY: membarrier takes three integers and no pointer.
        unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
    })
}

/// The longest sleep when a wake-up may be missed.
const NAP: Duration = Duration::from_micros(200);

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of linux/membarrier.h.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` of linux/membarrier.h.
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
