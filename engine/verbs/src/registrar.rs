//! Registration: memory becomes a region of the device, and its keys lead back to it.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma_mempool::{Access, Keys, Region, RegisterError, Registrar, Rights};

use crate::device::Device;
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

/// What one set of queues knows of the regions: what binds need, without a lock.
pub(crate) struct RegionCache {
    held: Vec<Held>,
    version: u64,
}

impl Regions {
    pub fn new(lib: &'static sys::Verbs, pd: *mut sys::ibv_pd) -> Regions {
        Regions { lib, pd, held: Mutex::new(Vec::new()), version: AtomicU64::new(1) }
    }

    /// Registers bytes, of whatever alignment.
    ///
    /// # Safety
    /// They are mapped until the region is freed, and whatever `access` lets the device and peers do
    /// to them may be done.
    pub unsafe fn make(
        &self,
        (addr, len): (*mut u8, usize),
        access: Access,
    ) -> io::Result<*mut sys::ibv_mr> {
        // A peer may only write where the device itself may.
        let writes = access.intersects(Access::REMOTE_WRITE | Access::MW_BIND);
        let local = if writes { Access::LOCAL_WRITE } else { Access::empty() };
        let flags = (access | local).bits() as i32;
        // SAFETY: the domain is alive, and the caller answers for the bytes.
        let mr = unsafe { (self.lib.ibv_reg_mr)(self.pd, addr.cast(), len, flags) };
        if mr.is_null() { Err(io::Error::last_os_error()) } else { Ok(mr) }
    }

    /// Frees what [`Regions::make`] has made. When it returns, nobody uses the keys any more.
    ///
    /// # Errors
    /// If a window is bound on the region: it stays.
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

    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        let bytes = region.len();
        let mut held = self.held();
        // SAFETY: whoever registers keeps the region mapped until it is deregistered, and touches of
        // it what it has not handed to the device.
        let made = unsafe { self.make((region.base().as_ptr(), bytes), rights.access()) };
        let mr = made.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC) => RegisterError::Full { held: held.len() as u64 },
            _ => RegisterError::Device { bytes, source },
        })?;
        // SAFETY: the library has just returned the region.
        let &sys::ibv_mr { lkey, rkey, .. } = unsafe { &*mr };
        let at = held.partition_point(|held| held.lkey < lkey);
        held.insert(at, Held { lkey, mr });
        self.version.fetch_add(1, Ordering::Release);
        Ok(Keys { lkey, rkey })
    }

    fn deregister(&self, keys: Keys) -> io::Result<()> {
        let mut held = self.held();
        let Ok(at) = held.binary_search_by_key(&keys.lkey, |held| held.lkey) else {
            return Ok(());
        };
        // SAFETY: what is held is alive.
        unsafe { self.free(held[at].mr) }?;
        held.remove(at);
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar for Device {
    fn register(&self, region: &Region, rights: Rights) -> Result<Keys, RegisterError> {
        self.regions.register(region, rights)
    }

    fn deregister(&self, keys: Keys) -> io::Result<()> {
        self.regions.deregister(keys)
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        for Held { mr, .. } in self.held().drain(..) {
            // SAFETY: what is held is alive. A region that a window is bound on stays with the process.
            let _ = unsafe { self.free(mr) };
        }
    }
}

impl RegionCache {
    pub fn new() -> RegionCache {
        RegionCache { held: Vec::new(), version: 0 }
    }

    /// The region with this local key. Alive as long as its memory stays registered, which whoever
    /// posts a request with the key answers for.
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
