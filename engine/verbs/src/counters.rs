//! Counters of a device's events, and its last failure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma_provider::SetupError;

/// What a device has reported since it was opened, and what has failed on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeviceEvents {
    /// Times that the port went down.
    pub ports_down: u64,
    /// Times that the port came up.
    pub ports_up: u64,
    /// Queue pairs that the device has given up.
    pub pairs_failed: u64,
    /// Queue pairs whose Receives have all come back.
    pub last_receives: u64,
    /// Completion queues and shared receive queues that are lost.
    pub queues_failed: u64,
    /// Times that the device was removed or broke.
    pub devices_lost: u64,
    /// Everything else that it has reported.
    pub others: u64,
    /// Ends of connections that could not be made, and what could not be ended as it should.
    pub failures: u64,
    /// Why the last of them could not.
    pub last_failure: Option<String>,
}

/// The counters, and what else is remembered.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub ports_down: AtomicU64,
    pub ports_up: AtomicU64,
    pub pairs_failed: AtomicU64,
    pub last_receives: AtomicU64,
    pub queues_failed: AtomicU64,
    pub devices_lost: AtomicU64,
    pub others: AtomicU64,
    failures: AtomicU64,
    last_failure: Mutex<Option<String>>,
    pub is_lost: AtomicBool,
}

impl Counters {
    /// Whether the device has ever said that it has no Receives of a queue pair any more.
    pub fn has_told_last_receive(&self) -> bool {
        self.last_receives.load(Relaxed) > 0
    }

    /// The device is gone or broken: nothing can be made on it.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Remembers why something could not be made or ended, for whoever asks.
    #[cold]
    pub fn note_failure(&self, error: &SetupError) {
        self.failures.fetch_add(1, Relaxed);
        *lock(&self.last_failure) = Some(error.to_string());
    }

    pub fn snapshot(&self) -> DeviceEvents {
        DeviceEvents {
            ports_down: self.ports_down.load(Relaxed),
            ports_up: self.ports_up.load(Relaxed),
            pairs_failed: self.pairs_failed.load(Relaxed),
            last_receives: self.last_receives.load(Relaxed),
            queues_failed: self.queues_failed.load(Relaxed),
            devices_lost: self.devices_lost.load(Relaxed),
            others: self.others.load(Relaxed),
            failures: self.failures.load(Relaxed),
            last_failure: lock(&self.last_failure).clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is never left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error;

    #[test]
    fn the_last_failure_is_kept_with_its_reason() {
        let counters = Counters::default();
        assert_eq!(counters.snapshot(), DeviceEvents::default());
        counters.note_failure(&error::code("ibv_create_qp", libc::ENOMEM));
        counters.note_failure(&error::code("rdma_accept", libc::EINVAL));
        let events = counters.snapshot();
        assert_eq!(events.failures, 2);
        assert!(events.last_failure.expect("there was one").contains("rdma_accept"));
    }
}
