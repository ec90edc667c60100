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
    /// Queue pairs with a fatal error.
    pub pairs_failed: u64,
    /// Queue pairs whose last Receive has completed.
    pub last_receives: u64,
    /// Completion queues and shared receive queues with a fatal error.
    pub queues_failed: u64,
    /// Times that the device was removed or broke.
    pub devices_lost: u64,
    /// All other events.
    pub others: u64,
    /// Endpoints that could not be created, and objects that could not be destroyed.
    pub failures: u64,
    /// The reason of the last failure.
    pub last_failure: Option<String>,
}

/// The counters, and related state.
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
    /// Whether the device has ever reported the last Receive of a queue pair.
    pub fn has_reported_last_receive(&self) -> bool {
        self.last_receives.load(Relaxed) > 0
    }

    /// Whether the device is gone or broken: no objects can be created on it.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Records why an object could not be created or destroyed.
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
    // A panic cannot leave the guarded data inconsistent.
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
