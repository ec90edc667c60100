//! Memory that this side exposes: memory windows, and registrations for one call.
#![expect(unsafe_code, reason = "libibverbs is called")]

use rpcrdma_mempool::{Access, RegisterError, Sge};
use rpcrdma_provider::{SetupError, Window, WindowId};

use crate::device::Device;
use crate::error;
use crate::sys::verbs as sys;

/// The windows of a set of queues, and its registrations.
#[derive(Debug, Default)]
pub(super) struct Exposed {
    /// By their number; null for a lost one.
    windows: Vec<*mut sys::ibv_mw>,
    /// By their remote keys.
    exposed: Vec<(u32, *mut sys::ibv_mr)>,
}

impl Exposed {
    /// Creates an unbound window.
    pub fn open_window(&mut self, device: &Device) -> Result<Window, SetupError> {
        let mw = make(device)?;
        let id = WindowId(self.windows.len() as u32);
        self.windows.push(mw);
        Ok(Window { id, rkey: key(mw) })
    }

    /// The window with this number, unbound, even if it was bound.
    pub fn renew_window(
        &mut self,
        device: &Device,
        id: WindowId,
    ) -> Result<Option<Window>, SetupError> {
        let Some(place) = self.windows.get_mut(id.0 as usize).filter(|mw| !mw.is_null()) else {
            return Err(SetupError::Invalid {
                what: "memory window",
                value: format!("number {}, which is lost or was never opened", id.0),
                allowed: "one that was opened here".to_owned(),
            });
        };
        // A window that cannot be freed stays, and is freed with the queues.
        free(device, *place)?;
        *place = make(device).unwrap_or(std::ptr::null_mut());
        Ok((!place.is_null()).then(|| Window { id, rkey: key(*place) }))
    }

    /// The driver's handle of a window.
    #[inline]
    pub fn window(&self, id: WindowId) -> Option<*mut sys::ibv_mw> {
        self.windows.get(id.0 as usize).copied().filter(|mw| !mw.is_null())
    }

    /// Records that a request that binds a window was posted.
    ///
    /// # Safety
    /// It is a window of [`Exposed::window`], which was not freed since.
    pub unsafe fn on_bound(&mut self, mw: *mut sys::ibv_mw, rkey: u32) {
        // The driver reads the window's current key here before the next binding.
        // SAFETY: the window is alive, and no other thread accesses it.
        unsafe { (*mw).rkey = rkey };
    }

    /// Registers bytes for one call.
    ///
    /// # Safety
    /// That of [`Queues::expose`](rpcrdma_provider::Queues::expose).
    pub unsafe fn expose(
        &mut self,
        device: &Device,
        sge: &Sge,
        access: Access,
    ) -> Result<u32, RegisterError> {
        let bytes = sge.length as usize;
        let first = std::ptr::with_exposed_provenance_mut(sge.addr as usize);
        // SAFETY: the caller guarantees the bytes until `conceal` has succeeded.
        let made = unsafe { device.regions.make(first, bytes, access) };
        let mr = made.map_err(|source| RegisterError::Device { bytes, source })?;
        // SAFETY: the library has just returned the region.
        let rkey = unsafe { (*mr).rkey };
        self.exposed.push((rkey, mr));
        Ok(rkey)
    }

    /// Ends a registration for one call. One that cannot be freed stays; it is tried again when
    /// the queues end, which need not free it.
    pub fn conceal(&mut self, device: &Device, rkey: u32) -> std::io::Result<()> {
        if let Some(at) = self.exposed.iter().position(|exposed| exposed.0 == rkey) {
            // SAFETY: it was made by `expose`, and leaves the list as soon as it is freed.
            unsafe { device.regions.free(self.exposed[at].1) }?;
            self.exposed.swap_remove(at);
        }
        Ok(())
    }

    /// Frees everything that the device releases.
    pub fn close(&mut self, device: &Device) {
        self.windows.retain(|mw| !mw.is_null() && free(device, *mw).is_err());
        // SAFETY: it was made by `expose`, and leaves the list if it is freed.
        self.exposed.retain(|exposed| unsafe { device.regions.free(exposed.1) }.is_err());
    }

    /// Records what the device does not release.
    pub fn give_up(&mut self, device: &Device) {
        let busy = |call| device.events.note_failure(&error::code(call, libc::EBUSY));
        self.windows.drain(..).for_each(|_| busy("ibv_dealloc_mw"));
        self.exposed.drain(..).for_each(|_| busy("ibv_dereg_mr"));
    }
}

fn make(device: &Device) -> Result<*mut sys::ibv_mw, SetupError> {
    let Some(alloc) = device.ops.alloc_mw.filter(|_| device.caps.windows > 0) else {
        return Err(error::code("ibv_alloc_mw", libc::EOPNOTSUPP));
    };
    // SAFETY: the domain is alive.
    error::made("ibv_alloc_mw", || unsafe { alloc(device.domain.pd, sys::IBV_MW_TYPE_2) })
}

fn free(device: &Device, mw: *mut sys::ibv_mw) -> Result<(), SetupError> {
    let Some(dealloc) = device.ops.dealloc_mw else { return Ok(()) };
    // SAFETY: the window is alive and leaves the list here.
    match unsafe { dealloc(mw) } {
        0 => Ok(()),
        code => Err(error::code("ibv_dealloc_mw", code)),
    }
}

fn key(mw: *mut sys::ibv_mw) -> u32 {
    // SAFETY: the window is alive.
    unsafe { (*mw).rkey }
}
