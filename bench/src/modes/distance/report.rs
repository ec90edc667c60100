//! The report of `distance`: round trips counted three ways, and the times.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::way::Way;
use crate::call::Shape;
use crate::contenders::rpc::{Counted, PerCall};
use crate::modes::contest::RoundReport;
use crate::output::{At, Axis, Better, Environment, Figure, Lost, Report, Table, Unit};
use crate::stats::{Latency, Ratio, Series, Summary};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    /// `read` or `write`.
    pub op: &'static str,
    pub size_bytes: usize,
    pub way: Way,
}

#[derive(Debug, Clone, Serialize)]
pub struct Count {
    #[serde(flatten)]
    pub case: Case,
    /// Round trips of each call; `None` if they were not whole, or not always the same.
    pub round_trips: Option<u64>,
    /// Round trips by what the shards counted.
    pub by_counters: u64,
    #[serde(flatten)]
    pub counted: Counted,
}

#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub case: Case,
    pub delay_ns: u64,
    pub median_ns: f64,
    /// The median without the counted round trips: the software of both sides, and disturbances.
    pub rest_ns: Option<f64>,
    pub fastest_ns: u64,
    /// Round trips by the fastest call: as many as fit into its time, which is never shorter than
    /// its round trips, and longer by what a busy machine adds least. `None` without a distance.
    pub by_time: Option<u64>,
    pub call: Summary,
    pub per_call: PerCall,
    /// Explicit RDMA's time to that of Sends.
    pub ratio: Option<Ratio>,
    pub rounds: Vec<RoundReport>,
    #[serde(skip)]
    pub samples: Latency,
}

impl Count {
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
            ratio: sends.map(|sends| Ratio::of_medians(series, sends)),
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
        Case { op: shape.op.into_str(), size_bytes: shape.data_len(), way }
    }

    fn name(&self) -> String {
        format!("{}, {}", self.title(), self.way.into_str())
    }

    fn labels(&self) -> [String; 2] {
        [self.title(), self.way.into_str().to_owned()]
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

pub(super) fn report(
    what: String,
    settings: Value,
    counts: &[Count],
    measured: &[Measured],
    environment: Environment,
) -> Report {
    let lost = Way::ALL.map(|way| {
        let of_way = measured.iter().filter(|one| one.case.way == way);
        let rounds = of_way.flat_map(|one| &one.rounds);
        Lost::new(way.into_str(), rounds.map(|one| (one.elapsed_ns, one.preempted)))
    });
    let disagreements: Vec<String> =
        counts.iter().filter_map(|count| disagreement(count, far(measured, count))).collect();
    let environment = environment.lost(&lost);
    let mut figures = Figure::of_each(counts, Count::figures);
    figures.extend(Figure::of_each(measured, Measured::figures));
    let mut report = Report::new("distance", what, settings, environment, figures);
    for one in measured {
        report.samples(format!("{}@{}", one.case.name(), one.at()), &one.samples);
    }
    for same in counts.chunk_by(|a, b| a.case.title() == b.case.title()) {
        let names: Vec<String> = same.iter().map(|count| count.case.name()).collect();
        let lines = same.iter().zip(&names);
        let lines: Vec<(&str, &str, &str)> = lines
            .map(|(count, name)| (count.case.way.into_str(), name.as_str(), "round_trip.median"))
            .collect();
        let x = Axis::new("one-way delay", Unit::Ns);
        report.curve(&same[0].case.title(), x, Axis::log("median round trip", Unit::Ns), &lines);
    }
    let meaning = |way: Way| format!("{:<13}{}", format!("{}:", way.into_str()), way.meaning());
    report.preface = Way::ALL.map(meaning).to_vec();
    report.block(count_table(counts, measured));
    report.block(time_table(counts, measured));
    report.block(ratio_table(counts, measured));
    report.block(match &disagreements[..] {
        [] => "The counts agree: virtual time, what both shards did, measured time.".to_owned(),
        texts => format!("THE COUNTS DO NOT AGREE:\n  {}", texts.join("\n  ")),
    });
    let way = |way: Way| json!({ "name": way.into_str(), "meaning": way.meaning() });
    let ways: Vec<Value> = Way::ALL.map(way).to_vec();
    report.detail(json!({
        "ways": ways,
        "counts": counts,
        "measured": measured,
        "disagreements": disagreements,
    }));
    report
}

/// Round trips of one call, by all that counts them.
fn count_table(counts: &[Count], measured: &[Measured]) -> Table {
    let heads = [
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
        "withdrawn",
    ];
    let mut table = Table::new(&[0, 1], heads);
    for count in counts {
        let PerCall { sends_there, sends_back, reads, writes, exposed, invalidations, .. } =
            count.counted.per_call;
        let by_time = far(measured, count).and_then(Measured::by_time);
        let [time, over] = by_time.map_or_else(Default::default, |(trips, over)| {
            [trips.to_string(), format!("{:.1}", over / 1e3)]
        });
        let virtually = count.round_trips.map_or("varies".into(), |count| count.to_string());
        let trips = [virtually, count.by_counters.to_string(), time, over];
        let done = [sends_there, sends_back, reads, writes, exposed, invalidations];
        let done = done.map(|count| count.to_string());
        table.row(count.case.labels().into_iter().chain(trips).chain(done));
    }
    table
}

/// The median at every delay, and what of it is no round trip.
fn time_table(counts: &[Count], measured: &[Measured]) -> Table {
    let heads = delays(measured).into_iter().flat_map(|delay| {
        let rest = if delay > 0 { "rest" } else { "" };
        [format!("{} us", delay / 1000), rest.to_owned()]
    });
    let names = ["p50, us, at".to_owned(), String::new()];
    let mut table =
        Table::new(&[0, 1], names.into_iter().chain(heads).chain(["samples".to_owned()]));
    for count in counts {
        let same = || measured.iter().filter(|one| one.case == count.case);
        let samples = same().map(|one| one.call.count).min().unwrap_or_default();
        let cells = same().flat_map(|one| {
            let rest = one.rest_ns.filter(|_| one.delay_ns > 0);
            let rest = rest.map_or_else(String::new, |rest| format!("{:+.1}", rest / 1e3));
            [format!("{:.1}", one.median_ns / 1e3), rest]
        });
        table.row(count.case.labels().into_iter().chain(cells).chain([samples.to_string()]));
    }
    table
}

/// Explicit RDMA's medians to those of Sends.
fn ratio_table(counts: &[Count], measured: &[Measured]) -> Table {
    let heads = delays(measured).into_iter().map(|delay| format!("{} us", delay / 1000));
    let names = ["to sends, at".to_owned(), String::new()];
    let mut table = Table::new(&[0, 1], names.into_iter().chain(heads));
    for count in counts.iter().filter(|count| count.case.way.is_explicit()) {
        let same = measured.iter().filter(|one| one.case == count.case);
        let ratios = same.filter_map(|one| one.ratio.as_ref());
        let ratios = ratios.map(|ratio| format!("{:.3}", ratio.value));
        table.row(count.case.labels().into_iter().chain(ratios));
    }
    table
}

/// The delays, in the order in which they were measured.
fn delays(measured: &[Measured]) -> Vec<u64> {
    let first = measured.first().map(|first| first.case);
    let of_first = measured.iter().filter(|one| Some(one.case) == first);
    of_first.map(|one| one.delay_ns).collect()
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
        figures.extend(self.ratio.iter().flat_map(Figure::ratio).map(|figure| {
            // Of this call, and not of the way alone.
            Figure { of: format!("{of}/{}", Way::Sends.into_str()), ..figure }
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
    let (title, way, by_counters) =
        (count.case.title(), count.case.way.into_str(), count.by_counters);
    Some(format!("{title}, {way}: {virtually}, {by_counters} by the counters{by_time}"))
}

/// `a, b and c`.
pub(super) fn list<T: ToString>(items: impl Iterator<Item = T>) -> String {
    let mut items: Vec<String> = items.map(|item| item.to_string()).collect();
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} and {last}", items.join(", ")),
        last => last.unwrap_or_default(),
    }
}
