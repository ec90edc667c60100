//! The free list of a pool: which tokens are at home, the last returned first.

use std::marker::PhantomData;
use std::sync::Mutex;

use crate::token::{INDEX_BITS, Quiet, SLOTS_MAX, Token};

/// Tokens at home. Last in, first out: the slot returned last is the one still in the cache.
pub(crate) struct FreeList<K> {
    /// The upper bits of every token of this pool.
    tag: u32,
    /// Indices at home are `free[..len]`.
    free: Box<[u32]>,
    len: usize,
    kind: PhantomData<fn(K) -> K>,
    /// Which slots are out; only debug builds look.
    #[cfg(debug_assertions)]
    out: Box<[bool]>,
}

impl<K> FreeList<K> {
    /// A list with all of `slots` at home; the first `pop` gives slot 0.
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

    /// The token returned last.
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

    /// Takes a token home.
    ///
    /// # Panics
    /// If the token is another pool's.
    #[inline]
    pub(crate) fn push(&mut self, token: Token<K>) {
        let index = self.index(&token);
        #[cfg(debug_assertions)]
        assert!(
            std::mem::replace(&mut self.out[index as usize], false),
            "slot {index} came home twice"
        );
        match self.free.get_mut(self.len) {
            Some(free) => *free = index,
            None => foreign(token.raw()),
        }
        self.len += 1;
    }

    /// The slot of a token: less than the capacity.
    ///
    /// # Panics
    /// If the token is another pool's.
    #[inline]
    pub(crate) fn index(&self, token: &Token<K>) -> u32 {
        // One comparison for both: with a foreign tag the difference is beyond every capacity.
        let index = token.raw() ^ self.tag;
        if index as usize >= self.free.len() {
            foreign(token.raw());
        }
        #[cfg(debug_assertions)]
        assert!(self.out[index as usize], "slot {index} used while at home");
        index
    }

    /// Slots at home.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.len
    }

    /// Slots at home, by index.
    pub(crate) fn at_home(&self) -> &[u32] {
        &self.free[..self.len]
    }

    /// Slots in all.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.free.len()
    }

    /// Takes every slot home, as if the list were new.
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
    /// The name of a pool is used again only when no token can bear it.
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
        write!(f, "{} of {} at home", self.len, self.free.len())
    }
}

#[cold]
#[inline(never)]
fn foreign(raw: u32) -> ! {
    panic!("token {}:{} is not this pool's", raw >> INDEX_BITS, raw & (SLOTS_MAX - 1))
}

/// Why there is no free list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FreeListError {
    /// None, or more than a token can name.
    #[error("a pool of {slots} slots; 1 to {SLOTS_MAX} are possible")]
    Slots {
        /// The number asked for.
        slots: u32,
    },
    /// Tokens have no more names for pools.
    #[error("{POOLS_MAX} pools exist, or were dropped while tokens were out")]
    Pools,
}

/// Names of pools that no token can bear. Setup only.
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
