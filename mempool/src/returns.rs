//! The way home: slots that other threads gave back, waiting for the owner of the pool.
//!
//! ```text
//!   any thread    head ◀─compare-exchange─ slot, link to the head before
//!   the owner     head ──one plain load──▶ EMPTY: nothing to do
//!                 head ──one exchange────▶ the whole chain
//!                 head ◀──CLOSED────────── when the pool is dropped; from then on slots are counted
//! ```
//!
//! A chain of indices and not a queue from a library: it cannot overflow, because every slot has
//! its own link; the owner never waits for a thread that was put to sleep in the middle of a
//! return, as it would at the head of an array queue; and looking at an empty one costs a load of a
//! line that stays shared. Only the owner takes, and it takes everything, so a head that comes back
//! (ABA) does no harm.

#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// The head of the chain and the count for the time after the owner. The links lie elsewhere, so
/// that nothing but atomics is behind a `&Returns`: the last to come home frees it under the
/// others' feet.
#[derive(Debug)]
pub(crate) struct Returns {
    head: AtomicU32,
    /// Slots still out, once the owner has added them; slots that came home late count down.
    late: AtomicI32,
}

/// The link of one slot.
#[derive(Debug)]
pub(crate) struct Link(AtomicU32);

/// What a return or a closing means for the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Memory {
    /// Somebody else still uses it.
    Keep,
    /// Nobody else does, and nobody else is told so: free it.
    Free,
}

impl Returns {
    pub(crate) fn new() -> Returns {
        Returns { head: AtomicU32::new(EMPTY), late: AtomicI32::new(0) }
    }

    /// Brings a slot home. From any thread, without waiting. The caller owned the slot and has not
    /// touched it since; `links[slot]` is its link.
    ///
    /// After [`Memory::Keep`] neither `self` nor `links` may be touched again.
    pub(crate) fn give(&self, links: &[Link], slot: u32) -> Memory {
        let link = &links[slot as usize].0;
        let mut head = self.head.load(Ordering::Relaxed);
        while head != CLOSED {
            link.store(head, Ordering::Relaxed);
            // Release: the owner, who acquires the head, sees the link and the end of all accesses
            // to the slot. Chains form a release sequence, so that holds for those beneath, too.
            match self.head.compare_exchange_weak(head, slot, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return Memory::Keep,
                Err(now) => head = now,
            }
        }
        // AcqRel: whoever reaches zero comes after all accesses of all others.
        let before = self.late.fetch_sub(1, Ordering::AcqRel);
        if before == 1 { Memory::Free } else { Memory::Keep }
    }

    /// Gives every slot that came home to `each`. Only the owner calls it; one plain load if there
    /// is none.
    #[inline]
    pub(crate) fn take(&self, links: &[Link], each: impl FnMut(u32)) {
        if self.head.load(Ordering::Relaxed) != EMPTY {
            self.take_chain(links, EMPTY, each);
        }
    }

    /// The owner leaves while `out` slots are not in its hands. Those on their way home are taken
    /// off; the last of the others, if any, is told to free the memory.
    pub(crate) fn close(&self, links: &[Link], out: usize) -> Memory {
        let mut out = out as i32;
        self.take_chain(links, CLOSED, |_| out -= 1);
        // Late slots may have counted below zero already; nobody sees zero before this addition.
        let before = self.late.fetch_add(out, Ordering::AcqRel);
        if before + out == 0 { Memory::Free } else { Memory::Keep }
    }

    /// Takes the chain and leaves `instead`.
    fn take_chain(&self, links: &[Link], instead: u32, mut each: impl FnMut(u32)) {
        let mut next = self.head.swap(instead, Ordering::Acquire);
        while let Some(link) = links.get(next as usize) {
            let slot = next;
            // Read before the slot is passed on: its next return writes the link.
            next = link.0.load(Ordering::Relaxed);
            each(slot);
        }
    }
}

impl Link {
    pub(crate) fn new() -> Link {
        Link(AtomicU32::new(EMPTY))
    }
}

/// Nothing came home. Beyond every index, as is [`CLOSED`].
const EMPTY: u32 = u32::MAX;

/// The owner is gone.
const CLOSED: u32 = u32::MAX - 1;
