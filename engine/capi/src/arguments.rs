//! What C programs pass and get: texts, bytes, arrays, structures with their size; and panics, which
//! do not reach them.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::rpcrdma::Address;

use crate::failure::{invalid, plain, with_text};
use crate::status::rpcrdma_status::{
    RPCRDMA_E_ADDRESS, RPCRDMA_E_PANICKED, RPCRDMA_E_TRUNCATED, RPCRDMA_OK,
};

/// The success of a function.
pub(crate) const OK: c_int = RPCRDMA_OK as c_int;

/// Makes references of optional ones, or returns `RPCRDMA_E_INVALID` with the name.
macro_rules! given {
    ($($name:ident),+) => {
        $(let Some($name) = $name else { return $crate::failure::invalid(stringify!($name)) };)+
    };
}
pub(crate) use given;

/// As `given`, for an object whose functions may be called inside its own callbacks: they look
/// themselves.
macro_rules! shared {
    ($name:ident) => {
        // SAFETY: the program passes NULL or an object that it was given, and has not freed it.
        let Some($name) = (unsafe { $name.as_ref() }) else {
            return $crate::failure::invalid(stringify!($name));
        };
    };
}
pub(crate) use shared;

/// The value of a result, or returns the number of its failure.
macro_rules! value {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(number) => return number,
        }
    };
}
pub(crate) use value;

/// Runs `act`, and makes a number of a panic.
pub(crate) fn caught(act: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        // A value whose drop panics would get past this.
        std::mem::forget(panic);
        plain(RPCRDMA_E_PANICKED)
    })
}

/// Gives the program an object of its own.
pub(crate) fn give<T>(place: &mut MaybeUninit<*mut T>, object: impl Into<Box<T>>) -> c_int {
    place.write(Box::into_raw(object.into()));
    OK
}

/// The object that the program was given, or nothing.
///
/// # Safety
/// `object` is NULL or from [`give`], and the program does not use it any more.
pub(crate) unsafe fn taken_back<T>(object: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller guarantees it.
    (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
}

/// A text of the program.
///
/// # Safety
/// `text` is NULL or ends with a NUL, and stays during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &'static str) -> Result<&'a str, c_int> {
    if text.is_null() {
        return Err(invalid(name));
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid(name))
}

/// An address of the program.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn address(at: *const c_char) -> Result<Address, c_int> {
    // SAFETY: the caller guarantees it.
    let at = unsafe { text(at, "address") }?;
    at.parse().map_err(|why| with_text(RPCRDMA_E_ADDRESS, &why))
}

/// Bytes of the program. NULL has none.
///
/// # Safety
/// `data` is NULL, or has `len` bytes that stay and do not change for `'a`.
#[inline(always)]
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees it; a slice of C is no longer than `isize::MAX`.
    unsafe { core::slice::from_raw_parts(data, len) }
}

/// Room for bytes of the program, which are made zero. NULL has none.
///
/// # Safety
/// `out` is NULL, or has room for `len` bytes that nothing else uses for `'a`.
pub(crate) unsafe fn zeroed<'a>(out: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: the caller guarantees it.
    let room = unsafe { array(out.cast::<MaybeUninit<u8>>(), len) };
    for byte in room.iter_mut() {
        byte.write(0);
    }
    // SAFETY: they are written now.
    unsafe { array(out, len) }
}

/// An array of the program. NULL has no elements.
///
/// # Safety
/// `first` is NULL, or there are `count` elements that nothing else uses for `'a`.
pub(crate) unsafe fn array<'a, T>(first: *mut T, count: usize) -> &'a mut [T] {
    if first.is_null() {
        return &mut [];
    }
    // SAFETY: as in `bytes`.
    unsafe { core::slice::from_raw_parts_mut(first, count) }
}

/// Writes a text with a NUL at its end. A NULL `out` needs none.
///
/// # Safety
/// `out` is NULL, or has room for `len` bytes.
pub(crate) unsafe fn write_text(
    text: &dyn core::fmt::Display,
    out: *mut c_char,
    len: usize,
) -> c_int {
    if out.is_null() {
        return OK;
    }
    let text = text.to_string();
    // SAFETY: the caller guarantees it; any byte may be in it.
    let out = unsafe { array(out.cast::<MaybeUninit<u8>>(), len) };
    let Some(most) = out.len().checked_sub(1) else { return plain(RPCRDMA_E_TRUNCATED) };
    let written = text.len().min(most);
    for (place, byte) in out.iter_mut().zip(text.bytes().take(written).chain([0])) {
        place.write(byte);
    }
    if written < text.len() { plain(RPCRDMA_E_TRUNCATED) } else { OK }
}

/// Writes a text with a NUL at its end into an array, as far as it fits.
pub(crate) fn c_chars(text: &dyn core::fmt::Display, out: &mut [c_char]) {
    let text = text.to_string();
    let most = out.len().saturating_sub(1);
    for (place, byte) in out.iter_mut().zip(text.bytes().take(most).chain([0])) {
        *place = byte as c_char;
    }
}

/// More than a structure of any version has.
const STRUCTURE_MAX: usize = 4096;

/// A structure that begins with its size: its copy, in which fields behind a smaller size are those
/// of `all_defaults`. `Err` if it has more than this version knows, and that is not zero.
///
/// # Safety
/// `given` is valid for as many bytes as its first word states. `T` is a structure of C whose first
/// field is its size, and all bytes of `given` are initialized where `T` has fields.
pub(crate) unsafe fn sized<T: Copy>(
    given: *const T,
    all_defaults: T,
    name: &'static str,
) -> Result<T, c_int> {
    if given.is_null() {
        return Err(invalid(name));
    }
    // SAFETY: the first field is its size.
    let size = unsafe { given.cast::<usize>().read() };
    let (known, from) = (size_of::<T>(), given.cast::<u8>());
    // A size that no compiler gives a structure is not one: the memory was not initialized.
    if !(size_of::<usize>()..=STRUCTURE_MAX).contains(&size)
        || !size.is_multiple_of(align_of::<T>())
    {
        return Err(invalid(name));
    }
    if size > known {
        let rest = from.wrapping_add(known);
        // SAFETY: the caller guarantees so many bytes.
        let rest = unsafe { bytes(rest, size - known) };
        if rest.iter().any(|byte| *byte != 0) {
            return Err(invalid(name));
        }
    }
    let mut copy = all_defaults;
    let to = core::ptr::from_mut(&mut copy).cast::<u8>();
    // SAFETY: both have at least so many bytes, and the copy is this function's own.
    unsafe { core::ptr::copy_nonoverlapping(from, to, size.min(known)) };
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::rpcrdma_status::RPCRDMA_E_INVALID;

    #[test]
    fn a_panic_becomes_a_number() {
        assert_eq!(caught(|| panic!("a defect")), RPCRDMA_E_PANICKED.number());
        assert_eq!(caught(|| 7), 7);
    }

    #[test]
    fn a_text_ends_where_its_room_ends() {
        let mut room = [1; 4];
        // SAFETY: there is room for so many bytes.
        let mut write = |len| unsafe { write_text(&"abc", room.as_mut_ptr(), len) };
        assert_eq!(write(0), RPCRDMA_E_TRUNCATED.number());
        assert_eq!(write(2), RPCRDMA_E_TRUNCATED.number());
        assert_eq!(room.map(|byte| byte as u8), *b"a\0\x01\x01");
        // SAFETY: as above.
        assert_eq!(unsafe { write_text(&"abc", room.as_mut_ptr(), 4) }, OK);
        assert_eq!(room.map(|byte| byte as u8), *b"abc\0");
        let mut short = [1; 3];
        c_chars(&"abc", &mut short);
        assert_eq!(short.map(|byte| byte as u8), *b"ab\0");
    }

    #[test]
    fn a_structure_has_the_fields_that_its_size_covers() {
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        struct Options {
            size: usize,
            first: usize,
            second: usize,
        }
        const DEFAULTS: Options = Options { size: 0, first: 1, second: 2 };
        let read = |given: &[usize]| {
            // SAFETY: the first word states no more bytes than there are.
            unsafe { sized(given.as_ptr().cast::<Options>(), DEFAULTS, "options") }
        };
        let word = size_of::<usize>();
        assert_eq!(read(&[word]), Ok(Options { size: word, first: 1, second: 2 }));
        assert_eq!(read(&[2 * word, 7]), Ok(Options { size: 2 * word, first: 7, second: 2 }));
        assert_eq!(read(&[4 * word, 7, 8, 0]), Ok(Options { size: 4 * word, first: 7, second: 8 }));
        assert_eq!(read(&[4 * word, 7, 8, 9]), Err(RPCRDMA_E_INVALID.number()));
        assert_eq!(read(&[word - 1]), Err(RPCRDMA_E_INVALID.number()));
        // SAFETY: NULL is what it looks for.
        let null = unsafe { sized(core::ptr::null(), DEFAULTS, "options") };
        assert_eq!(null, Err(RPCRDMA_E_INVALID.number()));
    }
}
