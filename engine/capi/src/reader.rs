//! Reading XDR from received messages.

use core::ffi::c_int;

use crate::loan::rpcrdma_slice;
use crate::message::rpcrdma_message;
use crate::unfinished;

/// Reads XDR from a payload, across its slices. Valid as long as the message. Its content is the
/// library's; a copy reads on from the same place.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_reader {
    /// The library's.
    pub words: [u64; 8],
}

/// A reader of a message, positioned behind transaction id and message type.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reader_init(
    reader: *mut rpcrdma_reader,
    message: *const rpcrdma_message,
) -> c_int {
    unfinished()
}

/// A reader of payload that the program has kept; positioned at its first byte.
///
/// Thread: any; the bytes stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reader_init_bytes(
    reader: *mut rpcrdma_reader,
    bytes: rpcrdma_slice,
) -> c_int {
    unfinished()
}

/// A reader positioned at the results of a call, behind the RPC header of its reply.
/// `RPCRDMA_E_DENIED` if the server did not execute the call, `RPCRDMA_E_HEADER` if the header is
/// invalid.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reader_init_results(
    reader: *mut rpcrdma_reader,
    message: *const rpcrdma_message,
) -> c_int {
    unfinished()
}

/// An unsigned integer. `RPCRDMA_E_END` if the message ends before.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_u32(reader: *mut rpcrdma_reader, value: *mut u32) -> c_int {
    unfinished()
}

/// An unsigned hyper integer. `RPCRDMA_E_END` if the message ends before.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_u64(reader: *mut rpcrdma_reader, value: *mut u64) -> c_int {
    unfinished()
}

/// Fixed-length opaque data, without padding: exactly `len` bytes, copied to `out`.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_fixed(
    reader: *mut rpcrdma_reader,
    out: *mut u8,
    len: usize,
) -> c_int {
    unfinished()
}

/// Variable-length opaque data or a string (count, bytes, padding), copied to `out`, which has room
/// for `capacity` bytes; `len` receives the count. Of data that are longer
/// (`RPCRDMA_E_OPAQUE_TOO_LONG`) only the count is read, and `len` receives it.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_opaque(
    reader: *mut rpcrdma_reader,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> c_int {
    unfinished()
}

/// At most `len_max` bytes without a copy, as many as are contiguous; at least one.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_some(
    reader: *mut rpcrdma_reader,
    len_max: usize,
    slice: *mut rpcrdma_slice,
) -> c_int {
    unfinished()
}

/// Skips `len` bytes.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_skip(reader: *mut rpcrdma_reader, len: usize) -> c_int {
    unfinished()
}

/// Bytes read so far, from the transaction id on, without placed items.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reader_position(reader: *const rpcrdma_reader) -> usize {
    0
}
