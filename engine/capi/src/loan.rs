//! Loans: registered memory that the program owns.

use core::ffi::{c_int, c_void};

use crate::unfinished;

/// Registered memory with one owner: a buffer, or a segment that was taken out of a message.
///
/// The program reads and writes `data`, and may lower `len`; the other fields are the library's.
/// Copying the structure moves the loan: only one copy may be used. A function that takes it sets
/// `data` to NULL. It ends by being placed, given as a sink, released or freed.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_loan {
    /// The bytes; NULL for none.
    pub data: *mut u8,
    /// Its pool.
    pub owner: *mut c_void,
    /// How many bytes there are.
    pub len: u32,
    /// Its place in the pool.
    pub slot: u32,
}

/// Constant registered bytes that are sent repeatedly and stay in place.
pub struct rpcrdma_bytes {
    _bytes: (),
}

/// Bytes that belong to someone else.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_slice {
    /// The first byte; NULL if there are none.
    pub data: *const u8,
    /// How many there are.
    pub len: usize,
}

/// Returns a loan to its pool. `rpcrdma_turn_release` costs less on the pool's own thread. A loan
/// whose `data` is NULL is ignored. A loan may outlive its shard and engine.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_loan_free(loan: *mut rpcrdma_loan) {
    let _ = loan;
}

/// Makes the bytes of a loan constant, to be sent repeatedly. Takes the loan.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_bytes_new(
    loan: *mut rpcrdma_loan,
    bytes: *mut *mut rpcrdma_bytes,
) -> c_int {
    unfinished()
}

/// One more owner of the same bytes; NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_bytes_clone(bytes: *const rpcrdma_bytes) -> *mut rpcrdma_bytes {
    core::ptr::null_mut()
}

/// The bytes, to read.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_bytes_slice(bytes: *const rpcrdma_bytes) -> rpcrdma_slice {
    rpcrdma_slice { data: core::ptr::null(), len: 0 }
}

/// Ends one owner. The memory returns to its pool after the last, and after every message that
/// sends it has left. NULL is ignored.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_bytes_free(bytes: *mut rpcrdma_bytes) {}
