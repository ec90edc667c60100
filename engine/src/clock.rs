//! The clock of shards: nanoseconds since its first use in the process.

use std::sync::OnceLock;

/// A monotonic clock; the same for all shards of a process. A reading costs some ten nanoseconds,
/// and is taken once a turn.
#[derive(Debug, Clone)]
pub struct Clock {
    clock: quanta::Clock,
    start: u64,
}

impl Clock {
    /// The process's clock.
    pub fn new() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK
            .get_or_init(|| {
                let clock = quanta::Clock::new();
                let start = clock.raw();
                Clock { clock, start }
            })
            .clone()
    }

    /// Nanoseconds since the first clock was made.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw())
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}
