//! The payload of a message under construction: XDR, and data that are sent from their place.

use core::ffi::c_int;

use crate::loan::{rpcrdma_bytes, rpcrdma_loan};
use crate::unfinished;

/// The payload of a call or reply that is being written, from behind transaction id and message
/// type. Errors are kept: sending the message returns them.
///
/// Cost: a function call for each item. To write a whole head with one `rpcrdma_put_fixed` is the
/// fast way.
pub struct rpcrdma_payload {
    _payload: (),
}

/// Writes an unsigned integer.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_u32(payload: *mut rpcrdma_payload, value: u32) {}

/// Writes an unsigned hyper integer.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_u64(payload: *mut rpcrdma_payload, value: u64) {}

/// Writes variable-length opaque data or a string: count, bytes, padding.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_opaque(
    payload: *mut rpcrdma_payload,
    data: *const u8,
    len: usize,
) {
}

/// Writes fixed-length opaque data: bytes, padding.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_fixed(
    payload: *mut rpcrdma_payload,
    data: *const u8,
    len: usize,
) {
}

/// Writes the RPC header of a call (RFC 5531), with AUTH_NONE.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_call_header(
    payload: *mut rpcrdma_payload,
    program: u32,
    version: u32,
    procedure: u32,
) {
}

/// Writes the RPC header of a reply that has results: accepted, SUCCESS.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_put_reply_header(payload: *mut rpcrdma_payload) {}

/// Writes the count of variable-length opaque data, and sends the bytes from their place. They go
/// to placement segments or memory of the peer if it asks for that, and follow in line otherwise.
/// Takes the loan, which returns to its pool when the message has left.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_place(
    payload: *mut rpcrdma_payload,
    loan: *mut rpcrdma_loan,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_place`, for one data item in several pieces. Takes all loans, or none.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_place_pieces(
    payload: *mut rpcrdma_payload,
    loans: *mut rpcrdma_loan,
    count: usize,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_place`, for a part of constant bytes, which stay in place.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_place_bytes(
    payload: *mut rpcrdma_payload,
    bytes: *const rpcrdma_bytes,
    offset: usize,
    len: usize,
) -> c_int {
    unfinished()
}

/// The current position in the unreduced XDR stream.
///
/// Thread: that of the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_position(payload: *const rpcrdma_payload) -> u32 {
    0
}
