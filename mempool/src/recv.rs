//! Receive buffers, cut into segments that can leave one by one.
//!
//! ```text
//!   token t ──▶ scatter list  [ sge 0 | sge 1 | … | sge n-1 ]        posted to the device as it is
//!                                │       │             │
//!   segments                   inline  PLT 0   …    PLT K-1           each a slot of its own
//!                                        │ detach(t, 1)
//!                                        ▼
//!   spares ──▶ takes its place         Loan ──▶ application ──▶ home, from any thread
//! ```
//!
//! A placed segment can be on its way to a disk while its buffer is posted again with a spare in
//! the gap.

use crate::free_list::FreeList;
use crate::loan::{self, Loan, LoanHome};
use crate::pool::{CACHE_LINE, PoolError, PoolSpec};
use crate::registered::Registered;
use crate::registrar::Sge;
use crate::token::{Quiet, Token, kind::Recv};
use rpcrdma_xdr::RecvStructure;

/// Receive buffers of one structure. Belongs to one thread; never allocates after it is made.
///
/// Dropped while tokens are out, it leaks its memory: a device may still be writing there. Dropped
/// while loans are out, it leaves the memory to them, and the last one frees it.
pub struct RecvPool {
    list: FreeList<Recv>,
    structure: RecvStructure,
    /// Segments of a buffer.
    width: usize,
    /// Buffer by buffer; entry i describes segment i.
    scatter: Box<[Sge]>,
    /// Buffer by buffer. Touched only through the token of the buffer.
    segments: Vec<Loan>,
    /// The kind of each segment of a buffer.
    kinds: Box<[u8]>,
    /// Per kind. Never longer than made: a spare that leaves for a buffer frees its place.
    spares: Box<[Vec<Loan>]>,
    home: LoanHome,
}

impl RecvPool {
    /// Carves the buffers and spares out of registered memory.
    pub fn new(memory: &mut Registered, spec: &RecvSpec) -> Result<RecvPool, PoolError> {
        let shape = spec.shape()?;
        let list = FreeList::new(spec.buffers)?;
        let (home, mut slots) = LoanHome::new(memory, &shape.slots)?;
        let width = shape.kinds.len();
        let mut segments = Vec::with_capacity(width * spec.buffers as usize);
        for _ in 0..spec.buffers {
            for &kind in &shape.kinds {
                let slot = slots[usize::from(kind)].pop();
                segments.push(slot.expect("the shape counts a slot per segment"));
            }
        }
        // What is left are the spares; a copy of the list is no larger than them.
        slots.iter_mut().for_each(Vec::shrink_to_fit);
        Ok(RecvPool {
            list,
            structure: spec.structure,
            width,
            scatter: segments.iter().map(whole).collect(),
            segments,
            kinds: shape.kinds.into(),
            spares: slots.into(),
            home,
        })
    }

    /// A buffer, if one is at home: to be posted. A few instructions.
    #[inline]
    pub fn take(&mut self) -> Option<Token<Recv>> {
        self.list.pop()
    }

    /// Takes a buffer home. A few instructions.
    ///
    /// # Panics
    /// If the token is another pool's, as all methods that are given a token.
    #[inline]
    pub fn put(&mut self, token: Token<Recv>) {
        self.list.push(token);
    }

    /// Takes a segment out of a buffer and puts a spare in its place; the scatter list follows.
    /// `None` if no spare is left, not even among the loans that came home. A few instructions.
    ///
    /// # Panics
    /// If the structure has no segment `index`.
    pub fn detach(&mut self, token: &mut Token<Recv>, index: usize) -> Option<Loan> {
        let kind = usize::from(self.kinds[index]);
        let spare = match self.spares[kind].pop() {
            Some(spare) => spare,
            None => self.reclaim_one(kind)?,
        };
        let at = self.list.index(token) as usize * self.width + index;
        self.scatter[at] = whole(&spare);
        Some(std::mem::replace(&mut self.segments[at], spare))
    }

    /// Takes a loan home without a locked instruction.
    ///
    /// # Errors
    /// The loan, if it is another pool's.
    pub fn give_back(&mut self, loan: Loan) -> Result<(), Loan> {
        let (kind, loan) = self.home.receive(loan)?;
        self.spares[kind].push(loan);
        Ok(())
    }

    /// Takes home the loans that were dropped, on whatever thread. One plain load if there is none.
    #[inline]
    pub fn reclaim(&mut self) {
        let spares = &mut self.spares;
        self.home.reclaim(|kind, loan| spares[kind].push(loan));
    }

    /// Takes every buffer home, as if the pool were new. Loans stay out.
    pub fn recall(&mut self, quiet: Quiet) {
        self.list.recall(quiet);
    }

    /// Writes `byte` over every buffer and spare at home. For tests: what no message may contain.
    pub fn poison(&mut self, byte: u8) {
        for &index in self.list.at_home() {
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

    /// How each buffer is cut.
    #[inline]
    pub fn structure(&self) -> &RecvStructure {
        &self.structure
    }

    /// Buffers at home.
    #[inline]
    pub fn free(&self) -> usize {
        self.list.free()
    }

    /// Buffers in all.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// Spares at home for segment `index`; those that came home and were not reclaimed do not
    /// count.
    ///
    /// # Panics
    /// If the structure has no segment `index`.
    pub fn spares(&self, index: usize) -> usize {
        self.spares[usize::from(self.kinds[index])].len()
    }

    /// Spares in all, of every kind: the segments that no buffer has.
    pub fn spares_max(&self) -> usize {
        self.home.slots() - self.segments.len()
    }

    /// Spares at home, of every kind; those that came home and were not reclaimed do not count.
    pub fn spares_free(&self) -> usize {
        self.spares.iter().map(Vec::len).sum()
    }

    /// Segments that came home and were not reclaimed. Walks a list: for tests.
    pub fn returning(&self) -> usize {
        self.home.returning()
    }

    /// Whether a loan is of this pool.
    pub fn owns(&self, loan: &Loan) -> bool {
        self.home.owns(loan)
    }

    /// The spare stack of a kind is empty: looks whether a loan came home.
    #[cold]
    fn reclaim_one(&mut self, kind: usize) -> Option<Loan> {
        self.reclaim();
        self.spares[kind].pop()
    }
}

impl Drop for RecvPool {
    /// Segments of buffers that are out never go home, and with them the memory is never freed.
    fn drop(&mut self) {
        if !self.list.is_dirty() {
            return;
        }
        let mut at_home = vec![false; self.list.capacity()];
        self.list.at_home().iter().for_each(|&index| at_home[index as usize] = true);
        for (at, segment) in self.segments.drain(..).enumerate() {
            if !at_home[at / self.width] {
                std::mem::forget(segment);
            }
        }
    }
}

impl std::fmt::Debug for RecvPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvPool").field("buffers", &self.list).field("slots", &self.home).finish()
    }
}

/// What a receive pool should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvSpec {
    /// How each buffer is cut.
    pub structure: RecvStructure,
    /// How many buffers.
    pub buffers: u32,
    /// Spares for each kind of segment that is not for placement.
    pub inline_spares: u32,
    /// Spares for each kind of placement segment: how many placed segments applications may keep.
    pub placement_spares: u32,
}

impl RecvSpec {
    /// Bytes of a region that suffice for this pool, whatever was carved before it.
    pub fn region_len(&self) -> Result<usize, PoolError> {
        loan::region_len(&self.shape()?.slots)
    }

    fn shape(&self) -> Result<Shape, PoolError> {
        let mut shape = Shape { slots: Vec::new(), kinds: Vec::new() };
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

/// A structure as slots: how many of each kind, and which kind each segment is.
struct Shape {
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
        let mut token = pool.take().expect("at home");
        pool.fill(&mut token, 7);
        let before = pool.scatter(&token).to_vec();
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
        pool.put(token);
    }

    #[test]
    fn a_loan_dropped_elsewhere_is_found_when_spares_are_out() {
        let mut pool = pool(&spec(1, 1));
        let mut token = pool.take().expect("at home");
        let loan = pool.detach(&mut token, 1).expect("a spare");
        std::thread::scope(|scope| scope.spawn(|| drop(loan)).join().expect("does not panic"));
        assert_eq!(pool.spares(1), 0);
        assert_eq!((pool.spares_max(), pool.spares_free(), pool.returning()), (1, 0, 1));
        let loan = pool.detach(&mut token, 1).expect("it came home");
        assert!(pool.owns(&loan));
        assert_eq!(pool.returning(), 0);
        pool.put(token);
    }

    #[test]
    fn poison_is_in_every_buffer_and_spare_at_home() {
        let mut pool = pool(&spec(2, 1));
        let mine = pool.take().expect("at home");
        pool.poison(0xDB);
        assert!(pool.segment(&mine, 0).iter().all(|byte| *byte == 0));
        let mut fresh = pool.take().expect("at home");
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
                let _ = pool.take().expect("at home").into_raw();
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
        let mut token = pool.take().expect("at home");
        let mut loan = pool.detach(&mut token, 1).expect("a spare");
        pool.put(token);
        drop((pool, memory));
        loan.fill(1);
        assert!(alive());
        drop(loan);
        assert!(!alive());
    }

    #[test]
    #[should_panic(expected = "is not this pool's")]
    fn a_buffer_of_another_pool_is_refused() {
        let (mut one, other) = (pool(&spec(1, 0)), pool(&spec(1, 0)));
        let token = one.take().expect("at home");
        let _ = other.scatter(&token);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_segment_that_the_structure_has_not_is_refused() {
        let mut pool = pool(&spec(2, 0));
        let token = pool.take().expect("at home");
        let _ = pool.segment(&token, 3);
    }
}
