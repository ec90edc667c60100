//! Counters, by name.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use std::ffi::CString;
use std::sync::OnceLock;

use ::rpcrdma::Snapshot;

/// A counter, or a gauge of a report. Later versions may have more of them: find one by its name.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_counter {
    /// Its name: a constant text.
    pub name: *const c_char,
    /// The count so far, or the number at the moment of the report.
    pub value: u64,
}

/// Writes as many counters as there is room for; returns how many there are.
pub(crate) fn write_counters(
    all: impl ExactSizeIterator<Item = (&'static CStr, u64)>,
    places: &mut [MaybeUninit<rpcrdma_counter>],
) -> usize {
    let count = all.len();
    for (place, (name, value)) in places.iter_mut().zip(all) {
        place.write(rpcrdma_counter { name: name.as_ptr(), value });
    }
    count
}

/// The names of a shard's counters, in the order of [`Snapshot::iter`].
pub(crate) fn names() -> &'static [CString] {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let snapshot = Snapshot::default();
        snapshot.iter().map(|(name, _)| CString::new(name).unwrap_or_default()).collect()
    })
}
