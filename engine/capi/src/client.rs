//! The client: a calling shard that its program polls.

use core::ffi::{c_char, c_int, c_void};

use crate::call::{rpcrdma_call, rpcrdma_call_id};
use crate::engine::rpcrdma_engine;
use crate::handle::rpcrdma_handle;
use crate::loan::rpcrdma_loan;
use crate::message::{rpcrdma_completion, rpcrdma_connection};
use crate::turn::rpcrdma_turn;
use crate::unfinished;

/// A shard that only sends calls, and that its program polls.
pub struct rpcrdma_client {
    _client: (),
}

/// Receives each completion of a client or session. `arg` is that of the poll.
pub type rpcrdma_on_completion =
    Option<unsafe extern "C" fn(arg: *mut c_void, completion: *mut rpcrdma_completion)>;

/// A client for the calling thread to poll.
///
/// Thread: one at a time; the calling thread polls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_new(
    engine: *mut rpcrdma_engine,
    client: *mut *mut rpcrdma_client,
) -> c_int {
    unfinished()
}

/// Ends a client at once, with its connections. NULL is ignored.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_free(client: *mut rpcrdma_client) {}

/// Connects and waits until calls can be made. Completions of other calls that arrive meanwhile
/// are lost: connect first. Needs an engine with a control thread.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_connect(
    client: *mut rpcrdma_client,
    to: *const c_char,
    connection: *mut rpcrdma_connection,
) -> c_int {
    unfinished()
}

/// Requests a connection; `rpcrdma_client_connected` returns the outcome after some polls.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_begin_connect(
    client: *mut rpcrdma_client,
    to: *const c_char,
    attempt: *mut u64,
) -> c_int {
    unfinished()
}

/// The outcome of an attempt to connect, once: 0 with `connection`, `RPCRDMA_E_PENDING` if it is
/// open (or was returned), otherwise why there is none.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_connected(
    client: *mut rpcrdma_client,
    attempt: u64,
    connection: *mut rpcrdma_connection,
) -> c_int {
    unfinished()
}

/// Begins a call. `cookie` comes back with its completion. A call under construction is discarded.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_call(
    client: *mut rpcrdma_client,
    connection: rpcrdma_connection,
    cookie: u64,
    call: *mut *mut rpcrdma_call,
) -> c_int {
    unfinished()
}

/// Ends a call before its reply: it completes with `RPCRDMA_E_CANCELLED` in the next poll, unless
/// its reply arrives first. `RPCRDMA_E_NOTHING` if it is over.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_cancel(
    client: *mut rpcrdma_client,
    call: rpcrdma_call_id,
) -> c_int {
    unfinished()
}

/// Sends submitted calls, processes arrivals and passes every completion to `done`: 1 if there was
/// work, 0 if not. Never blocks. `done` must not use the client.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_poll(
    client: *mut rpcrdma_client,
    now_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_client_poll`, until there was work, at most `timeout_ns`; with the clock of
/// `rpcrdma_now`. After some ten microseconds without work the thread sleeps.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_poll_for(
    client: *mut rpcrdma_client,
    timeout_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    unfinished()
}

/// A registered buffer of the configured length: `loan` receives it. `RPCRDMA_E_NO_BUFFER` if none
/// is free.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_buffer(
    client: *mut rpcrdma_client,
    loan: *mut rpcrdma_loan,
) -> c_int {
    unfinished()
}

/// Returns a loan, without the atomic operations of `rpcrdma_loan_free`. Takes it.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_release(
    client: *mut rpcrdma_client,
    loan: *mut rpcrdma_loan,
) -> c_int {
    unfinished()
}

/// Sleeps, or not, as `engine.idle` says, after a poll that was `busy` (not 0) or not; at most
/// `timeout_ns`. 1 if the thread has yielded its core: read the clock anew; otherwise 0.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_rest(
    client: *mut rpcrdma_client,
    busy: c_int,
    now_ns: u64,
    timeout_ns: u64,
) -> c_int {
    unfinished()
}

/// Announces that the thread is about to sleep in an event loop, and looks once more: 0 if there is
/// work, so poll; 1 if the thread may sleep until `rpcrdma_client_fd` is readable, at most `most_ns`
/// (`UINT64_MAX` without a limit), and then polls. Submit first, then arm.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_arm(
    client: *mut rpcrdma_client,
    now_ns: u64,
    most_ns: *mut u64,
) -> c_int {
    unfinished()
}

/// The descriptor that ends the sleep announced by `rpcrdma_client_arm`, for epoll or poll. It is
/// level-triggered, and the client's: do not close it. Negative on failure.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_fd(client: *const rpcrdma_client) -> c_int {
    unfinished()
}

/// Waits until there may be something to do, at most `timeout_ns`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_wait(
    client: *mut rpcrdma_client,
    timeout_ns: u64,
) -> c_int {
    unfinished()
}

/// The shard behind it, for memory, tickets and limits. It ends with the next call on the client.
/// NULL for NULL.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_turn(
    client: *mut rpcrdma_client,
    now_ns: u64,
) -> *mut rpcrdma_turn {
    core::ptr::null_mut()
}

/// The handle to reach it from other threads. It ends with the client: clone it to keep it for
/// longer. NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_handle(
    client: *const rpcrdma_client,
) -> *const rpcrdma_handle {
    core::ptr::null()
}
