//! Where the thread of a set of queues sleeps, in the process.

use std::io;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use rpcrdma_provider::{SetupError, Waker};
use rpcrdma_transport::sync::AtomicU32;
use rpcrdma_transport::{barrier, doze};

/// Where one thread sleeps; other threads check whether it does.
pub(super) struct Doze {
    asleep: CachePadded<AtomicU32>,
    waker: Waker,
}

impl Doze {
    pub(super) fn new() -> Result<Doze, SetupError> {
        Ok(Doze { asleep: CachePadded::new(AtomicU32::new(0)), waker: Waker::set_up()? })
    }

    /// Wakes the owner if it sleeps. Called after publishing. Costs one load if the owner is awake.
    #[inline]
    pub(super) fn poke(&self) {
        doze::poke(&self.asleep, barrier::compiler, || self.waker.ring());
    }

    /// Sleeps until poked, until `other` is rung, or until `timeout` is over. Returns at once if
    /// `ready` is true.
    pub(super) fn sleep(
        &self,
        other: &Waker,
        timeout: Duration,
        ready: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let barrier = || {
            barrier::heavy();
            barrier::is_there()
        };
        let wait = |timeout| Waker::sleep([&self.waker, other], timeout);
        let slept = doze::sleep(|| [&*self.asleep].into_iter(), barrier, ready, timeout, wait);
        let is_rung = slept.unwrap_or(Ok(false))?;
        if is_rung {
            self.waker.drain();
        }
        Ok(())
    }
}
