//! Pools that the other process maps: `shm.map_pools`.
//!
//! ```text
//!   this side                                                        the peer
//!   register ─▶ Files: the memfd of each registration
//!   a message out of it ─▶ not exposed yet: key, memfd, by the socket ─▶ Pool: mapped, read-only
//!                          staged                          mapped[place] ◀── its number
//!   the next one ────────▶ slot: key and offset ────────────────────────▶ copied once, from there
//! ```
//!
//! A message refers to a pool only if the peer states that it has mapped it; a peer that states so
//! and has not refuses the message, and ends its own connection. A pool that the peer cannot map,
//! for example for want of a descriptor, is staged as long as the connection lives.
//!
//! The peer can read a pool that it has mapped, whole, as long as its process keeps the mapping, and
//! writes nothing. Memory that has no memfd is staged.
#![expect(unsafe_code, reason = "the bytes of another process are reached by raw pointers")]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use memmap2::{MmapOptions, MmapRaw};
use rpcrdma_mempool::{Keys, Region, RegisterError, Registrar, Rights};
use rpcrdma_transport::keys::KeyTable;
use rustix::fs::SealFlags;

use crate::memory::{self, Unfit};

/// The registrations of a provider, with the memfds of those that have one.
pub(crate) struct Files {
    table: Arc<KeyTable>,
    files: Mutex<HashMap<u32, File>>,
    /// Whether peers may map pools.
    are_exposed: bool,
    /// Counts deregistrations: a key may name other memory afterwards.
    removals: AtomicU64,
}

/// The memfd of a registration, and its length.
pub(crate) type File = (Arc<OwnedFd>, u64);

/// Memory of the peer.
pub(crate) struct Pool {
    pub name: Name,
    map: MmapRaw,
}

/// The name of a pool on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    /// What messages call it.
    pub key: u32,
    /// Where the peer states that it is mapped: below [`POOLS_MAX`], no two pools at one time.
    pub place: u32,
    /// Counts what was exposed on the connection: from 1 on, no two pools.
    pub number: u32,
}

impl Files {
    /// None yet.
    pub(crate) fn new(table: Arc<KeyTable>, are_exposed: bool) -> Files {
        Files { table, files: Mutex::default(), are_exposed, removals: AtomicU64::new(0) }
    }

    /// The memfd of a registration, if it has one.
    pub(crate) fn find(&self, key: u32) -> Option<File> {
        self.lock().get(&key).cloned()
    }

    /// Whether a memfd is that of the registration with this key, and of no earlier one. Others may
    /// hold the memfd of an earlier one.
    pub(crate) fn is_there(&self, key: u32, file: &Weak<OwnedFd>) -> bool {
        self.lock().get(&key).is_some_and(|(there, _)| Arc::as_ptr(there) == file.as_ptr())
    }

    /// The number of deregistrations so far.
    #[inline]
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar for Files {
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        let keys = self.table.register(region, rights)?;
        // Without a descriptor its bytes are staged.
        let file = region.memfd().and_then(|file| file.try_clone_to_owned().ok());
        if let Some(file) = file {
            self.lock().insert(keys.lkey, (Arc::new(file), region.len() as u64));
        }
        Ok(keys)
    }

    fn deregister(&self, keys: Keys) -> io::Result<()> {
        self.lock().remove(&keys.lkey);
        self.removals.fetch_add(1, Ordering::Release);
        self.table.deregister(keys)
    }

    fn wants_shared(&self) -> bool {
        self.are_exposed
    }
}

impl Pool {
    /// Maps memory that the peer exposes.
    ///
    /// # Errors
    /// [`Unfit::System`] if this process has no room for it, [`Unfit::Pages`] if it has huge pages
    /// that are not there yet; others if its length or its pages could change, or if it is not as
    /// long as stated.
    pub(crate) fn map(name: Name, len: u64, file: &impl AsFd) -> Result<Pool, Unfit> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| Unfit::Unsealed)?;
        if !seals.contains(SEALS) {
            return Err(Unfit::Unsealed);
        }
        let found = rustix::fs::fstat(file).map_err(|_| Unfit::Unsealed)?;
        let given = found.st_size as u64;
        if given != len || len == 0 {
            return Err(Unfit::Length { given, needed: len });
        }
        // A huge page that is not there would be taken by this process, whose limit may refuse it.
        let are_all_there = BLOCK_LEN * found.st_blocks as u64 >= len;
        if !are_all_there && !memory::is_ordinary(file)? {
            return Err(Unfit::Pages);
        }
        let file = file.as_fd().as_raw_fd();
        let map = MmapOptions::new().len(len as usize).map_raw_read_only(file)?;
        Ok(Pool { name, map })
    }

    /// The first of `len` bytes at `offset`, if `key` names this pool and it has them. They are
    /// readable as long as the pool exists.
    #[inline]
    pub(crate) fn at(&self, key: u32, offset: u64, len: u32) -> Option<*const u8> {
        let end = self.map.len() as u64;
        let has_them = key == self.name.key && offset <= end && u64::from(len) <= end - offset;
        has_them.then(|| self.map.as_ptr().wrapping_add(offset as usize))
    }
}

// SAFETY: the mapping is read by raw pointers only; any thread may do that, and unmap it.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// The length cannot shrink, and no page can be freed: no access raises SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::FUTURE_WRITE);
/// Bytes of a block, as `stat` counts them.
const BLOCK_LEN: u64 = 512;
/// Pools that a peer may expose on one connection.
pub(crate) const POOLS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use rpcrdma_mempool::{Access, RegionSpec};
    use rpcrdma_provider::Provider;
    use rustix::fs::FallocateFlags;

    use super::*;
    use crate::{Shm, ShmOptions};

    fn name(key: u32) -> Name {
        Name { key, place: 0, number: 1 }
    }

    fn region(shared: bool) -> Region {
        let mut spec = RegionSpec::new(8192);
        (spec.pages, spec.lock, spec.shared) = (rpcrdma_mempool::PageSize::Base4K, false, shared);
        Region::map(&spec).expect("memory")
    }

    #[test]
    fn memory_is_wanted_shared_only_if_peers_may_map_it() {
        for map_pools in [false, true] {
            let options = ShmOptions { map_pools, ..ShmOptions::default() };
            let shm = Shm::with_options(options).expect("a thread");
            assert_eq!(shm.registrar().wants_shared(), map_pools);
        }
    }

    #[test]
    fn a_registration_has_a_file_as_long_as_it_exists_and_only_if_it_can() {
        let files = Files::new(Arc::default(), true);
        let (shared, private) = (region(true), region(false));
        let of_shared = files.register(&shared, Rights::own(Access::empty())).expect("room");
        let of_private = files.register(&private, Rights::own(Access::empty())).expect("room");
        assert!(files.find(of_private.lkey).is_none());
        let (file, len) = files.find(of_shared.lkey).expect("a file");
        let pool = Pool::map(name(of_shared.lkey), len, &*file).expect("sealed and as long");
        files.deregister(of_shared).expect("registered");
        assert!(files.find(of_shared.lkey).is_none());
        // What is mapped stays so.
        assert!(pool.at(of_shared.lkey, 8191, 1).is_some());
    }

    #[test]
    fn bytes_outside_of_a_pool_have_no_place() {
        let shared = region(true);
        let file = shared.memfd().expect("shared").try_clone_to_owned().expect("a descriptor");
        let pool = Pool::map(name(7), 8192, &file).expect("sealed");
        let there = |key, offset, len| pool.at(key, offset, len).is_some();
        assert!(there(7, 0, 8192) && there(7, 8192, 0));
        assert!(!there(7, 0, 8193) && !there(7, 8192, 1) && !there(7, u64::MAX, 1));
        assert!(!there(7, u64::MAX, u32::MAX) && !there(6, 0, 1));
        for len in [0, 4096, 16384, u64::MAX] {
            assert!(Pool::map(name(7), len, &file).is_err(), "{len}");
        }
    }

    /// A page that is not there could be refused when it is read: a fault that ends the process.
    #[test]
    fn huge_pages_are_mapped_only_if_all_of_them_are_there() {
        use rustix::fs::MemfdFlags;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A system may have none.
        let Ok(file) = rustix::fs::memfd_create("test", flags) else { return };
        let huge = rustix::fs::fstat(&file).expect("a file").st_blksize as u64;
        rustix::fs::ftruncate(&file, huge).expect("a length");
        let is_there = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, huge).is_ok();
        rustix::fs::fcntl_add_seals(&file, SEALS).expect("seals");
        assert_eq!(Pool::map(name(7), huge, &file).is_ok(), is_there);
        let empty = rustix::fs::memfd_create("test", flags).expect("another one");
        rustix::fs::ftruncate(&empty, huge).expect("a length");
        rustix::fs::fcntl_add_seals(&empty, SEALS).expect("seals");
        assert!(matches!(Pool::map(name(7), huge, &empty), Err(Unfit::Pages)));
    }

    #[test]
    fn memory_that_can_shrink_or_lose_pages_is_not_mapped() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::FUTURE_WRITE, SEALS] {
            let file = rustix::fs::memfd_create("test", flags).expect("a memfd");
            rustix::fs::ftruncate(&file, 4096).expect("a length");
            rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
            assert_eq!(Pool::map(name(7), 4096, &file).is_ok(), seals == SEALS, "{seals:?}");
        }
    }
}
