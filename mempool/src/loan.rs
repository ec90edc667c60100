//! Loans: registered memory that an application owns for as long as it likes.
//!
//! ```text
//!            LoanHome::new                    detach, take
//!   memory ───────────────▶ pool's spares ─────────────────▶ application, any thread
//!                              ▲   ▲   give_back (same thread, no atomics)  │
//!                              │   └────────────────────────────────────────┤
//!                              └──── reclaim ◀──── chain of returns ◀───────┘ drop
//! ```
//!
//! A loan holds a pointer to its `Home` and no count of it. That the home outlives the loan is
//! counted once, when the pool is dropped, see `Returns`.
#![expect(unsafe_code, reason = "a loan points to its bytes and to its home")]

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::pool::{PoolError, PoolSpec, outside};
use crate::registered::{Registered, Span};
use crate::registrar::Sge;
use crate::returns::{Link, Memory, Returns};

/// Registered bytes with one owner. Dropped on any thread, they go back to their pool.
///
/// The bytes are what the last owner left; a fresh block is zero. Taking a loan and giving it back
/// on the pool's thread costs no locked instruction; dropping it costs one.
pub struct Loan {
    bytes: NonNull<u8>,
    home: NonNull<Home>,
    len: u32,
    slot: Slot,
}

// SAFETY: a loan owns its bytes: of each slot there is one loan at a time. What it reads of its
// home is either constant or atomic.
unsafe impl Send for Loan {}

// SAFETY: `&Loan` reads the bytes and the constants of the home; nothing changes behind it.
unsafe impl Sync for Loan {}

impl Loan {
    /// Keeps the first `len` bytes; a longer `len` changes nothing. The rest comes back with the
    /// slot.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len as usize {
            self.len = len as u32;
        }
    }

    /// A scatter or gather entry for a part of the bytes. While a device works on it the loan must
    /// neither be read nor written nor dropped.
    ///
    /// # Panics
    /// If the range is not in the loan, as slicing does.
    #[inline]
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let len = self.len as usize;
        if range.start > range.end || range.end > len {
            outside(range, len);
        }
        let addr = (self.bytes.as_ptr().addr() + range.start) as u64;
        Sge { addr, length: (range.end - range.start) as u32, lkey: self.home().lkey }
    }

    #[inline]
    fn home(&self) -> &Home {
        // SAFETY: a home is freed by whoever `Returns` tells to, which is after every loan has been
        // returned; `self` has not been.
        unsafe { self.home.as_ref() }
    }
}

impl Deref for Loan {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `LoanHome::new` has laid the slot into the span, `len` is at most its length, the
        // bytes were zeroed by the kernel, and this loan is their only owner. The home, which keeps
        // them mapped, lives at least as long as the loan.
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
        // SAFETY: the home is alive until this loan has been returned, below.
        let (returns, links) = unsafe { Home::shared_parts(self.home) };
        if returns.give(links, self.slot.number()) == Memory::Free {
            // SAFETY: `give` has answered that this was the last one and the owner is gone.
            unsafe { free(self.home) };
        }
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes, slot {})", self.len, self.slot.number())
    }
}

/// A slot of a home: its kind in the upper four bits, its number in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    fn new(kind: usize, number: u32) -> Slot {
        Slot((kind as u32) << NUMBER_BITS | number)
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

/// What all loans of a pool share: one heap object, in nobody's hand, freed by the last.
struct Home {
    returns: CachePadded<Returns>,
    /// From `Box::into_raw`: a pointer, so that no `Box` claims what other threads reach.
    links: *mut [Link],
    lkey: u32,
    classes: Box<[ClassLayout]>,
    /// Keeps the memory mapped.
    span: Span,
}

/// Equal slots of a home: a run of slot numbers and a run of memory.
#[derive(Debug, Clone, Copy)]
struct ClassLayout {
    /// The number of the first slot.
    first: u32,
    /// Behind the number of the last slot.
    end: u32,
    /// Where the first slot lies in the span.
    start: usize,
    stride: usize,
    slot_len: u32,
}

/// The owner's end of a home. Dropped, it leaves the memory to the loans that are still out.
pub(crate) struct LoanHome {
    home: NonNull<Home>,
    slots: usize,
}

// SAFETY: what the owner alone may do takes `&mut self`; the rest of a home is constant or atomic.
unsafe impl Send for LoanHome {}

impl LoanHome {
    /// Carves slots of several kinds out of registered memory. All of them come as loans, by kind.
    pub(crate) fn new(
        memory: &mut Registered,
        kinds: &[PoolSpec],
    ) -> Result<(LoanHome, Vec<Vec<Loan>>), PoolError> {
        let (classes, bytes, align) = lay_out(kinds)?;
        let span = memory.carve(bytes, align)?;
        let slots = classes.last().map_or(0, |class| class.end);
        let links: Box<[Link]> = (0..slots).map(|_| Link::new()).collect();
        let home = Box::new(Home {
            returns: CachePadded::new(Returns::new()),
            links: Box::into_raw(links),
            lkey: span.lkey(),
            classes: classes.into(),
            span,
        });
        let home = NonNull::from(Box::leak(home));
        let owner = LoanHome { home, slots: slots as usize };
        let mut loans: Vec<Vec<Loan>> = kinds.iter().map(|_| Vec::new()).collect();
        // Each number is lent once here, and from now on only when it has come home.
        for number in (0..slots).rev() {
            let loan = owner.shared().lend(number, home);
            loans[loan.slot.kind()].push(loan);
        }
        Ok((owner, loans))
    }

    /// Gives every loan that was dropped to `each`, whole again, with its kind. One plain load if
    /// there is none.
    #[inline]
    pub(crate) fn reclaim(&mut self, each: impl FnMut(usize, Loan)) {
        if self.shared().returns.any() {
            self.reclaim_chain(each);
        }
    }

    /// The kind of a loan, which is made whole again, or the loan if it is another pool's.
    #[inline]
    pub(crate) fn receive(&self, mut loan: Loan) -> Result<(usize, Loan), Loan> {
        if loan.home != self.home {
            return Err(loan);
        }
        let kind = loan.slot.kind();
        loan.len = self.shared().classes[kind].slot_len;
        Ok((kind, loan))
    }

    /// Loans that were dropped and not reclaimed.
    pub(crate) fn returning(&self) -> usize {
        // SAFETY: the home is alive, as in `shared`.
        let (returns, links) = unsafe { Home::shared_parts(self.home) };
        returns.count(links)
    }

    /// Whether a loan is of this home.
    pub(crate) fn owns(&self, loan: &Loan) -> bool {
        loan.home == self.home
    }

    /// Slots in all.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    #[cold]
    fn reclaim_chain(&mut self, mut each: impl FnMut(usize, Loan)) {
        // SAFETY: the home is alive, as in `shared`.
        let (returns, links) = unsafe { Home::shared_parts(self.home) };
        returns.take(links, |number| {
            let loan = self.shared().lend(number, self.home);
            each(loan.slot.kind(), loan);
        });
    }

    fn classes(&self) -> &[ClassLayout] {
        &self.shared().classes
    }

    fn shared(&self) -> &Home {
        // SAFETY: a home is not freed before its owner has closed it, which takes the owner.
        unsafe { self.home.as_ref() }
    }
}

impl Drop for LoanHome {
    fn drop(&mut self) {
        // SAFETY: the home is alive until `close` has answered.
        let (returns, links) = unsafe { Home::shared_parts(self.home) };
        if returns.close(links, self.slots) == Memory::Free {
            // SAFETY: `close` has answered that every loan has been returned.
            unsafe { free(self.home) };
        }
    }
}

impl fmt::Debug for LoanHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.classes()).finish()
    }
}

impl Home {
    /// The parts that outlast nothing: references to atomics only, so that another thread may free
    /// them, after the last return, while the references still exist.
    ///
    /// # Safety
    /// The home is alive; the references are not used once it is not.
    unsafe fn shared_parts<'a>(home: NonNull<Home>) -> (&'a Returns, &'a [Link]) {
        let home = home.as_ptr();
        // SAFETY: the caller owes that the home is alive.
        let returns: &CachePadded<Returns> = unsafe { &(*home).returns };
        // SAFETY: as above; the field never changes.
        let links = unsafe { (*home).links };
        // SAFETY: `links` came from `Box::into_raw` and is freed with the home.
        (returns, unsafe { &*links })
    }

    /// Makes the loan for a slot. Called once for every time that the slot is at home.
    fn lend(&self, number: u32, home: NonNull<Home>) -> Loan {
        // At most as many steps as there are kinds.
        let kind = self.classes.iter().take_while(|class| class.end <= number).count();
        let class = &self.classes[kind];
        let offset = class.start + (number - class.first) as usize * class.stride;
        let first = self.span.base().as_ptr().wrapping_add(offset);
        let bytes = NonNull::new(first).expect("a slot lies in its span");
        Loan { bytes, home, len: class.slot_len, slot: Slot::new(kind, number) }
    }
}

/// Classes one behind the other, the bytes of all of them, and the alignment of the first byte.
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

/// Bytes of a region that suffice for a home with these kinds of slots.
pub(crate) fn region_len(kinds: &[PoolSpec]) -> Result<usize, PoolError> {
    let (_, bytes, align) = lay_out(kinds)?;
    bytes.checked_add(align).ok_or(PoolError::TooLarge)
}

/// Frees a home.
///
/// # Safety
/// No loan is left, the owner is gone, and `Returns` has named the caller to do it.
unsafe fn free(home: NonNull<Home>) {
    // SAFETY: `home` came from `Box::leak`; the caller is the last to know it.
    let home = unsafe { Box::from_raw(home.as_ptr()) };
    // SAFETY: `links` came from `Box::into_raw`; the caller is the last to know it.
    drop(unsafe { Box::from_raw(home.links) });
}

/// Bits of a slot that are its number. Fewer than 32: the largest words are marks of `Returns`.
const NUMBER_BITS: u32 = 28;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory;

    const SPEC: PoolSpec = PoolSpec { slots: 3, slot_len: 100, align: 1 };

    fn home(kinds: &[PoolSpec]) -> (LoanHome, Vec<Vec<Loan>>) {
        let mut memory = memory(region_len(kinds).expect("small"));
        LoanHome::new(&mut memory, kinds).expect("as much as was asked for")
    }

    /// Whether the home is still allocated, seen by the region that it keeps.
    fn watch(home: &LoanHome) -> impl Fn() -> bool + use<> {
        home.shared().span.watch()
    }

    #[test]
    fn a_loan_is_no_larger_than_it_must_be() {
        assert_eq!(size_of::<Loan>(), 24);
        assert_eq!(size_of::<Option<Loan>>(), 24);
    }

    #[test]
    fn loans_of_all_kinds_are_aligned_distinct_and_whole_when_they_come_back() {
        let large = PoolSpec { slots: 2, slot_len: 4096, align: 4096 };
        let (mut owner, mut kinds) = home(&[SPEC, large]);
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
    fn a_loan_is_received_by_its_own_home_only() {
        let ((one, mut loans), (other, _)) = (home(&[SPEC]), home(&[SPEC]));
        let mut loan = loans[0].pop().expect("three");
        loan.truncate(1);
        let loan = other.receive(loan).expect_err("another's");
        let (kind, loan) = one.receive(loan).expect("its own");
        assert_eq!((kind, loan.len()), (0, 100));
    }

    #[test]
    #[should_panic(expected = "of a slot of 100")]
    fn an_entry_beyond_the_loan_is_refused() {
        let (_owner, loans) = home(&[SPEC]);
        let _ = loans[0][0].sge(0..101);
    }

    #[test]
    fn a_home_is_freed_with_its_last_part_whichever_that_is() {
        let (owner, loans) = home(&[SPEC]);
        let alive = watch(&owner);
        drop(owner);
        let mut loans = loans.into_iter().flatten();
        let mut kept = loans.next().expect("three");
        drop(loans);
        assert!(alive(), "a loan is out");
        kept.fill(9);
        drop(kept);
        assert!(!alive());

        let (owner, loans) = home(&[SPEC]);
        let alive = watch(&owner);
        drop(loans);
        assert!(alive(), "the owner is there");
        drop(owner);
        assert!(!alive());
    }

    #[test]
    fn a_loan_that_is_forgotten_keeps_the_memory_for_ever() {
        let (owner, mut loans) = home(&[SPEC]);
        let alive = watch(&owner);
        std::mem::forget(loans[0].pop());
        drop(loans);
        drop(owner);
        assert!(alive());
    }

    #[test]
    fn a_home_may_lose_its_owner_while_loans_come_home_from_other_threads() {
        for _ in 0..if cfg!(miri) { 10 } else { 500 } {
            let (owner, loans) = home(&[SPEC]);
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
