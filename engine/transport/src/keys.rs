//! Memory keys: the registered bytes of a key, and the rights to them.
//!
//! A key is the index of its registration and a tag that changes whenever the index is reused, so
//! an old key is not valid. The table is shared and locked. Each set of queues reads its own copy,
//! and takes a new one when the version shows that the table has changed. A key that is not in the
//! copy is looked up in the table, so a new registration is visible at once.
//!
//! ```text
//!   the queues' thread, in a poll            the deregistering thread
//!   turn = odd                               take the key out, version + 1
//!   light()                                  heavy()
//!   another version? ── yes ─▶ new copy      wait for each turn that is odd to be another
//!   look keys up, copy bytes                 no thread uses the key
//!   turn = even
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use crossbeam_utils::CachePadded;
use rpcrdma_mempool::{Access, Keys, Region, RegisterError, Registrar, Rights, Sge};

use crate::barrier;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, yield_now};

/// All registrations of a device.
#[derive(Debug, Default)]
pub struct KeyTable {
    version: AtomicU64,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    slots: Vec<Slot>,
    /// Unused indices, the oldest first.
    vacant: VecDeque<u32>,
    /// All readers of the table, and some former ones.
    readers: Vec<Arc<Reader>>,
}

/// One place of the table.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The current key; the last one, with [`VACANT`], if there is none.
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

    /// Waits for the polls in progress: at most for the length of one poll.
    fn deregister(&self, keys: Keys) -> std::io::Result<()> {
        let readers = self.remove(keys.lkey);
        if !readers.is_empty() {
            barrier::heavy();
            readers.iter().for_each(|reader| reader.wait());
        }
        Ok(())
    }
}

impl KeyTable {
    /// The number of registrations.
    pub fn held(&self) -> usize {
        self.lock().slots.iter().filter(|slot| slot.is_used()).count()
    }

    pub(crate) fn insert(&self, base: u64, len: u64, access: Access) -> Result<u32, RegisterError> {
        let Places { slots, vacant, .. } = &mut *self.lock();
        let index = match vacant.pop_front() {
            Some(index) => index as usize,
            None if slots.len() < KEYS_MAX => slots.len(),
            None => return Err(RegisterError::Full { held: slots.len() as u64 }),
        };
        let tag = slots.get(index).map_or(TAG_FIRST, |slot| next_tag(slot.key));
        let key = tag << INDEX_BITS | index as u32;
        let slot = Slot { key, access, base, len };
        match slots.get_mut(index) {
            Some(place) => *place = slot,
            None => slots.push(slot),
        }
        self.version.fetch_add(1, Ordering::Release);
        Ok(key)
    }

    /// Removes a key. Returns the readers that may still use it: none if the key is unknown.
    fn remove(&self, key: u32) -> Vec<Arc<Reader>> {
        let Places { slots, vacant, readers } = &mut *self.lock();
        let Some(slot) = slots.get_mut(index_of(key)).filter(|slot| slot.key == key) else {
            return Vec::new();
        };
        *slot = Slot { key: key | VACANT, access: Access::empty(), base: 0, len: 0 };
        vacant.push_back(index_of(key) as u32);
        self.version.fetch_add(1, Ordering::Release);
        readers.clone()
    }

    fn add_reader(&self) -> Arc<Reader> {
        let reader = Arc::new(Reader { turn: CachePadded::new(AtomicU64::new(0)) });
        let Places { readers, .. } = &mut *self.lock();
        // The last uses of dropped readers were seen to end: the next holder of the lock comes
        // after them.
        readers.retain(|reader| Arc::strong_count(reader) > 1 || reader.is_in_use());
        readers.push(Arc::clone(&reader));
        reader
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn is_used(&self) -> bool {
        self.key & VACANT == 0
    }

    #[inline(always)]
    fn allows(&self, sge: &Sge, access: Access) -> bool {
        // An address below the base wraps around to a huge offset.
        let offset = sge.addr.wrapping_sub(self.base);
        let within = offset <= self.len && u64::from(sge.length) <= self.len - offset;
        within && self.access.contains(access)
    }

    #[inline(always)]
    fn locate(&self, offset: u64, len: u32) -> Option<u64> {
        let within = offset <= self.len && u64::from(len) <= self.len - offset;
        within.then(|| self.base.wrapping_add(offset))
    }
}

/// Whether a thread is using the memory of keys that it has looked up.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Odd if so.
    turn: CachePadded<AtomicU64>,
}

impl Reader {
    /// Until [`Reader::end`], the keys may be used to touch memory. Called only by the thread of
    /// the cache.
    #[inline(always)]
    pub(crate) fn begin(&self, keys: &mut KeyCache) {
        let turn = self.turn.load(Ordering::Relaxed);
        // Release: a thread that waits for the last turn may see this one instead of its end.
        self.turn.store(turn + 1, Ordering::Release);
        // A thread that removes a key is either seen here, by the version, or sees the turn.
        barrier::light();
        keys.refresh();
    }

    /// No memory is touched after this.
    #[inline(always)]
    pub(crate) fn end(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn + 1, Ordering::Release);
    }

    /// Ends a turn that a panic has left open.
    #[cold]
    pub(crate) fn end_for_good(&self) {
        if self.is_in_use() {
            self.end();
        }
    }

    fn is_in_use(&self) -> bool {
        self.turn.load(Ordering::Acquire) % 2 == 1
    }

    /// Waits for the end of the current turn.
    #[cold]
    fn wait(&self) {
        let turn = self.turn.load(Ordering::Acquire);
        while turn % 2 == 1 && self.turn.load(Ordering::Acquire) == turn {
            yield_now();
        }
    }
}

/// One thread's copy of the table.
pub struct KeyCache {
    table: Arc<KeyTable>,
    version: u64,
    slots: Vec<Slot>,
}

impl KeyCache {
    /// A copy for a thread that looks keys up and uses none of their memory afterwards.
    pub fn of(table: Arc<KeyTable>) -> KeyCache {
        let mut cache = KeyCache { table, version: 0, slots: Vec::new() };
        cache.reload();
        cache
    }

    /// A copy, and the reader that its thread has to begin before it uses a key.
    pub(crate) fn new(table: Arc<KeyTable>) -> (KeyCache, Arc<Reader>) {
        let reader = table.add_reader();
        (KeyCache::of(table), reader)
    }

    /// Takes a new copy if the table has changed; otherwise costs one load.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if self.table.version.load(Ordering::Acquire) != self.version {
            self.reload();
        }
    }

    /// Which state of the table this is a copy of.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the registration allows this access to the bytes of `sge`.
    #[inline(always)]
    pub(crate) fn allows(&self, sge: &Sge, access: Access) -> bool {
        match self.find(sge.lkey) {
            Some(slot) => slot.allows(sge, access),
            None => self.allows_late(*sge, access),
        }
    }

    #[cold]
    #[inline(never)]
    fn allows_late(&self, sge: Sge, access: Access) -> bool {
        self.find_late(sge.lkey).is_some_and(|slot| slot.allows(&sge, access))
    }

    /// The offset of the bytes of `sge` in their region. The bytes are not checked.
    #[inline]
    pub(crate) fn offset(&self, sge: &Sge) -> u64 {
        match self.find(sge.lkey) {
            Some(slot) => sge.addr.wrapping_sub(slot.base),
            None => self.offset_late(sge),
        }
    }

    #[cold]
    #[inline(never)]
    fn offset_late(&self, sge: &Sge) -> u64 {
        self.find_late(sge.lkey).map_or(u64::MAX, |slot| sge.addr.wrapping_sub(slot.base))
    }

    /// The address of `len` bytes at `offset` of the region that `key` names.
    #[inline]
    pub fn locate(&self, key: u32, offset: u64, len: u32) -> Option<u64> {
        match self.find(key) {
            Some(slot) => slot.locate(offset, len),
            None => self.locate_late(key, offset, len),
        }
    }

    #[cold]
    #[inline(never)]
    fn locate_late(&self, key: u32, offset: u64, len: u32) -> Option<u64> {
        self.find_late(key)?.locate(offset, len)
    }

    #[inline]
    fn find(&self, key: u32) -> Option<&Slot> {
        self.slots.get(index_of(key)).filter(|slot| slot.key == key)
    }

    /// The registration of a key that is newer than the copy.
    fn find_late(&self, key: u32) -> Option<Slot> {
        self.table.lock().slots.get(index_of(key)).filter(|slot| slot.key == key).copied()
    }

    #[cold]
    fn reload(&mut self) {
        let places = self.table.lock();
        self.version = self.table.version.load(Ordering::Acquire);
        self.slots.clone_from(&places.slots);
    }
}

#[inline]
fn index_of(key: u32) -> usize {
    (key & ((1 << INDEX_BITS) - 1)) as usize
}

/// Tags run from 1 to the largest one that does not collide with the vacancy mark.
fn next_tag(key: u32) -> u32 {
    let tag = (key & !VACANT) >> INDEX_BITS;
    if tag == TAG_LAST { 1 } else { tag + 1 }
}

const INDEX_BITS: u32 = 14;
/// Set in the key of an unused place, and in no key that was ever assigned.
const VACANT: u32 = 1 << 31;
const KEYS_MAX: usize = 1 << INDEX_BITS;
const TAG_LAST: u32 = (VACANT >> INDEX_BITS) - 1;
/// Near the last, so that a few registrations exercise the wrap-around.
const TAG_FIRST: u32 = TAG_LAST - 1;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    const RW: Access = Access::LOCAL_WRITE;

    fn sge(addr: u64, length: u32, lkey: u32) -> Sge {
        Sge { addr, length, lkey }
    }

    #[test]
    fn a_new_registration_is_found_after_the_last_refresh() {
        let table = Arc::new(KeyTable::default());
        let old = table.insert(0x1000, 64, RW).expect("room");
        let (cache, _reader) = KeyCache::new(Arc::clone(&table));
        let new = table.insert(0x2000, 64, RW).expect("room");
        assert_eq!(cache.locate(new, 8, 56), Some(0x2008));
        assert_eq!(cache.locate(new, 8, 57), None);
        assert_eq!(cache.offset(&sge(0x2004, 1, new)), 4);
        assert!(cache.allows(&sge(0x2000, 64, new), RW));
        assert!(!cache.allows(&sge(0x2000, 64, new), Access::REMOTE_READ));
        // In the place of one that is gone, too.
        table.remove(old);
        let again = table.insert(0x3000, 64, RW).expect("room");
        assert_eq!(index_of(again), index_of(old));
        assert_eq!(cache.locate(again, 0, 64), Some(0x3000));
        assert_eq!(cache.locate(1 << INDEX_BITS | 9, 0, 1), None, "never given out");
    }

    #[test]
    fn tags_wrap_and_every_key_has_one() {
        let table = Arc::new(KeyTable::default());
        let (mut cache, _reader) = KeyCache::new(Arc::clone(&table));
        let mut keys = Vec::new();
        for base in (0x1000..).step_by(64).take(5) {
            let key = table.insert(base, 64, RW).expect("room");
            assert!(!keys.contains(&key) && key >> INDEX_BITS != 0 && key & VACANT == 0);
            cache.refresh();
            assert_eq!(cache.locate(key, 0, 64), Some(base));
            assert!(keys.iter().all(|old| cache.locate(*old, 0, 1).is_none()), "they are dead");
            keys.push(key);
            table.remove(key);
            cache.refresh();
            assert_eq!(cache.locate(key, 0, 1), None);
        }
        let tags: Vec<u32> = keys.iter().map(|key| key >> INDEX_BITS).collect();
        assert_eq!(tags, [TAG_LAST - 1, TAG_LAST, 1, 2, 3]);
    }

    #[test]
    fn the_longest_vacant_place_is_used_first() {
        let table = KeyTable::default();
        let keys = [0_u64; 3].map(|base| table.insert(base, 1, RW).expect("room"));
        for at in [1, 0, 2] {
            table.remove(keys[at]);
        }
        let again = [0_u64; 3].map(|base| table.insert(base, 1, RW).expect("room"));
        assert_eq!(again.map(index_of), [1, 0, 2]);
        assert_eq!(table.held(), 3);
    }

    #[test]
    fn a_key_is_gone_when_the_poll_that_may_use_it_has_ended() {
        let table = Arc::new(KeyTable::default());
        let key = table.insert(0x1000, 64, RW).expect("room");
        let (mut cache, reader) = KeyCache::new(Arc::clone(&table));
        let has_ended = AtomicBool::new(false);
        reader.begin(&mut cache);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                table.deregister(Keys { lkey: key, rkey: key }).expect("it is there");
                has_ended.load(Ordering::Acquire)
            });
            while table.held() > 0 {
                thread::yield_now();
            }
            // One that does not wait gets the time to return.
            (0..50).for_each(|_| thread::yield_now());
            has_ended.store(true, Ordering::Release);
            reader.end();
            assert!(waiter.join().expect("it does not panic"), "it has waited");
        });
    }
}
