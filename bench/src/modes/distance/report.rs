//! The report of `distance`: round trips counted three ways, and the times.

use std::time::Duration;

use serde_json::json;

use super::way::Way;
use crate::call::Shape;
use crate::contenders::rpc::{Counted, PerCall};
use crate::output::{
    At, Axis, Better, Column, Figure, Quantity, Ratio, Record, Records, Report, Row, Table, Unit,
};
use crate::stats::Round;

/// A call, the way that its data go, and what it was counted to take.
#[derive(Debug, Clone)]
pub struct Case {
    pub shape: Shape,
    pub way: Way,
    pub counted: Counted,
}

impl Case {
    /// Takes in a round over a delay.
    pub fn take(&self, records: &mut Records, delay: Duration, round: &Round) {
        let delay_ns = delay.as_nanos() as f64;
        let record = records.at(&self.name(), At::new("delay", delay_ns, Unit::Ns));
        record.round_trips(&round.latency).ran(round.elapsed_ns, round.preempted);
        if let Some(trips) = self.counted.round_trips() {
            let rest = round.latency.median_ns() - trips as f64 * 2.0 * delay_ns;
            record.value(REST, rest, round.latency.count());
        }
    }

    /// What was counted, by each that counts: `fastest` is the fastest call over the longest delay,
    /// and that delay.
    fn figures(&self, fastest: Option<(f64, f64)>) -> Vec<Figure> {
        let calls = self.counted.calls_ns.len() as u64;
        let figure = |name: &'static str, value: f64, unit| {
            Figure::new(self.name(), name, value, unit, calls).better(Better::Lower)
        };
        let PerCall { sends_there, sends_back, reads, writes, exposed, invalidations, .. } =
            self.counted.per_call;
        let counters = self.counted.per_call.round_trips() as f64;
        let virtually = self.counted.round_trips();
        let by_time = fastest.filter(|(_, delay_ns)| *delay_ns > 0.0);
        // As many as fit into the time of the fastest call, which is never shorter than its round
        // trips, and longer by what a busy machine adds least.
        let by_time = by_time.map(|(ns, delay_ns)| {
            let trips = (ns / (2.0 * delay_ns)).floor();
            (trips, ns - trips * 2.0 * delay_ns)
        });
        let virtually = virtually.map(|trips| ("round_trips.virtual", trips as f64));
        let counts = virtually.into_iter().chain([("round_trips.counters", counters)]);
        let counts = counts.chain(by_time.map(|(trips, _)| ("round_trips.time", trips)));
        let done = [
            ("sends.there", sends_there),
            ("sends.back", sends_back),
            ("reads", reads),
            ("writes", writes),
            ("exposed", exposed),
            ("withdrawn", invalidations),
        ];
        let counts = counts.chain(done).map(|(name, count)| figure(name, count, Unit::PerCall));
        let over = by_time.map(|(_, over)| figure("round_trips.time.over", over, Unit::Ns));
        counts.chain(over).collect()
    }

    /// What the counts say, if they do not say the same.
    fn disagreement(&self, report: &Report) -> Option<String> {
        let of = |name: &str| Some(report.figure(&self.name(), None, name)?.value);
        let counters = of("round_trips.counters");
        let (virtually, time) = (of("round_trips.virtual"), of("round_trips.time"));
        if virtually == counters && time.is_none_or(|time| Some(time) == counters) {
            return None;
        }
        let virtually = match virtually {
            Some(trips) => format!("{trips} in virtual time"),
            None => format!("{} ns in virtual time", list(self.counted.calls_ns.iter())),
        };
        let time =
            time.map_or_else(String::new, |time| format!(", {time} by the time of the fastest call"));
        let counters = counters.unwrap_or_default();
        Some(format!("{}: {virtually}, {counters} by the counters{time}", self.name()))
    }

    fn name(&self) -> String {
        format!("{}, {}", self.title(), self.way.into_str())
    }

    fn labels(&self) -> Vec<String> {
        vec![self.title(), self.way.into_str().to_owned()]
    }

    fn title(&self) -> String {
        let (op, size) = (self.shape.op.into_str(), self.shape.data_len());
        match size % 1024 {
            0 => format!("{op} {} KiB", size / 1024),
            _ => format!("{op} {size} bytes"),
        }
    }
}

pub(super) fn summed(cases: &[Case], records: &Records, mut report: Report) -> Report {
    for case in cases {
        let far = of(records, case).max_by(|one, other| delay(one).total_cmp(&delay(other)));
        let fastest = far.and_then(|far| Some((far.samples()?.min_ns() as f64, delay(far))));
        report.figures.extend(case.figures(fastest));
    }
    report.figures.extend(Figure::of_each(&ratios(cases, records), Ratio::figures));
    for same in cases.chunk_by(|a, b| a.title() == b.title()) {
        let names: Vec<String> = same.iter().map(Case::name).collect();
        let lines = same.iter().zip(&names);
        let line = |(case, name): (&Case, &'_ String)| (case.way.into_str(), name.clone());
        let lines: Vec<(&str, String)> = lines.map(line).collect();
        let lines: Vec<(&str, &str, &str)> =
            lines.iter().map(|(way, name)| (*way, &**name, "round_trip.median")).collect();
        let x = Axis::new("one-way delay", Unit::Ns);
        report.curve(&same[0].title(), x, Axis::log("median round trip", Unit::Ns), &lines);
    }
    let meaning = |way: Way| format!("{:<13}{}", format!("{}:", way.into_str()), way.meaning());
    report.preface = Way::ALL.map(meaning).to_vec();
    let row = |case: &Case| Row { labels: case.labels(), ..Row::of(&case.name()) };
    let rows: Vec<Row> = cases.iter().map(row).collect();
    report.block(Table::of(&["round trips by", ""], &rows, &COUNTS, &report.figures));
    report.block(time_table(cases, records));
    report.block(ratio_table(cases, &report));
    let disagreements: Vec<String> =
        cases.iter().filter_map(|case| case.disagreement(&report)).collect();
    report.block(match &disagreements[..] {
        [] => "The counts agree: virtual time, what both shards did, measured time.".to_owned(),
        texts => format!("THE COUNTS DO NOT AGREE:\n  {}", texts.join("\n  ")),
    });
    let way = |way: Way| json!({ "name": way.into_str(), "meaning": way.meaning() });
    report.detail(json!({ "ways": Way::ALL.map(way), "disagreements": disagreements }));
    report
}

/// What was measured of a call, by its delays.
fn of<'a>(records: &'a Records, case: &Case) -> impl Iterator<Item = &'a Record> {
    let name = case.name();
    records.iter().filter(move |record| record.of == name)
}

fn delay(record: &Record) -> f64 {
    record.at.as_ref().map_or(0.0, |at| at.value)
}

/// Explicit RDMA's medians to those of Sends.
fn ratios(cases: &[Case], records: &Records) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for case in cases.iter().filter(|case| case.way.is_explicit()) {
        let is_same = |other: &&Case| !other.way.is_explicit() && other.title() == case.title();
        let Some(sends) = cases.iter().find(is_same) else { continue };
        for record in of(records, case) {
            let Some(to) = of(records, sends).find(|to| to.at == record.at) else { continue };
            ratios.extend(Ratio::new(record, to, "round_trip.median").map(|mut ratio| {
                ratio.to = Way::Sends.into_str().to_owned();
                ratio
            }));
        }
    }
    ratios
}

/// The median at every delay, and what of it is no round trip.
fn time_table(cases: &[Case], records: &Records) -> Table {
    let us = |ns: f64| format!("{} us", ns / 1e3);
    let delays: Vec<f64> = cases.first().into_iter().flat_map(|it| of(records, it)).map(delay).collect();
    let heads = delays.iter().flat_map(|ns| [us(*ns), if *ns > 0.0 { "rest" } else { "" }.into()]);
    let names = ["p50, us, at".to_owned(), String::new()];
    let heads = names.into_iter().chain(heads).chain(["samples".to_owned()]);
    let mut table = Table::new(&[0, 1], heads);
    for case in cases {
        let (mut cells, mut samples) = (case.labels(), Vec::new());
        for record in of(records, case) {
            let of = |name: &str| record.figure(name);
            let median = of("round_trip.median");
            samples.extend(median.as_ref().map(|median| median.samples));
            cells.push(median.map_or_else(String::new, |it| format!("{:.1}", it.value / 1e3)));
            let rest = of(REST.name).filter(|_| delay(record) > 0.0);
            cells.push(rest.map_or_else(String::new, |it| format!("{:+.1}", it.value / 1e3)));
        }
        cells.push(samples.into_iter().min().unwrap_or_default().to_string());
        table.row(cells);
    }
    table
}

fn ratio_table(cases: &[Case], report: &Report) -> Table {
    let ratios = |case: &Case| {
        let name = format!("{}/{}", case.name(), Way::Sends.into_str());
        let is_of = move |figure: &&Figure| figure.of == name && figure.name == "ratio.median";
        report.figures.iter().filter(is_of)
    };
    let explicit = || cases.iter().filter(|case| case.way.is_explicit());
    let at = |figure: &Figure| figure.at.as_ref().map_or(0.0, |at| at.value / 1e3);
    let heads = explicit().next().into_iter().flat_map(ratios);
    let heads = heads.map(|figure| format!("{} us", at(figure)));
    let names = ["to sends, at".to_owned(), String::new()];
    let mut table = Table::new(&[0, 1], names.into_iter().chain(heads));
    for case in explicit() {
        let cells = ratios(case).map(|ratio| format!("{:.3}", ratio.value));
        table.row(case.labels().into_iter().chain(cells));
    }
    table
}

/// `a, b and c`.
pub(super) fn list<T: ToString>(items: impl Iterator<Item = T>) -> String {
    let mut items: Vec<String> = items.map(|item| item.to_string()).collect();
    match items.pop() {
        Some(last) if !items.is_empty() => format!("{} and {last}", items.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// The median without the counted round trips: the software of both sides, and disturbances.
const REST: Quantity = Quantity::new("round_trip.rest", Unit::Ns);
const COUNTS: [Column; 10] = [
    Column::digits("virtual", "round_trips.virtual", 0).or("varies"),
    Column::digits("counters", "round_trips.counters", 0),
    Column::digits("time", "round_trips.time", 0).or(""),
    Column::scaled("over, us", "round_trips.time.over", 1e3, 1).or(""),
    Column::digits("Sends there", "sends.there", 0),
    Column::digits("back", "sends.back", 0),
    Column::digits("Reads", "reads", 0),
    Column::digits("Writes", "writes", 0),
    Column::digits("exposed", "exposed", 0),
    Column::digits("withdrawn", "withdrawn", 0),
];
