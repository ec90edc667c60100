//! Places for calls that are queued: a call has one on its way to the thread, and while it waits
//! there for the session. The thread gives those that are free to the tasks that wait for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_channel::oneshot;

use crate::error::AsyncError;

/// The places that no call has.
#[derive(Clone)]
pub(crate) struct Places(Arc<AtomicUsize>);

/// The place of a call. It is free again when this is dropped.
pub(crate) struct Place(Places);

/// A task that waits for a place.
pub(crate) struct Waiter {
    /// When its call ends at the latest; `u64::MAX` if it has no deadline.
    pub until: u64,
    pub place: oneshot::Sender<Result<Place, AsyncError>>,
}

impl Places {
    pub fn new(count: usize) -> Places {
        Places(Arc::new(AtomicUsize::new(count)))
    }

    /// A place, if one is free.
    pub fn take(&self) -> Option<Place> {
        let less = |free: usize| free.checked_sub(1);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok().then(|| Place(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Place(Places(free)) = self;
        free.fetch_add(1, Ordering::AcqRel);
    }
}
