//! Registered memory, and how it is carved into parts that nobody else may touch.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::region::Region;
use crate::registrar::{Access, Keys, RegisterError, Registrar};

/// A registered region that is being given away, part by part. Setup only.
///
/// It owns its region from before anybody could touch a byte of it, and gives each byte away at
/// most once. That is what makes a [`Span`] exclusive.
#[derive(Debug)]
pub struct Registered {
    region: Arc<Region>,
    keys: Keys,
    access: Access,
    /// Bytes from the start that are given away, alignment included.
    carved: usize,
}

impl Registered {
    /// Registers a region.
    pub fn new(
        region: Region,
        registrar: &dyn Registrar,
        access: Access,
    ) -> Result<Registered, RegisterError> {
        let keys = registrar.register(&region, access)?;
        Ok(Registered { region: Arc::new(region), keys, access, carved: 0 })
    }

    /// The next `len` bytes that begin at a multiple of `align`, a power of two.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn carve(&mut self, len: usize, align: usize) -> Result<Span, NoRoom> {
        assert!(align.is_power_of_two(), "an alignment of {align}");
        let no_room = NoRoom { needed: len, align, left: self.left() };
        let base = self.region.base().as_ptr().addr();
        let start = (base + self.carved)
            .checked_next_multiple_of(align)
            .map(|address| address - base)
            .ok_or(no_room)?;
        let end = start.checked_add(len).filter(|end| *end <= self.region.len()).ok_or(no_room)?;
        self.carved = end;
        Ok(Span { region: Arc::clone(&self.region), start, len, lkey: self.keys.lkey })
    }

    /// Takes the registration back and lets go of the memory.
    ///
    /// # Errors
    /// `Err(self)` while a pool or a loan still lives in the region; nothing has changed then.
    pub fn deregister(mut self, registrar: &dyn Registrar) -> Result<(), Registered> {
        if Arc::get_mut(&mut self.region).is_none() {
            return Err(self);
        }
        registrar.deregister(self.keys);
        self.access = Access::empty();
        Ok(())
    }

    /// Bytes that were not given away yet.
    pub fn left(&self) -> usize {
        self.region.len() - self.carved
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The keys of the registration.
    pub fn keys(&self) -> Keys {
        self.keys
    }
}

impl Drop for Registered {
    /// Without [`Registered::deregister`] a peer with the remote key may still reach the memory.
    /// Then it is leaked: an address that a device writes to is never given to anybody else.
    fn drop(&mut self) {
        if self.access.intersects(Access::REMOTE_READ | Access::REMOTE_WRITE) {
            std::mem::forget(Arc::clone(&self.region));
        }
    }
}

/// A part of a registered region that belongs to its holder alone.
#[derive(Debug)]
pub struct Span {
    region: Arc<Region>,
    start: usize,
    len: usize,
    lkey: u32,
}

impl Span {
    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        // Cannot be null: `start` lies in the region. `wrapping_add` keeps the provenance.
        let first = self.region.base().as_ptr().wrapping_add(self.start);
        NonNull::new(first).expect("a span lies in its region")
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The local key of the region.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Keeps the region mapped for the rest of the process: a device may still write to it.
    pub(crate) fn leak(&self) {
        std::mem::forget(Arc::clone(&self.region));
    }
}

#[cfg(test)]
impl Span {
    /// Tells later whether the region is still mapped.
    pub(crate) fn watch(&self) -> impl Fn() -> bool + use<> {
        let region = Arc::downgrade(&self.region);
        move || region.strong_count() > 0
    }
}

/// A region has not enough bytes left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes aligned to {align} are needed, {left} bytes are left in the region")]
pub struct NoRoom {
    /// Bytes asked for.
    pub needed: usize,
    /// Their alignment.
    pub align: usize,
    /// Bytes left, before alignment.
    pub left: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Device, region};

    #[test]
    fn parts_do_not_overlap_and_end_with_the_region() {
        let device = Device::default();
        let mut memory =
            Registered::new(region(8192), &device, Access::LOCAL_WRITE).expect("never full");
        let one = memory.carve(100, 64).expect("room");
        let two = memory.carve(4096, 4096).expect("room");
        assert_eq!(two.base().as_ptr().addr() - one.base().as_ptr().addr(), 4096);
        assert_eq!((one.len(), one.is_empty(), one.lkey()), (100, false, 0x100));
        assert_eq!(memory.left(), 0);
        let error = memory.carve(1, 1).expect_err("nothing is left");
        assert_eq!(error, NoRoom { needed: 1, align: 1, left: 0 });
        assert!(memory.carve(usize::MAX, 1).is_err());
        assert!(memory.carve(0, 1 << 63).is_err());
    }

    #[test]
    fn a_registration_is_taken_back_when_nothing_lives_in_the_region() {
        let device = Device::default();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mut memory = Registered::new(region(4096), &device, access).expect("never full");
        let span = memory.carve(64, 64).expect("room");
        let memory = memory.deregister(&device).expect_err("a span is alive");
        assert_eq!((device.held(), memory.keys().rkey), (1, 0x200));
        drop(span);
        assert!(memory.deregister(&device).is_ok());
        assert_eq!(device.held(), 0);
    }

    #[test]
    fn memory_that_a_peer_may_still_reach_is_leaked() {
        for (access, leaked) in [(Access::LOCAL_WRITE, 0), (Access::REMOTE_READ, 1)] {
            let memory = Registered::new(region(4096), &Device::default(), access).expect("room");
            let watch = Arc::downgrade(&memory.region);
            drop(memory);
            assert_eq!(watch.strong_count(), leaked, "{access:?}");
        }
    }
}
