//! Received messages: calls for the handler, replies of completions.

use core::ffi::{c_char, c_int};

use crate::loan::{rpcrdma_loan, rpcrdma_slice};
use crate::unfinished;

/// Names a connection of one shard. Stale once the connection has ended. All zero for none.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rpcrdma_connection {
    /// The library's.
    pub id: u64,
}

/// A received call or reply, read in place.
pub struct rpcrdma_message {
    _message: (),
}

/// A call, for the handler. It ends with the callback. Later versions may add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_request {
    /// The calling peer.
    pub connection: rpcrdma_connection,
    /// The transaction id, unique among the open calls of the peer.
    pub xid: u32,
    /// 0.
    pub reserved: u32,
    /// The message, as it was received.
    pub message: *mut rpcrdma_message,
    /// Its payload, from the transaction id on, without placed items: the fast way to read it.
    /// `data` is NULL if it is not contiguous: use a reader. Short messages always are.
    pub bytes: rpcrdma_slice,
}

/// A call is over: its reply, or why there is none. It ends with the callback. Later versions may
/// add fields.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_completion {
    /// The value that the program attached to the call.
    pub cookie: u64,
    /// 0 if there is a reply; otherwise why there is none, as `rpcrdma_status`.
    pub status: c_int,
    /// What is known about the execution, as `rpcrdma_execution`.
    pub execution: c_int,
    /// The reply; NULL if there is none.
    pub message: *mut rpcrdma_message,
    /// The payload of the reply, as that of a request.
    pub bytes: rpcrdma_slice,
    /// The peer that was called; none for a call of a session.
    pub connection: rpcrdma_connection,
}

/// An item outside of the payload stream.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rpcrdma_placed {
    /// Its position in the unreduced XDR stream, or `RPCRDMA_NO_POSITION`: a reply in version one
    /// does not state it.
    pub position: u32,
    /// In a reply: the want that it answers, by the order of requests.
    pub index: u32,
    /// Its length in bytes.
    pub len: u32,
    /// Slices that it lies in.
    pub segments: u32,
}

/// The position of an item is not stated.
pub const RPCRDMA_NO_POSITION: u32 = u32::MAX;

/// Bytes of a payload in front of its RPC body: transaction id and message type.
pub const RPCRDMA_PREFIX_LEN: usize = 8;

/// How many items were placed outside of the payload stream.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_message_placed_count(message: *const rpcrdma_message) -> usize {
    0
}

/// A placed item, in stream order. `RPCRDMA_E_NOTHING` behind the last.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_message_placed(
    message: *const rpcrdma_message,
    item: usize,
    placed: *mut rpcrdma_placed,
) -> c_int {
    unfinished()
}

/// A slice of a placed item; empty if it was taken. `RPCRDMA_E_NOTHING` if there is none.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_message_segment(
    message: *const rpcrdma_message,
    item: usize,
    segment: usize,
    slice: *mut rpcrdma_slice,
) -> c_int {
    unfinished()
}

/// Takes a slice of a placed item out of its receive buffer, without a copy: `loan` receives it. It
/// counts as in `rpcrdma_message_segment`. `RPCRDMA_E_NO_SPARE`, `RPCRDMA_E_SHARED`: read and copy
/// the slice instead.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_message_take(
    message: *mut rpcrdma_message,
    item: usize,
    segment: usize,
    loan: *mut rpcrdma_loan,
) -> c_int {
    unfinished()
}

/// The address of the caller, as text with a NUL at its end, in at most `len` bytes.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_request_address(
    request: *const rpcrdma_request,
    text: *mut c_char,
    len: usize,
) -> c_int {
    unfinished()
}

/// The xid of a call that is over, to repeat it with.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_completion_xid(completion: *const rpcrdma_completion) -> u32 {
    0
}

/// Takes back the result buffer of a want, by the order of requests; once. Writes at most
/// `capacity` pieces, which is as many as were given, and how many to `count`. Further ones return
/// to their pool. `RPCRDMA_E_NOTHING` if the want had none, or the device may still write to it.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_completion_take_sink(
    completion: *mut rpcrdma_completion,
    want: usize,
    pieces: *mut rpcrdma_loan,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    unfinished()
}

/// Takes back the memory placed in a call of a session that ended while it waited; once. As
/// `rpcrdma_completion_take_sink`. That of a call that was under way returns to its pools.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_completion_take_placed(
    completion: *mut rpcrdma_completion,
    loans: *mut rpcrdma_loan,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    unfinished()
}
