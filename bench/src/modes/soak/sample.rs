//! One sample: memory, descriptors and pools of both ends, and the calls of the interval.

use std::time::Duration;

use serde::Serialize;

use crate::contenders::tally::Held;
use crate::stats::Round;

/// What was seen at the end of an interval, and of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    pub at_s: f64,
    /// Of both ends together.
    #[serde(flatten)]
    pub held: Held,
    pub calls: u64,
    pub rate: f64,
    /// Times of the interval's calls, in nanoseconds, if they were timed.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
}

impl Sample {
    /// A sample of the round that has just ended, and of what is held after it.
    pub fn new(at: Duration, round: &Round, held: Held) -> Sample {
        let quantile =
            |quantile| (round.latency.count() > 0).then(|| round.latency.quantile_ns(quantile));
        Sample {
            at_s: at.as_secs_f64(),
            held,
            calls: round.completed,
            rate: round.rate(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
        }
    }
}

/// Samples of any number of looks in bounded memory: when the room is full, every second sample
/// goes, and from then on only every second look leaves one.
#[derive(Debug)]
pub struct Samples {
    kept: Vec<Sample>,
    room: usize,
    looks: u64,
    every: u64,
}

impl Samples {
    /// Allocates now: later growth of memory is not of these.
    pub fn with_room(room: usize) -> Samples {
        Samples { kept: Vec::with_capacity(room), room, looks: 0, every: 1 }
    }

    pub fn push(&mut self, sample: Sample) {
        self.looks += 1;
        if !self.looks.is_multiple_of(self.every) {
            return;
        }
        if self.kept.len() == self.room {
            let mut at = 0;
            // Those whose number is a multiple of the new distance.
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.every *= 2;
            if !self.looks.is_multiple_of(self.every) {
                return;
            }
        }
        self.kept.push(sample);
    }

    pub fn into_kept(self) -> Vec<Sample> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Latency;

    #[test]
    fn samples_of_a_long_run_are_thinned_out_evenly_and_stay_within_their_room() {
        for looks in [1_u64, 7, 8, 9, 100, 1000] {
            let mut samples = Samples::with_room(8);
            for look in 1..=looks {
                let held = Held::default();
                let round =
                    Round { latency: Latency::new(), completed: 1, elapsed_ns: 1, preempted: 0 };
                samples.push(Sample::new(Duration::from_secs(look), &round, held));
                assert!(samples.kept.capacity() == 8 && samples.kept.len() <= 8);
            }
            let at: Vec<f64> = samples.into_kept().iter().map(|sample| sample.at_s).collect();
            let step = at[0];
            assert!(at.windows(2).all(|two| two[1] - two[0] == step), "{looks}: {at:?}");
            assert!(at.len() as u64 >= looks.min(4), "{looks}: {at:?}");
            assert!(looks as f64 - at[at.len() - 1] < step, "{looks}: {at:?}");
        }
    }

    #[test]
    fn calls_that_were_not_timed_have_no_times() {
        let round =
            Round { latency: Latency::new(), completed: 10, elapsed_ns: 1_000, preempted: 0 };
        let held = Held { out: 3, ..Held::default() };
        let sample = Sample::new(Duration::from_secs(2), &round, held);
        assert_eq!((sample.p50_ns, sample.calls, sample.held.out), (None, 10, 3));
        assert!((sample.rate - 1e7).abs() < 1.0 && sample.at_s == 2.0);
    }
}
