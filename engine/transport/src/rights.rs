//! The rights of peers to this side's memory: memory windows, and registrations for one call.
//!
//! ```text
//!   key of a window         1 │ scrambled: 0, number of the window  │ bindings: 8 bits
//!   key of a registration   1 │ scrambled: 1, low 22 bits of a count │ its high 8 bits
//!
//!   window   open ─▶ bound to nothing ── bind ──▶ bound to one queue pair
//!                          ▲                          │ invalidate, by this side or by the peer's Send
//!                          └──────────────────────────┘ destroy of the queue pair (type 2B)
//! ```
//!
//! One thread owns all of it: it binds, invalidates, and executes peers' requests. So no access
//! under a key is in flight when its invalidation returns. Keys are scrambled with a secret of the
//! queues; a wrong guess costs the guesser its connection. The keys of regions have their top bit
//! clear: they belong to [`KeyCache`].
//!
//! A peer may use the key of a registration long after it was withdrawn. So registrations count
//! through all their keys before one is reused: the low bits of the scrambled number are the index
//! in the table, and a number whose index is taken is skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{Bind, Window, WindowId, shortly_before_end};

use super::body::Refusal;
use super::keys::KeyCache;

/// The windows and registrations of one set of queues.
pub struct Rights {
    /// By the low bits of their numbers. The length is 0 or a power of two.
    grants: Vec<Grant>,
    /// Those bits.
    index_mask: u32,
    /// Windows, and registrations that are still valid.
    taken: usize,
    /// Counts the registration keys that were used or skipped.
    registrations: u32,
    scramble: Scramble,
    /// The device's free windows.
    windows_left: Arc<AtomicU32>,
    /// Windows of these queues.
    windows: u32,
}

/// A window or a registration.
#[derive(Debug, Clone, Copy)]
struct Grant {
    /// The current or last key.
    key: u32,
    is_window: bool,
    holder: Holder,
    access: Access,
    sge: Sge,
}

/// The queue pairs whose requests may use a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// The key is dead.
    None,
    /// Only this queue pair.
    Qp(u32),
    /// Any queue pair of the queues.
    All,
}

/// What a peer's request accesses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// The queue pair that it came for.
    pub qp: u32,
    pub rkey: u32,
    pub addr: u64,
    pub len: u32,
    pub access: Access,
}

/// Memory of this side that a peer's request may access now: in a registered region, with its key
/// and its rights checked.
#[derive(Debug, Clone, Copy)]
pub struct Granted {
    addr: u64,
    len: u32,
}

#[expect(clippy::len_without_is_empty, reason = "a number of bytes, as that of an `Sge`")]
impl Granted {
    /// The first byte.
    #[inline]
    pub fn addr(self) -> u64 {
        self.addr
    }

    /// The number of bytes.
    #[inline]
    pub fn len(self) -> u32 {
        self.len
    }
}

impl Rights {
    /// No rights, with keys that depend on the secret `seed`. All queues of a device share its
    /// free windows.
    pub fn new(seed: u64, windows_left: Arc<AtomicU32>) -> Rights {
        Rights {
            grants: Vec::new(),
            index_mask: 0,
            taken: 0,
            registrations: shortly_before_end(REGISTRATION_BITS, 2),
            scramble: Scramble::new(seed),
            windows_left,
            windows: 0,
        }
    }

    /// An unbound window, if the device has one left. Setup only.
    pub(crate) fn open_window(&mut self) -> Option<Window> {
        let take_one = |left: u32| left.checked_sub(1);
        let order = Ordering::Relaxed;
        self.windows_left.fetch_update(order, order, take_one).ok()?;
        let first = self.windows as usize;
        self.windows += 1;
        self.make_room();
        let end = self.grants.len().min(REGISTRATION as usize);
        let mut places = (first..end).chain(0..first);
        let index = places.find(|index| self.grants[*index].is_vacant())?;
        let key = self.key_of(index as u32, FIRST);
        self.grants[index] = Grant { key, is_window: true, ..Grant::VACANT };
        self.taken += 1;
        Some(Window { id: WindowId(index as u32), rkey: key })
    }

    /// The window with this number, unbound, with the key after its last: its former memory is not
    /// accessible any more.
    #[cold]
    pub(crate) fn renew_window(&mut self, id: WindowId) -> Option<Window> {
        let grant = self.grants.get_mut(id.0 as usize).filter(|grant| grant.is_window)?;
        grant.key = Window { id, rkey: grant.key }.next_rkey();
        grant.holder = Holder::None;
        Some(Window { id, rkey: grant.key })
    }

    /// Binds a window for the peer of a queue pair. False if a rule forbids it.
    ///
    /// As on a device, the window must be unbound, its new key differs from the last in the low
    /// byte only, the bytes are in one region that was registered for windows, and a peer writes
    /// only where the device itself may. A window is never bound to zero bytes.
    pub(crate) fn bind(&mut self, keys: &KeyCache, qp: u32, bind: &Bind) -> bool {
        let Some(grant) = self.grants.get_mut(bind.window.0 as usize) else { return false };
        let is_free = grant.is_window && grant.holder == Holder::None;
        let is_next = bind.rkey != grant.key && (bind.rkey ^ grant.key) >> PROGRAM_BITS == 0;
        let is_remote = (Access::REMOTE_READ | Access::REMOTE_WRITE).contains(bind.access);
        let sge = Sge { addr: bind.addr, length: bind.len, lkey: bind.lkey };
        let needed = Access::MW_BIND | local_rights(bind.access);
        if !(is_free && is_next && is_remote && bind.len > 0 && keys.allows(&sge, needed)) {
            return false;
        }
        let (holder, access) = (Holder::Qp(qp), bind.access);
        *grant = Grant { key: bind.rkey, is_window: true, holder, access, sge };
        true
    }

    /// Whether a window has this key and is bound to this queue pair.
    #[inline]
    pub(crate) fn is_bound(&self, qp: u32, rkey: u32) -> bool {
        self.find(rkey).is_some_and(|grant| grant.holder == Holder::Qp(qp))
    }

    /// Invalidates the key of a window that is bound to this queue pair. False if there is none.
    #[inline]
    pub(crate) fn invalidate(&mut self, qp: u32, rkey: u32) -> bool {
        let is_bound = self.is_bound(qp, rkey);
        let index = self.index_of(rkey);
        if is_bound && let Some(grant) = self.grants.get_mut(index) {
            grant.holder = Holder::None;
        }
        is_bound
    }

    /// Unbinds all windows of a queue pair, which is being destroyed.
    #[cold]
    pub(crate) fn release(&mut self, qp: u32) {
        let ours = self.grants.iter_mut().filter(|grant| grant.holder == Holder::Qp(qp));
        ours.for_each(|grant| grant.holder = Holder::None);
    }

    /// The bytes that a request names, if it may access them so. A request for zero bytes is not
    /// checked.
    ///
    /// # Errors
    /// [`Refusal::Access`], [`Refusal::Bounds`] or [`Refusal::Rights`].
    #[inline]
    pub(crate) fn grant(
        &self,
        keys: &KeyCache,
        Request { qp, rkey, addr, len, access }: Request,
    ) -> Result<Granted, Refusal> {
        let granted = Granted { addr, len };
        if len == 0 {
            return Ok(granted);
        }
        if rkey & GRANT == 0 {
            // The key belongs to a region that was registered with remote rights.
            return match keys.allows(&Sge { addr, length: len, lkey: rkey }, access) {
                true => Ok(granted),
                false => Err(Refusal::Access),
            };
        }
        let grant = self.find(rkey).ok_or(Refusal::Access)?;
        let is_holder = grant.holder == Holder::All || grant.holder == Holder::Qp(qp);
        // An address below the first byte wraps around to a huge offset.
        let offset = addr.wrapping_sub(grant.sge.addr);
        let room = u64::from(grant.sge.length);
        let within = offset <= room && u64::from(len) <= room - offset;
        // The region may have been deregistered meanwhile.
        let is_there = keys.allows(&grant.sge, local_rights(access));
        match (is_holder && is_there, within, grant.access.contains(access)) {
            (true, true, true) => Ok(granted),
            (false, ..) => Err(Refusal::Access),
            (_, false, _) => Err(Refusal::Bounds),
            (.., false) => Err(Refusal::Rights),
        }
    }

    /// A key for these bytes that every queue pair of the queues can use. None if the region does
    /// not exist or no key is left. Slow.
    pub(crate) fn expose(&mut self, keys: &KeyCache, sge: &Sge, access: Access) -> Option<u32> {
        let is_remote = (Access::REMOTE_READ | Access::REMOTE_WRITE).contains(access);
        if !is_remote || sge.length == 0 || !keys.allows(sge, local_rights(access)) {
            return None;
        }
        self.make_room();
        let key = (0..self.grants.len()).find_map(|_| self.next_key())?;
        let index = self.index_of(key);
        let (is_window, holder) = (false, Holder::All);
        self.grants[index] = Grant { key, is_window, holder, access, sge: *sge };
        self.taken += 1;
        Some(key)
    }

    /// Withdraws a registration. Other keys are ignored.
    pub(crate) fn conceal(&mut self, rkey: u32) {
        let index = self.index_of(rkey);
        if let Some(grant) = self.grants.get_mut(index)
            && grant.key == rkey
            && grant.holder == Holder::All
        {
            grant.holder = Holder::None;
            self.taken -= 1;
        }
    }

    /// The next key of a registration, if its place is vacant.
    fn next_key(&mut self) -> Option<u32> {
        let count = self.registrations;
        self.registrations = (count + 1) & REGISTRATION_MASK;
        let number = REGISTRATION | count & (REGISTRATION - 1);
        let key = self.key_of(number, count / REGISTRATION);
        self.grants[self.index_of(key)].is_vacant().then_some(key)
    }

    fn key_of(&self, number: u32, low: u32) -> u32 {
        GRANT | self.scramble.hide(number) << PROGRAM_BITS | low
    }

    /// Doubles the table if half of it is taken and there are numbers for more.
    fn make_room(&mut self) {
        let before = self.grants.len();
        if self.taken < before / 2 || before > NUMBER_MASK as usize {
            return;
        }
        let places = (before * 2).max(PLACES_MIN);
        self.grants.resize(places, Grant::VACANT);
        self.index_mask = places as u32 - 1;
        for index in 0..before {
            // It moves to the upper half or stays.
            let place = self.index_of(self.grants[index].key);
            if !self.grants[index].is_vacant() && place != index {
                self.grants.swap(index, place);
            }
        }
    }

    /// The grant with this key, dead or not.
    #[inline]
    fn find(&self, rkey: u32) -> Option<&Grant> {
        self.grants.get(self.index_of(rkey)).filter(|grant| grant.key == rkey)
    }

    #[inline]
    fn index_of(&self, rkey: u32) -> usize {
        self.scramble.reveal(rkey >> PROGRAM_BITS, self.index_mask) as usize
    }
}

impl Grant {
    /// Grants nothing, and is not a window. No request can name its key.
    const VACANT: Grant = Grant {
        key: 0,
        is_window: false,
        holder: Holder::None,
        access: Access::empty(),
        sge: Sge { addr: 0, length: 0, lkey: 0 },
    };

    fn is_vacant(&self) -> bool {
        !self.is_window && self.holder == Holder::None
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        self.windows_left.fetch_add(self.windows, Ordering::Relaxed);
    }
}

/// The local rights that a peer's access needs.
#[inline]
fn local_rights(access: Access) -> Access {
    if access.contains(Access::REMOTE_WRITE) { Access::LOCAL_WRITE } else { Access::empty() }
}

/// A permutation of 23-bit numbers that depends on a secret.
#[derive(Debug, Clone, Copy)]
struct Scramble([u32; 3]);

impl Scramble {
    fn new(seed: u64) -> Scramble {
        let mut state = seed;
        Scramble([(); 3].map(|()| {
            // Steele, Lea and Flood: Fast splittable pseudorandom number generators (OOPSLA 2014).
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            (mixed >> 33) as u32 & NUMBER_MASK
        }))
    }

    #[inline]
    fn hide(&self, number: u32) -> u32 {
        self.0.iter().fold(number, |number, secret| {
            let mixed = (number ^ secret).wrapping_mul(FACTOR) & NUMBER_MASK;
            // A shift of more than half of the bits is its own inverse.
            mixed ^ mixed >> 12
        })
    }

    /// The bits of `mask` of the number. Higher bits have no effect.
    #[inline]
    fn reveal(&self, hidden: u32, mask: u32) -> u32 {
        let number = self.0.iter().rev().fold(hidden, |hidden, secret| {
            let hidden = hidden & NUMBER_MASK;
            let mixed = hidden ^ hidden >> 12;
            mixed.wrapping_mul(INVERSE) ^ secret
        });
        number & mask
    }
}

/// Set in the key of every grant, and in no region's.
const GRANT: u32 = 1 << 31;
/// The low bits of a key, which the program increments.
const PROGRAM_BITS: u32 = 8;
/// The program's first value.
const FIRST: u32 = shortly_before_end(PROGRAM_BITS, 2);
const NUMBER_BITS: u32 = 23;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// Set in the number of every registration, and in no window's: no device has so many.
const REGISTRATION: u32 = 1 << (NUMBER_BITS - 1);
/// A key of a registration: the number without that bit, and the low bits.
const REGISTRATION_BITS: u32 = NUMBER_BITS - 1 + PROGRAM_BITS;
const REGISTRATION_MASK: u32 = (1 << REGISTRATION_BITS) - 1;
/// The length of the smallest table.
const PLACES_MIN: usize = 8;
/// Odd, so that the multiplication is invertible.
const FACTOR: u32 = 0x5D_9F3B;
const INVERSE: u32 = {
    // Newton's iteration: each step doubles the correct bits, from three.
    let mut inverse = FACTOR;
    let mut bits = 3;
    while bits < 32 {
        inverse = inverse.wrapping_mul(2_u32.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
};

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::keys::KeyTable;

    const READ: Access = Access::REMOTE_READ;

    /// Registered bytes, and rights to be given to them.
    struct Registered {
        keys: KeyCache,
        lkey: u32,
        rights: Rights,
    }

    impl Registered {
        fn new() -> Registered {
            let table = Arc::new(KeyTable::default());
            let access = Access::LOCAL_WRITE | Access::MW_BIND;
            let lkey = table.insert(0, 1 << 20, access).expect("room");
            let (keys, _) = KeyCache::new(table);
            let rights = Rights::new(7, Arc::new(AtomicU32::new(WINDOWS)));
            Registered { keys, lkey, rights }
        }

        /// The key of one byte.
        fn expose(&mut self, addr: u64) -> u32 {
            let sge = Sge { addr, length: 1, lkey: self.lkey };
            self.rights.expose(&self.keys, &sge, READ).expect("room")
        }

        /// Whether a key lets a queue pair access this byte.
        fn opens(&self, rkey: u32, addr: u64) -> bool {
            let request = Request { qp: QP, rkey, addr, len: 1, access: READ };
            self.rights.grant(&self.keys, request).is_ok()
        }
    }

    const WINDOWS: u32 = 100;
    const QP: u32 = 3;

    #[test]
    fn keys_of_registrations_are_reused_in_turn() {
        let mut it = Registered::new();
        let held = it.expose(1);
        let first = it.expose(2);
        it.rights.conceal(first);
        let mut seen = HashSet::from([held, first]);
        for _ in 0..if cfg!(miri) { 600 } else { 1 << 16 } {
            let key = it.expose(3);
            assert!(it.opens(key, 3) && it.opens(held, 1) && !it.opens(first, 2));
            it.rights.conceal(key);
            assert!(seen.insert(key) && !it.opens(key, 3));
        }
        assert_eq!(it.rights.grants.len(), PLACES_MIN, "nor are there more places for it");
        // As if all other keys but the last were used.
        it.rights.registrations = shortly_before_end(REGISTRATION_BITS, 3);
        let last = it.expose(4);
        assert!(!seen.contains(&last) && !it.opens(first, 4));
        it.rights.conceal(last);
        assert_eq!(it.expose(5), first, "that of the first is in use and passed over");
    }

    #[test]
    fn every_key_is_found_in_a_table_that_grows() {
        let mut it = Registered::new();
        let mut windows = Vec::new();
        let mut keys = Vec::new();
        for addr in 0..1000 {
            keys.push((it.expose(addr), addr));
            if addr % 10 == 0 {
                windows.push(it.rights.open_window().expect("one is left"));
            }
            if addr % 3 == 0 {
                let (key, addr) = keys.swap_remove(keys.len() / 2);
                it.rights.conceal(key);
                assert!(!it.opens(key, addr));
            }
        }
        assert!(it.rights.open_window().is_none(), "there are no more");
        assert!(keys.iter().all(|(key, addr)| it.opens(*key, *addr) && !it.opens(*key, addr + 1)));
        for Window { id, rkey } in windows {
            let rkey = Window { id, rkey }.next_rkey();
            let (lkey, addr, len, access) = (it.lkey, 5000 + u64::from(id.0), 1, READ);
            let bind = Bind { window: id, rkey, lkey, addr, len, access };
            assert!(it.rights.bind(&it.keys, QP, &bind) && it.opens(rkey, addr));
        }
        let mut all: Vec<u32> = it.rights.grants.iter().map(|grant| grant.key).collect();
        all.retain(|key| *key != 0);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    fn every_number_survives_hiding_and_revealing() {
        let scramble = Scramble::new(7);
        let mut seen = vec![false; NUMBER_MASK as usize + 1];
        for number in (0..=NUMBER_MASK).step_by(if cfg!(miri) { 99_991 } else { 7 }) {
            let hidden = scramble.hide(number);
            assert!(!std::mem::replace(&mut seen[hidden as usize], true));
            assert_eq!(scramble.reveal(hidden, NUMBER_MASK), number);
            assert_eq!(scramble.reveal(GRANT | hidden, 0xff), number & 0xff);
        }
    }

    #[test]
    fn keys_of_neighbours_and_of_other_seeds_have_nothing_in_common() {
        let (one, other) = (Scramble::new(1), Scramble::new(2));
        let steps = (0..100).map(|number| one.hide(number + 1).wrapping_sub(one.hide(number)));
        let mut steps: Vec<u32> = steps.map(|step| step & NUMBER_MASK).collect();
        steps.sort_unstable();
        steps.dedup();
        assert!(steps.len() > 50, "there is no fixed step from key to key");
        let same = (0..1000).filter(|number| one.hide(*number) == other.hide(*number)).count();
        assert!(same < 5);
    }
}
