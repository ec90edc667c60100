//! Memory keys: which registered bytes a key names, and what may be done with them.
//!
//! A key is the index of its registration and a tag that changes whenever the index is used again,
//! so a key that was given back names nothing. The table is shared and locked; each set of queues
//! reads a copy of its own, and takes a new one when the version says that the table has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma_mempool::{Access, Keys, RegisterError, Registrar, Rights, Sge};

use rpcrdma_mempool::Region;

/// All registrations of a fabric.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    version: AtomicU64,
    slots: Mutex<Vec<Slot>>,
}

/// One place of the table.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The key that names it now; its tag is 0 while it is vacant.
    key: u32,
    access: Access,
    base: u64,
    len: u64,
}

impl Registrar for KeyTable {
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        let base = region.base().as_ptr().expose_provenance() as u64;
        let key = self.insert(base, region.len() as u64, rights.access())?;
        Ok(Keys { lkey: key, rkey: key })
    }

    fn deregister(&self, keys: Keys) -> std::io::Result<()> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = slots.get_mut(index_of(keys.lkey)) else { return Ok(()) };
        if slot.key == keys.lkey && slot.is_used() {
            slot.len = 0;
            slot.base = 0;
            slot.access = Access::empty();
            slot.key |= VACANT;
            self.version.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}

impl KeyTable {
    /// How many registrations there are.
    pub(super) fn held(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().filter(|slot| slot.is_used()).count()
    }

    fn insert(&self, base: u64, len: u64, access: Access) -> Result<u32, RegisterError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match slots.iter().position(|slot| !slot.is_used()) {
            Some(index) => index,
            None if slots.len() < KEYS_MAX => slots.len(),
            None => return Err(RegisterError::Full { held: slots.len() as u64 }),
        };
        let tag = slots.get(index).map_or(1, |slot| next_tag(slot.key));
        let key = tag << INDEX_BITS | index as u32;
        let slot = Slot { key, access, base, len };
        match slots.get_mut(index) {
            Some(place) => *place = slot,
            None => slots.push(slot),
        }
        self.version.fetch_add(1, Ordering::Release);
        Ok(key)
    }
}

impl Slot {
    fn is_used(&self) -> bool {
        self.key & VACANT == 0
    }
}

/// One thread's copy of the table.
pub(super) struct KeyCache {
    table: Arc<KeyTable>,
    version: u64,
    slots: Vec<Slot>,
}

impl KeyCache {
    pub(super) fn new(table: Arc<KeyTable>) -> KeyCache {
        let mut cache = KeyCache { table, version: 0, slots: Vec::new() };
        cache.reload();
        cache
    }

    /// Takes a new copy if the table has changed. One load if it has not.
    #[inline]
    pub(super) fn refresh(&mut self) {
        if self.table.version.load(Ordering::Acquire) != self.version {
            self.reload();
        }
    }

    /// Whether the bytes of `sge` may be used so.
    #[inline(always)]
    pub(super) fn allows(&self, sge: &Sge, access: Access) -> bool {
        let Some(slot) = self.find(sge.lkey) else { return false };
        // Below the base wraps around to a huge offset.
        let offset = sge.addr.wrapping_sub(slot.base);
        let within = offset <= slot.len && u64::from(sge.length) <= slot.len - offset;
        within && slot.access.contains(access)
    }

    /// Where the bytes of `sge` begin, counted from the beginning of their region. The bytes are
    /// not checked.
    #[inline]
    pub(super) fn offset(&self, sge: &Sge) -> u64 {
        self.find(sge.lkey).map_or(u64::MAX, |slot| sge.addr.wrapping_sub(slot.base))
    }

    /// The address of `len` bytes at `offset` of the region that `key` names.
    #[inline]
    pub(super) fn locate(&self, key: u32, offset: u64, len: u32) -> Option<u64> {
        let slot = self.find(key)?;
        let within = offset <= slot.len && u64::from(len) <= slot.len - offset;
        within.then(|| slot.base.wrapping_add(offset))
    }

    #[inline]
    fn find(&self, key: u32) -> Option<&Slot> {
        self.slots.get(index_of(key)).filter(|slot| slot.key == key)
    }

    #[cold]
    fn reload(&mut self) {
        let slots = self.table.slots.lock().unwrap_or_else(PoisonError::into_inner);
        self.version = self.table.version.load(Ordering::Acquire);
        self.slots.clone_from(&slots);
    }
}

#[inline]
fn index_of(key: u32) -> usize {
    (key & ((1 << INDEX_BITS) - 1)) as usize
}

/// Tags run from 1 to the largest that leaves the mark of a vacant place free.
fn next_tag(key: u32) -> u32 {
    let tag = (key & !VACANT) >> INDEX_BITS;
    if tag == (VACANT >> INDEX_BITS) - 1 { 1 } else { tag + 1 }
}

const INDEX_BITS: u32 = 14;
/// Set in the key of a place that is not used: no key that was ever given out has it.
const VACANT: u32 = 1 << 31;
const KEYS_MAX: usize = 1 << INDEX_BITS;
