//! The report of `soak`: trends, and which of them are a leak or a drift.

use serde_json::json;

use super::goal::Goal;
use super::sample::Sample;
use super::trend::Trend;
use crate::modes::contest::Plan;
use crate::output::{Axis, Better, Curve, Environment, Figure, Line, Lost, Report, Table, Unit};
use crate::stats::Latency;

pub(super) struct Soaked {
    pub environment: Environment,
    pub samples: Vec<Sample>,
    pub carried: Goal,
    pub goal: Goal,
    pub latency: Latency,
    pub preempted: u64,
}

#[derive(Debug, Clone)]
struct Watched {
    kind: &'static WatchedKind,
    /// `None` of a run that was too short.
    trend: Option<Trend>,
}

#[derive(Debug)]
struct WatchedKind {
    name: &'static str,
    unit: Unit,
    of: fn(&Sample) -> Option<f64>,
    check: Check,
}

#[derive(Debug)]
enum Check {
    /// A leak: it rises for certain, and by more than so much.
    Leak(f64),
    /// A drift: it changes for the worse for certain, and by more than the share allowed.
    Drift(Better),
    Never,
}

/// What is watched, in the order of the table.
static KINDS: [WatchedKind; 7] = [
    kind("memory", Unit::Bytes, Check::Leak(MEMORY_SLACK), |one| {
        Some(one.held.memory_bytes as f64)
    }),
    kind("descriptors", Unit::Count, Check::Leak(0.5), |one| Some(one.held.descriptors as f64)),
    kind("out", Unit::Count, Check::Leak(OUT_SLACK), |one| Some(one.held.out as f64)),
    kind("rate", Unit::PerSecond, Check::Drift(Better::Higher), |one| Some(one.rate)),
    kind("p50", Unit::Ns, Check::Drift(Better::Lower), |one| Some(one.p50_ns? as f64)),
    kind("p99", Unit::Ns, Check::Drift(Better::Lower), |one| Some(one.p99_ns? as f64)),
    kind("p99.9", Unit::Ns, Check::Never, |one| Some(one.p999_ns? as f64)),
];

const fn kind(
    name: &'static str,
    unit: Unit,
    check: Check,
    of: fn(&Sample) -> Option<f64>,
) -> WatchedKind {
    WatchedKind { name, unit, of, check }
}

impl Watched {
    fn new(kind: &'static WatchedKind, samples: &[Sample]) -> Watched {
        let of = |sample: &Sample| Some((sample.at_s, (kind.of)(sample)?));
        let points: Vec<(f64, f64)> = samples.iter().filter_map(of).collect();
        Watched { kind, trend: Trend::of(&points) }
    }

    fn complaint(&self, drift_max: f64) -> Option<String> {
        let (trend, WatchedKind { name, unit, check, .. }) = (self.trend?, self.kind);
        let symbol = unit.symbol();
        let Trend { change, low, high, .. } = trend;
        match check {
            Check::Leak(slack) if trend.rises_by(*slack) => {
                Some(format!("leak: {name} rose by {change:.1} {symbol} ({low:.1} to {high:.1})"))
            }
            Check::Drift(better) if worse(&trend, *better) > drift_max / 100.0 => Some(format!(
                "drift: {name} changed by {:+.1} % ({low:.1} to {high:.1} {symbol})",
                trend.share() * 100.0
            )),
            _ => None,
        }
    }
}

/// By which share a trend goes the wrong way for certain; 0 if it may as well not.
fn worse(trend: &Trend, better: Better) -> f64 {
    match better {
        Better::Lower if trend.low > 0.0 => trend.share(),
        Better::Higher if trend.high < 0.0 => -trend.share(),
        _ => 0.0,
    }
}

fn after_warm_up(samples: &[Sample]) -> &[Sample] {
    let warm_up = samples.len().div_ceil(WARM_UP_PART);
    &samples[warm_up.min(samples.len())..]
}

impl Soaked {
    pub fn report(&self, plan: &Plan, drift_max: f64, check: bool, what: String) -> Report {
        let Soaked { environment, samples, carried, goal, latency, preempted } = self;
        let time = samples.last().map_or(0.0, |last| last.at_s);
        let lost = Lost { name: "rpc".into(), elapsed_ns: (time * 1e9) as u64, preempted: *preempted };
        let environment = environment.clone().lost(&[lost]);
        let trends: Vec<Watched> =
            KINDS.iter().map(|kind| Watched::new(kind, after_warm_up(samples))).collect();
        let Goal { calls, bytes } = *carried;
        let mut figures = Vec::new();
        if latency.count() > 0 {
            figures = Figure::round_trips("rpc", latency, &[]);
        }
        figures.push(Figure::new("rpc", "calls", calls as f64, Unit::Count, calls));
        figures.push(Figure::new("rpc", "bytes", bytes as f64, Unit::Bytes, calls));
        figures.extend(Figure::of_each(&trends, |one| one.figures(after_warm_up(samples))));
        let settings = plan.settings("soak", json!({}));
        let mut report = Report::new("soak", what, settings, environment, figures);
        if latency.count() > 0 {
            report.samples("rpc", latency);
        }
        report.curves = KINDS.iter().filter_map(|kind| kind.curve(samples)).collect();
        let looks = samples.len();
        report.block(format!(
            "{calls} calls and {:.1} GiB of payload in {time:.1} s, looked at {looks} times",
            bytes as f64 / GIB
        ));
        report.block(trend_table(&trends, samples));
        let trends = trends.iter().filter_map(|one| one.complaint(drift_max));
        let complaints: Vec<String> = carried.complaint(*goal).into_iter().chain(trends).collect();
        report.block(match &complaints[..] {
            [] => format!("No leak, no drift of more than {} %.", drift_max),
            complaints => complaints.join("\n"),
        });
        report.detail(json!({ "samples": samples, "complaints": complaints }));
        if check {
            report.failures = complaints;
        }
        report
    }
}

impl WatchedKind {
    /// The figure over the time, if there is any of it.
    fn curve(&self, samples: &[Sample]) -> Option<Curve> {
        let of = |sample: &Sample| Some((sample.at_s, (self.of)(sample)?));
        let line = Line::new("rpc", samples.iter().filter_map(of));
        (!line.points.is_empty()).then(|| Curve {
            title: format!("{} in time", self.name),
            x: Axis::new("time, s", Unit::Count),
            y: Axis::new(self.name, self.unit),
            lines: vec![line],
        })
    }
}

impl Watched {
    fn figures(&self, samples: &[Sample]) -> Vec<Figure> {
        let (Some(trend), WatchedKind { name, unit, of, check }) = (self.trend, self.kind) else {
            return Vec::new();
        };
        let better = match check {
            Check::Drift(better) => *better,
            Check::Leak(_) | Check::Never => Better::Lower,
        };
        let rounds: Vec<f64> = samples.iter().filter_map(of).collect();
        let count = rounds.len() as u64;
        let figure =
            |part, value, unit| Figure::new(*name, part, value, unit, count).better(better);
        vec![
            figure("level", trend.start, *unit).rounds(rounds),
            figure("rise", trend.change, *unit),
            figure("rise.least", trend.low, *unit),
            figure("rise.most", trend.high, *unit),
            figure("rise.share", trend.share(), Unit::Share),
        ]
    }
}

fn trend_table(trends: &[Watched], samples: &[Sample]) -> Table {
    let heads = ["in time", "at the start", "change", "at least", "at most", "%", "unit"];
    let mut table = Table::new(&[0, 6], heads);
    for Watched { kind: WatchedKind { name, unit, of, .. }, trend } in trends {
        let unit = unit.symbol().to_owned();
        let cells = if let Some(trend) = trend {
            let Trend { start, change, low, high } = *trend;
            let changes = [change, low, high].map(|change| format!("{change:+.1}"));
            let share = format!("{:+.2}", trend.share() * 100.0);
            [format!("{start:.1}")].into_iter().chain(changes).chain([share, unit]).collect()
        } else if let Some(last) = samples.last().and_then(of) {
            let dash = || "-".to_owned();
            vec![format!("{last:.1}"), "too short".to_owned(), dash(), dash(), dash(), unit]
        } else {
            continue;
        };
        table.row([(*name).to_owned()].into_iter().chain::<Vec<String>>(cells));
    }
    table
}

const WARM_UP_PART: usize = 10;
const GIB: f64 = (1_u64 << 30) as f64;
/// Bytes that an allocator may take at any time, as threads begin and end.
const MEMORY_SLACK: f64 = 256.0 * 1024.0;
/// Buffers that are in use when a sample is taken: unsignaled sends.
const OUT_SLACK: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::tally::Held;

    fn samples(change: impl Fn(f64, &mut Sample)) -> Vec<Sample> {
        let sample = |index: u32| {
            let at_s = f64::from(index) * 10.0;
            let mut sample = Sample {
                at_s,
                held: Held { memory_bytes: 10 << 20, descriptors: 12, out: 30 },
                calls: 1000,
                rate: 100.0,
                p50_ns: Some(5000),
                p99_ns: Some(9000),
                p999_ns: Some(20_000),
            };
            change(at_s, &mut sample);
            sample
        };
        (1..=100).map(sample).collect()
    }

    fn complaints(change: impl Fn(f64, &mut Sample)) -> Vec<String> {
        let samples = samples(change);
        let watched = KINDS.iter().map(|kind| Watched::new(kind, after_warm_up(&samples)));
        watched.filter_map(|one| one.complaint(5.0)).collect()
    }

    #[test]
    fn what_stays_as_it_is_gives_no_reason_to_complain() {
        assert_eq!(complaints(|_, _| {}), [""; 0]);
    }

    #[test]
    fn memory_that_rises_behind_the_warm_up_is_a_leak() {
        let found = complaints(|at, sample| sample.held.memory_bytes += (at * 4096.0) as u64);
        assert!(found.len() == 1 && found[0].starts_with("leak: memory rose by 36"), "{found:?}");
        let early =
            complaints(|at, sample| sample.held.memory_bytes += ((at * 1e6) as u64).min(90 << 20));
        assert_eq!(early, [""; 0], "the warm-up may take what it needs");
    }

    #[test]
    fn one_descriptor_in_a_third_of_the_time_is_a_leak() {
        let found = complaints(|at, sample| sample.held.descriptors += (at / 330.0) as u64);
        assert!(found.len() == 1 && found[0].starts_with("leak: descriptors"), "{found:?}");
        assert_eq!(
            complaints(|at, sample| sample.held.descriptors += u64::from(at == 500.0)),
            [""; 0]
        );
    }

    #[test]
    fn slots_that_do_not_come_home_are_a_leak() {
        let found = complaints(|at, sample| sample.held.out += (at / 100.0) as u64);
        assert!(found.len() == 1 && found[0].starts_with("leak: out"), "{found:?}");
    }

    #[test]
    fn latency_that_rises_and_a_rate_that_falls_are_drifts_beyond_the_share_allowed() {
        let by = |share: f64| {
            complaints(move |at, sample| {
                sample.p99_ns = Some((9000.0 * (1.0 + share * at / 1000.0)) as u64);
                sample.rate = 100.0 * (1.0 - share * at / 1000.0);
            })
        };
        assert_eq!(by(0.04), [""; 0]);
        let found = by(0.08);
        assert!(
            found.len() == 2 && found.iter().all(|text| text.starts_with("drift")),
            "{found:?}"
        );
        assert_eq!(by(-0.08), [""; 0], "what gets better is no drift");
    }

    #[test]
    fn a_run_that_is_too_short_has_no_trend_and_no_complaint() {
        let short = &samples(|at, sample| sample.held.memory_bytes += (at * 1e6) as u64)[..5];
        let watched: Vec<Watched> =
            KINDS.iter().map(|kind| Watched::new(kind, after_warm_up(short))).collect();
        assert!(watched.iter().all(|one| one.trend.is_none()));
        assert!(watched.iter().all(|one| one.complaint(5.0).is_none()));
    }
}
