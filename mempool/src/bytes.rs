//! Registered bytes that do not change any more and are sent again and again.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::loan::Loan;
use crate::registrar::Sge;

/// Registered bytes that are only read. Made at setup, shared in an `Arc` by all who send from
/// them.
#[derive(Debug)]
pub struct RegisteredBytes {
    bytes: Loan,
    id: BytesId,
}

impl RegisteredBytes {
    /// Freezes a loan as it is.
    pub fn new(bytes: Loan) -> RegisteredBytes {
        // 2^64 of them cannot be made in a lifetime.
        RegisteredBytes { bytes, id: BytesId(NEXT_ID.fetch_add(1, Ordering::Relaxed)) }
    }

    /// A part that can be copied and sent for as long as these bytes exist. `None` if it is not
    /// inside.
    pub fn slice(&self, range: Range<usize>) -> Option<RegisteredSlice> {
        let inside = range.start <= range.end && range.end <= self.bytes.len();
        inside.then(|| RegisteredSlice { sge: self.bytes.sge(range), source: self.id })
    }

    /// Distinguishes these bytes from all others that this process ever registers.
    pub fn id(&self) -> BytesId {
        self.id
    }
}

impl Deref for RegisteredBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A part of [`RegisteredBytes`]: three words that keep nothing alive.
///
/// Whoever posts it must have been given the bytes before, and compares
/// [`RegisteredSlice::source`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredSlice {
    sge: Sge,
    source: BytesId,
}

impl RegisteredSlice {
    /// A gather entry for all of it.
    #[inline]
    pub fn sge(&self) -> Sge {
        self.sge
    }

    /// The bytes that it is a part of.
    #[inline]
    pub fn source(&self) -> BytesId {
        self.source
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.sge.length as usize
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sge.length == 0
    }
}

/// Names some [`RegisteredBytes`], once in the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BytesId(u64);

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::BulkPool;
    use crate::pool::PoolSpec;
    use crate::testing::memory;

    #[test]
    fn slices_name_their_bytes_and_their_source() {
        let spec = PoolSpec { slots: 2, slot_len: 100, align: 1 };
        let mut memory = memory(spec.bulk_region_len().expect("small"));
        let mut pool = BulkPool::new(&mut memory, &spec).expect("enough");
        let mut loan = pool.take().expect("two");
        loan[10..13].copy_from_slice(b"abc");
        let bytes = RegisteredBytes::new(loan);
        assert_eq!(&bytes[10..13], b"abc");

        let slice = bytes.slice(10..13).expect("inside");
        assert_eq!((slice.len(), slice.is_empty(), slice.source()), (3, false, bytes.id()));
        assert_eq!(slice.sge().addr, bytes.as_ptr().addr() as u64 + 10);
        assert!(bytes.slice(100..100).expect("the end").is_empty());
        assert_eq!(bytes.slice(99..101), None);
        assert_eq!(bytes.slice(std::ops::Range { start: 2, end: 1 }), None);

        let other = RegisteredBytes::new(pool.take().expect("two"));
        assert_ne!(other.id(), bytes.id());
    }
}
