//! What a program passes to the libraries: pointers to structures.
#![expect(unsafe_code, reason = "the libraries take pointers")]

/// What a pointer of a library's caller names.
pub(super) fn seen<'a, T>(it: *mut T) -> &'a mut T {
    // SAFETY: these functions are called by this crate, with what they have made or what it has, by
    // one thread at a time for each thing.
    unsafe { &mut *it }
}
