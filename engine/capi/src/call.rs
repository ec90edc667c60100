//! A call being written, of a client, a turn or a session.

use core::ffi::c_int;

use crate::loan::rpcrdma_loan;
use crate::payload::rpcrdma_payload;
use crate::unfinished;

/// A call under construction. It belongs to the client, turn or session that began it, which has
/// one at a time: beginning another discards it.
pub struct rpcrdma_call {
    _call: (),
}

/// Identifies a call that was made, to cancel it. Its content is the library's.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rpcrdma_call_id {
    /// The library's.
    pub words: [u64; 4],
}

/// What becomes of a call of a session when its connection is lost.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_resend {
    /// It completes with the loss.
    RPCRDMA_RESEND_NEVER = 0,
    /// It is sent again on the next connection with the same xid, by which a server with a reply
    /// cache executes it once.
    RPCRDMA_RESEND_SAME_XID = 1,
}

/// Results that a call may request by `rpcrdma_call_want` and the like.
pub const RPCRDMA_WANTS_MAX: usize = 8;
/// Pieces of a result buffer.
pub const RPCRDMA_SINK_PIECES_MAX: usize = 16;

/// The payload to write. NULL if there is no call.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_payload(call: *mut rpcrdma_call) -> *mut rpcrdma_payload {
    core::ptr::null_mut()
}

/// Begins an operation of the call: results requested from here on belong to it. A call without
/// this is one operation.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_operation(call: *mut rpcrdma_call) -> c_int {
    unfinished()
}

/// Requests one more data item of the reply outside of its payload, in placement segments. A
/// shorter item than `len_min` stays in the payload; at most `len_max` bytes are received.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want(
    call: *mut rpcrdma_call,
    len_min: u32,
    len_max: u32,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_call_want`, but the peer writes the item to a result buffer by RDMA Write. It has
/// `count` pieces, in all at least `len_max` bytes. Takes the loans, which come back by
/// `rpcrdma_completion_take_sink`.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want_into(
    call: *mut rpcrdma_call,
    len_min: u32,
    len_max: u32,
    sink: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_call_want_into`, but the peer may choose to place the item by Send.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want_either(
    call: *mut rpcrdma_call,
    len_min: u32,
    len_max: u32,
    sink: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_call_want_into`, but the peer places an item of at most `sent_max` bytes by Send.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_want_by_size(
    call: *mut rpcrdma_call,
    len_min: u32,
    len_max: u32,
    sent_max: u32,
    sink: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    unfinished()
}

/// Sets the maximum length of the reply's payload, from the transaction id on, without placed
/// items. The default is 1024 bytes, or the capacity of one message if that is less.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_reply_payload_max(
    call: *mut rpcrdma_call,
    bytes: u32,
) -> c_int {
    unfinished()
}

/// Ends the call with `RPCRDMA_E_DEADLINE` if its reply has not arrived by `at_ns`, on the clock
/// that its owner is polled with. The granularity is 1 ms.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_deadline(call: *mut rpcrdma_call, at_ns: u64) -> c_int {
    unfinished()
}

/// Sets the xid, to that of an earlier call that this one repeats. Not for calls of sessions.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_xid(call: *mut rpcrdma_call, xid: u32) -> c_int {
    unfinished()
}

/// What becomes of a call of a session when its connection is lost: a value of `rpcrdma_resend`.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_resend(call: *mut rpcrdma_call, resend: c_int) -> c_int {
    unfinished()
}

/// Sends the call with the next poll. `id` receives its identity, to cancel it; NULL if it is not
/// needed, which costs less.
///
/// A refused call stays with its memory: if `rpcrdma_is_transient(status)`, poll, and submit it
/// again, or discard it. Beginning another discards it, too.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_submit(
    call: *mut rpcrdma_call,
    id: *mut rpcrdma_call_id,
) -> c_int {
    unfinished()
}

/// Takes back the memory placed in a call that was refused, in the order of placing; once. Writes
/// at most `capacity` loans, and how many to `count`. Further ones return to their pool. Constant
/// bytes are not among them.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_take_placed(
    call: *mut rpcrdma_call,
    loans: *mut rpcrdma_loan,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    unfinished()
}

/// Takes back the result buffer of a want of a call that was refused, as
/// `rpcrdma_completion_take_sink`.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_take_sink(
    call: *mut rpcrdma_call,
    want: usize,
    pieces: *mut rpcrdma_loan,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    unfinished()
}

/// Discards the call; its memory returns to its pools.
///
/// Thread: that of the call's owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_call_discard(call: *mut rpcrdma_call) -> c_int {
    unfinished()
}
