//! The way home: slots that other threads gave back, waiting for the owner of the pool.
//!
//! ```text
//!   any thread    head ◀─compare-exchange─ slot, link to the head before
//!   the owner     head ──one plain load──▶ EMPTY: nothing to do
//!                 head ──one exchange────▶ the whole chain
//!                 head ◀──CLOSED────────── when the pool is dropped; then slots are counted
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

    /// Whether a slot came home: one plain load. Only the owner asks.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.head.load(Ordering::Relaxed) != EMPTY
    }

    /// Slots that came home and were not taken: walks the chain. Only the owner calls it.
    pub(crate) fn count(&self, links: &[Link]) -> usize {
        let mut count = 0;
        let mut next = self.head.load(Ordering::Acquire);
        // Whoever brings a slot home puts it in front; what is behind does not change meanwhile.
        while let Some(link) = links.get(next as usize) {
            count += 1;
            next = link.0.load(Ordering::Relaxed);
        }
        count
    }

    /// Gives every slot that came home to `each`. Only the owner calls it.
    pub(crate) fn take(&self, links: &[Link], each: impl FnMut(u32)) {
        self.take_chain(links, EMPTY, each);
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

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p rpcrdma-mempool --release --lib loom_tests`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// What a home holds: the way back, and slots that only their owner touches.
    ///
    /// Slots are relaxed: loom shows a reader every value that it could see, so that a missing
    /// order shows as a stale count.
    struct Shared {
        returns: Returns,
        links: [Link; SLOTS],
        uses: [AtomicU32; SLOTS],
        freed: AtomicU32,
    }

    const SLOTS: usize = 2;

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                returns: Returns::new(),
                links: std::array::from_fn(|_| Link::new()),
                uses: std::array::from_fn(|_| AtomicU32::new(0)),
                freed: AtomicU32::new(0),
            })
        }

        /// Uses the slot as an application does, without a locked instruction, then brings it home.
        fn use_and_give(&self, slot: u32) {
            let uses = &self.uses[slot as usize];
            uses.store(uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if self.returns.give(&self.links, slot) == Memory::Free {
                self.free();
            }
        }

        /// Whoever frees must come after every use by anybody.
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
    fn a_slot_that_came_home_is_quiet_and_comes_once() {
        loom::model(|| {
            let memory = Shared::new();
            let threads = give_on_threads(&memory);
            let mut home = [0; SLOTS];
            // Before, between and after the returns: an owner polls.
            while home.contains(&0) {
                if memory.returns.any() {
                    memory.returns.take(&memory.links, |slot| {
                        home[slot as usize] += 1;
                        assert_eq!(memory.uses(slot), 1, "its last use is not visible");
                    });
                }
                thread::yield_now();
            }
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
            assert_eq!(home, [1; SLOTS]);
        });
    }

    #[test]
    fn a_slot_may_travel_again_while_others_come_home() {
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
            let mut home = [0; SLOTS];
            memory.returns.take(&memory.links, |slot| {
                home[slot as usize] += 1;
                assert_eq!(memory.uses(slot), 1 + u32::from(again.contains(&slot)));
            });
            assert_eq!(home, [1; SLOTS]);
        });
    }

    #[test]
    fn the_last_frees_and_nobody_else() {
        loom::model(|| {
            let memory = Shared::new();
            let threads = give_on_threads(&memory);
            if memory.returns.close(&memory.links, SLOTS) == Memory::Free {
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
            if memory.returns.close(&memory.links, SLOTS) == Memory::Free {
                memory.free();
            }
            // As a pool's spares do when they are dropped after the owner's end.
            held.into_iter().for_each(|slot| memory.use_and_give(slot));
            threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
            assert_eq!(memory.freed.load(Ordering::Relaxed), 1);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn links(count: usize) -> Vec<Link> {
        (0..count).map(|_| Link::new()).collect()
    }

    #[test]
    fn what_was_given_is_taken_once() {
        let (returns, links) = (Returns::new(), links(4));
        let taken = || {
            let mut taken = Vec::new();
            returns.take(&links, |slot| taken.push(slot));
            taken
        };
        assert_eq!((returns.any(), taken()), (false, vec![]));
        for slot in [2, 0, 3] {
            assert_eq!(returns.give(&links, slot), Memory::Keep);
        }
        assert!(returns.any());
        assert_eq!(taken(), [3, 0, 2]);
        assert_eq!(taken(), []);
    }

    #[test]
    fn the_last_to_come_home_is_told_to_free() {
        let (returns, links) = (Returns::new(), links(3));
        assert_eq!(returns.give(&links, 1), Memory::Keep);
        assert_eq!(returns.close(&links, 3), Memory::Keep);
        assert_eq!(returns.give(&links, 0), Memory::Keep);
        assert_eq!(returns.give(&links, 2), Memory::Free);
    }

    #[test]
    fn an_owner_that_leaves_last_is_told_to_free() {
        let (returns, links) = (Returns::new(), links(2));
        assert_eq!(returns.give(&links, 0), Memory::Keep);
        assert_eq!(returns.give(&links, 1), Memory::Keep);
        assert_eq!(returns.close(&links, 2), Memory::Free);
    }
}
