//! Registered memory, and how it is carved into parts with one owner each.
//!
//! ```text
//!   Registered ─┬─▶ Registration: region, keys          the last owner that is dropped deregisters
//!   Span, Span ─┘                                       and then unmaps the region
//! ```

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::region::Region;
use crate::registrar::{Keys, RegisterError, Registrar, Rights};

/// A registered region that is carved into parts. Set-up only.
///
/// It owns its region from the start, and gives each byte away at most once. So a [`Span`] is
/// exclusive.
///
/// The registration ends with the last owner of a part: this value, a pool, or a loan that has
/// outlived both.
#[derive(Debug)]
pub struct Registered {
    registration: Arc<Registration>,
    /// Bytes from the start that were carved, including alignment.
    carved: usize,
}

/// A region and its registration. Dropping it deregisters first.
struct Registration {
    region: Region,
    keys: Keys,
    /// Keeps the device open as long as the region is registered.
    registrar: Arc<dyn Registrar>,
}

impl Registered {
    /// Registers a region.
    ///
    /// # Errors
    /// If the device cannot register it.
    pub fn new(
        region: Region,
        registrar: Arc<dyn Registrar>,
        rights: Rights,
    ) -> Result<Registered, RegisterError> {
        let keys = registrar.register(&region, rights)?;
        Ok(Registered {
            registration: Arc::new(Registration { region, keys, registrar }),
            carved: 0,
        })
    }

    /// Carves the next `len` bytes that begin at a multiple of `align`, a power of two.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn carve(&mut self, len: usize, align: usize) -> Result<Span, RegionFull> {
        assert!(align.is_power_of_two(), "an alignment of {align}");
        let no_room = RegionFull { needed: len, align, left: self.left() };
        let region = self.region();
        let base = region.base().as_ptr().addr();
        let start = (base + self.carved)
            .checked_next_multiple_of(align)
            .map(|address| address - base)
            .ok_or(no_room)?;
        let end = start.checked_add(len).filter(|end| *end <= region.len()).ok_or(no_room)?;
        self.carved = end;
        Ok(Span { registration: Arc::clone(&self.registration), start, len })
    }

    /// The number of bytes that were not carved yet.
    pub fn left(&self) -> usize {
        self.region().len() - self.carved
    }

    /// Keeps the region mapped and registered for as long as the returned value lives.
    pub fn hold(&self) -> RegionHold {
        RegionHold(Arc::clone(&self.registration))
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.registration.region
    }

    /// The keys of the registration.
    pub fn keys(&self) -> Keys {
        self.registration.keys
    }
}

impl Drop for Registration {
    /// If deregistration fails, the memory stays mapped: a device or a peer may still access it.
    fn drop(&mut self) {
        if self.registrar.deregister(self.keys).is_err() {
            self.region.stay_mapped();
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registration { region, keys, .. } = self;
        f.debug_struct("Registration")
            .field("region", region)
            .field("keys", keys)
            .finish_non_exhaustive()
    }
}

/// Keeps a region mapped and registered, for who knows it by its addresses.
#[derive(Debug, Clone)]
pub struct RegionHold(Arc<Registration>);

impl RegionHold {
    /// The region.
    pub fn region(&self) -> &Region {
        &self.0.region
    }
}

/// A part of a registered region with one owner.
#[derive(Debug)]
pub struct Span {
    registration: Arc<Registration>,
    start: usize,
    len: usize,
}

impl Span {
    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        // Cannot be null: `start` lies in the region. `wrapping_add` keeps the provenance.
        let first = self.registration.region.base().as_ptr().wrapping_add(self.start);
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
        self.registration.keys.lkey
    }

    /// Keeps the region mapped and registered for the rest of the process: a device may still write
    /// to it.
    pub(crate) fn leak(&self) {
        std::mem::forget(Arc::clone(&self.registration));
    }
}

#[cfg(test)]
impl Span {
    /// A function that returns whether the region is still mapped.
    pub(crate) fn watch(&self) -> impl Fn() -> bool + use<> {
        let registration = Arc::downgrade(&self.registration);
        move || registration.strong_count() > 0
    }
}

/// A region does not have enough bytes left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes aligned to {align} are needed; the region has {left} bytes left")]
pub struct RegionFull {
    /// The requested bytes.
    pub needed: usize,
    /// Their alignment.
    pub align: usize,
    /// Bytes left, before alignment.
    pub left: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::BulkPool;
    use crate::pool::{Pool, PoolSpec};
    use crate::registrar::Access;
    use crate::testing::{TestDevice, region};
    use crate::token::kind;

    fn registered(device: &Arc<TestDevice>, bytes: usize) -> Registered {
        let registrar: Arc<dyn Registrar> = device.clone();
        Registered::new(region(bytes), registrar, Rights::own(Access::LOCAL_WRITE))
            .expect("never full")
    }

    #[test]
    fn parts_do_not_overlap_and_end_with_the_region() {
        let device = Arc::new(TestDevice::default());
        let mut memory = registered(&device, 8192);
        let one = memory.carve(100, 64).expect("room");
        let two = memory.carve(4096, 4096).expect("room");
        assert_eq!(two.base().as_ptr().addr() - one.base().as_ptr().addr(), 4096);
        assert_eq!((one.len(), one.is_empty(), one.lkey()), (100, false, 0x100));
        assert_eq!(memory.left(), 0);
        let error = memory.carve(1, 1).expect_err("nothing is left");
        assert_eq!(error, RegionFull { needed: 1, align: 1, left: 0 });
        assert!(memory.carve(usize::MAX, 1).is_err());
        assert!(memory.carve(0, 1 << 63).is_err());
    }

    #[test]
    fn a_registration_ends_with_the_last_of_its_parts() {
        let device = Arc::new(TestDevice::default());
        let mut memory = registered(&device, 4096);
        let span = memory.carve(64, 64).expect("room");
        drop(memory);
        assert_eq!(device.held(), 1, "a span is alive");
        let hold = registered(&device, 4096).hold();
        drop(span);
        assert_eq!((device.held(), hold.region().len()), (1, 4096), "the other is held");
        drop(hold);
        assert_eq!(device.held(), 0);
        drop(registered(&device, 4096));
        assert_eq!(device.held(), 0);
    }

    #[test]
    fn a_loan_that_outlives_its_pool_keeps_the_registration_until_dropped() {
        let device = Arc::new(TestDevice::default());
        let spec = PoolSpec { slots: 2, slot_len: 64, align: 64 };
        let mut memory = registered(&device, spec.bulk_region_len().expect("small"));
        let mut pool = BulkPool::new(&mut memory, &spec).expect("room");
        let loan = pool.take().expect("two");
        drop((pool, memory));
        assert_eq!(device.held(), 1);
        std::thread::spawn(move || drop(loan)).join().expect("does not panic");
        assert_eq!(device.held(), 0);
    }

    #[test]
    fn memory_the_device_may_still_write_to_stays_registered() {
        let device = Arc::new(TestDevice::default());
        let spec = PoolSpec { slots: 2, slot_len: 64, align: 64 };
        let mut memory = registered(&device, spec.region_len().expect("small"));
        let mut pool = Pool::<kind::Recv>::new(&mut memory, &spec).expect("room");
        let _ = pool.pop().expect("two").into_raw();
        drop((pool, memory));
        assert_eq!(device.held(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "looks for a mapping")]
    fn memory_stays_mapped_if_its_registration_does_not_end() {
        let device = Arc::new(TestDevice::default());
        let memory = registered(&device, 4096);
        let start = memory.region().base().as_ptr().addr();
        device.keep_all();
        drop(memory);
        assert_eq!(device.held(), 1);
        assert!(crate::testing::is_mapped(start));
    }
}
