//! Receive buffers, divided into segments that can be lent one by one.
//!
//! ```text
//!   token t ──▶ scatter list  [ sge 0 | sge 1 | … | sge n-1 ]        posted to the device unchanged
//!                                │       │             │
//!   segments                   inline  PLT 0   …    PLT K-1           each a slot of its own
//!                                        │ detach(t, 1)
//!                                        ▼
//!   spares ──▶ takes its place         Loan ──▶ program ──▶ back to the pool, from any thread
//! ```
//!
//! A program can write a placed segment to a disk while its buffer is posted again with a spare in
//! its place.

use crate::free_list::{FreeList, foreign};
use crate::loan::{self, Loan, LoanPool};
use crate::pool::{CACHE_LINE, PoolError, PoolSpec};
use crate::registered::Registered;
use crate::registrar::Sge;
use crate::token::{Quiet, Token, kind::Recv};
use rpcrdma_xdr::RecvStructure;

/// Receive buffers of one structure. Belongs to one thread; does not allocate after it is made.
///
/// Dropped while tokens are out, it leaks its memory: a device may still be writing there. Dropped
/// while loans are out, it leaves the memory to them, and the last one frees it.
pub struct RecvPool {
    list: FreeList<Recv>,
    structure: RecvStructure,
    /// Segments of a buffer.
    width: usize,
    /// The scatter lists of all buffers; entry i of a buffer describes its segment i.
    scatter: Box<[Sge]>,
    /// The segments of all buffers. Accessed only through the token of the buffer.
    segments: Vec<Loan>,
    /// The buffers whose scatter list has changed and was not returned by `next_changed` since,
    /// each once.
    changed: Vec<u32>,
    is_changed: Box<[bool]>,
    /// The kind of each segment of a buffer.
    kinds: Box<[u8]>,
    /// The spares of each kind. Never grows beyond its initial length.
    spares: Box<[Vec<Loan>]>,
    loans: LoanPool,
}

impl RecvPool {
    /// Carves the buffers and spares out of registered memory.
    pub fn new(memory: &mut Registered, spec: &RecvSpec) -> Result<RecvPool, PoolError> {
        let shape = spec.shape()?;
        let list = FreeList::new(spec.buffers)?;
        let (loans, mut slots) = LoanPool::new(memory, &shape.slots)?;
        let width = shape.kinds.len();
        let mut segments = Vec::with_capacity(width * spec.buffers as usize);
        for _ in 0..spec.buffers {
            for &kind in &shape.kinds {
                let slot = slots[usize::from(kind)].pop();
                segments.push(slot.expect("the shape counts a slot per segment"));
            }
        }
        // The remaining slots are the spares; the copy has no excess capacity.
        slots.iter_mut().for_each(Vec::shrink_to_fit);
        Ok(RecvPool {
            list,
            structure: spec.structure,
            width,
            scatter: segments.iter().map(whole).collect(),
            segments,
            changed: (0..spec.buffers).rev().collect(),
            is_changed: (0..spec.buffers).map(|_| true).collect(),
            kinds: shape.kinds.into(),
            spares: slots.into(),
            loans,
        })
    }

    /// Takes a free buffer, to be posted. A few instructions.
    #[inline]
    pub fn take(&mut self) -> Option<Token<Recv>> {
        self.list.pop()
    }

    /// Returns a buffer to the pool. A few instructions.
    ///
    /// # Panics
    /// If the token belongs to another pool. This applies to all methods that take a token.
    #[inline]
    pub fn put(&mut self, token: Token<Recv>) {
        self.list.push(token);
    }

    /// Takes a segment out of a buffer and replaces it by a spare, also in the scatter list. `None`
    /// if no spare is free, including the loans that were dropped. A few instructions.
    ///
    /// # Panics
    /// If the structure has no segment `index`.
    pub fn detach(&mut self, token: &mut Token<Recv>, index: usize) -> Option<Loan> {
        let kind = usize::from(self.kinds[index]);
        let spare = match self.spares[kind].pop() {
            Some(spare) => spare,
            None => self.reclaim_one(kind)?,
        };
        let buffer = self.list.index(token);
        let at = buffer as usize * self.width + index;
        self.scatter[at] = whole(&spare);
        if !std::mem::replace(&mut self.is_changed[buffer as usize], true) {
            self.changed.push(buffer);
        }
        Some(std::mem::replace(&mut self.segments[at], spare))
    }

    /// Returns a loan to the pool without a locked instruction.
    ///
    /// # Errors
    /// The loan, if it belongs to another pool.
    pub fn give_back(&mut self, loan: Loan) -> Result<(), Loan> {
        let (kind, loan) = self.loans.receive(loan)?;
        self.spares[kind].push(loan);
        Ok(())
    }

    /// Returns the dropped loans to the pool, from all threads. One plain load if there is none.
    #[inline]
    pub fn reclaim(&mut self) {
        let spares = &mut self.spares;
        self.loans.reclaim(|kind, loan| spares[kind].push(loan));
    }

    /// Makes every buffer free, as in a new pool. Loans stay out.
    pub fn recall(&mut self, quiet: Quiet) {
        self.list.recall(quiet);
    }

    /// Writes `byte` over every free buffer and spare. For tests: bytes that no message may
    /// contain.
    pub fn poison(&mut self, byte: u8) {
        for &index in self.list.free_indices() {
            let start = index as usize * self.width;
            let buffer = &mut self.segments[start..start + self.width];
            buffer.iter_mut().for_each(|segment| segment.fill(byte));
        }
        self.spares.iter_mut().flatten().for_each(|spare| spare.fill(byte));
    }

    /// Writes `byte` over a buffer. For tests, before it is posted again.
    pub fn fill(&mut self, token: &mut Token<Recv>, byte: u8) {
        let start = self.list.index(token) as usize * self.width;
        let buffer = &mut self.segments[start..start + self.width];
        buffer.iter_mut().for_each(|segment| segment.fill(byte));
    }

    /// A buffer whose scatter list has changed since this returned it, and the list; at first, each
    /// buffer. For a device that keeps the lists: it must have the current one when the buffer is
    /// posted. The device does not own such a buffer as long as every changed list is taken here
    /// before a post, because a list changes only through the token of its buffer.
    #[inline]
    pub fn next_changed(&mut self) -> Option<(u32, &[Sge])> {
        let buffer = self.changed.pop()?;
        self.is_changed[buffer as usize] = false;
        let start = buffer as usize * self.width;
        Some((buffer, &self.scatter[start..start + self.width]))
    }

    /// The number of a buffer: less than the capacity.
    #[inline]
    pub fn number(&self, token: &Token<Recv>) -> u32 {
        self.list.index(token)
    }

    /// The scatter list of a buffer: one entry for each segment, in order.
    #[inline]
    pub fn scatter(&self, token: &Token<Recv>) -> &[Sge] {
        let start = self.list.index(token) as usize * self.width;
        &self.scatter[start..start + self.width]
    }

    /// The bytes of one segment.
    ///
    /// # Panics
    /// If the structure has no segment `index`.
    #[inline]
    pub fn segment<'a>(&'a self, token: &'a Token<Recv>, index: usize) -> &'a [u8] {
        let start = self.list.index(token) as usize * self.width;
        &self.segments[start..start + self.width][index]
    }

    /// The bytes of the first segment: every buffer has one. A few instructions.
    #[inline]
    pub fn first_segment<'a>(&'a self, token: &'a Token<Recv>) -> &'a [u8] {
        // The one comparison is that of the token, too: there are `width` segments a buffer.
        match self.segments.get(self.list.place(token) * self.width) {
            Some(segment) => segment,
            None => foreign(token.raw()),
        }
    }

    /// The segments of each buffer.
    #[inline]
    pub fn structure(&self) -> &RecvStructure {
        &self.structure
    }

    /// The number of free buffers.
    #[inline]
    pub fn free(&self) -> usize {
        self.list.free()
    }

    /// The total number of buffers.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// The number of free spares for segment `index`, without those that were dropped and not
    /// reclaimed.
    ///
    /// # Panics
    /// If the structure has no segment `index`.
    pub fn spares(&self, index: usize) -> usize {
        self.spares[usize::from(self.kinds[index])].len()
    }

    /// The total number of spares of all kinds.
    pub fn spares_max(&self) -> usize {
        self.loans.slots() - self.segments.len()
    }

    /// The number of free spares of all kinds, without those that were dropped and not reclaimed.
    pub fn spares_free(&self) -> usize {
        self.spares.iter().map(Vec::len).sum()
    }

    /// The number of segments that were dropped and not reclaimed. Walks a list: for tests.
    pub fn returning(&self) -> usize {
        self.loans.returning()
    }

    /// Whether a loan is from this pool.
    pub fn owns(&self, loan: &Loan) -> bool {
        self.loans.owns(loan)
    }

    /// The stack of spares of a kind is empty: reclaims dropped loans.
    #[cold]
    fn reclaim_one(&mut self, kind: usize) -> Option<Loan> {
        self.reclaim();
        self.spares[kind].pop()
    }
}

impl Drop for RecvPool {
    /// Segments of buffers that are out never return, so the memory is never freed.
    fn drop(&mut self) {
        if !self.list.is_dirty() {
            return;
        }
        let mut is_free = vec![false; self.list.capacity()];
        self.list.free_indices().iter().for_each(|&index| is_free[index as usize] = true);
        for (at, segment) in self.segments.drain(..).enumerate() {
            if !is_free[at / self.width] {
                std::mem::forget(segment);
            }
        }
    }
}

impl std::fmt::Debug for RecvPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvPool").field("buffers", &self.list).field("slots", &self.loans).finish()
    }
}

/// The size and structure of a receive pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvSpec {
    /// The segments of each buffer.
    pub structure: RecvStructure,
    /// The number of buffers.
    pub buffers: u32,
    /// The number of spares for each kind of segment that is not for placement.
    pub inline_spares: u32,
    /// The number of spares for each kind of placement segment: so many placed segments may be
    /// lent.
    pub placement_spares: u32,
}

impl RecvSpec {
    /// The length of a region that suffices for this pool after any parts carved before it.
    pub fn region_len(&self) -> Result<usize, PoolError> {
        loan::region_len(&self.shape()?.slots)
    }

    fn shape(&self) -> Result<SegmentKinds, PoolError> {
        let mut shape = SegmentKinds { slots: Vec::new(), kinds: Vec::new() };
        let mut seen: Vec<(u32, u32, bool)> = Vec::new();
        for segment in self.structure.segments() {
            let key = (segment.length, segment.align, segment.placement);
            let kind = seen.iter().position(|known| *known == key).unwrap_or_else(|| {
                seen.push(key);
                let slots =
                    if segment.placement { self.placement_spares } else { self.inline_spares };
                let align = (segment.align as usize).max(CACHE_LINE);
                shape.slots.push(PoolSpec { slots, slot_len: segment.length as usize, align });
                seen.len() - 1
            });
            let slots = &mut shape.slots[kind].slots;
            *slots = slots.checked_add(self.buffers).ok_or(PoolError::TooLarge)?;
            shape.kinds.push(kind as u8);
        }
        Ok(shape)
    }
}

/// A structure as slots: the number of each kind, and the kind of each segment.
struct SegmentKinds {
    slots: Vec<PoolSpec>,
    kinds: Vec<u8>,
}

fn whole(loan: &Loan) -> Sge {
    loan.sge(0..loan.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory;
    use rpcrdma_xdr::SegmentGroup;

    fn spec(buffers: u32, placement_spares: u32) -> RecvSpec {
        let inline = SegmentGroup { count: 1, length: 1024, align: 0, placement: false };
        let placed = SegmentGroup { count: 2, length: 4096, align: 4096, placement: true };
        let structure = RecvStructure::new(&[inline, placed]).expect("valid");
        RecvSpec { structure, buffers, inline_spares: 0, placement_spares }
    }

    fn pool(spec: &RecvSpec) -> RecvPool {
        let mut memory = memory(spec.region_len().expect("small"));
        RecvPool::new(&mut memory, spec).expect("as much as was asked for")
    }

    #[test]
    fn a_detached_segment_leaves_with_its_bytes_and_a_spare_takes_its_place() {
        let mut pool = pool(&spec(1, 1));
        let mut token = pool.take().expect("one is free");
        pool.fill(&mut token, 7);
        let before = pool.scatter(&token).to_vec();
        assert_eq!(pool.next_changed(), Some((0, &before[..])), "at first");
        assert_eq!(pool.next_changed(), None);
        let loan = pool.detach(&mut token, 2).expect("a spare");
        assert_eq!(loan.as_ptr().addr() as u64, before[2].addr);
        assert!(loan.iter().all(|byte| *byte == 7));
        let after = pool.scatter(&token);
        assert_eq!(after[..2], before[..2]);
        assert_ne!(after[2].addr, before[2].addr);
        assert_eq!((after[2].length, after[2].addr % 4096), (4096, 0));
        assert!(pool.detach(&mut token, 1).is_none(), "spares are out");
        assert!(pool.detach(&mut token, 0).is_none(), "there was never one of this kind");
        pool.give_back(loan).expect("its own");
        assert_eq!(pool.spares(1), 1);
        assert!(pool.detach(&mut token, 1).is_some());
        let changed = pool.scatter(&token).to_vec();
        assert_eq!(pool.number(&token), 0);
        assert_eq!(pool.next_changed(), Some((0, &changed[..])), "once");
        assert_eq!(pool.next_changed(), None);
        pool.put(token);
    }

    #[test]
    fn a_loan_dropped_elsewhere_is_found_when_spares_are_out() {
        let mut pool = pool(&spec(1, 1));
        let mut token = pool.take().expect("one is free");
        let loan = pool.detach(&mut token, 1).expect("a spare");
        std::thread::scope(|scope| scope.spawn(|| drop(loan)).join().expect("does not panic"));
        assert_eq!(pool.spares(1), 0);
        assert_eq!((pool.spares_max(), pool.spares_free(), pool.returning()), (1, 0, 1));
        let loan = pool.detach(&mut token, 1).expect("it has returned");
        assert!(pool.owns(&loan));
        assert_eq!(pool.returning(), 0);
        pool.put(token);
    }

    #[test]
    fn poison_fills_every_free_buffer_and_spare() {
        let mut pool = pool(&spec(2, 1));
        let mine = pool.take().expect("one is free");
        pool.poison(0xDB);
        assert!(pool.segment(&mine, 0).iter().all(|byte| *byte == 0));
        assert_eq!(pool.first_segment(&mine).as_ptr_range(), pool.segment(&mine, 0).as_ptr_range());
        let mut fresh = pool.take().expect("one is free");
        let first = pool.first_segment(&fresh);
        assert_eq!(first.as_ptr_range(), pool.segment(&fresh, 0).as_ptr_range());
        for segment in 0..3 {
            assert!(pool.segment(&fresh, segment).iter().all(|byte| *byte == 0xDB));
        }
        let _loan = pool.detach(&mut fresh, 1).expect("a spare");
        assert!(pool.segment(&fresh, 1).iter().all(|byte| *byte == 0xDB), "the spare");
        pool.put(mine);
        pool.put(fresh);
    }

    #[test]
    fn memory_is_freed_with_the_pool_unless_a_device_may_have_it() {
        let spec = spec(2, 1);
        for (posted, recalled, mapped) in
            [(false, false, false), (true, false, true), (true, true, false)]
        {
            let mut memory = memory(spec.region_len().expect("small"));
            let alive = memory.carve(0, 1).expect("an empty part").watch();
            let mut pool = RecvPool::new(&mut memory, &spec).expect("enough");
            drop(memory);
            if posted {
                let _ = pool.take().expect("one is free").into_raw();
            }
            if recalled {
                pool.recall(crate::token::quiet());
            }
            drop(pool);
            assert_eq!(alive(), mapped, "posted {posted}, recalled {recalled}");
        }
    }

    #[test]
    fn a_loan_keeps_the_memory_of_its_pool() {
        let spec = spec(1, 1);
        let mut memory = memory(spec.region_len().expect("small"));
        let alive = memory.carve(0, 1).expect("an empty part").watch();
        let mut pool = RecvPool::new(&mut memory, &spec).expect("enough");
        let mut token = pool.take().expect("one is free");
        let mut loan = pool.detach(&mut token, 1).expect("a spare");
        pool.put(token);
        drop((pool, memory));
        loan.fill(1);
        assert!(alive());
        drop(loan);
        assert!(!alive());
    }

    #[test]
    #[should_panic(expected = "is of another pool")]
    fn a_buffer_of_another_pool_is_refused() {
        let (mut one, other) = (pool(&spec(1, 0)), pool(&spec(1, 0)));
        let token = one.take().expect("one is free");
        let _ = other.scatter(&token);
    }

    #[test]
    #[should_panic(expected = "is of another pool")]
    fn a_buffer_of_another_pool_has_no_first_segment_here() {
        let (mut one, other) = (pool(&spec(1, 0)), pool(&spec(1, 0)));
        let token = one.take().expect("one is free");
        let _ = other.first_segment(&token);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_segment_that_does_not_exist_is_refused() {
        let mut pool = pool(&spec(2, 0));
        let token = pool.take().expect("one is free");
        let _ = pool.segment(&token, 3);
    }
}
