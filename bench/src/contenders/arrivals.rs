//! Arrival times: a constant or Poisson stream, and its calls that are not sent yet.
//!
//! ```text
//!          sent            waiting              not due yet
//!   ──────────────────┬──────────────────┬──────────────────▶ intended times
//!                   next               ahead
//! ```
//!
//! The times that wait are not stored: `next` and `ahead` walk the same stream from the same seed,
//! one behind the other. So any number of calls may wait, and nothing is allocated for them.

use clap::ValueEnum;
use strum::IntoStaticStr;

use crate::stats::Dice;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Law {
    /// Poisson process: independent calls, as from many callers
    Poisson,
    /// Constant interval
    Constant,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    law: Law,
    mean_ns: f64,
    dice: Dice,
    at_ns: f64,
}

impl Stream {
    #[inline]
    fn at_ns(&self) -> u64 {
        self.at_ns as u64
    }

    #[inline]
    fn step(&mut self) {
        self.at_ns += match self.law {
            Law::Poisson => self.dice.wait(self.mean_ns),
            Law::Constant => self.mean_ns,
        };
    }
}

/// The calls of one round: which are due, which have been taken, and when it is over.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    next: Stream,
    ahead: Stream,
    waiting: u64,
    /// Calls that are not due yet; counts down to the last one.
    left: u64,
    until_ns: u64,
}

impl Schedule {
    /// Calls at `rate` per second from time 0 on, until `until_ns` or until `count` were due.
    pub fn new(law: Law, rate: f64, seed: u64, until_ns: u64, count: u64) -> Schedule {
        let (mean_ns, dice) = (1e9 / rate, Dice::new(seed));
        let mut first = Stream { law, mean_ns, dice, at_ns: 0.0 };
        first.step();
        Schedule { next: first, ahead: first, waiting: 0, left: count, until_ns }
    }

    /// Counts the calls that are due by `now_ns`.
    #[inline]
    pub fn advance(&mut self, now_ns: u64) {
        let now_ns = now_ns.min(self.until_ns);
        while self.left > 0 && self.ahead.at_ns() <= now_ns {
            self.ahead.step();
            self.waiting += 1;
            self.left -= 1;
        }
    }

    /// The intended time of the first call that waits.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        (self.waiting > 0).then(|| self.next.at_ns())
    }

    /// The first call that waits has been sent, or given up.
    #[inline]
    pub fn take(&mut self) {
        debug_assert!(self.waiting > 0, "only what is due is taken");
        self.waiting -= 1;
        if self.waiting == 0 {
            // The same time, without drawing it again.
            self.next = self.ahead;
        } else {
            self.next.step();
        }
    }

    /// Calls that are due and have not been taken.
    #[inline]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// No further call will be due.
    pub fn end(&mut self) {
        self.left = 0;
    }

    /// Whether no further call will be due after `now_ns`, up to which it has advanced.
    #[inline]
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.left == 0 || now_ns >= self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;

    /// The intended times of `count` calls.
    fn times(law: Law, rate: f64, seed: u64, count: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(law, rate, seed, NEVER, count);
        schedule.advance(NEVER);
        drain(&mut schedule)
    }

    fn drain(schedule: &mut Schedule) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(at) = schedule.first() {
            times.push(at);
            schedule.take();
        }
        times
    }

    /// Mean and variance.
    fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
        let values: Vec<f64> = values.collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, squares / (values.len() - 1) as f64)
    }

    fn gaps(times: &[u64]) -> impl Iterator<Item = f64> {
        times.windows(2).map(|pair| (pair[1] - pair[0]) as f64)
    }

    #[test]
    fn gaps_of_a_poisson_process_have_its_mean_and_its_variance() {
        for seed in [1, 2, 3] {
            let times = times(Law::Poisson, 1e5, seed, 400_000);
            let (mean, variance) = moments(gaps(&times));
            // Exponential: the deviation is the mean. Of 400 000 gaps the mean strays by 0.16 %,
            // the variance by 0.45 %; four times that is never seen by chance.
            assert!((mean / 10_000.0 - 1.0).abs() < 0.0064, "seed {seed}: mean {mean}");
            let ratio = variance / 1e8;
            assert!((ratio - 1.0).abs() < 0.018, "seed {seed}: variance {ratio}");
        }
    }

    #[test]
    fn calls_of_a_poisson_process_in_a_millisecond_vary_as_their_mean() {
        let times = times(Law::Poisson, 1e5, 4, 400_000);
        let windows = times.last().expect("there are some") / 1_000_000;
        let mut counts = vec![0_u32; windows as usize];
        for at in &times {
            if let Some(count) = counts.get_mut((at / 1_000_000) as usize) {
                *count += 1;
            }
        }
        let (mean, variance) = moments(counts.iter().map(|count| f64::from(*count)));
        // 4000 windows: the ratio strays by 2.2 %.
        assert!((variance / mean - 1.0).abs() < 0.09, "mean {mean}, variance {variance}");
    }

    #[test]
    fn a_constant_stream_is_even_and_does_not_drift() {
        let times = times(Law::Constant, 3e6, 1, 3_000_000);
        let (_, variance) = moments(gaps(&times));
        assert!(variance <= 0.25, "whole nanoseconds: {variance}");
        let last = *times.last().expect("there are some");
        assert!(last.abs_diff(1_000_000_000) <= 1, "{last}");
    }

    #[test]
    fn the_same_seed_gives_the_same_times_and_another_gives_others() {
        assert_eq!(times(Law::Poisson, 1e6, 5, 100), times(Law::Poisson, 1e6, 5, 100));
        assert_ne!(times(Law::Poisson, 1e6, 5, 100), times(Law::Poisson, 1e6, 6, 100));
    }

    #[test]
    fn what_waits_is_counted_and_keeps_its_times() {
        let all = times(Law::Poisson, 1e6, 9, 1000);
        let mut schedule = Schedule::new(Law::Poisson, 1e6, 9, NEVER, 1000);
        let mut taken = Vec::new();
        // Taken in pieces: one at a time, then none for long, then all that wait.
        for (step, at) in all.iter().enumerate() {
            schedule.advance(*at);
            if !(300..=600).contains(&step) {
                taken.extend(drain(&mut schedule));
                assert_eq!(schedule.waiting(), 0);
            }
            if step == 600 {
                assert_eq!(schedule.waiting(), 301);
            }
        }
        assert_eq!(taken, all);
        assert!(schedule.is_over(0), "a thousand were due");
    }

    #[test]
    fn nothing_is_due_after_the_end() {
        let mut schedule = Schedule::new(Law::Constant, 1e6, 0, 10_000, NEVER);
        schedule.advance(9_999);
        assert_eq!((schedule.waiting(), schedule.is_over(9_999)), (9, false));
        schedule.advance(50_000);
        assert_eq!((schedule.waiting(), schedule.is_over(50_000)), (10, true));
        schedule.advance(90_000);
        assert_eq!(schedule.waiting(), 10);
    }
}
