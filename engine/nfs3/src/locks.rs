//! Locks that a panic does not close: what they guard here is whole after every statement, or a memory of
//! what was seen that at worst is looked for again.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
