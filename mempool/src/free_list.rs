//! The free list of a pool: its free tokens, the last returned first.

use std::marker::PhantomData;
use std::sync::Mutex;

use crate::token::{INDEX_BITS, Quiet, SLOTS_MAX, Token};

/// The free tokens. Last in, first out: the slot returned last is still in the cache.
pub(crate) struct FreeList<K> {
    /// The upper bits of every token of this pool.
    tag: u32,
    /// The free indices are `free[..len]`.
    free: Box<[u32]>,
    len: usize,
    kind: PhantomData<fn(K) -> K>,
    /// Which slots are out; used by debug builds only.
    #[cfg(debug_assertions)]
    out: Box<[bool]>,
}

impl<K> FreeList<K> {
    /// A list with all `slots` free; the first `pop` returns slot 0.
    pub(crate) fn new(slots: u32) -> Result<FreeList<K>, FreeListError> {
        if slots == 0 || slots > SLOTS_MAX {
            return Err(FreeListError::Slots { slots });
        }
        let pool = POOL_IDS.lock().expect("no holder panics").take()?;
        Ok(FreeList {
            tag: pool << INDEX_BITS,
            free: (0..slots).rev().collect(),
            len: slots as usize,
            kind: PhantomData,
            #[cfg(debug_assertions)]
            out: (0..slots).map(|_| false).collect(),
        })
    }

    /// Takes the token that was returned last.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Token<K>> {
        let len = self.len.checked_sub(1)?;
        let index = *self.free.get(len)?;
        self.len = len;
        #[cfg(debug_assertions)]
        assert!(
            !std::mem::replace(&mut self.out[index as usize], true),
            "slot {index} handed out twice"
        );
        Some(Token::mint(self.tag | index))
    }

    /// Returns a token to the list.
    ///
    /// # Panics
    /// If the token belongs to another pool.
    #[inline]
    pub(crate) fn push(&mut self, token: Token<K>) {
        let index = self.index(&token);
        #[cfg(debug_assertions)]
        {
            self.out[index as usize] = false;
        }
        match self.free.get_mut(self.len) {
            Some(free) => *free = index,
            None => foreign(token.raw()),
        }
        self.len += 1;
    }

    /// The slot of a token: less than the capacity.
    ///
    /// # Panics
    /// If the token belongs to another pool.
    #[inline]
    pub(crate) fn index(&self, token: &Token<K>) -> u32 {
        // One comparison for both: with a foreign tag the difference is beyond every capacity.
        let index = token.raw() ^ self.tag;
        if index as usize >= self.free.len() {
            foreign(token.raw());
        }
        #[cfg(debug_assertions)]
        assert!(self.out[index as usize], "slot {index} used while free");
        index
    }

    /// As [`FreeList::index`], without the comparison, for a table that makes it: for a token of
    /// another pool it is beyond the end of every table with the same number of entries for each slot.
    #[inline]
    pub(crate) fn place(&self, token: &Token<K>) -> usize {
        let index = token.raw() ^ self.tag;
        #[cfg(debug_assertions)]
        assert!(self.out.get(index as usize) != Some(&false), "slot {index} used while free");
        index as usize
    }

    /// The number of free slots.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.len
    }

    /// The indices of the free slots.
    pub(crate) fn free_indices(&self) -> &[u32] {
        &self.free[..self.len]
    }

    /// The total number of slots.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.free.len()
    }

    /// Makes every slot free, as in a new list.
    pub(crate) fn recall(&mut self, _: Quiet) {
        for (place, index) in self.free.iter_mut().rev().zip(0..) {
            *place = index;
        }
        self.len = self.free.len();
        #[cfg(debug_assertions)]
        self.out.fill(false);
    }

    /// Whether a token is out.
    pub(crate) fn is_dirty(&self) -> bool {
        self.len < self.free.len()
    }
}

impl<K> Drop for FreeList<K> {
    /// The number of a pool is used again only if no token can contain it.
    fn drop(&mut self) {
        if !self.is_dirty()
            && let Ok(mut ids) = POOL_IDS.lock()
        {
            ids.give_back(self.tag >> INDEX_BITS);
        }
    }
}

impl<K> std::fmt::Debug for FreeList<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} free", self.len, self.free.len())
    }
}

#[cold]
#[inline(never)]
pub(crate) fn foreign(raw: u32) -> ! {
    panic!("token {}:{} is of another pool", raw >> INDEX_BITS, raw & (SLOTS_MAX - 1))
}

/// Why a free list cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeListError {
    /// Zero slots, or more than a token can number.
    #[error("a pool of {slots} slots was requested; 1 to {SLOTS_MAX} is allowed")]
    Slots {
        /// The requested number.
        slots: u32,
    },
    /// All pool numbers are in use.
    #[error("{POOLS_MAX} pools are in use, or were dropped while tokens were out")]
    Pools,
}

/// The free pool numbers, which no token contains. Set-up only.
struct PoolIds {
    next: u32,
    returned: Vec<u32>,
}

impl PoolIds {
    fn take(&mut self) -> Result<u32, FreeListError> {
        if let Some(id) = self.returned.pop() {
            return Ok(id);
        }
        if self.next == POOLS_MAX {
            return Err(FreeListError::Pools);
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    fn give_back(&mut self, id: u32) {
        self.returned.push(id);
    }
}

static POOL_IDS: Mutex<PoolIds> = Mutex::new(PoolIds { next: 0, returned: Vec::new() });

const POOLS_MAX: u32 = 1 << (u32::BITS - INDEX_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    fn list(slots: u32) -> FreeList<()> {
        FreeList::new(slots).expect("there are names for pools")
    }

    #[test]
    fn slots_come_in_order_and_the_last_returned_first() {
        let mut list = list(3);
        let tokens: Vec<_> = std::iter::from_fn(|| list.pop()).collect();
        let order: Vec<u32> = tokens.iter().map(Token::index).collect();
        assert_eq!(order, [0, 1, 2]);
        for token in tokens {
            list.push(token);
        }
        assert_eq!(list.pop().expect("one is free").index(), 2);
    }

    #[test]
    fn counts_that_a_token_cannot_name_are_refused() {
        for slots in [0, SLOTS_MAX + 1] {
            let error = FreeList::<()>::new(slots).expect_err("refused");
            assert_eq!(error, FreeListError::Slots { slots });
        }
        assert_eq!(list(SLOTS_MAX).capacity(), SLOTS_MAX as usize);
    }

    #[test]
    #[should_panic(expected = "is of another pool")]
    fn a_token_of_another_pool_is_refused() {
        let (mut one, mut other) = (list(4), list(4));
        let _kept = other.pop();
        other.push(one.pop().expect("one is free"));
    }

    #[test]
    fn the_number_of_a_pool_is_not_reused_while_a_token_has_it() {
        let mut dirty = list(1);
        let token = dirty.pop().expect("one is free");
        let name = token.raw() >> INDEX_BITS;
        drop(dirty);
        for _ in 0..100 {
            assert_ne!(list(1).tag >> INDEX_BITS, name);
        }
        let _ = token;
    }

    #[test]
    fn running_out_of_pool_numbers_is_an_error() {
        let mut ids = PoolIds { next: POOLS_MAX - 1, returned: Vec::new() };
        let last = ids.take().expect("one is left");
        assert_eq!(ids.take(), Err(FreeListError::Pools));
        ids.give_back(last);
        assert_eq!(ids.take(), Ok(last));
    }

    #[test]
    fn after_a_recall_all_slots_are_free() {
        let mut list = list(3);
        for _ in 0..2 {
            let _ = list.pop().expect("one is free").into_raw();
        }
        assert!(list.is_dirty());
        // Numbers that never become tokens again, as `Quiet` requires.
        list.recall(crate::token::quiet());
        assert_eq!((list.is_dirty(), list.free()), (false, 3));
        let order: Vec<u32> = std::iter::from_fn(|| list.pop()).map(|t| t.index()).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "used while free")]
    fn debug_builds_detect_two_tokens_of_one_number() {
        let mut list = list(2);
        let token = list.pop().expect("one is free");
        let copy = Token::mint(token.raw());
        list.push(token);
        list.push(copy);
    }
}
