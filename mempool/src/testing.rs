//! For unit tests: a device that accepts every region, and small registered memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::region::{PageSize, Region, RegionSpec};
use crate::registered::Registered;
use crate::registrar::{Access, Keys, RegisterError, Registrar, Rights};

/// A registrar that records which keys are registered.
#[derive(Debug, Default)]
pub(crate) struct TestDevice {
    registered: AtomicU32,
    deregistered: AtomicU32,
    keeps: AtomicBool,
}

impl TestDevice {
    /// The number of registrations.
    pub(crate) fn held(&self) -> u32 {
        self.registered.load(Ordering::Relaxed) - self.deregistered.load(Ordering::Relaxed)
    }

    /// Makes every later deregistration fail.
    pub(crate) fn keep_all(&self) {
        self.keeps.store(true, Ordering::Relaxed);
    }
}

impl Registrar for TestDevice {
    fn register(&self, _: &Region, _: Rights) -> Result<Keys, RegisterError> {
        let number = self.registered.fetch_add(1, Ordering::Relaxed);
        Ok(Keys { lkey: 0x100 + number, rkey: 0x200 + number })
    }

    fn deregister(&self, _: Keys) -> io::Result<()> {
        if self.keeps.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.deregistered.fetch_add(1, Ordering::Relaxed);
        Ok(())
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
    let device = Arc::new(TestDevice::default());
    Registered::new(region(bytes), device, Rights::own(Access::LOCAL_WRITE)).expect("never full")
}

/// Whether an address of this process is mapped.
pub(crate) fn is_mapped(start: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let span = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(number(from)?..number(to)?)
    };
    maps.lines().filter_map(span).any(|range| range.contains(&start))
}
