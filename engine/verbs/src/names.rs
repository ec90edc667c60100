//! Keys of queue pairs and queues, for late events: a number is used again, a key is not.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies a queue pair, or the queues of a port. Unique in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub u64);

/// What an event of the device names: the library's address of the object, and the key in its
/// context. A later object at the same address has another key; an object of other code has another
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub at: *const c_void,
    pub key: Key,
}

impl Key {
    /// A new, unique key.
    pub fn new() -> Key {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Key(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The key as a user context, which the library stores and does not read.
    pub fn as_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0 as usize)
    }
}
