//! Keys of queue pairs and queues, for late events: a number is used again, a key is not.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names a queue pair, or the queues of a port: nothing else in this process ever has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub u64);

/// What an event of the device names: where the library had it, and the key in its context. What has
/// the same place later has another key, and what others made has another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub at: *const c_void,
    pub key: Key,
}

impl Key {
    /// One that nobody has had.
    pub fn new() -> Key {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Key(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// What the library keeps for whoever made a thing, and does not look at.
    pub fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0 as usize)
    }
}
