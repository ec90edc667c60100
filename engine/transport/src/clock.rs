//! The clock that delays and retries are measured with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A fabric's clock.
#[derive(Debug, Clone)]
pub enum FabricClock {
    /// The machine's clock.
    Real,
    /// A count of ns that a test advances.
    Virtual(Arc<AtomicU64>),
}

impl FabricClock {
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            FabricClock::Real => {
                static EPOCH: OnceLock<quanta::Instant> = OnceLock::new();
                let epoch = EPOCH.get_or_init(quanta::Instant::now);
                quanta::Instant::now().saturating_duration_since(*epoch).as_nanos() as u64
            }
            FabricClock::Virtual(now) => now.load(Ordering::Acquire),
        }
    }

    /// The longest sleep towards a time of this clock: advancing a virtual one wakes no thread.
    pub(crate) fn nap_max(&self) -> Duration {
        match self {
            FabricClock::Real => Duration::MAX,
            FabricClock::Virtual(_) => Duration::from_micros(100),
        }
    }
}
