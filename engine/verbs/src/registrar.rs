//! Registration of memory with the device, and the regions by their keys.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma_mempool::{Access, Keys, Region, RegisterError, Rights};

use crate::sys::verbs as sys;

/// The memory regions of a device.
pub(crate) struct Regions {
    lib: &'static sys::Verbs,
    pd: *mut sys::ibv_pd,
    /// By local key, in order.
    held: Mutex<Vec<Held>>,
    /// Counts changes of `held`.
    version: AtomicU64,
}

/// A region that is registered.
#[derive(Debug, Clone, Copy)]
struct Held {
    lkey: u32,
    mr: *mut sys::ibv_mr,
}

// SAFETY: any thread may make and free regions in libibverbs.
unsafe impl Send for Held {}
// SAFETY: as above; the list of them is behind a lock.
unsafe impl Send for Regions {}
// SAFETY: as above.
unsafe impl Sync for Regions {}

/// The queues' copy of the region list: what binds need, without a lock.
pub(crate) struct RegionCache {
    held: Vec<Held>,
    version: u64,
}

impl Regions {
    pub fn new(lib: &'static sys::Verbs, pd: *mut sys::ibv_pd) -> Regions {
        Regions { lib, pd, held: Mutex::new(Vec::new()), version: AtomicU64::new(1) }
    }

    /// Registers bytes of any alignment.
    ///
    /// # Safety
    /// The bytes stay mapped until the region is freed. All accesses that `access` grants to the
    /// device and to peers are sound.
    pub unsafe fn make(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> io::Result<*mut sys::ibv_mr> {
        // Remote write access needs local write access.
        let writes = access.intersects(Access::REMOTE_WRITE | Access::MW_BIND);
        let local = if writes { Access::LOCAL_WRITE } else { Access::empty() };
        let flags = (access | local).bits() as i32;
        // SAFETY: the domain is alive, and the caller guarantees the bytes.
        let mr = unsafe { (self.lib.ibv_reg_mr)(self.pd, addr.cast(), len, flags) };
        if mr.is_null() { Err(io::Error::last_os_error()) } else { Ok(mr) }
    }

    /// Frees a region of [`Regions::make`]. When it returns, the keys are out of use.
    ///
    /// # Errors
    /// If a window is bound to the region, which then stays.
    ///
    /// # Safety
    /// The region was made by this and is not freed yet.
    pub unsafe fn free(&self, mr: *mut sys::ibv_mr) -> io::Result<()> {
        // SAFETY: the caller knows that the region is alive.
        match unsafe { (self.lib.ibv_dereg_mr)(mr) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.abs())),
        }
    }

    /// Calls the device without the lock, which threads that bind windows may wait for.
    pub fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        let bytes = region.len();
        // SAFETY: the caller keeps the region mapped until it is deregistered, and does not access
        // the parts that it has handed to the device.
        let made = unsafe { self.make(region.base().as_ptr(), bytes, rights.access()) };
        let mr = made.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC) => RegisterError::Full { held: self.held().len() as u64 },
            _ => RegisterError::Device { bytes, source },
        })?;
        // SAFETY: the library has just returned the region.
        let &sys::ibv_mr { lkey, rkey, .. } = unsafe { &*mr };
        self.insert(Held { lkey, mr });
        Ok(Keys { lkey, rkey })
    }

    /// A region leaves the list before it is freed: another region may get its key at once. A
    /// region that the device does not release returns to the list, which frees it when it is
    /// dropped.
    pub fn deregister(&self, keys: Keys) -> io::Result<()> {
        let Some(taken) = self.remove(keys.lkey) else { return Ok(()) };
        // SAFETY: regions in the list are alive, and this thread has removed this one.
        unsafe { self.free(taken.mr) }.inspect_err(|_| self.insert(taken))
    }

    fn insert(&self, new: Held) {
        let mut held = self.held();
        let at = held.partition_point(|held| held.lkey < new.lkey);
        held.insert(at, new);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn remove(&self, lkey: u32) -> Option<Held> {
        let mut held = self.held();
        let at = held.binary_search_by_key(&lkey, |held| held.lkey).ok()?;
        self.version.fetch_add(1, Ordering::Release);
        Some(held.remove(at))
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        for Held { mr, .. } in self.held().drain(..) {
            // SAFETY: regions in the list are alive. A region with a bound window stays until the
            // process ends.
            let _ = unsafe { self.free(mr) };
        }
    }
}

impl RegionCache {
    pub fn new() -> RegionCache {
        RegionCache { held: Vec::new(), version: 0 }
    }

    /// The region with this local key. It is alive while its memory is registered, which the poster
    /// of a request with the key guarantees.
    #[inline]
    pub fn find(&mut self, regions: &Regions, lkey: u32) -> Option<*mut sys::ibv_mr> {
        if self.version != regions.version.load(Ordering::Acquire) {
            self.refresh(regions);
        }
        let at = self.held.binary_search_by_key(&lkey, |held| held.lkey).ok()?;
        Some(self.held[at].mr)
    }

    #[cold]
    fn refresh(&mut self, regions: &Regions) {
        let held = regions.held();
        self.version = regions.version.load(Ordering::Acquire);
        self.held.clone_from(&held);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use rpcrdma_mempool::RegionSpec;

    use super::*;
    use crate::fake::{Fake, VERBS};

    fn region() -> Region {
        Region::map(&RegionSpec::new(4096)).expect("memory")
    }

    #[test]
    fn binding_a_window_does_not_wait_for_a_registration_or_its_end() {
        let fake = Fake::new();
        let regions = Arc::new(Regions::new(&VERBS, fake.domain()));
        let (known, new) = (region(), region());
        let first = regions.register(&known, Rights::own(Access::MW_BIND)).expect("registered");
        let found = Arc::new(AtomicU32::new(0));
        for function in ["ibv_reg_mr", "ibv_dereg_mr"] {
            let (regions, found) = (Arc::clone(&regions), Arc::clone(&found));
            fake.on(function, move || {
                // Otherwise it would wait for ever.
                let is_free = regions.held.try_lock().is_ok();
                if is_free && RegionCache::new().find(&regions, first.lkey).is_some() {
                    found.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let second = regions.register(&new, Rights::own(Access::MW_BIND)).expect("registered");
        assert_eq!(found.load(Ordering::Relaxed), 1, "while another region is registered");
        regions.deregister(second).expect("it ends");
        assert_eq!(found.load(Ordering::Relaxed), 2, "while another registration ends");
    }

    #[test]
    fn a_failed_deregistration_is_kept_and_tried_once_more() {
        let fake = Fake::new();
        let regions = Regions::new(&VERBS, fake.domain());
        let (memory, mut cache) = (region(), RegionCache::new());
        let keys = regions.register(&memory, Rights::own(Access::MW_BIND)).expect("registered");
        assert!(cache.find(&regions, keys.lkey).is_some());
        fake.refuse("ibv_dereg_mr", Some(libc::EBUSY));
        let error = regions.deregister(keys).expect_err("a window is bound on it");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        assert!(cache.find(&regions, keys.lkey).is_some(), "it is as before");
        fake.refuse("ibv_dereg_mr", None);
        drop(regions);
        assert!(fake.alive().is_empty(), "{:?}", fake.alive());
    }

    #[test]
    fn a_deregistered_key_is_not_found_and_ends_once() {
        let fake = Fake::new();
        let regions = Regions::new(&VERBS, fake.domain());
        let (memory, mut cache) = (region(), RegionCache::new());
        let keys = regions.register(&memory, Rights::own(Access::MW_BIND)).expect("registered");
        assert!(cache.find(&regions, keys.lkey).is_some());
        regions.deregister(keys).expect("it ends");
        assert!(cache.find(&regions, keys.lkey).is_none());
        regions.deregister(keys).expect("there is nothing to end");
        assert_eq!(fake.calls(), ["ibv_reg_mr", "ibv_dereg_mr"]);
    }
}
