//! The meter of one round: warm-up, samples or a count, and its end.

use std::time::Duration;

use quanta::Clock;

use crate::stats::latency::Latency;
use crate::stop;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Round trips at the start that are not counted.
    pub warm_up: u64,
    pub end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Count(u64),
    Time(Duration),
}

impl End {
    /// The length of a round: `0.200 s`, or a number of these things.
    pub fn text(self, things: &str) -> String {
        match self {
            End::Time(time) => format!("{:.3} s", time.as_secs_f64()),
            End::Count(count) => format!("{count} {things}"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Round {
    /// Every round trip that was timed; empty when they were only counted.
    pub latency: Latency,
    pub completed: u64,
    pub elapsed_ns: u64,
    /// How often a measuring thread lost its core to another program.
    pub preempted: u64,
}

impl Round {
    pub fn rate(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        self.completed as f64 * 1e9 / self.elapsed_ns as f64
    }
}

#[derive(Debug)]
pub struct Meter {
    clock: Clock,
    latency: Latency,
    warm_up_left: u64,
    completed: u64,
    count_max: u64,
    time_ticks_max: u64,
    deadline: u64,
    started: u64,
    ended: u64,
    unchecked: u64,
}

impl Meter {
    /// A meter for one round. Calibrates the clock if it is the program's first.
    pub fn new(quota: Quota) -> Meter {
        let clock = Clock::new();
        let (count_max, time_ticks_max) = match quota.end {
            End::Count(count) => (count, u64::MAX),
            End::Time(time) => (u64::MAX, ticks(&clock, time)),
        };
        let mut meter = Meter {
            clock,
            latency: Latency::new(),
            warm_up_left: quota.warm_up,
            completed: 0,
            count_max,
            time_ticks_max,
            deadline: u64::MAX,
            started: 0,
            ended: 0,
            unchecked: 0,
        };
        if quota.warm_up == 0 {
            meter.start(meter.now());
        }
        meter
    }

    /// Takes one timed round trip, from and to in ticks of [`Meter::now`]. False when it is enough.
    #[inline]
    pub fn timed(&mut self, from: u64, to: u64) -> bool {
        if self.warm_up_left > 0 {
            return self.warm_up(1, to);
        }
        self.latency.record(self.clock.delta_as_nanos(from, to));
        self.completed += 1;
        self.ended = to;
        self.completed < self.count_max && to < self.deadline && !self.is_interrupted()
    }

    /// Takes `count` round trips that are not timed one by one. False when it is enough.
    ///
    /// Reads the clock once in `CLOCK_EVERY` round trips.
    #[inline]
    pub fn counted(&mut self, count: u64) -> bool {
        self.unchecked += count;
        if self.unchecked < CLOCK_EVERY && self.completed + self.unchecked < self.count_max {
            return true;
        }
        let now = self.now();
        let count = std::mem::take(&mut self.unchecked);
        if self.warm_up_left > 0 {
            return self.warm_up(count, now);
        }
        self.completed += count;
        self.ended = now;
        self.completed < self.count_max && now < self.deadline && !stop::is_requested()
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.raw()
    }

    /// The outcome, without what happened to the threads.
    pub fn finish(self) -> Round {
        Round {
            completed: self.completed,
            elapsed_ns: self.clock.delta_as_nanos(self.started, self.ended),
            latency: self.latency,
            preempted: 0,
        }
    }

    /// Whether the program was asked to end; checked once in `CLOCK_EVERY` round trips.
    #[inline]
    fn is_interrupted(&self) -> bool {
        self.completed.is_multiple_of(CLOCK_EVERY) && stop::is_requested()
    }

    #[cold]
    fn warm_up(&mut self, count: u64, now: u64) -> bool {
        self.warm_up_left = self.warm_up_left.saturating_sub(count);
        if self.warm_up_left == 0 {
            self.start(now);
        }
        true
    }

    fn start(&mut self, now: u64) {
        self.started = now;
        self.ended = now;
        self.deadline = now.saturating_add(self.time_ticks_max);
    }
}

fn ticks(clock: &Clock, time: Duration) -> u64 {
    const SPAN: u64 = 1 << 32;
    let ns_per_tick = clock.delta_as_nanos(0, SPAN) as f64 / SPAN as f64;
    (time.as_nanos() as f64 / ns_per_tick) as u64
}

/// Untimed round trips between two looks at the clock, and timed ones between two at [`stop`].
pub const CLOCK_EVERY: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(warm_up: u64, end: End) -> Quota {
        Quota { warm_up, end }
    }

    #[test]
    fn timed_round_trips_end_at_the_count() {
        let mut meter = Meter::new(quota(3, End::Count(5)));
        let mut taken = 1;
        while meter.timed(0, 100) {
            taken += 1;
        }
        let round = meter.finish();
        assert_eq!((taken, round.completed, round.latency.count()), (3 + 5, 5, 5));
    }

    #[test]
    fn a_warm_up_is_not_in_the_distribution() {
        let mut meter = Meter::new(quota(2, End::Count(1)));
        meter.timed(0, 1_000_000_000);
        meter.timed(0, 1_000_000_000);
        let from = meter.now();
        assert!(!meter.timed(from, from));
        assert_eq!(meter.finish().latency.max_ns(), 0);
    }

    #[test]
    fn a_time_ends_at_its_deadline() {
        let mut meter = Meter::new(quota(1, End::Time(Duration::from_secs(1))));
        let second = ticks(&meter.clock, Duration::from_secs(1));
        assert!(meter.timed(0, 50), "the warm-up ends at 50 and the second begins");
        assert!(meter.timed(0, 40 + second));
        assert!(!meter.timed(0, 60 + second));
        assert_eq!(meter.finish().completed, 2);
    }

    #[test]
    fn counted_round_trips_end_at_the_count_and_not_later() {
        let mut meter = Meter::new(quota(0, End::Count(1000)));
        let mut taken = 1;
        while meter.counted(1) {
            taken += 1;
        }
        let round = meter.finish();
        assert_eq!((taken, round.completed, round.latency.count()), (1000, 1000, 0));
    }

    #[test]
    fn the_rate_is_the_count_over_the_time() {
        let round =
            Round { latency: Latency::new(), completed: 500, elapsed_ns: 250, preempted: 0 };
        assert_eq!(round.rate(), 2e9);
        assert_eq!(Round { elapsed_ns: 0, ..round }.rate(), 0.0);
    }
}
