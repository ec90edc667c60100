//! The clock that delays and retries are measured with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The clock of a software device.
#[derive(Debug, Clone)]
pub enum DeviceClock {
    /// The machine's clock.
    Real,
    /// A count of ns that a test advances.
    Virtual(Arc<AtomicU64>),
}

impl DeviceClock {
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            DeviceClock::Real => {
                static EPOCH: OnceLock<quanta::Instant> = OnceLock::new();
                let epoch = EPOCH.get_or_init(quanta::Instant::now);
                quanta::Instant::now().saturating_duration_since(*epoch).as_nanos() as u64
            }
            DeviceClock::Virtual(now) => now.load(Ordering::Acquire),
        }
    }

    /// The longest sleep towards a time of this clock: advancing a virtual one wakes no thread.
    pub(crate) fn sleep_max(&self) -> Duration {
        match self {
            DeviceClock::Real => Duration::MAX,
            DeviceClock::Virtual(_) => Duration::from_micros(100),
        }
    }
}
