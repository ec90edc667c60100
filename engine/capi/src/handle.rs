//! Handles: a shard, from any thread.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;
use std::ffi::CString;

use ::rpcrdma::{ShardHandle, ShardState};

use crate::arguments::{OK, array, caught, given, taken_back, text, value, write_text};
use crate::failure::{invalid, plain};
use crate::message::rpcrdma_connection;
use crate::stats::{names, rpcrdma_counter, write_counters};
use crate::status::rpcrdma_status::{RPCRDMA_E_BUSY, RPCRDMA_E_NO_PEER, RPCRDMA_E_STOPPED};
use crate::ticket::{finished_of, put_back, rpcrdma_finished, rpcrdma_ticket};

/// A shard, client or session, as other threads reach it.
pub struct rpcrdma_handle(pub(crate) ShardHandle);

/// The life cycle of a shard.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_state {
    /// It works while it is polled.
    RPCRDMA_RUNNING = 0,
    /// It is stopping, and closes its connections.
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
pub extern "C" fn rpcrdma_handle_clone(handle: Option<&rpcrdma_handle>) -> *mut rpcrdma_handle {
    handle
        .map_or(ptr::null_mut(), |handle| Box::into_raw(Box::new(rpcrdma_handle(handle.0.clone()))))
}

/// Frees a handle that was cloned. The shard does not end. NULL is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_free(handle: *mut rpcrdma_handle) {
    // SAFETY: the program had it from `rpcrdma_handle_clone`.
    drop(unsafe { taken_back(handle) });
}

/// The number of the shard, unique in its process.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_handle_number(handle: Option<&rpcrdma_handle>) -> u32 {
    handle.map_or(0, |handle| handle.0.shard())
}

/// The state of the shard: a value of `rpcrdma_state`.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_handle_state(handle: Option<&rpcrdma_handle>) -> c_int {
    given!(handle);
    let state = match handle.0.state() {
        ShardState::Running => rpcrdma_state::RPCRDMA_RUNNING,
        ShardState::Stopping => rpcrdma_state::RPCRDMA_STOPPING,
        ShardState::Panicked => rpcrdma_state::RPCRDMA_PANICKED,
        _ => rpcrdma_state::RPCRDMA_ENDED,
    };
    state as c_int
}

/// Connections that the shard has.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_handle_connections(handle: Option<&rpcrdma_handle>) -> usize {
    handle.map_or(0, |handle| handle.0.connections())
}

/// The counters of the shard: writes at most `capacity` of them, and how many there are to `count`.
/// Docs: docs/embedding.md.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_stats(
    handle: Option<&rpcrdma_handle>,
    counters: *mut rpcrdma_counter,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(handle, count);
    // SAFETY: the program passes so many places.
    let places = unsafe { array(counters.cast(), capacity) };
    caught(|| {
        let values: Vec<u64> = handle.0.stats().iter().map(|(_, value)| value).collect();
        let names = names().iter().map(CString::as_c_str);
        count.write(write_counters(names.zip(values), places));
        OK
    })
}

/// One counter of the shard, by its name, such as "calls_received".
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_counter(
    handle: Option<&rpcrdma_handle>,
    name: *const c_char,
    value: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    given!(handle, value);
    // SAFETY: the program passes a text.
    let name = value!(unsafe { text(name, "name") });
    let stats = handle.0.stats();
    let Some((_, count)) = stats.iter().find(|(of, _)| *of == name) else { return invalid("name") };
    value.write(count);
    OK
}

/// The actual resources of the shard (pages, locked memory, the way of exposure), as one line with a
/// NUL at its end, in at most `len` bytes.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_resources(
    handle: Option<&rpcrdma_handle>,
    text: *mut c_char,
    len: usize,
) -> c_int {
    given!(handle);
    // SAFETY: the program passes room for `len` bytes.
    unsafe { write_text(handle.0.resources(), text, len) }
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
    handle: Option<&rpcrdma_handle>,
    ticket: Option<&mut rpcrdma_ticket>,
    finished: *const rpcrdma_finished,
) -> c_int {
    given!(handle, ticket);
    if ticket.look().is_none() {
        return invalid("ticket");
    }
    // SAFETY: the program passes a structure with its size, and what it points to.
    let (finished, bulk) = value!(unsafe { finished_of(finished) });
    let Some(right) = ticket.take() else { return invalid("ticket") };
    match handle.0.finish(right, finished) {
        Ok(()) => OK,
        Err((right, finished)) => {
            ticket.put(right);
            put_back(finished, bulk);
            let is_over = matches!(handle.0.state(), ShardState::Ended | ShardState::Panicked);
            plain(if is_over { RPCRDMA_E_STOPPED } else { RPCRDMA_E_NO_PEER })
        }
    }
}

/// Wakes the shard for a turn if it sleeps: for an `on_turn` that reads what other threads queue.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_handle_wake(handle: Option<&rpcrdma_handle>) -> c_int {
    given!(handle);
    handle.0.wake();
    OK
}

/// Ends a connection at once. `RPCRDMA_E_BUSY` if too many orders wait.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_handle_close(
    handle: Option<&rpcrdma_handle>,
    connection: rpcrdma_connection,
) -> c_int {
    given!(handle);
    if handle.0.close(connection.name()) { OK } else { plain(RPCRDMA_E_BUSY) }
}

/// Asks the shard to stop: it delivers no new calls, and ends when those that it has are answered.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_handle_stop(handle: Option<&rpcrdma_handle>) -> c_int {
    given!(handle);
    handle.0.stop();
    OK
}
