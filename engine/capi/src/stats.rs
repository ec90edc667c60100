//! Counters, by name.

use core::ffi::c_char;

/// A counter. Later versions may have more of them: find one by its name.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_counter {
    /// Its name: a constant text.
    pub name: *const c_char,
    /// The count so far.
    pub value: u64,
}
