//! The latencies of timed calls, as histograms of Prometheus.

use hdrhistogram::Histogram;

use super::exposition::{Family, Kind, Labels, Times, Value};
use crate::stats::latency::{LatencyReport, ProcedureLatency};

/// The families of all latencies, of shards with their labels.
pub(super) fn families<'a>(
    shards: impl Iterator<Item = (Labels, &'a LatencyReport)>,
) -> [Family; 3] {
    let [mut service, mut calls, mut procedures] = [const { Vec::new() }; 3];
    for (labels, report) in shards {
        service.push((labels.clone(), Value::Times(times(&report.service))));
        calls.push((labels.clone(), Value::Times(times(&report.calls))));
        procedures.extend(report.procedures.iter().map(|it| of_procedure(&labels, it)));
    }
    let family = |name, help: &str, samples| {
        let help = format!("{help} One call in stats.sample is timed.");
        Family { kind: Kind::Seconds, name, help, samples }
    };
    [
        family("service", SERVICE, service),
        family("call", CALLS, calls),
        family("procedure", PROCEDURES, procedures),
    ]
}

fn of_procedure(shard: &Labels, procedure: &ProcedureLatency) -> (Labels, Value) {
    let mut labels = shard.clone();
    let side = if procedure.is_own { "own" } else { "peer" };
    labels.push(("side", side.to_owned()));
    labels.push(("program", procedure.program.to_string()));
    labels.push(("version", procedure.version.to_string()));
    labels.push(("procedure", procedure.name.to_owned()));
    (labels, Value::Times(times(&procedure.histogram)))
}

/// A distribution of nanoseconds in the buckets of [`BOUNDS`].
fn times(histogram: &Histogram<u64>) -> Times {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let bounds = bounds().map(seconds).chain([f64::INFINITY]);
    let mut buckets: Vec<(f64, u64)> = bounds.map(|bound| (bound, 0)).collect();
    let mut sum = 0.0;
    for step in histogram.iter_recorded() {
        let (time, count) = (seconds(step.value_iterated_to()), step.count_at_value());
        let at = buckets.partition_point(|(bound, _)| *bound < time);
        buckets[at].1 += count;
        sum += time * count as f64;
    }
    Times { count: histogram.len(), sum, buckets }
}

/// The bounds of the buckets in nanoseconds: six in each power of ten, from 100 ns to 10 s.
fn bounds() -> impl Iterator<Item = u64> {
    let decades = (0..8).map(|decade| 10_u64.pow(decade) * 10);
    let steps = decades.flat_map(|decade| STEPS.map(|step| decade * step));
    steps.chain([10_000_000_000])
}

/// Ten times what a bound is of its power of ten.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
const SERVICE: &str = "Calls of peers, from their delivery to their answer.";
const CALLS: &str = "Own calls, from their submission to their completion, failures included.";
const PROCEDURES: &str = "Calls written or answered by a binding, by procedure.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition;

    #[test]
    fn every_time_is_in_the_bucket_of_the_next_bound() {
        let mut histogram = Histogram::new_with_bounds(1, u64::MAX >> 1, 3).expect("bounds");
        for ns in [0, 99, 100, 101, 1_400, 1_600, 9_990_000_000, 20_000_000_000] {
            histogram.record(ns).expect("within the bounds");
        }
        let times = times(&histogram);
        let filled = times.buckets.iter().filter(|(_, count)| *count > 0);
        let expected = [(1e-7, 3), (1.5e-7, 1), (1.5e-6, 1), (2e-6, 1), (10.0, 1)];
        let expected = expected.into_iter().chain([(f64::INFINITY, 1)]);
        assert_eq!(filled.copied().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert_eq!(times.count, 8);
        assert!((29.9..30.1).contains(&times.sum), "{}", times.sum);
    }

    #[test]
    fn a_procedure_is_named_by_its_labels() {
        let mut histogram = Histogram::new(2).expect("digits");
        histogram.record(250).expect("any value");
        let read = ProcedureLatency {
            program: 100_003,
            version: 3,
            number: 6,
            name: "READ",
            is_own: false,
            histogram: histogram.clone(),
        };
        let (service, calls) = (histogram.clone(), histogram);
        let report = LatencyReport { service, calls, procedures: vec![read] };
        let shard = vec![("shard", "7".to_owned())];
        let text = exposition::text(families([(shard, &report)].into_iter()).into());
        let labels = r#"shard="7",side="peer",program="100003",version="3",procedure="READ""#;
        for sample in [
            format!("rpcrdma_procedure_seconds_count{{{labels}}} 1"),
            format!("rpcrdma_procedure_seconds_bucket{{le=\"2e-7\",{labels}}} 0"),
            format!("rpcrdma_procedure_seconds_bucket{{le=\"3e-7\",{labels}}} 1"),
            format!("rpcrdma_procedure_seconds_bucket{{le=\"+Inf\",{labels}}} 1"),
            "rpcrdma_service_seconds_count{shard=\"7\"} 1".to_owned(),
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample} in {text}");
        }
    }

    #[test]
    fn bounds_ascend() {
        assert!(bounds().is_sorted_by(|a, b| a < b));
        assert_eq!((bounds().next(), bounds().last()), (Some(100), Some(10_000_000_000)));
    }
}
