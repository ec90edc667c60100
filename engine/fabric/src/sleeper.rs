//! Where the thread of a set of queues sleeps, in the process.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use rpcrdma_provider::{SetupError, Waker};
use rpcrdma_transport::sync::AtomicU32;
use rpcrdma_transport::{barrier, sleep};

/// Where one thread sleeps; other threads check whether it does.
pub(super) struct Sleeper {
    asleep: CachePadded<AtomicU32>,
    waker: Waker,
}

impl Sleeper {
    pub(super) fn new() -> Result<Sleeper, SetupError> {
        Ok(Sleeper { asleep: CachePadded::new(AtomicU32::new(0)), waker: Waker::set_up()? })
    }

    /// Wakes the owner if it sleeps. Called after publishing. Costs one load if the owner is awake.
    #[inline]
    pub(super) fn wake(&self) {
        sleep::notify(&self.asleep, barrier::compiler, || {
            self.waker.ring();
            true
        });
    }

    /// Has [`Sleeper::wake`] ring from now on, unless `is_ready`. Returns how long the owner may
    /// sleep.
    pub(super) fn arm(&self, is_ready: impl FnOnce() -> bool) -> Option<Duration> {
        let barrier = || {
            barrier::heavy();
            barrier::is_there()
        };
        sleep::fall_asleep(|| self.words(), barrier, is_ready)
    }

    /// The owner is awake.
    pub(super) fn disarm(&self, is_rung: bool) {
        sleep::wake_up(self.words());
        if is_rung {
            self.waker.drain();
        }
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU32> {
        [&*self.asleep].into_iter()
    }

    /// What [`Sleeper::wake`] rings.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
