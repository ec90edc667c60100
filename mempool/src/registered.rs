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
