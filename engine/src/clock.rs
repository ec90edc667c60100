//! The clock of shards: nanoseconds since its first use in the process.

use std::sync::OnceLock;
use std::time::Duration;

/// A monotonic clock; the same for all shards of a process. A reading costs some ten nanoseconds,
/// and is taken once a turn.
///
/// ```
/// use std::time::Duration;
///
/// use rpcrdma::Clock;
///
/// let clock = Clock::new();
/// let start = clock.now();
/// let elapsed = Duration::from_nanos(clock.now() - start);
/// assert!(elapsed < Duration::from_secs(60));
/// ```
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

/// When a loop that polls for a time sleeps, and when it ends.
///
/// The first 200 polls without work follow each other at once, some ten microseconds in all; then
/// the thread sleeps between two.
pub(crate) struct PollLoop {
    until: u64,
    polls: u32,
}

impl PollLoop {
    pub fn new(now: u64, timeout: Duration) -> PollLoop {
        PollLoop { until: now.saturating_add(nanos(timeout)), polls: 0 }
    }

    /// How long to sleep after a poll at `now` without work: not at all yet if it is 0. None when
    /// the time is over.
    #[inline]
    pub fn sleep(&mut self, now: u64) -> Option<Duration> {
        self.polls = self.polls.saturating_add(1);
        let left = self.until.checked_sub(now).filter(|left| *left > 0)?;
        let sleeps = self.polls >= POLLS_IDLE;
        Some(if sleeps { Duration::from_nanos(left) } else { Duration::ZERO })
    }
}

/// Polls without work after which a [`PollLoop`] sleeps.
const POLLS_IDLE: u32 = 200;

/// A duration in nanoseconds; `u64::MAX` if it is longer than that.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
