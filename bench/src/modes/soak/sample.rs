//! One sample: memory, descriptors and pools of the process, and the calls of the interval.

use std::fs;
use std::time::Duration;

use serde::Serialize;

use crate::device::files::resident;
use crate::stats::Round;

/// What was seen at the end of an interval, and of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    pub at_s: f64,
    /// Bytes of memory of the process that are in use, files apart.
    pub memory_bytes: u64,
    pub descriptors: u64,
    /// What is missing from the pools of both shards: slots, segments, windows, messages. Receives
    /// that are posted are where they belong.
    pub out: u64,
    pub calls: u64,
    pub rate: f64,
    /// Times of the interval's calls, in nanoseconds, if they were timed.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
}

impl Sample {
    /// Looks, with the round that has just ended, and with what the pools miss.
    pub fn now(at: Duration, round: &Round, out: u64) -> Sample {
        let quantile =
            |quantile| (round.latency.count() > 0).then(|| round.latency.quantile_ns(quantile));
        Sample {
            at_s: at.as_secs_f64(),
            memory_bytes: resident(),
            descriptors: descriptors(),
            out,
            calls: round.completed,
            rate: round.rate(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
        }
    }
}

/// Open descriptors of the process, without the one that looks; 0 where the kernel does not tell.
fn descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Latency;

    #[test]
    fn a_descriptor_more_is_one_more() {
        let before = descriptors();
        let files: Vec<fs::File> =
            (0..40).map(|_| fs::File::open("/proc/self/status").expect("a file")).collect();
        // Other tests of this process open and close some meanwhile.
        assert!(descriptors() >= before + 30, "{before}");
        drop(files);
    }

    #[test]
    fn calls_that_were_not_timed_have_no_times() {
        let round =
            Round { latency: Latency::new(), completed: 10, elapsed_ns: 1_000, preempted: 0 };
        let sample = Sample::now(Duration::from_secs(2), &round, 3);
        assert_eq!((sample.p50_ns, sample.calls, sample.out), (None, 10, 3));
        assert!((sample.rate - 1e7).abs() < 1.0 && sample.at_s == 2.0);
    }
}
