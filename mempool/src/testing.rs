//! What the unit tests share: a device that accepts every region, and small registered memory.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::region::{PageSize, Region, RegionSpec};
use crate::registered::Registered;
use crate::registrar::{Access, Keys, RegisterError, Registrar};

/// Gives keys away and remembers which are out.
#[derive(Debug, Default)]
pub(crate) struct Device {
    registered: AtomicU32,
    deregistered: AtomicU32,
}

impl Device {
    /// Registrations that were not taken back.
    pub(crate) fn held(&self) -> u32 {
        self.registered.load(Ordering::Relaxed) - self.deregistered.load(Ordering::Relaxed)
    }
}

impl Registrar for Device {
    fn register(&self, _: &Region, _: Access) -> Result<Keys, RegisterError> {
        let number = self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(Keys { lkey: 0x100 + number, rkey: 0x200 + number })
    }

    fn deregister(&self, _: Keys) {
        self.deregistered.fetch_add(1, Ordering::Relaxed);
    }
}

/// A small region in base pages that is not locked: tests run anywhere.
pub(crate) fn region(bytes: usize) -> Region {
    let spec = RegionSpec {
        pages: PageSize::Base4K,
        lock: false,
        prefault: false,
        ..RegionSpec::new(bytes)
    };
    Region::map(&spec).expect("a few pages can be had")
}

/// The same, registered.
pub(crate) fn memory(bytes: usize) -> Registered {
    Registered::new(region(bytes), &Device::default(), Access::LOCAL_WRITE).expect("never full")
}
