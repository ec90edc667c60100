//! Registered bytes that are constant, and can be sent many times.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::loan::Loan;
use crate::registrar::Sge;

/// Registered bytes that are constant and can be sent many times. Made at set-up; a clone shares
/// the bytes.
///
/// They return to their pool when the last owner is dropped. Owners are the program's handles and
/// every [`RegisteredSlice`], including those of messages that a device or a peer may still read.
#[derive(Debug, Clone)]
pub struct RegisteredBytes(Arc<Loan>);

impl RegisteredBytes {
    /// Makes the bytes of a loan constant. Allocates a few words.
    pub fn new(bytes: Loan) -> RegisteredBytes {
        RegisteredBytes(Arc::new(bytes))
    }

    /// A part that can be sent. `None` if the range is not inside.
    ///
    /// Cost: one locked instruction, and one more when the slice is dropped.
    pub fn slice(&self, range: Range<usize>) -> Option<RegisteredSlice> {
        let inside = range.start <= range.end && range.end <= self.0.len();
        // A loan's length fits 32 bits.
        let (start, len) = (range.start as u32, range.end.saturating_sub(range.start) as u32);
        inside.then(|| RegisteredSlice { bytes: Arc::clone(&self.0), start, len })
    }
}

impl Deref for RegisteredBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A part of [`RegisteredBytes`], which it keeps alive.
#[derive(Debug, Clone)]
pub struct RegisteredSlice {
    bytes: Arc<Loan>,
    start: u32,
    len: u32,
}

impl RegisteredSlice {
    /// A gather entry for `range` of the slice.
    ///
    /// # Panics
    /// If the range is not in the slice.
    #[inline]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let len = self.len as usize;
        assert!(range.end <= len, "{range:?} of a slice of {len} bytes");
        let start = self.start as usize;
        self.bytes.sge(start + range.start..start + range.end)
    }
}

impl Deref for RegisteredSlice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start as usize..(self.start + self.len) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::BulkPool;
    use crate::pool::PoolSpec;
    use crate::testing::memory;

    fn pool() -> BulkPool {
        let spec = PoolSpec { slots: 2, slot_len: 100, align: 1 };
        let mut memory = memory(spec.bulk_region_len().expect("small"));
        BulkPool::new(&mut memory, &spec).expect("enough")
    }

    #[test]
    fn slices_are_parts_of_their_bytes() {
        let mut pool = pool();
        let mut loan = pool.take().expect("two");
        loan[10..13].copy_from_slice(b"abc");
        let bytes = RegisteredBytes::new(loan);
        assert_eq!(&bytes[10..13], b"abc");

        let slice = bytes.slice(10..13).expect("inside");
        assert_eq!((&*slice, slice.len()), (&b"abc"[..], 3));
        assert_eq!(slice.sge(0..3).addr, bytes.as_ptr().addr() as u64 + 10);
        assert_eq!((slice.sge(1..3).addr, slice.sge(1..3).length), (slice.sge(0..3).addr + 1, 2));
        assert!(bytes.slice(100..100).expect("the end").is_empty());
        assert!(bytes.slice(99..101).is_none());
        assert!(bytes.slice(std::ops::Range { start: 2, end: 1 }).is_none());
    }

    #[test]
    #[should_panic(expected = "of a slice of 3 bytes")]
    fn an_entry_beyond_the_slice_is_refused() {
        let bytes = RegisteredBytes::new(pool().take().expect("two"));
        let _ = bytes.slice(10..13).expect("inside").sge(0..4);
    }

    #[test]
    fn bytes_return_to_their_pool_with_the_last_owner() {
        let mut pool = pool();
        let bytes = RegisteredBytes::new(pool.take().expect("two"));
        let (slice, clone) = (bytes.slice(0..5).expect("inside"), bytes.clone());
        let later = slice.clone();
        for owner in [Box::new(bytes) as Box<dyn Send>, Box::new(slice), Box::new(clone)] {
            drop(owner);
            pool.reclaim();
            assert_eq!(pool.free(), 1, "a slice is out");
        }
        std::thread::spawn(move || drop(later)).join().expect("does not panic");
        pool.reclaim();
        assert_eq!(pool.free(), 2);
    }
}
