//! What became of the figures in time: trends, and whether one of them is a leak or a drift.

use serde_json::{Value, json};

use super::sample::Sample;
use super::trend::Trend;
use super::{Args, MODE};
use crate::device::jitter::Jitter;
use crate::modes::contest::{Plan, Settings};
use crate::output::outcome::{
    Axis, Better, Curve, Distribution, Figure, Line, Lost, Outcome, Scene, Unit, line,
};
use crate::stats::latency::Latency;

/// A soak, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct SoakReport {
    what: String,
    settings: Settings,
    drift_max: f64,
    judges: bool,
    scene: Scene,
    samples: Vec<Sample>,
    latency: Latency,
    trends: Vec<Watched>,
}

/// One figure over the time.
#[derive(Debug, Clone)]
struct Watched {
    kind: &'static Kind,
    /// `None` of a run that was too short.
    trend: Option<Trend>,
}

/// What is watched.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    unit: Unit,
    of: fn(&Sample) -> Option<f64>,
    judged: Judged,
}

/// When a trend is bad.
#[derive(Debug)]
enum Judged {
    /// A leak: it rises for certain, and by more than so much.
    Leak(f64),
    /// A drift: it changes for the worse for certain, and by more than the share allowed.
    Drift(Better),
    /// Shown only.
    Never,
}

/// What is watched, in the order of the table.
static KINDS: [Kind; 7] = [
    Kind {
        name: "memory",
        unit: Unit::Bytes,
        of: |sample| Some(sample.memory_bytes as f64),
        judged: Judged::Leak(MEMORY_SLACK),
    },
    Kind {
        name: "descriptors",
        unit: Unit::Count,
        of: |sample| Some(sample.descriptors as f64),
        judged: Judged::Leak(0.5),
    },
    Kind {
        name: "out",
        unit: Unit::Count,
        of: |sample| Some(sample.out as f64),
        judged: Judged::Leak(OUT_SLACK),
    },
    Kind {
        name: "rate",
        unit: Unit::PerSecond,
        of: |sample| Some(sample.rate),
        judged: Judged::Drift(Better::Higher),
    },
    Kind {
        name: "p50",
        unit: Unit::Ns,
        of: |sample| sample.p50_ns.map(|ns| ns as f64),
        judged: Judged::Drift(Better::Lower),
    },
    Kind {
        name: "p99",
        unit: Unit::Ns,
        of: |sample| sample.p99_ns.map(|ns| ns as f64),
        judged: Judged::Drift(Better::Lower),
    },
    Kind {
        name: "p99.9",
        unit: Unit::Ns,
        of: |sample| sample.p999_ns.map(|ns| ns as f64),
        judged: Judged::Never,
    },
];

impl Watched {
    fn new(kind: &'static Kind, samples: &[Sample]) -> Watched {
        let of = |sample: &Sample| Some((sample.at_s, (kind.of)(sample)?));
        let points: Vec<(f64, f64)> = samples.iter().filter_map(of).collect();
        Watched { kind, trend: Trend::of(&points) }
    }

    /// Why this is bad, if it is.
    fn complaint(&self, drift_max: f64) -> Option<String> {
        let (trend, Kind { name, unit, judged, .. }) = (self.trend?, self.kind);
        let symbol = unit.symbol();
        let Trend { change, low, high, .. } = trend;
        match judged {
            Judged::Leak(slack) if trend.rises_by(*slack) => {
                Some(format!("leak: {name} rose by {change:.1} {symbol} ({low:.1} to {high:.1})"))
            }
            Judged::Drift(better) if worse(&trend, *better) > drift_max / 100.0 => Some(format!(
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

/// The samples behind the warm-up.
fn settled(samples: &[Sample]) -> &[Sample] {
    let warm_up = samples.len().div_ceil(WARM_UP_PART);
    &samples[warm_up.min(samples.len())..]
}

impl SoakReport {
    /// Sums a run up.
    #[expect(clippy::too_many_arguments, reason = "what a run consists of, each by its type")]
    pub(super) fn new(
        plan: &Plan,
        args: &Args,
        what: String,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
        samples: Vec<Sample>,
        latency: Latency,
        preempted: u64,
    ) -> SoakReport {
        let elapsed_ns = samples.last().map_or(0, |last| (last.at_s * 1e9) as u64);
        let lost = [Lost { name: "rpc", elapsed_ns, preempted }];
        let trends = KINDS.iter().map(|kind| Watched::new(kind, settled(&samples))).collect();
        SoakReport {
            what,
            settings: Settings { mode: MODE, ..plan.settings() },
            drift_max: args.drift_max,
            judges: args.judge,
            scene: Scene::new(plan.cores, notes, jitters, &lost),
            samples,
            latency,
            trends,
        }
    }

    /// Leaks and drifts, a line each.
    fn complaints(&self) -> Vec<String> {
        self.trends.iter().filter_map(|one| one.complaint(self.drift_max)).collect()
    }

    fn calls(&self) -> u64 {
        self.samples.iter().map(|sample| sample.calls).sum()
    }

    fn write_trends(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<14}{:>16}{:>16}{:>14}{:>14}{:>9}  {:<8}",
                "in time", "at the start", "change", "at least", "at most", "%", "unit"
            ),
        );
        for Watched { kind: Kind { name, unit, of, .. }, trend } in &self.trends {
            let unit = unit.symbol();
            if let Some(trend) = trend {
                let (Trend { start, change, low, high }, share) = (*trend, trend.share() * 100.0);
                line(
                    out,
                    format_args!(
                        "{name:<14}{start:>16.1}{change:>+16.1}{low:>+14.1}{high:>+14.1}{share:>+9.2}  {unit}"
                    ),
                );
            } else if let Some(last) = self.samples.last().and_then(of) {
                line(out, format_args!("{name:<14}{last:>16.1}{:>16}  {unit}", "too short"));
            }
        }
    }
}

impl Outcome for SoakReport {
    fn mode(&self) -> &str {
        MODE
    }

    fn what(&self) -> &str {
        &self.what
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn settings(&self) -> Value {
        json!(self.settings)
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        if self.latency.count() > 0 {
            figures = Figure::round_trips("rpc", &self.latency, &[]);
        }
        figures.push(Figure::new("rpc", "calls", self.calls() as f64, Unit::Count, self.calls()));
        for Watched { kind: Kind { name, unit, of, judged }, trend } in &self.trends {
            let Some(trend) = trend else { continue };
            let better = match judged {
                Judged::Drift(better) => *better,
                Judged::Leak(_) | Judged::Never => Better::Lower,
            };
            let rounds: Vec<f64> = settled(&self.samples).iter().filter_map(of).collect();
            let count = rounds.len() as u64;
            let figure = |part, value, unit| Figure::new(*name, part, value, unit, count);
            figures.push(figure("level", trend.start, *unit).better(better).rounds(rounds));
            figures.push(figure("rise", trend.change, *unit).better(better));
            figures.push(figure("rise.least", trend.low, *unit).better(better));
            figures.push(figure("rise.most", trend.high, *unit).better(better));
            figures.push(figure("rise.share", trend.share(), Unit::Share).better(better));
        }
        figures
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        if self.latency.count() == 0 {
            return Vec::new();
        }
        vec![Distribution { name: "rpc".into(), latency: &self.latency }]
    }

    fn curves(&self) -> Vec<Curve> {
        let axis = |name: &str, unit| Axis { name: name.into(), unit, log: false };
        let curve = |kind: &Kind| {
            let of = |sample: &Sample| Some((sample.at_s, (kind.of)(sample)?));
            let points = self.samples.iter().filter_map(of).collect();
            Curve {
                title: format!("{} in time", kind.name),
                x: axis("time, s", Unit::Count),
                y: axis(kind.name, kind.unit),
                lines: vec![Line { name: "rpc".into(), points }],
            }
        };
        KINDS.iter().map(curve).filter(|curve| !curve.lines[0].points.is_empty()).collect()
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        line(&mut out, format_args!(""));
        let (calls, looks) = (self.calls(), self.samples.len());
        let time = self.samples.last().map_or(0.0, |last| last.at_s);
        line(&mut out, format_args!("{calls} calls in {time:.1} s, looked at {looks} times"));
        self.write_trends(&mut out);
        line(&mut out, format_args!(""));
        let complaints = self.complaints();
        if complaints.is_empty() {
            line(&mut out, format_args!("No leak, no drift of more than {} %.", self.drift_max));
        }
        complaints.iter().for_each(|text| line(&mut out, format_args!("{text}")));
        self.scene.write_noise(&mut out);
        out
    }

    fn failures(&self) -> Vec<String> {
        if self.judges { self.complaints() } else { Vec::new() }
    }

    fn detail(&self) -> Value {
        json!({ "samples": self.samples, "complaints": self.complaints() })
    }
}

/// One sample in so many is warm-up.
const WARM_UP_PART: usize = 10;
/// Bytes that an allocator may take at any time, for whatever threads begin and end.
const MEMORY_SLACK: f64 = 256.0 * 1024.0;
/// What of the pools is on its way when somebody looks: sends whose completion nobody asked for.
const OUT_SLACK: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(change: impl Fn(f64, &mut Sample)) -> Vec<Sample> {
        let sample = |index: u32| {
            let at_s = f64::from(index) * 10.0;
            let mut sample = Sample {
                at_s,
                memory_bytes: 10 << 20,
                descriptors: 12,
                out: 30,
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
        let watched = KINDS.iter().map(|kind| Watched::new(kind, settled(&samples)));
        watched.filter_map(|one| one.complaint(5.0)).collect()
    }

    #[test]
    fn what_stays_as_it_is_gives_no_reason_to_complain() {
        assert_eq!(complaints(|_, _| {}), [""; 0]);
    }

    #[test]
    fn memory_that_rises_behind_the_warm_up_is_a_leak() {
        let found = complaints(|at, sample| sample.memory_bytes += (at * 4096.0) as u64);
        assert!(found.len() == 1 && found[0].starts_with("leak: memory rose by 36"), "{found:?}");
        let early =
            complaints(|at, sample| sample.memory_bytes += ((at * 1e6) as u64).min(90 << 20));
        assert_eq!(early, [""; 0], "the warm-up may take what it needs");
    }

    #[test]
    fn one_descriptor_in_a_third_of_the_time_is_a_leak() {
        let found = complaints(|at, sample| sample.descriptors += (at / 330.0) as u64);
        assert!(found.len() == 1 && found[0].starts_with("leak: descriptors"), "{found:?}");
        assert_eq!(complaints(|at, sample| sample.descriptors += u64::from(at == 500.0)), [""; 0]);
    }

    #[test]
    fn slots_that_do_not_come_home_are_a_leak() {
        let found = complaints(|at, sample| sample.out += (at / 100.0) as u64);
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
        let short = &samples(|at, sample| sample.memory_bytes += (at * 1e6) as u64)[..5];
        let watched: Vec<Watched> =
            KINDS.iter().map(|kind| Watched::new(kind, settled(short))).collect();
        assert!(watched.iter().all(|one| one.trend.is_none()));
        assert!(watched.iter().all(|one| one.complaint(5.0).is_none()));
    }
}
