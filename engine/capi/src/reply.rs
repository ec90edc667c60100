//! The answer to a call: exactly one of sent, deferred, refused.

use core::ffi::c_int;

use crate::message::rpcrdma_message;
use crate::payload::rpcrdma_payload;
use crate::reader::rpcrdma_reader;
use crate::ticket::rpcrdma_ticket;
use crate::unfinished;

/// The reply to one call. The callback answers by exactly one of `rpcrdma_reply_send`,
/// `rpcrdma_reply_try_send`, `rpcrdma_reply_defer`, `rpcrdma_reply_refuse`, `rpcrdma_reply_deny`
/// and a failed `rpcrdma_reply_arguments`. A callback that returns without an answer refuses the
/// call. Every function on an answered reply is `RPCRDMA_E_INVALID`.
pub struct rpcrdma_reply {
    _reply: (),
}

/// An RPC program (RFC 5531).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_program {
    /// Its number.
    pub number: u32,
    /// Its version.
    pub version: u32,
    /// One more than its last procedure.
    pub procedures: u32,
}

/// How a server accepts or denies a call (accept_stat of RFC 5531).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_accept_status {
    /// Executed; results follow.
    RPCRDMA_SUCCESS = 0,
    /// The program is not exported here.
    RPCRDMA_PROG_UNAVAIL = 1,
    /// The program has no such procedure.
    RPCRDMA_PROC_UNAVAIL = 3,
    /// The arguments cannot be read.
    RPCRDMA_GARBAGE_ARGS = 4,
    /// The server failed, for example to allocate memory.
    RPCRDMA_SYSTEM_ERR = 5,
}

/// The payload to write. NULL if the call is answered.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_payload(reply: *mut rpcrdma_reply) -> *mut rpcrdma_payload {
    core::ptr::null_mut()
}

/// Reads the RPC header of the call: its procedure, and a reader positioned at its arguments. A
/// call that is invalid, or to another program, is answered by this function
/// (`RPCRDMA_E_DENIED`): return from the callback.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_arguments(
    reply: *mut rpcrdma_reply,
    message: *const rpcrdma_message,
    program: *const rpcrdma_program,
    procedure: *mut u32,
    reader: *mut rpcrdma_reader,
) -> c_int {
    unfinished()
}

/// Sets the operation whose results are placed from now on: the one that begins at `origin` in the
/// unreduced XDR stream of the call. A call of one operation does not need this.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_operation(reply: *mut rpcrdma_reply, origin: u32) -> c_int {
    unfinished()
}

/// Sends the reply at the end of the turn. If it cannot be sent, the caller gets an error;
/// `rpcrdma_reply_try_send` returns the reason.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_send(reply: *mut rpcrdma_reply) -> c_int {
    unfinished()
}

/// As `rpcrdma_reply_send`, but a reply that cannot be sent stays open, to be deferred or refused.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_try_send(reply: *mut rpcrdma_reply) -> c_int {
    unfinished()
}

/// Keeps the right to answer later, on this thread or another: `ticket` receives it. What was
/// written is discarded.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_defer(
    reply: *mut rpcrdma_reply,
    ticket: *mut rpcrdma_ticket,
) -> c_int {
    unfinished()
}

/// Rejects the call: the caller learns that there will be no reply.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_refuse(reply: *mut rpcrdma_reply) -> c_int {
    unfinished()
}

/// Sends a reply without results, with this `rpcrdma_accept_status`: the call is not executed. The
/// payload must be empty.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reply_deny(reply: *mut rpcrdma_reply, status: c_int) -> c_int {
    unfinished()
}
