//! Handles: a shard, from any thread.

use core::ffi::{c_char, c_int};

use crate::message::rpcrdma_connection;
use crate::stats::rpcrdma_counter;
use crate::ticket::{rpcrdma_finished, rpcrdma_ticket};
use crate::unfinished;

/// A shard, client or session, as other threads reach it.
pub struct rpcrdma_handle {
    _handle: (),
}

/// The life cycle of a shard.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_state {
    /// It works while it is polled.
    RPCRDMA_RUNNING = 0,
    /// It was told to stop, and closes its connections.
    RPCRDMA_STOPPING = 1,
    /// It is gone.
    RPCRDMA_ENDED = 2,
    /// A panic ended it.
    RPCRDMA_PANICKED = 3,
}

/// One more handle of the same shard; NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_clone(
    handle: *const rpcrdma_handle,
) -> *mut rpcrdma_handle {
    core::ptr::null_mut()
}

/// Frees a handle that was cloned. The shard does not end. NULL is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_free(handle: *mut rpcrdma_handle) {}

/// The number of the shard, unique in its process.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_number(handle: *const rpcrdma_handle) -> u32 {
    0
}

/// The state of the shard: a value of `rpcrdma_state`.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_state(handle: *const rpcrdma_handle) -> c_int {
    unfinished()
}

/// Connections that the shard has.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_connections(handle: *const rpcrdma_handle) -> usize {
    0
}

/// The counters of the shard: writes at most `capacity` of them, and how many there are to `count`.
/// Docs: docs/embedding.md.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_stats(
    handle: *const rpcrdma_handle,
    counters: *mut rpcrdma_counter,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    unfinished()
}

/// One counter of the shard, by its name, such as "calls_in".
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_counter(
    handle: *const rpcrdma_handle,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    unfinished()
}

/// What the shard obtained of its configuration (pages, locked memory, the way of exposure), as one
/// line with a NUL at its end, in at most `len` bytes.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_obtained(
    handle: *const rpcrdma_handle,
    text: *mut c_char,
    len: usize,
) -> c_int {
    unfinished()
}

/// Answers a deferred call from any thread; the shard sends the answer in its next turn. Takes the
/// ticket and the loans. If the connection has ended, the answer is dropped.
///
/// `RPCRDMA_E_NO_PEER` if the ticket belongs to another shard, `RPCRDMA_E_STOPPED` if the shard has
/// ended; then the ticket and the loans stay with the program.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_finish(
    handle: *const rpcrdma_handle,
    ticket: *mut rpcrdma_ticket,
    finished: *const rpcrdma_finished,
) -> c_int {
    unfinished()
}

/// Wakes the shard for a turn if it sleeps: for an `on_turn` that reads what other threads queue.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_wake(handle: *const rpcrdma_handle) -> c_int {
    unfinished()
}

/// Ends a connection at once. `RPCRDMA_E_BUSY` if too many orders wait.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_close(
    handle: *const rpcrdma_handle,
    connection: rpcrdma_connection,
) -> c_int {
    unfinished()
}

/// Tells the shard to stop: it delivers no new calls, and ends when those that it has are answered.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_stop(handle: *const rpcrdma_handle) -> c_int {
    unfinished()
}
