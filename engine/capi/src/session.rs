//! Sessions: calls to a service whose connections come and go.

use core::ffi::{c_char, c_int, c_void};

use crate::call::{rpcrdma_call, rpcrdma_call_id};
use crate::client::{rpcrdma_client, rpcrdma_on_completion};
use crate::handle::rpcrdma_handle;
use crate::message::rpcrdma_connection;
use crate::turn::rpcrdma_turn;
use crate::unfinished;

/// A service behind one or several addresses: it connects, connects again, spreads calls over its
/// connections, and keeps calls while there is none.
pub struct rpcrdma_session {
    _session: (),
}

/// How a session connects, and what it keeps meanwhile. 0 is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_session_options {
    /// `sizeof(rpcrdma_session_options)`.
    pub size: usize,
    /// Connections at a time; 1 by default, and at most `connections.max`.
    pub connections: usize,
    /// The first delay before a lost connection is made again; 10 ms by default.
    pub backoff_min_ns: u64,
    /// The longest delay; 5 s by default.
    pub backoff_max_ns: u64,
    /// Calls that may wait; 1024 by default.
    pub waiting_calls: usize,
    /// Bytes that they may hold; 64 MiB by default.
    pub waiting_bytes: usize,
}

/// What happened to a connection of a session.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_session_event_kind {
    /// It is up.
    RPCRDMA_SESSION_CONNECTED = 0,
    /// It was lost.
    RPCRDMA_SESSION_LOST = 1,
    /// It was not made.
    RPCRDMA_SESSION_NOT_CONNECTED = 2,
}

/// What happened to a connection of a session.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_session_event {
    /// A value of `rpcrdma_session_event_kind`.
    pub kind: c_int,
    /// Why it was lost or not made, as `rpcrdma_status`; otherwise 0.
    pub status: c_int,
    /// Its name, if it is up.
    pub connection: rpcrdma_connection,
    /// When the next address is tried, from then on, if it was not made.
    pub again_in_ns: u64,
    /// Where to, as text.
    pub address: [c_char; 128],
}

/// A session over a client without connections, which it takes: `*client` becomes NULL. It connects
/// with its first poll. All `addresses` are those of one service, in the order of preference.
/// `options` may be NULL.
///
/// Thread: polling, of the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_new(
    client: *mut *mut rpcrdma_client,
    addresses: *const *const c_char,
    count: usize,
    options: *const rpcrdma_session_options,
    session: *mut *mut rpcrdma_session,
) -> c_int {
    unfinished()
}

/// Ends a session at once, with its connections and calls. NULL is ignored.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_free(session: *mut rpcrdma_session) {}

/// Begins a call. `cookie` comes back with its completion. A call under construction is discarded.
/// The call is sent with the next poll after `rpcrdma_call_submit`, or kept until there are a
/// connection and credits.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_call(
    session: *mut rpcrdma_session,
    cookie: u64,
    call: *mut *mut rpcrdma_call,
) -> c_int {
    unfinished()
}

/// Ends a call before its reply, as `rpcrdma_client_cancel`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_cancel(
    session: *mut rpcrdma_session,
    call: rpcrdma_call_id,
) -> c_int {
    unfinished()
}

/// Connects, sends what waits and was submitted, and passes every completion to `done`: 1 if there
/// was work, 0 if not. Never blocks. `done` must not use the session.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_poll(
    session: *mut rpcrdma_session,
    now_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_session_poll`, until there was work, at most `timeout_ns`; with the clock of
/// `rpcrdma_now`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_poll_for(
    session: *mut rpcrdma_session,
    timeout_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    unfinished()
}

/// What happened to its connections, oldest first. `RPCRDMA_E_NOTHING` if there is nothing new. Of
/// more than 256 that nobody asks for, the oldest are forgotten.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_next_event(
    session: *mut rpcrdma_session,
    event: *mut rpcrdma_session_event,
) -> c_int {
    unfinished()
}

/// Connections that are up.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_connections(session: *const rpcrdma_session) -> usize {
    0
}

/// Calls that are not completed: under way or waiting.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_open_calls(session: *const rpcrdma_session) -> usize {
    0
}

/// Stops: calls that wait complete with `RPCRDMA_E_CLOSED`, calls under way have
/// `connections.stop_timeout` to complete. Poll until `rpcrdma_session_is_closed`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_close(session: *mut rpcrdma_session) -> c_int {
    unfinished()
}

/// Whether all is over.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_is_closed(session: *mut rpcrdma_session) -> bool {
    true
}

/// Waits until there may be something to do, at most `timeout_ns`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_wait(
    session: *mut rpcrdma_session,
    timeout_ns: u64,
) -> c_int {
    unfinished()
}

/// The shard behind it, for memory, tickets and limits. It ends with the next call on the session.
/// NULL for NULL.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_turn(
    session: *mut rpcrdma_session,
    now_ns: u64,
) -> *mut rpcrdma_turn {
    core::ptr::null_mut()
}

/// The handle to reach it from other threads. It ends with the session: clone it to keep it for
/// longer. NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_handle(
    session: *const rpcrdma_session,
) -> *const rpcrdma_handle {
    core::ptr::null()
}
