//! Loans: registered memory that a program may own for as long as it needs.
//!
//! ```text
//!            LoanPool::new                    detach, take
//!   memory ───────────────▶ pool's spares ─────────────────▶ program, any thread
//!                              ▲   ▲   give_back (same thread, no atomics)  │
//!                              │   └────────────────────────────────────────┤
//!                              └──── reclaim ◀──── chain of returns ◀───────┘ drop
//! ```
//!
//! A loan holds a pointer to its `LoanPoolShared`, without a reference count. `Returns` counts the
//! loans once, when the pool is dropped, so that the shared state outlives all loans.
#![expect(unsafe_code, reason = "a loan points to its bytes and to the state of its pool")]

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::pool::{PoolError, PoolSpec, outside};
use crate::registered::{Registered, Span};
use crate::registrar::Sge;
use crate::returns::{Disposal, ReturnLink, Returns};

/// Registered bytes with one owner. Dropped on any thread, they return to their pool.
///
/// The bytes are those that the last owner left; a new block is zero. Taking a loan, and giving it
/// back on the pool's thread, costs no locked instruction; dropping it costs one.
///
/// ```
/// # use rpcrdma_mempool::{
/// #     Access, BulkPool, Keys, PoolSpec, Region, RegionSpec, RegisterError, Registered,
/// #     Registrar, Rights,
/// # };
/// # struct Device;
/// # impl Registrar for Device {
/// #     fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
/// #         Ok(Keys { lkey: 7, rkey: 8 })
/// #     }
/// #     fn deregister(&self, _: Keys) -> std::io::Result<()> {
/// #         Ok(())
/// #     }
/// # }
/// # let device = std::sync::Arc::new(Device);
/// # let blocks = PoolSpec { slots: 1, slot_len: 4096, align: 64 };
/// # let region = Region::map(&RegionSpec::new(blocks.bulk_region_len()?))?;
/// # let mut memory = Registered::new(region, device, Rights::own(Access::LOCAL_WRITE))?;
/// let mut pool = BulkPool::new(&mut memory, &blocks)?;
/// let mut loan = pool.take().expect("one is free");
/// loan[..5].copy_from_slice(b"hello"); // registered memory is as any other
/// loan.truncate(5);
/// let copied = std::thread::spawn(move || loan.to_vec()).join(); // dropped there
/// assert_eq!(copied.expect("no panic"), b"hello");
/// pool.reclaim();
/// assert_eq!(pool.free(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Loan {
    bytes: NonNull<u8>,
    shared: NonNull<LoanPoolShared>,
    len: u32,
    slot: LoanSlot,
}

// SAFETY: a loan owns its bytes: each slot has one loan at a time. What it reads of the shared
// state is either constant or atomic.
unsafe impl Send for Loan {}

// SAFETY: `&Loan` reads the bytes and the constants of the shared state; neither changes.
unsafe impl Sync for Loan {}

impl Loan {
    /// Keeps the first `len` bytes; a longer `len` changes nothing. The rest returns with the slot.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len as usize {
            self.len = len as u32;
        }
    }

    /// A scatter or gather entry for a part of the bytes. While a device uses it, the loan must not
    /// be read, written or dropped.
    ///
    /// # Panics
    /// If the range is not in the loan.
    #[inline]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let len = self.len as usize;
        if range.start > range.end || range.end > len {
            outside(range, len);
        }
        let addr = (self.bytes.as_ptr().addr() + range.start) as u64;
        Sge { addr, length: (range.end - range.start) as u32, lkey: self.shared().lkey }
    }

    /// Takes the loan apart, for a program in another language. Its memory is in use until
    /// [`Loan::from_raw`] has put it together again.
    #[inline]
    pub fn into_raw(self) -> RawLoan {
        let loan = ManuallyDrop::new(self);
        let Loan { bytes, shared, len, slot } = &*loan;
        RawLoan { bytes: *bytes, owner: shared.cast(), len: *len, slot: slot.0 }
    }

    /// The loan that was taken apart.
    ///
    /// # Safety
    /// `raw` is from [`Loan::into_raw`], and put together once. `len` may have been lowered; the
    /// other fields are unchanged.
    #[inline]
    pub unsafe fn from_raw(raw: RawLoan) -> Loan {
        let RawLoan { bytes, owner, len, slot } = raw;
        Loan { bytes, shared: owner.cast(), len, slot: LoanSlot(slot) }
    }

    #[inline]
    fn shared(&self) -> &LoanPoolShared {
        // SAFETY: the shared state is freed when `Returns` says so, which is after every loan has
        // been returned; `self` has not been.
        unsafe { self.shared.as_ref() }
    }
}

impl Deref for Loan {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `LoanPool::new` has laid the slot into the span, `len` is at most its length, the
        // bytes were zeroed by the kernel, and this loan is their only owner. The shared state,
        // which keeps them mapped, lives at least as long as the loan.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Loan {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the reference the only one.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len as usize) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the shared state is alive until this loan has been returned, below.
        let (returns, links) = unsafe { LoanPoolShared::shared_parts(self.shared) };
        if returns.give(links, self.slot.number()) == Disposal::Free {
            // SAFETY: `give` has returned that this was the last loan and that the owner is
            // dropped.
            unsafe { free(self.shared) };
        }
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes, slot {})", self.len, self.slot.number())
    }
}

/// A [`Loan`] taken apart: see [`Loan::into_raw`].
#[derive(Debug)]
pub struct RawLoan {
    /// The bytes, which belong to the owner of this value.
    pub bytes: NonNull<u8>,
    /// The state of the pool.
    pub owner: NonNull<c_void>,
    /// How many bytes there are.
    pub len: u32,
    /// The place in the pool.
    pub slot: u32,
}

/// A slot: its kind in the upper four bits, its number in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LoanSlot(u32);

impl LoanSlot {
    fn new(kind: usize, number: u32) -> LoanSlot {
        LoanSlot((kind as u32) << NUMBER_BITS | number)
    }

    #[inline]
    fn kind(self) -> usize {
        (self.0 >> NUMBER_BITS) as usize
    }

    #[inline]
    fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

/// The state that a pool and its loans share: one heap object, freed by the last of them.
struct LoanPoolShared {
    returns: CachePadded<Returns>,
    /// From `Box::into_raw`: a pointer, so that no `Box` asserts unique access.
    links: *mut [ReturnLink],
    lkey: u32,
    classes: Box<[ClassLayout]>,
    /// Keeps the memory mapped.
    span: Span,
}

/// Equal slots: a range of slot numbers and a range of memory.
#[derive(Debug, Clone, Copy)]
struct ClassLayout {
    /// The number of the first slot.
    first: u32,
    /// One more than the number of the last slot.
    end: u32,
    /// The offset of the first slot in the span.
    start: usize,
    stride: usize,
    slot_len: u32,
}

/// The pool's owner of the shared state. Dropped, it leaves the memory to the loans that are still
/// out.
pub(crate) struct LoanPool {
    shared: NonNull<LoanPoolShared>,
    slots: usize,
}

// SAFETY: what only the owner may do takes `&mut self`; the rest of the state is constant or
// atomic.
unsafe impl Send for LoanPool {}

impl LoanPool {
    /// Carves slots of several kinds out of registered memory. Returns all of them as loans, by
    /// kind.
    pub(crate) fn new(
        memory: &mut Registered,
        kinds: &[PoolSpec],
    ) -> Result<(LoanPool, Vec<Vec<Loan>>), PoolError> {
        let (classes, bytes, align) = lay_out(kinds)?;
        let span = memory.carve(bytes, align)?;
        let slots = classes.last().map_or(0, |class| class.end);
        let links: Box<[ReturnLink]> = (0..slots).map(|_| ReturnLink::new()).collect();
        let shared = Box::new(LoanPoolShared {
            returns: CachePadded::new(Returns::new()),
            links: Box::into_raw(links),
            lkey: span.lkey(),
            classes: classes.into(),
            span,
        });
        let shared = NonNull::from(Box::leak(shared));
        let owner = LoanPool { shared, slots: slots as usize };
        let mut loans: Vec<Vec<Loan>> = kinds.iter().map(|_| Vec::new()).collect();
        // Each number is lent once here, and later only after it has returned.
        for number in (0..slots).rev() {
            let loan = owner.shared().lend(number, shared);
            loans[loan.slot.kind()].push(loan);
        }
        Ok((owner, loans))
    }

    /// Passes every dropped loan to `each`, at its full length, with its kind. One plain load if
    /// there is none.
    #[inline]
    pub(crate) fn reclaim(&mut self, each: impl FnMut(usize, Loan)) {
        if self.shared().returns.any() {
            self.reclaim_chain(each);
        }
    }

    /// The kind of a loan, and the loan at its full length; or the loan unchanged if it belongs to
    /// another pool.
    #[inline]
    pub(crate) fn receive(&self, mut loan: Loan) -> Result<(usize, Loan), Loan> {
        if loan.shared != self.shared {
            return Err(loan);
        }
        let kind = loan.slot.kind();
        loan.len = self.shared().classes[kind].slot_len;
        Ok((kind, loan))
    }

    /// The number of loans that were dropped and not reclaimed.
    pub(crate) fn returning(&self) -> usize {
        // SAFETY: the shared state is alive, as in `shared`.
        let (returns, links) = unsafe { LoanPoolShared::shared_parts(self.shared) };
        returns.count(links)
    }

    /// Whether a loan is from this pool.
    pub(crate) fn owns(&self, loan: &Loan) -> bool {
        loan.shared == self.shared
    }

    /// The total number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    #[cold]
    fn reclaim_chain(&mut self, mut each: impl FnMut(usize, Loan)) {
        // SAFETY: the shared state is alive, as in `shared`.
        let (returns, links) = unsafe { LoanPoolShared::shared_parts(self.shared) };
        returns.take(links, |number| {
            let loan = self.shared().lend(number, self.shared);
            each(loan.slot.kind(), loan);
        });
    }

    fn classes(&self) -> &[ClassLayout] {
        &self.shared().classes
    }

    fn shared(&self) -> &LoanPoolShared {
        // SAFETY: the shared state is not freed before its owner has closed it, which drops the
        // owner.
        unsafe { self.shared.as_ref() }
    }
}

impl Drop for LoanPool {
    fn drop(&mut self) {
        // SAFETY: the shared state is alive until `close` has returned.
        let (returns, links) = unsafe { LoanPoolShared::shared_parts(self.shared) };
        if returns.close(links, self.slots) == Disposal::Free {
            // SAFETY: `close` has returned that every loan has been returned.
            unsafe { free(self.shared) };
        }
    }
}

impl fmt::Debug for LoanPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.classes()).finish()
    }
}

impl LoanPoolShared {
    /// The parts that other threads may free while the references still exist, after the last
    /// return: they are references to atomics only.
    ///
    /// # Safety
    /// The shared state is alive, and the references are not used after it is freed.
    unsafe fn shared_parts<'a>(shared: NonNull<LoanPoolShared>) -> (&'a Returns, &'a [ReturnLink]) {
        let shared = shared.as_ptr();
        // SAFETY: the caller guarantees that the shared state is alive.
        let returns: &CachePadded<Returns> = unsafe { &(*shared).returns };
        // SAFETY: as above; the field never changes.
        let links = unsafe { (*shared).links };
        // SAFETY: `links` came from `Box::into_raw` and is freed with the shared state.
        (returns, unsafe { &*links })
    }

    /// Makes the loan for a slot. Called once each time the slot is free.
    fn lend(&self, number: u32, shared: NonNull<LoanPoolShared>) -> Loan {
        // At most as many steps as there are kinds.
        let kind = self.classes.iter().take_while(|class| class.end <= number).count();
        let class = &self.classes[kind];
        let offset = class.start + (number - class.first) as usize * class.stride;
        let first = self.span.base().as_ptr().wrapping_add(offset);
        let bytes = NonNull::new(first).expect("a slot lies in its span");
        Loan { bytes, shared, len: class.slot_len, slot: LoanSlot::new(kind, number) }
    }
}

/// The classes one after the other, their total length, and the alignment of the first byte.
fn lay_out(kinds: &[PoolSpec]) -> Result<(Vec<ClassLayout>, usize, usize), PoolError> {
    let mut classes = Vec::with_capacity(kinds.len());
    let (mut end, mut bytes, mut align) = (0u32, 0usize, 1usize);
    for kind in kinds {
        let layout = kind.layout()?;
        let start = bytes.checked_next_multiple_of(layout.align).ok_or(PoolError::TooLarge)?;
        let first = end;
        end = first.checked_add(kind.slots).ok_or(PoolError::TooLarge)?;
        bytes = start.checked_add(layout.bytes).ok_or(PoolError::TooLarge)?;
        align = align.max(layout.align);
        let slot_len = kind.slot_len as u32;
        classes.push(ClassLayout { first, end, start, stride: layout.stride, slot_len });
    }
    if end > 1 << NUMBER_BITS || kinds.len() > 1 << (u32::BITS - NUMBER_BITS) {
        return Err(PoolError::TooLarge);
    }
    Ok((classes, bytes, align))
}

/// The length of a region that suffices for these kinds of slots.
pub(crate) fn region_len(kinds: &[PoolSpec]) -> Result<usize, PoolError> {
    let (_, bytes, align) = lay_out(kinds)?;
    bytes.checked_add(align).ok_or(PoolError::TooLarge)
}

/// Frees the shared state.
///
/// # Safety
/// No loan is left, the owner is dropped, and `Returns` left it to the caller to free it.
unsafe fn free(shared: NonNull<LoanPoolShared>) {
    // SAFETY: `shared` came from `Box::leak`; the caller has the last pointer to it.
    let shared = unsafe { Box::from_raw(shared.as_ptr()) };
    // SAFETY: `links` came from `Box::into_raw`; the caller has the last pointer to it.
    drop(unsafe { Box::from_raw(shared.links) });
}

/// Bits of a slot that are its number. Fewer than 32: `Returns` uses the largest values as marks.
const NUMBER_BITS: u32 = 28;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory;

    const SPEC: PoolSpec = PoolSpec { slots: 3, slot_len: 100, align: 1 };

    fn loan_pool(kinds: &[PoolSpec]) -> (LoanPool, Vec<Vec<Loan>>) {
        let mut memory = memory(region_len(kinds).expect("small"));
        LoanPool::new(&mut memory, kinds).expect("as much as was asked for")
    }

    /// Whether the shared state is still allocated, by the region that it keeps mapped.
    fn watch(pool: &LoanPool) -> impl Fn() -> bool + use<> {
        pool.shared().span.watch()
    }

    #[test]
    fn a_loan_is_no_larger_than_it_must_be() {
        assert_eq!(size_of::<Loan>(), 24);
        assert_eq!(size_of::<Option<Loan>>(), 24);
    }

    #[test]
    fn loans_of_all_kinds_are_aligned_distinct_and_return_whole() {
        let large = PoolSpec { slots: 2, slot_len: 4096, align: 4096 };
        let (mut owner, mut kinds) = loan_pool(&[SPEC, large]);
        let order = |kind: &[Loan]| kind.iter().map(|loan| loan.slot.number()).collect::<Vec<_>>();
        assert_eq!((order(&kinds[0]), order(&kinds[1])), (vec![2, 1, 0], vec![4, 3]));
        for loan in kinds.iter_mut().flatten() {
            let number = loan.slot.number() as u8;
            loan.fill(number);
        }
        for loan in kinds.iter().flatten() {
            assert!(loan.iter().all(|byte| *byte == loan.slot.number() as u8));
        }
        assert!(kinds[1].iter().all(|loan| loan.as_ptr().addr().is_multiple_of(4096)));

        let mut loan = kinds[1].pop().expect("two");
        loan.truncate(5000);
        assert_eq!(loan.len(), 4096, "truncation does not lengthen");
        loan.truncate(10);
        assert_eq!((loan.len(), loan.sge(2..10).length), (10, 8));
        drop(loan);
        let mut back = Vec::new();
        owner.reclaim(|kind, loan| back.push((kind, loan)));
        assert_eq!((back.len(), back[0].0, back[0].1.len()), (1, 1, 4096));
    }

    #[test]
    fn a_loan_that_was_taken_apart_is_the_same_again() {
        let (mut owner, mut loans) = loan_pool(&[SPEC]);
        let loan = loans[0].pop().expect("three");
        let mut raw = loan.into_raw();
        // SAFETY: the loan has 100 bytes, which belong to this test.
        unsafe { raw.bytes.write(7) };
        raw.len = 10;
        let is_mapped = watch(&owner);
        owner.reclaim(|_, _| panic!("it has not returned"));
        // SAFETY: it was taken apart above, and only its length was lowered.
        let loan = unsafe { Loan::from_raw(raw) };
        assert_eq!((loan.len(), loan[0]), (10, 7));
        drop(loan);
        let mut lens = Vec::new();
        owner.reclaim(|_, loan| lens.push(loan.len()));
        assert_eq!(lens, [100]);
        drop((owner, loans));
        assert!(!is_mapped());
    }

    #[test]
    fn a_loan_is_accepted_by_its_own_pool_only() {
        let ((one, mut loans), (other, _)) = (loan_pool(&[SPEC]), loan_pool(&[SPEC]));
        let mut loan = loans[0].pop().expect("three");
        loan.truncate(1);
        let loan = other.receive(loan).expect_err("another's");
        let (kind, loan) = one.receive(loan).expect("its own");
        assert_eq!((kind, loan.len()), (0, 100));
    }

    #[test]
    #[should_panic(expected = "of a slot of 100")]
    fn an_entry_beyond_the_loan_is_refused() {
        let (_owner, loans) = loan_pool(&[SPEC]);
        let _ = loans[0][0].sge(0..101);
    }

    #[test]
    fn memory_is_freed_with_the_last_loan_or_the_pool() {
        let (owner, loans) = loan_pool(&[SPEC]);
        let alive = watch(&owner);
        drop(owner);
        let mut loans = loans.into_iter().flatten();
        let mut kept = loans.next().expect("three");
        drop(loans);
        assert!(alive(), "a loan is out");
        kept.fill(9);
        drop(kept);
        assert!(!alive());

        let (owner, loans) = loan_pool(&[SPEC]);
        let alive = watch(&owner);
        drop(loans);
        assert!(alive(), "the owner is there");
        drop(owner);
        assert!(!alive());
    }

    #[test]
    fn a_forgotten_loan_keeps_the_memory() {
        let (owner, mut loans) = loan_pool(&[SPEC]);
        let alive = watch(&owner);
        std::mem::forget(loans[0].pop());
        drop(loans);
        drop(owner);
        assert!(alive());
    }

    #[test]
    fn a_pool_may_be_dropped_while_loans_return_from_other_threads() {
        for _ in 0..if cfg!(miri) { 10 } else { 500 } {
            let (owner, loans) = loan_pool(&[SPEC]);
            let alive = watch(&owner);
            std::thread::scope(|scope| {
                for mut loan in loans.into_iter().flatten() {
                    scope.spawn(move || loan.fill(1));
                }
                scope.spawn(move || drop(owner));
            });
            assert!(!alive());
        }
    }
}
