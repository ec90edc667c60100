//! The result over distances: round trips counted three ways, and the times.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Plan, Way, list};
use crate::contenders::call::Shape;
use crate::contenders::rpc::{Counted, PerCall};
use crate::device::cores::CorePair;
use crate::device::jitter::Jitter;
use crate::modes::contest::{RatioReport, RoundReport};
use crate::output::outcome::{
    At, Axis, Better, Curve, Distribution, Figure, Line, Lost, Outcome, Scene, Unit, line,
};
use crate::stats::latency::{Latency, Summary};
use crate::stats::rounds::Series;

/// A result over distances, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct DistanceReport {
    /// What was measured, in words.
    pub what: String,
    /// Where the threads ran.
    pub cores: CorePair,
    /// Rounds of each way.
    pub rounds: u32,
    /// Uncounted calls at the start of each round.
    pub warm_up: u64,
    /// What the names of the ways stand for.
    pub ways: Vec<Meaning>,
    /// Where, and how quietly.
    pub scene: Scene,
    /// Round trips of each way, in virtual time.
    pub counts: Vec<Count>,
    /// Times of each way at each delay.
    pub measured: Vec<Measured>,
    /// Where the three counts of round trips are not the same; empty when they agree.
    pub disagreements: Vec<String>,
}

/// A way and what it is.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Meaning {
    /// As the tables name it.
    pub name: &'static str,
    /// In words.
    pub meaning: &'static str,
}

/// Which call a figure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    /// `read` or `write`.
    pub op: &'static str,
    /// Data bytes.
    pub size_bytes: usize,
    /// How the data went.
    pub way: Way,
}

/// One way in virtual time.
#[derive(Debug, Clone, Serialize)]
pub struct Count {
    /// Which call.
    #[serde(flatten)]
    pub case: Case,
    /// Round trips of each call; `None` if they were not whole, or not always the same.
    pub round_trips: Option<u64>,
    /// Round trips by what the shards counted.
    pub by_counters: u64,
    /// What was counted.
    #[serde(flatten)]
    pub counted: Counted,
}

/// One way at one delay.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Which call.
    #[serde(flatten)]
    pub case: Case,
    /// One way, in nanoseconds.
    pub delay_ns: u64,
    /// The median over the rounds of their median.
    pub median_ns: f64,
    /// The median without the round trips that were counted: the software of both sides, and
    /// whatever disturbed it.
    pub rest_ns: Option<f64>,
    /// The fastest call.
    pub fastest_ns: u64,
    /// Round trips by the fastest call: as many as fit into its time, which is never shorter than
    /// its round trips, and longer by what a busy machine adds least. `None` without a distance.
    pub by_time: Option<u64>,
    /// Every call.
    pub call: Summary,
    /// What the shards counted of each call, on average.
    pub per_call: PerCall,
    /// Explicit RDMA's time to that of Sends.
    pub ratio: Option<RatioReport>,
    /// Each round by itself, in order.
    pub rounds: Vec<RoundReport>,
    /// Every sample.
    #[serde(skip)]
    pub samples: Latency,
}

impl Count {
    /// What was counted of a call.
    pub fn new(shape: Shape, way: Way, counted: Counted) -> Count {
        let (round_trips, by_counters) = (counted.round_trips(), counted.per_call.round_trips());
        Count { case: Case::new(shape, way), round_trips, by_counters, counted }
    }
}

impl Measured {
    /// Sums up what was measured of a call whose round trips were counted, beside `sends`.
    pub fn new(
        count: &Count,
        delay: Duration,
        series: &Series,
        per_call: PerCall,
        sends: Option<&Series>,
    ) -> Measured {
        let (latency, median_ns) = (series.latency(), series.median_ns());
        let delay_ns = delay.as_nanos() as u64;
        let both_ways = 2.0 * delay_ns as f64;
        let fastest_ns = latency.min_ns();
        Measured {
            case: count.case,
            delay_ns,
            median_ns,
            rest_ns: count.round_trips.map(|trips| median_ns - trips as f64 * both_ways),
            fastest_ns,
            by_time: fastest_ns.checked_div(2 * delay_ns),
            call: latency.summary(1.0),
            per_call,
            ratio: sends.map(|sends| RatioReport::of_medians(series, sends)),
            rounds: series.rounds.iter().map(RoundReport::new).collect(),
            samples: latency,
        }
    }

    /// Round trips by the fastest call, and what its time is over them, in nanoseconds.
    fn by_time(&self) -> Option<(u64, f64)> {
        let trips = self.by_time?;
        Some((trips, (self.fastest_ns - trips * 2 * self.delay_ns) as f64))
    }
}

impl Case {
    fn new(shape: Shape, way: Way) -> Case {
        Case { op: shape.op.name(), size_bytes: shape.data_len(), way }
    }

    /// As a figure names it.
    fn name(&self) -> String {
        format!("{}, {}", self.title(), self.way.name())
    }

    fn title(&self) -> String {
        let Case { op, size_bytes, .. } = self;
        let size = match size_bytes % 1024 {
            0 => format!("{} KiB", size_bytes / 1024),
            _ => format!("{size_bytes} bytes"),
        };
        format!("{op} {size}")
    }
}

impl DistanceReport {
    /// Sums a run up.
    pub(super) fn new(
        plan: &Plan,
        counts: Vec<Count>,
        measured: Vec<Measured>,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
    ) -> DistanceReport {
        let lost = Way::ALL.map(|way| {
            let of_way = measured.iter().filter(|one| one.case.way == way);
            let rounds = of_way.flat_map(|one| &one.rounds);
            Lost::of_rounds(way.name(), rounds.map(|one| (one.elapsed_ns, one.preempted)))
        });
        let disagreements =
            counts.iter().filter_map(|count| disagreement(count, far(&measured, count))).collect();
        DistanceReport {
            what: plan.sentence(),
            cores: plan.cores,
            rounds: plan.rounds,
            warm_up: plan.quota.warm_up,
            ways: Way::ALL.map(|way| Meaning { name: way.name(), meaning: way.meaning() }).to_vec(),
            scene: Scene::new(plan.cores, notes, jitters, &lost),
            counts,
            measured,
            disagreements,
        }
    }

    fn write_counts(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<15}{:<11}{:>8}{:>10}{:>6}{:>10}{:>13}{:>6}{:>7}{:>8}{:>9}{:>11}   (of one call)",
                "round trips by",
                "",
                "virtual",
                "counters",
                "time",
                "over, us",
                "Sends there",
                "back",
                "Reads",
                "Writes",
                "exposed",
                "withdrawn"
            ),
        );
        for count in &self.counts {
            let PerCall { sends_there, sends_back, reads, writes, exposed, invalidations, .. } =
                count.counted.per_call;
            let by_time = far(&self.measured, count)
                .and_then(Measured::by_time)
                .map_or_else(String::new, |(trips, over)| {
                    format!("{trips:>6}{:>10.1}", over / 1e3)
                });
            let virtually = count.round_trips.map_or("varies".into(), |count| count.to_string());
            let (title, way, by_counters) =
                (count.case.title(), count.case.way.name(), count.by_counters);
            line(
                out,
                format_args!(
                    "{title:<15}{way:<11}{virtually:>8}{by_counters:>10}{by_time:>16}\
                     {sends_there:>13}{sends_back:>6}{reads:>7}{writes:>8}{exposed:>9}\
                     {invalidations:>11}"
                ),
            );
        }
    }

    fn write_times(&self, out: &mut String) {
        let heads = self.delays().into_iter().map(|delay| {
            let head = format!("{} us", delay / 1000);
            format!("{head:>10}{:>10}", if delay > 0 { "rest" } else { "" })
        });
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<15}{:<11}{}{:>10}",
                "p50, us, at",
                "",
                heads.collect::<String>(),
                "samples"
            ),
        );
        for count in &self.counts {
            let cells = self.measured.iter().filter(|one| one.case == count.case);
            let samples = cells.clone().map(|one| one.call.count).min().unwrap_or_default();
            let cells = cells.map(|one| {
                let rest = one.rest_ns.filter(|_| one.delay_ns > 0);
                let rest = rest.map_or_else(String::new, |rest| format!("{:+.1}", rest / 1e3));
                format!("{:>10.1}{rest:>10}", one.median_ns / 1e3)
            });
            let (title, way) = (count.case.title(), count.case.way.name());
            let cells = cells.collect::<String>();
            line(out, format_args!("{title:<15}{way:<11}{cells}{samples:>10}"));
        }
    }

    fn write_ratios(&self, out: &mut String) {
        let heads = self.delays().into_iter().map(|delay| format!("{:>7} us", delay / 1000));
        let heads = heads.collect::<String>();
        line(out, format_args!(""));
        line(out, format_args!("{:<15}{:<11}{heads}   (medians)", "to sends, at", ""));
        for count in self.counts.iter().filter(|count| count.case.way.is_explicit()) {
            let cells = self.measured.iter().filter(|one| one.case == count.case);
            let ratios = cells.filter_map(|one| one.ratio.as_ref());
            let ratios = ratios.map(|ratio| format!("{:>10.3}", ratio.value)).collect::<String>();
            let (title, way) = (count.case.title(), count.case.way.name());
            line(out, format_args!("{title:<15}{way:<11}{ratios}"));
        }
    }

    fn write_agreement(&self, out: &mut String) {
        line(out, format_args!(""));
        if self.disagreements.is_empty() {
            line(
                out,
                format_args!(
                    "The counts agree: virtual time, what both shards did, measured time."
                ),
            );
            return;
        }
        line(out, format_args!("THE COUNTS DO NOT AGREE:"));
        for text in &self.disagreements {
            line(out, format_args!("  {text}"));
        }
    }

    /// The delays, in the order in which they were measured.
    fn delays(&self) -> Vec<u64> {
        let first = self.measured.first().map(|first| first.case);
        let of_first = self.measured.iter().filter(|one| Some(one.case) == first);
        of_first.map(|one| one.delay_ns).collect()
    }
}

impl Outcome for DistanceReport {
    fn mode(&self) -> &str {
        "distance"
    }

    fn what(&self) -> &str {
        &self.what
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn settings(&self) -> Value {
        let DistanceReport { cores, rounds, warm_up, .. } = self;
        json!({ "cores": cores, "rounds": rounds, "warm_up": warm_up })
    }

    fn figures(&self) -> Vec<Figure> {
        let counts = self.counts.iter().flat_map(Count::figures);
        counts.chain(self.measured.iter().flat_map(Measured::figures)).collect()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        let one = |one: &'_ Measured| format!("{}@{}", one.case.name(), one.at());
        let all = self.measured.iter();
        all.map(|each| Distribution { name: one(each), latency: &each.samples }).collect()
    }

    fn curves(&self) -> Vec<Curve> {
        let mut curves: Vec<Curve> = Vec::new();
        for count in &self.counts {
            let title = count.case.title();
            if curves.last().is_none_or(|last| last.title != title) {
                let x = Axis { name: "one-way delay".into(), unit: Unit::Ns, log: false };
                let y = Axis { name: "median round trip".into(), unit: Unit::Ns, log: true };
                curves.push(Curve { title, x, y, lines: Vec::new() });
            }
            let same = self.measured.iter().filter(|one| one.case == count.case);
            let points = same.map(|one| (one.delay_ns as f64, one.median_ns)).collect();
            let line = Line { name: count.case.way.name().into(), points };
            curves.last_mut().expect("it was pushed above").lines.push(line);
        }
        curves
    }

    fn table(&self) -> String {
        let mut out = String::new();
        for Meaning { name, meaning } in &self.ways {
            line(&mut out, format_args!("{:<13}{meaning}", format!("{name}:")));
        }
        self.scene.write_head(&mut out);
        self.write_counts(&mut out);
        self.write_times(&mut out);
        self.write_ratios(&mut out);
        self.write_agreement(&mut out);
        self.scene.write_noise(&mut out);
        out
    }

    fn detail(&self) -> Value {
        let DistanceReport { ways, counts, measured, disagreements, .. } = self;
        json!({
            "ways": ways,
            "counts": counts,
            "measured": measured,
            "disagreements": disagreements,
        })
    }
}

impl Count {
    fn figures(&self) -> Vec<Figure> {
        let calls = self.counted.calls_ns.len() as u64;
        let figure = |name: &'static str, value: u64| {
            let of = self.case.name();
            Figure::new(of, name, value as f64, Unit::PerCall, calls).better(Better::Lower)
        };
        let virtually = self.round_trips.map(|trips| figure("round_trips.virtual", trips));
        virtually.into_iter().chain([figure("round_trips.counters", self.by_counters)]).collect()
    }
}

impl Measured {
    fn figures(&self) -> Vec<Figure> {
        let (of, count) = (self.case.name(), self.samples.count());
        let mut figures = Figure::round_trips(&of, &self.samples, &[]);
        let medians = self.rounds.iter().filter_map(|round| round.median_ns).collect();
        let median = Figure::new(&of, "round_trip.median", self.median_ns, Unit::Ns, count);
        figures.push(median.rounds(medians));
        let rest = |rest| Figure::new(&of, "round_trip.rest", rest, Unit::Ns, count);
        figures.extend(self.rest_ns.map(rest));
        figures.extend(self.ratio.iter().flat_map(RatioReport::figures).map(|figure| {
            // Of this call, and not of the way alone.
            Figure { of: format!("{of}/{}", Way::Sends.name()), ..figure }
        }));
        figures.into_iter().map(|figure| figure.at(self.at())).collect()
    }

    fn at(&self) -> At {
        At::new("delay", self.delay_ns as f64, Unit::Ns)
    }
}

/// What was measured of the same call at the longest delay.
fn far<'a>(measured: &'a [Measured], count: &Count) -> Option<&'a Measured> {
    let same = measured.iter().filter(|one| one.case == count.case);
    same.max_by_key(|one| one.delay_ns)
}

/// What the counts say, if they do not say the same.
fn disagreement(count: &Count, far: Option<&Measured>) -> Option<String> {
    let by_time = far.and_then(|far| Some((far.by_time?, far.delay_ns / 1000)));
    let is_same = count.round_trips == Some(count.by_counters)
        && by_time.is_none_or(|(by_time, _)| by_time == count.by_counters);
    if is_same {
        return None;
    }
    let virtually = match count.round_trips {
        Some(round_trips) => format!("{round_trips} in virtual time"),
        None => format!("{} ns in virtual time", list(count.counted.calls_ns.iter())),
    };
    let by_time = by_time.map_or_else(String::new, |(by_time, delay_us)| {
        format!(", {by_time} by the fastest call at {delay_us} us")
    });
    let (title, way, by_counters) = (count.case.title(), count.case.way.name(), count.by_counters);
    Some(format!("{title}, {way}: {virtually}, {by_counters} by the counters{by_time}"))
}
