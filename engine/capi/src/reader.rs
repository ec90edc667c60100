//! Reading XDR from received messages.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;

use ::rpcrdma::onc::ResultsError;
use ::rpcrdma::{EndOfMessage, PayloadReader, ReadError};

use crate::arguments::{self, OK, given, zeroed};
use crate::failure::{Failure, fail, invalid, plain, with_text};
use crate::loan::rpcrdma_slice;
use crate::message::rpcrdma_message;
use crate::status::rpcrdma_status::{
    RPCRDMA_E_DENIED, RPCRDMA_E_END, RPCRDMA_E_HEADER, RPCRDMA_E_OTHER,
};

/// Reads XDR from a payload, across its slices. Valid as long as the message. Its content is the
/// library's; a copy reads on from the same place.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_reader {
    /// Not 0 if it is one.
    pub state: u64,
    /// The library's.
    pub words: [MaybeUninit<u64>; 7],
}

const _: () = assert!(size_of::<PayloadReader<'static>>() <= size_of::<[u64; 7]>());
const _: () = assert!(align_of::<PayloadReader<'static>>() <= align_of::<u64>());

/// The state of a reader that is one.
const READY: u64 = 0x6472_6472_6471_0001;

impl rpcrdma_reader {
    /// Gives it to the program.
    pub(crate) fn put(place: &mut MaybeUninit<rpcrdma_reader>, reader: PayloadReader<'_>) -> c_int {
        let to = place.write(rpcrdma_reader { state: READY, words: [MaybeUninit::uninit(); 7] });
        let words = ptr::from_mut(&mut to.words).cast::<PayloadReader<'_>>();
        // SAFETY: the words have the size and the alignment of a reader, as is asserted above. It
        // has no destructor.
        unsafe { words.write(reader) };
        OK
    }

    /// The reader; `None` if the program has not initialized it.
    #[inline]
    fn of<'a>(reader: Option<&'a mut rpcrdma_reader>) -> Option<&'a mut PayloadReader<'a>> {
        let reader = reader.filter(|reader| reader.state == READY)?;
        let words = ptr::from_mut(&mut reader.words).cast::<PayloadReader<'a>>();
        // SAFETY: `put` has set this state, and the program has changed nothing. What it reads is
        // there: the program uses it in the callback of its message, or keeps its bytes.
        Some(unsafe { &mut *words })
    }
}

/// A reader of a message, positioned behind transaction id and message type.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reader_init(
    reader: Option<&mut MaybeUninit<rpcrdma_reader>>,
    message: Option<&rpcrdma_message>,
) -> c_int {
    given!(reader, message);
    let Some(incoming) = message.incoming() else { return invalid("message") };
    rpcrdma_reader::put(reader, incoming.reader())
}

/// A reader of payload that the program has kept; positioned at its first byte.
///
/// Thread: any; the bytes stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_reader_init_bytes(
    reader: Option<&mut MaybeUninit<rpcrdma_reader>>,
    bytes: rpcrdma_slice,
) -> c_int {
    given!(reader);
    // SAFETY: the program keeps the bytes as long as the reader.
    let bytes = unsafe { arguments::bytes(bytes.data, bytes.len) };
    rpcrdma_reader::put(reader, PayloadReader::of(bytes))
}

/// A reader positioned at the results of a call, behind the RPC header of its reply.
/// `RPCRDMA_E_DENIED` if the server did not execute the call, `RPCRDMA_E_HEADER` if the header is
/// invalid.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reader_init_results(
    reader: Option<&mut MaybeUninit<rpcrdma_reader>>,
    message: Option<&rpcrdma_message>,
) -> c_int {
    given!(reader, message);
    let Some(incoming) = message.incoming() else { return invalid("message") };
    match incoming.results() {
        Ok(results) => rpcrdma_reader::put(reader, results),
        Err(error @ ResultsError::Header(_)) => with_text(RPCRDMA_E_HEADER, &error),
        Err(error @ ResultsError::Denied(_)) => with_text(RPCRDMA_E_DENIED, &error),
        Err(error) => with_text(RPCRDMA_E_OTHER, &error),
    }
}

/// An unsigned integer. `RPCRDMA_E_END` if the message ends before.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_get_u32(
    reader: Option<&mut rpcrdma_reader>,
    value: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    let Some(reader) = rpcrdma_reader::of(reader) else { return invalid("reader") };
    given!(value);
    match reader.u32() {
        Ok(word) => value.write(word),
        Err(_) => return plain(RPCRDMA_E_END),
    };
    OK
}

/// An unsigned hyper integer. `RPCRDMA_E_END` if the message ends before.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_get_u64(
    reader: Option<&mut rpcrdma_reader>,
    value: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    let Some(reader) = rpcrdma_reader::of(reader) else { return invalid("reader") };
    given!(value);
    match reader.u64() {
        Ok(word) => value.write(word),
        Err(_) => return plain(RPCRDMA_E_END),
    };
    OK
}

/// A boolean, or the word in front of optional data, behind which the value follows if it is true.
/// `RPCRDMA_E_BAD_BOOL` if it is neither 0 nor 1, `RPCRDMA_E_END` if the message ends before.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_get_bool(
    reader: Option<&mut rpcrdma_reader>,
    value: Option<&mut MaybeUninit<bool>>,
) -> c_int {
    let Some(reader) = rpcrdma_reader::of(reader) else { return invalid("reader") };
    given!(value);
    match reader.bool() {
        Ok(read) => value.write(read),
        Err(why) => return fail(Failure::Read(why)),
    };
    OK
}

/// Fixed-length opaque data, as `rpcrdma_put_fixed` writes it: exactly `len` bytes, copied to `out`,
/// and padding.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_fixed(
    reader: Option<&mut rpcrdma_reader>,
    out: *mut u8,
    len: usize,
) -> c_int {
    // SAFETY: as this function's.
    unsafe { get(reader, out, len, PayloadReader::fixed_into) }
}

/// Variable-length opaque data or a string (count, bytes, padding), copied to `out`, which has room
/// for `capacity` bytes; `len` receives the count. Of data that are longer
/// (`RPCRDMA_E_OPAQUE_TOO_LONG`) only the count is read, and `len` receives it.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_opaque(
    reader: Option<&mut rpcrdma_reader>,
    out: *mut u8,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    let Some(reader) = rpcrdma_reader::of(reader) else { return invalid("reader") };
    given!(len);
    // Only as many bytes of the program are written as there are in the message.
    let count = reader.clone().u32().map_or(0, |count| count as usize);
    // SAFETY: the program passes room for `capacity` bytes.
    let out = unsafe { zeroed(out, capacity.min(count)) };
    match reader.opaque_into(out) {
        Ok(read) => {
            len.write(read.len());
            OK
        }
        Err(why) => {
            if let ReadError::TooLong { len: count, .. } = why {
                len.write(count);
            }
            fail(Failure::Read(why))
        }
    }
}

/// At most `len_max` bytes without a copy, as many as are contiguous; at least one.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_get_some(
    reader: Option<&mut rpcrdma_reader>,
    len_max: usize,
    slice: Option<&mut MaybeUninit<rpcrdma_slice>>,
) -> c_int {
    let Some(reader) = rpcrdma_reader::of(reader) else { return invalid("reader") };
    given!(slice);
    if len_max == 0 {
        return invalid("len_max: 0, and at least 1 is read");
    }
    match reader.some(len_max) {
        Ok(bytes) => slice.write(rpcrdma_slice::of(bytes)),
        Err(_) => return plain(RPCRDMA_E_END),
    };
    OK
}

/// A string (count, bytes, padding), copied to `out` with a NUL at its end, in at most `capacity`
/// bytes. `RPCRDMA_E_OPAQUE_TOO_LONG` if it is longer: only the count is read. `RPCRDMA_E_OTHER` if
/// there is a NUL in it.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_string(
    reader: Option<&mut rpcrdma_reader>,
    out: *mut c_char,
    capacity: usize,
) -> c_int {
    if out.is_null() || capacity == 0 {
        return invalid("out");
    }
    let mut len = MaybeUninit::uninit();
    // SAFETY: the program passes room for `capacity` bytes.
    let number = unsafe { rpcrdma_get_opaque(reader, out.cast(), capacity - 1, Some(&mut len)) };
    if number != OK {
        return number;
    }
    // SAFETY: the function has returned success.
    let len = unsafe { len.assume_init() };
    // SAFETY: it is less than `capacity`.
    unsafe { out.wrapping_add(len).write(0) };
    // SAFETY: so many bytes are written.
    let text = unsafe { arguments::bytes(out.cast(), len) };
    match text.iter().position(|byte| *byte == 0) {
        None => OK,
        Some(at) => with_text(RPCRDMA_E_OTHER, &format_args!("a string has a NUL at byte {at}")),
    }
}

/// Bytes without padding, copied to `out`.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_get_bytes(
    reader: Option<&mut rpcrdma_reader>,
    out: *mut u8,
    len: usize,
) -> c_int {
    // SAFETY: as this function's.
    unsafe { get(reader, out, len, PayloadReader::bytes_into) }
}

/// Skips `len` bytes.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_skip(reader: Option<&mut rpcrdma_reader>, len: usize) -> c_int {
    let Some(reader) = rpcrdma_reader::of(reader) else { return invalid("reader") };
    match reader.skip(len) {
        Ok(()) => OK,
        Err(_) => plain(RPCRDMA_E_END),
    }
}

/// Bytes read so far, from the transaction id on, without placed items.
///
/// Thread: callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_reader_position(reader: Option<&rpcrdma_reader>) -> usize {
    // A copy reads from the same place.
    let mut copy = reader.copied();
    rpcrdma_reader::of(copy.as_mut()).map_or(0, |reader| reader.position())
}

/// Reads exactly `len` bytes.
///
/// # Safety
/// `out` has room for `len` bytes.
unsafe fn get<'a>(
    reader: Option<&'a mut rpcrdma_reader>,
    out: *mut u8,
    len: usize,
    read: impl FnOnce(&mut PayloadReader<'a>, &mut [u8]) -> Result<(), EndOfMessage>,
) -> c_int {
    let Some(reader) = rpcrdma_reader::of(reader) else { return invalid("reader") };
    // SAFETY: the caller guarantees it.
    let out = unsafe { zeroed(out, len) };
    if out.len() < len {
        return invalid("out");
    }
    match read(reader, out) {
        Ok(()) => OK,
        Err(_) => plain(RPCRDMA_E_END),
    }
}
