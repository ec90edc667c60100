//! Places for calls that are queued: a call has one on its way to the thread, and while it waits
//! there for the session. A task takes one that is free unless others wait for one: to them the
//! thread gives those that are free, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_channel::oneshot;

use super::error::AsyncError;

/// The places that no call has.
#[derive(Clone)]
pub(crate) struct Places(Arc<Counts>);

struct Counts {
    free: AtomicUsize,
    /// Tasks that wait for one.
    waiting: AtomicUsize,
}

/// The place of a call. It is free again when this is dropped.
pub(crate) struct Place(Places);

/// A task that waits for a place.
pub(crate) struct Waiter {
    /// When its call ends at the latest; `u64::MAX` if it has no deadline.
    pub until: u64,
    pub place: oneshot::Sender<Result<Place, AsyncError>>,
    _counted: Counted,
}

/// A waiter is counted as long as this exists.
struct Counted(Places);

impl Places {
    pub fn new(count: usize) -> Places {
        let (free, waiting) = (AtomicUsize::new(count), AtomicUsize::new(0));
        Places(Arc::new(Counts { free, waiting }))
    }

    /// A place for a task that has not waited, if one is free and no task waits for one.
    pub fn take_unless_any_waits(&self) -> Option<Place> {
        match self.0.waiting.load(Ordering::Acquire) {
            0 => self.take(),
            _ => None,
        }
    }

    /// A place, if one is free.
    pub fn take(&self) -> Option<Place> {
        let less = |free: usize| free.checked_sub(1);
        let taken = self.0.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok().then(|| Place(self.clone()))
    }

    /// A task that waits for a place until then at the latest.
    pub fn waiter(&self, until: u64, place: oneshot::Sender<Result<Place, AsyncError>>) -> Waiter {
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        Waiter { until, place, _counted: Counted(self.clone()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Place(Places(counts)) = self;
        counts.free.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Counted(Places(counts)) = self;
        counts.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
