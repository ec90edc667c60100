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
//! A loan holds a pointer to its [`Home`] and no count of it. That the home outlives the loan is
//! counted once, when the pool is dropped, see [`Returns`].
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
    slot: u32,
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
        if returns.give(links, self.slot) == Memory::Free {
            // SAFETY: `give` has answered that this was the last one and the owner is gone.
            unsafe { free(self.home) };
        }
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes, slot {})", self.len, self.slot)
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
        let base = span.base();
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
        let loans = owner
            .classes()
            .iter()
            // Each number is lent once here, and from now on only when it has come home.
            .map(|class| (class.first..class.end).rev().map(|slot| class.lend(slot, base, home)))
            .map(Iterator::collect)
            .collect();
        Ok((owner, loans))
    }

    /// Gives every loan that was dropped to `each`, whole again, with its kind. One plain load if
    /// there is none.
    #[inline]
    pub(crate) fn reclaim(&mut self, mut each: impl FnMut(usize, Loan)) {
        let home = self.shared();
        // SAFETY: the home is alive, as in `shared`.
        let (returns, links) = unsafe { Home::shared_parts(self.home) };
        returns.take(links, |slot| {
            let kind = home.kind_of(slot);
            each(kind, home.classes[kind].lend(slot, home.span.base(), self.home));
        });
    }

    /// The kind of a loan, which is made whole again, or the loan if it is another pool's.
    #[inline]
    pub(crate) fn receive(&self, mut loan: Loan) -> Result<(usize, Loan), Loan> {
        if loan.home != self.home {
            return Err(loan);
        }
        let home = self.shared();
        let kind = home.kind_of(loan.slot);
        loan.len = home.classes[kind].slot_len;
        Ok((kind, loan))
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

    /// At most as many steps as there are kinds, which is 16.
    #[inline]
    fn kind_of(&self, slot: u32) -> usize {
        self.classes.iter().take_while(|class| class.end <= slot).count()
    }
}

impl ClassLayout {
    /// Makes the loan for a slot of this class. Called once for every time that the slot is at
    /// home.
    fn lend(&self, slot: u32, base: NonNull<u8>, home: NonNull<Home>) -> Loan {
        let offset = self.start + (slot - self.first) as usize * self.stride;
        let bytes = NonNull::new(base.as_ptr().wrapping_add(offset)).expect("lies in the span");
        Loan { bytes, home, len: self.slot_len, slot }
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
    if end >= LOANS_MAX {
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

/// Numbers beyond are marks of [`Returns`].
const LOANS_MAX: u32 = 1 << 31;
