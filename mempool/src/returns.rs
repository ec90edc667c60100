//! Returned slots: a lock-free list of slots that other threads gave back to the owner of a pool.
//!
//! ```text
//!   any thread    head ◀─compare-exchange─ slot, link to the head before
//!   the owner     head ──one plain load──▶ EMPTY: nothing to do
//!                 head ──one exchange────▶ the whole chain
//!                 head ◀──CLOSED────────── when the pool is dropped; then slots are counted
//! ```
//!
//! It is a chain of indices and not a queue of a library, for three reasons. It cannot overflow,
//! because every slot has its own link. The owner never waits for a thread that was suspended in
//! the middle of a return, as at the head of an array queue. Checking an empty chain is a load of a
//! cache line that stays shared. Only the owner takes slots, and takes all at once, so a repeated
//! head (ABA) does no harm.

#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// The head of the chain, and the count of slots after the owner is dropped. The links are stored
/// elsewhere, so that a `&Returns` refers to atomics only: the last return frees it while other
/// references may exist.
#[derive(Debug)]
pub(crate) struct Returns {
    head: AtomicU32,
    /// The number of slots out, once the owner has added it; each later return subtracts one.
    late: AtomicI32,
}

/// The link of one slot.
#[derive(Debug)]
pub(crate) struct ReturnLink(AtomicU32);

/// Whether a return, or the closing, must free the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Disposal {
    /// The memory is still in use.
    Keep,
    /// The caller is the last user, and must free it.
    Free,
}

impl Returns {
    pub(crate) fn new() -> Returns {
        Returns { head: AtomicU32::new(EMPTY), late: AtomicI32::new(0) }
    }

    /// Returns a slot, from any thread, without waiting. The caller owned the slot and no longer
    /// accesses it; `links[slot]` is its link.
    ///
    /// After [`Disposal::Keep`] neither `self` nor `links` may be touched again.
    pub(crate) fn give(&self, links: &[ReturnLink], slot: u32) -> Disposal {
        let link = &links[slot as usize].0;
        let mut head = self.head.load(Ordering::Relaxed);
        while head != CLOSED {
            link.store(head, Ordering::Relaxed);
            // Release: the owner, who acquires the head, sees the link and the end of all accesses
            // to the slot. Chains form a release sequence, so that holds for those beneath, too.
            match self.head.compare_exchange_weak(head, slot, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return Disposal::Keep,
                Err(now) => head = now,
            }
        }
        // AcqRel: the thread that reaches zero is ordered after all accesses of all others.
        let before = self.late.fetch_sub(1, Ordering::AcqRel);
        if before == 1 { Disposal::Free } else { Disposal::Keep }
    }

    /// Whether a slot was returned: one plain load. Only the owner calls it.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.head.load(Ordering::Relaxed) != EMPTY
    }

    /// The number of returned slots that were not taken: walks the chain. Only the owner calls it.
    pub(crate) fn count(&self, links: &[ReturnLink]) -> usize {
        let mut count = 0;
        let mut next = self.head.load(Ordering::Acquire);
        // A returning thread adds its slot in front; the rest of the chain does not change
        // meanwhile.
        while let Some(link) = links.get(next as usize) {
            count += 1;
            next = link.0.load(Ordering::Relaxed);
        }
        count
    }

    /// Passes every returned slot to `each`. Only the owner calls it.
    pub(crate) fn take(&self, links: &[ReturnLink], each: impl FnMut(u32)) {
        self.take_chain(links, EMPTY, each);
    }

    /// The owner is dropped while `out` slots are lent. Those already returned are subtracted; the
    /// last return of the others, if any, frees the memory.
    pub(crate) fn close(&self, links: &[ReturnLink], out: usize) -> Disposal {
        let mut out = out as i32;
        self.take_chain(links, CLOSED, |_| out -= 1);
        // Later returns may already have made the count negative; it is not zero before this
        // addition.
        let before = self.late.fetch_add(out, Ordering::AcqRel);
        if before + out == 0 { Disposal::Free } else { Disposal::Keep }
    }

    /// Takes the chain and replaces it by `instead`.
    fn take_chain(&self, links: &[ReturnLink], instead: u32, mut each: impl FnMut(u32)) {
        let mut next = self.head.swap(instead, Ordering::Acquire);
        while let Some(link) = links.get(next as usize) {
            let slot = next;
            // Read before the slot is passed on: its next return writes the link.
            next = link.0.load(Ordering::Relaxed);
            each(slot);
        }
    }
}

impl ReturnLink {
    pub(crate) fn new() -> ReturnLink {
        ReturnLink(AtomicU32::new(EMPTY))
    }
}

/// No slot was returned. Beyond every index, as [`CLOSED`].
const EMPTY: u32 = u32::MAX;

/// The owner was dropped.
const CLOSED: u32 = u32::MAX - 1;

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p rpcrdma-mempool --release --lib loom_tests`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A pool's shared state: the returns, and slots that only their owner accesses.
    ///
    /// Slots are relaxed: loom shows a reader every value that it could see, so that a missing
    /// order shows as a stale count.
    struct Shared {
        returns: Returns,
        links: [ReturnLink; SLOTS],
        uses: [AtomicU32; SLOTS],
        freed: AtomicU32,
    }

    const SLOTS: usize = 2;

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                returns: Returns::new(),
                links: std::array::from_fn(|_| ReturnLink::new()),
                uses: std::array::from_fn(|_| AtomicU32::new(0)),
                freed: AtomicU32::new(0),
            })
        }

        /// Uses the slot as a program does, without a locked instruction, then returns it.
        fn use_and_give(&self, slot: u32) {
            let uses = &self.uses[slot as usize];
            uses.store(uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if self.returns.give(&self.links, slot) == Disposal::Free {
                self.free();
            }
        }

        /// The freeing thread must be ordered after every use.
        fn free(&self) {
            assert!(self.uses.iter().all(|uses| uses.load(Ordering::Relaxed) >= 1), "still used");
            assert_eq!(self.freed.fetch_add(1, Ordering::Relaxed), 0, "freed twice");
        }

        fn uses(&self, slot: u32) -> u32 {
            self.uses[slot as usize].load(Ordering::Relaxed)
        }
    }

    fn give_on_threads(memory: &Arc<Shared>) -> Vec<thread::JoinHandle<()>> {
        let give = |slot| {
            let memory = Arc::clone(memory);
            thread::spawn(move || memory.use_and_give(slot))
        };
        (0..SLOTS as u32).map(give).collect()
    }

    #[test]
    fn a_returned_slot_is_quiet_and_returns_once() {
        loom::model(|| {
            let memory = Shared::new();
            let threads = give_on_threads(&memory);
            let mut returned = [0; SLOTS];
            // Before, between and after the returns: an owner polls.
            while returned.contains(&0) {
                if memory.returns.any() {
                    memory.returns.take(&memory.links, |slot| {
                        returned[slot as usize] += 1;
                        assert_eq!(memory.uses(slot), 1, "its last use is not visible");
                    });
                }
                thread::yield_now();
            }
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
            assert_eq!(returned, [1; SLOTS]);
        });
    }

    #[test]
    fn a_slot_may_be_lent_again_while_others_return() {
        loom::model(|| {
            let memory = Shared::new();
            let threads = give_on_threads(&memory);
            let mut again = Vec::new();
            while again.is_empty() {
                memory.returns.take(&memory.links, |slot| again.push(slot));
                thread::yield_now();
            }
            // On this thread, at once: the head may be what another thread has just read (ABA).
            again.iter().for_each(|&slot| memory.use_and_give(slot));
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
            let mut returned = [0; SLOTS];
            memory.returns.take(&memory.links, |slot| {
                returned[slot as usize] += 1;
                assert_eq!(memory.uses(slot), 1 + u32::from(again.contains(&slot)));
            });
            assert_eq!(returned, [1; SLOTS]);
        });
    }

    #[test]
    fn only_the_last_owner_frees() {
        loom::model(|| {
            let memory = Shared::new();
            let threads = give_on_threads(&memory);
            if memory.returns.close(&memory.links, SLOTS) == Disposal::Free {
                memory.free();
            }
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
            assert_eq!(memory.freed.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn an_owner_that_takes_before_it_closes_returns_what_it_holds() {
        loom::model(|| {
            let memory = Shared::new();
            let threads = give_on_threads(&memory);
            let mut held = Vec::new();
            memory.returns.take(&memory.links, |slot| held.push(slot));
            if memory.returns.close(&memory.links, SLOTS) == Disposal::Free {
                memory.free();
            }
            // As a pool's spares do when they are dropped after the owner's end.
            held.into_iter().for_each(|slot| memory.use_and_give(slot));
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
            assert_eq!(memory.freed.load(Ordering::Relaxed), 1);
        });
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn links(count: usize) -> Vec<ReturnLink> {
        (0..count).map(|_| ReturnLink::new()).collect()
    }

    #[test]
    fn a_returned_index_is_taken_once() {
        let (returns, links) = (Returns::new(), links(4));
        let taken = || {
            let mut taken = Vec::new();
            returns.take(&links, |slot| taken.push(slot));
            taken
        };
        assert_eq!((returns.any(), taken()), (false, vec![]));
        for slot in [2, 0, 3] {
            assert_eq!(returns.give(&links, slot), Disposal::Keep);
        }
        assert!(returns.any());
        assert_eq!(taken(), [3, 0, 2]);
        assert_eq!(taken(), []);
    }

    #[test]
    fn the_last_return_frees_the_memory() {
        let (returns, links) = (Returns::new(), links(3));
        assert_eq!(returns.give(&links, 1), Disposal::Keep);
        assert_eq!(returns.close(&links, 3), Disposal::Keep);
        assert_eq!(returns.give(&links, 0), Disposal::Keep);
        assert_eq!(returns.give(&links, 2), Disposal::Free);
    }

    #[test]
    fn an_owner_that_leaves_last_frees_the_memory() {
        let (returns, links) = (Returns::new(), links(2));
        assert_eq!(returns.give(&links, 0), Disposal::Keep);
        assert_eq!(returns.give(&links, 1), Disposal::Keep);
        assert_eq!(returns.close(&links, 2), Disposal::Free);
    }
}
