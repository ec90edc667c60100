//! A pool of equal slots in a part of a registered region.
//!
//! ```text
//!   base        stride                 one span, one key
//!    │◀───────────────────▶│
//!    ├─── slot_len ───┬────┼────────────────┬────┼──▶
//!    │    slot 0      │    │    slot 1      │    │
//!    └────────────────┴────┴────────────────┴────┴──▶
//! ```
#![expect(unsafe_code, reason = "turns a token into the bytes that belong to it")]

use std::ops::Range;
use std::ptr::NonNull;

use crate::free_list::{FreeList, FreeListError};
use crate::registered::{RegionFull, Registered, Span};
use crate::registrar::Sge;
use crate::slot::SendSlot;
use crate::token::{Quiet, Token, kind};

/// Fixed slots, each with one owner. Belongs to one thread; does not allocate after it is made.
///
/// Dropped while tokens are out, it leaks its memory: a device may still be writing there.
#[derive(Debug)]
pub struct Pool<K> {
    list: FreeList<K>,
    base: NonNull<u8>,
    stride: usize,
    slot_len: usize,
    lkey: u32,
    span: Span,
}

// SAFETY: `base` points into `span`, which is exclusive to this pool and may go to any thread.
// Bytes are accessed only through tokens, each of which has one owner.
unsafe impl<K> Send for Pool<K> {}

// SAFETY: `&Pool` reads its own fields, which do not change, and lends a slot only against a
// reference to the slot's token: shared bytes for a shared token, exclusive bytes for an exclusive
// one.
unsafe impl<K> Sync for Pool<K> {}

impl<K> Pool<K> {
    /// Carves a pool out of registered memory.
    pub fn new(memory: &mut Registered, spec: &PoolSpec) -> Result<Pool<K>, PoolError> {
        let layout = spec.layout()?;
        let list = FreeList::new(spec.slots)?;
        let span = memory.carve(layout.bytes, layout.align)?;
        Ok(Pool {
            list,
            base: span.base(),
            stride: layout.stride,
            slot_len: spec.slot_len,
            lkey: span.lkey(),
            span,
        })
    }

    /// Takes the slot that was returned last, if one is free. A few instructions.
    #[inline]
    pub fn pop(&mut self) -> Option<Token<K>> {
        self.list.pop()
    }

    /// Returns a slot to the pool. A few instructions.
    ///
    /// # Panics
    /// If the token belongs to another pool. This applies to all methods that take a token.
    #[inline]
    pub fn push(&mut self, token: Token<K>) {
        self.list.push(token);
    }

    /// Makes every slot free, as in a new pool.
    pub fn recall(&mut self, quiet: Quiet) {
        self.list.recall(quiet);
    }

    /// Writes `byte` over every free slot. For tests: bytes that must never be read or sent.
    pub fn poison(&mut self, byte: u8) {
        for &index in self.list.free_indices() {
            let first = self.slot(index);
            // SAFETY: slot `index` is free, so no token for it exists and nothing else may access
            // its `slot_len` bytes; they lie in the span.
            unsafe { first.write_bytes(byte, self.slot_len) };
        }
    }

    /// The slot's bytes.
    #[inline]
    pub fn bytes<'t>(&self, token: &'t Token<K>) -> &'t [u8] {
        let first = self.slot(self.list.index(token));
        // SAFETY: the token is of this pool (`index` checked it), so the bytes lie in the span,
        // were zeroed by the kernel, and may be touched by its holder only, who lends it for 't.
        // They stay mapped for 't even if the pool is dropped: a pool with a token out leaks its
        // memory.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.slot_len) }
    }

    /// The slot's bytes, for writing.
    #[inline]
    pub fn bytes_mut<'t>(&self, token: &'t mut Token<K>) -> &'t mut [u8] {
        let first = self.slot(self.list.index(token));
        // SAFETY: as in `bytes`; the token is lent exclusively, so for 't no other reference to
        // these bytes exists or can be made.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), self.slot_len) }
    }

    /// A scatter or gather entry for a part of the slot.
    ///
    /// # Panics
    /// If the range is not in the slot.
    #[inline]
    pub fn sge(&self, token: &Token<K>, range: Range<usize>) -> Sge {
        if range.start > range.end || range.end > self.slot_len {
            outside(range, self.slot_len);
        }
        let length = (range.end - range.start) as u32;
        Sge { addr: self.addr(token) + range.start as u64, length, lkey: self.lkey }
    }

    /// The address of the slot's first byte.
    #[inline]
    pub fn addr(&self, token: &Token<K>) -> u64 {
        self.slot(self.list.index(token)).as_ptr().addr() as u64
    }

    /// Bytes of a slot.
    #[inline]
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// The number of free slots.
    #[inline]
    pub fn free(&self) -> usize {
        self.list.free()
    }

    /// The total number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// The first byte of a slot. `index` is less than the capacity.
    #[inline]
    fn slot(&self, index: u32) -> NonNull<u8> {
        // SAFETY: `index` is less than the capacity, and `layout` has made the span long enough for
        // as many strides.
        unsafe { self.base.add(index as usize * self.stride) }
    }
}

impl Pool<kind::Send> {
    /// The slot of a token, with its address.
    ///
    /// # Panics
    /// If the token belongs to another pool.
    #[inline]
    pub(crate) fn open(&self, token: Token<kind::Send>) -> SendSlot {
        let first = self.slot(self.list.index(&token));
        // SAFETY: `slot` says where the token's slot begins, and all slots are this long; slots of
        // this kind are made by `SendPool`, which adds the headroom.
        unsafe { SendSlot::of(token, first, self.slot_len, self.lkey) }
    }
}

impl<K> Drop for Pool<K> {
    fn drop(&mut self) {
        if self.list.is_dirty() {
            self.span.leak();
        }
    }
}

/// The size and alignment of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSpec {
    /// The number of slots.
    pub slots: u32,
    /// Bytes of a slot, less than 4 GiB.
    pub slot_len: usize,
    /// The alignment of every slot, a power of two; at least a cache line is used.
    pub align: usize,
}

impl PoolSpec {
    /// The length of a region that suffices for this pool after any parts carved before it.
    pub fn region_len(&self) -> Result<usize, PoolError> {
        let layout = self.layout()?;
        layout.bytes.checked_add(layout.align).ok_or(PoolError::TooLarge)
    }

    pub(crate) fn layout(&self) -> Result<SlotLayout, PoolError> {
        if self.slot_len == 0 || u32::try_from(self.slot_len).is_err() {
            return Err(PoolError::SlotLen { bytes: self.slot_len });
        }
        if !self.align.is_power_of_two() {
            return Err(PoolError::Align { align: self.align });
        }
        let align = self.align.max(CACHE_LINE);
        let stride = stride(self.slot_len, align).ok_or(PoolError::TooLarge)?;
        let bytes = stride.checked_mul(self.slots as usize).ok_or(PoolError::TooLarge)?;
        Ok(SlotLayout { bytes, stride, align })
    }
}

/// The layout of the slots of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotLayout {
    pub(crate) bytes: usize,
    pub(crate) stride: usize,
    pub(crate) align: usize,
}

/// The distance from slot to slot.
///
/// An odd number of cache lines if the alignment permits. Slots at a distance of a power of two
/// would all begin in the same set of a cache, and every message accesses the start of a slot.
fn stride(slot_len: usize, align: usize) -> Option<usize> {
    let stride = slot_len.checked_next_multiple_of(align)?;
    if align == CACHE_LINE && (stride / CACHE_LINE).is_multiple_of(2) {
        return stride.checked_add(CACHE_LINE);
    }
    Some(stride)
}

/// Why a pool cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The number of slots, or of pools.
    #[error(transparent)]
    Slots(#[from] FreeListError),
    /// The region is too small.
    #[error(transparent)]
    Region(#[from] RegionFull),
    /// A slot of no bytes, or of 4 GiB and more.
    #[error("the slot length is {bytes} bytes; 1 to 4294967295 is allowed")]
    SlotLen {
        /// The requested length.
        bytes: usize,
    },
    /// An alignment that is not a power of two.
    #[error("alignment {align} is not a power of two")]
    Align {
        /// The requested alignment.
        align: usize,
    },
    /// The pool exceeds the address space.
    #[error("the pool is larger than the address space")]
    TooLarge,
}

#[cold]
#[inline(never)]
pub(crate) fn outside(range: Range<usize>, len: usize) -> ! {
    panic!("bytes {range:?} of a slot of {len}")
}

/// Slots do not share a cache line: their owners may be on two cores.
pub(crate) const CACHE_LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{memory, region};
    use crate::token::kind::Send as Sending;

    const SPEC: PoolSpec = PoolSpec { slots: 5, slot_len: 1000, align: 1 };

    fn pool(spec: &PoolSpec) -> Pool<Sending> {
        let mut memory = memory(spec.region_len().expect("a small pool"));
        Pool::new(&mut memory, spec).expect("as much as was asked for")
    }

    #[test]
    fn slots_are_distinct_zero_and_as_long_as_asked_for() {
        let mut pool = pool(&SPEC);
        let mut tokens: Vec<_> = std::iter::from_fn(|| pool.pop()).collect();
        assert_eq!((tokens.len(), pool.free(), pool.capacity()), (5, 0, 5));
        for token in &mut tokens {
            assert!(pool.bytes(token).iter().all(|byte| *byte == 0));
            let index = token.index() as u8;
            pool.bytes_mut(token).fill(index + 1);
        }
        for token in &tokens {
            assert_eq!(pool.bytes(token), [token.index() as u8 + 1; 1000]);
        }
        tokens.into_iter().for_each(|token| pool.push(token));
        assert_eq!(pool.free(), 5);
    }

    #[test]
    fn entries_name_the_bytes_and_the_key() {
        let mut pool = pool(&SPEC);
        let mut token = pool.pop().expect("one is free");
        let sge = pool.sge(&token, 10..1000);
        assert_eq!((sge.length, sge.lkey), (990, 0x100));
        assert_eq!(sge.addr, pool.addr(&token) + 10);
        pool.bytes_mut(&mut token)[10] = 77;
        let byte = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        // SAFETY: what a device would do: the address lies in the slot, which this test owns.
        assert_eq!(unsafe { byte.read() }, 77);
        assert_eq!(pool.sge(&token, 1000..1000).length, 0);
        pool.push(token);
    }

    #[test]
    #[should_panic(expected = "of a slot of 1000")]
    fn an_entry_beyond_the_slot_is_refused() {
        let mut pool = pool(&SPEC);
        let token = pool.pop().expect("one is free");
        let _ = pool.sge(&token, 1..1001);
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "the subject of the test")]
    #[should_panic(expected = "of a slot of 1000")]
    fn an_entry_that_ends_before_it_begins_is_refused() {
        let mut pool = pool(&SPEC);
        let token = pool.pop().expect("one is free");
        let _ = pool.sge(&token, 2..1);
    }

    #[test]
    fn slots_are_aligned_and_their_first_lines_spread_over_the_cache() {
        for (slot_len, align, stride) in
            [(1, 1, 64), (4096, 1, 4160), (4160, 64, 4160), (4096, 4096, 4096), (100, 256, 256)]
        {
            let spec = PoolSpec { slots: 4, slot_len, align };
            assert_eq!(spec.layout().expect("small").stride, stride, "{spec:?}");
            let mut pool = pool(&spec);
            while let Some(token) = pool.pop() {
                assert!(pool.addr(&token).is_multiple_of(align.max(64) as u64));
                let _ = token.into_raw();
            }
        }
    }

    #[test]
    fn poison_fills_free_slots_only() {
        let mut pool = pool(&SPEC);
        let mine = pool.pop().expect("one is free");
        pool.poison(0xA5);
        assert!(pool.bytes(&mine).iter().all(|byte| *byte == 0));
        let fresh = pool.pop().expect("one is free");
        assert!(pool.bytes(&fresh).iter().all(|byte| *byte == 0xA5));
        pool.push(mine);
        pool.push(fresh);
    }

    #[test]
    fn bytes_outlive_a_pool_that_is_dropped_while_they_are_lent() {
        let mut pool = pool(&SPEC);
        let mut token = pool.pop().expect("one is free");
        let bytes = pool.bytes_mut(&mut token);
        drop(pool);
        bytes.fill(1);
        assert!(bytes.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn a_region_that_is_too_small_is_an_error_with_both_numbers() {
        let mut memory = memory(4096);
        let spec = PoolSpec { slots: 5, slot_len: 1024, align: 1 };
        let error = Pool::<Sending>::new(&mut memory, &spec).expect_err("no room");
        assert_eq!(
            error.to_string(),
            "5440 bytes aligned to 64 are needed; the region has 4096 bytes left"
        );
    }

    #[test]
    fn impossible_pools_are_errors() {
        let error = |spec: PoolSpec| spec.layout().expect_err("impossible");
        assert_eq!(error(PoolSpec { slot_len: 0, ..SPEC }), PoolError::SlotLen { bytes: 0 });
        let bytes = 1 << 32;
        assert_eq!(error(PoolSpec { slot_len: bytes, ..SPEC }), PoolError::SlotLen { bytes });
        assert_eq!(error(PoolSpec { align: 3, ..SPEC }), PoolError::Align { align: 3 });
        assert_eq!(error(PoolSpec { align: 1 << 63, slots: 2, ..SPEC }), PoolError::TooLarge);
    }

    #[test]
    fn a_pool_in_the_rest_of_a_region_overlaps_nothing() {
        let bytes = SPEC.region_len().expect("small");
        let mut memory = Registered::new(
            region(2 * bytes),
            std::sync::Arc::new(crate::testing::TestDevice::default()),
            crate::Rights::own(crate::Access::LOCAL_WRITE),
        )
        .expect("never full");
        let mut one = Pool::<Sending>::new(&mut memory, &SPEC).expect("room for two");
        let mut two = Pool::<Sending>::new(&mut memory, &SPEC).expect("room for two");
        let (last, first) = (one.pop().expect("one is free"), two.pop().expect("one is free"));
        assert!(two.addr(&first) >= one.addr(&last) + 5 * 1088);
        one.push(last);
        two.push(first);
    }
}
