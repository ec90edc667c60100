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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Latency;

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
