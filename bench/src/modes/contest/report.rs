//! The report of a contest: figures of the contenders, and their ratios.

use serde::Serialize;
use serde_json::json;

use super::plan::Plan;
use crate::contenders::call::Shape;
use crate::output::{Better, Column, Environment, Figure, Lost, Report, Row, Table, Unit};
use crate::stats::{Latency, Ratio, Round, Series, Spent, Summary};

#[derive(Debug, Clone, Serialize)]
pub struct ContenderReport {
    pub name: &'static str,
    pub round_trip: Option<Summary>,
    /// Half of each figure: what others print as latency.
    pub half_round_trip: Option<Summary>,
    /// The median over the rounds of their median, interpolated within the clock's step.
    pub median_ns: Option<f64>,
    /// The median over the rounds of their round trips per second.
    pub rate: f64,
    /// Data of requests and replies in GB/s (10^9 bytes), headers not counted.
    pub data_gb_per_s: f64,
    pub preempted: u64,
    pub rounds: Vec<RoundReport>,
    /// Every sample; none when round trips were only counted.
    #[serde(skip)]
    pub latency: Latency,
    #[serde(skip)]
    pub latencies: Vec<Latency>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct RoundReport {
    /// The interpolated median, when round trips were timed.
    pub median_ns: Option<f64>,
    pub rate: f64,
    pub completed: u64,
    pub elapsed_ns: u64,
    pub preempted: u64,
}

impl ContenderReport {
    /// Sums a series up, of round trips that carry so many bytes of data both ways together.
    pub fn new(series: &Series, data_len: usize) -> ContenderReport {
        let latency = series.latency();
        let timed = latency.count() > 0;
        ContenderReport {
            name: series.name,
            round_trip: timed.then(|| latency.summary(1.0)),
            half_round_trip: timed.then(|| latency.summary(0.5)),
            median_ns: timed.then(|| series.median_ns()),
            rate: series.rate(),
            data_gb_per_s: series.rate() * data_len as f64 / 1e9,
            preempted: series.preempted(),
            rounds: series.rounds.iter().map(RoundReport::new).collect(),
            latencies: series.rounds.iter().map(|round| round.latency.clone()).collect(),
            latency,
        }
    }

    pub fn completed(&self) -> u64 {
        self.rounds.iter().map(|round| round.completed).sum()
    }

    pub fn lost(&self) -> Lost {
        Lost::new(self.name, self.rounds.iter().map(|one| (one.elapsed_ns, one.preempted)))
    }

    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        if let Some(median_ns) = self.median_ns {
            let latencies: Vec<&Latency> = self.latencies.iter().collect();
            figures = Figure::round_trips(self.name, &self.latency, &latencies);
            let medians = self.rounds.iter().filter_map(|round| round.median_ns).collect();
            let count = self.latency.count();
            let median = Figure::new(self.name, "round_trip.median", median_ns, Unit::Ns, count);
            figures.push(median.rounds(medians));
        }
        let figure = |name: &'static str, value: f64, unit, rounds| {
            Figure::new(self.name, name, value, unit, self.completed()).rounds(rounds)
        };
        let rates = || self.rounds.iter().map(|round| round.rate);
        figures.push(figure("rate", self.rate, Unit::PerSecond, rates().collect()));
        if self.rate > 0.0 {
            let each = self.data_gb_per_s / self.rate;
            let data = rates().map(|rate| rate * each).collect();
            figures.push(figure("data", self.data_gb_per_s, Unit::GbPerSecond, data));
        }
        let lost = self.rounds.iter().map(|round| round.preempted as f64).collect();
        figures.push(figure("preempted", self.preempted as f64, Unit::Count, lost));
        figures
    }
}

impl RoundReport {
    pub fn new(round: &Round) -> RoundReport {
        RoundReport {
            median_ns: (round.latency.count() > 0).then(|| round.latency.median_ns()),
            rate: round.rate(),
            completed: round.completed,
            elapsed_ns: round.elapsed_ns,
            preempted: round.preempted,
        }
    }
}

pub(super) fn report(
    plan: &Plan,
    series: &[Series],
    spent: &[Spent],
    environment: Environment,
) -> Report {
    let Shape { request_data, reply_data, .. } = plan.load.shape;
    let contenders: Vec<ContenderReport> =
        series.iter().map(|one| ContenderReport::new(one, request_data + reply_data)).collect();
    let ratios = ratios(plan, series);
    let lost: Vec<Lost> = contenders.iter().map(ContenderReport::lost).collect();
    let environment = environment.lost(&lost);
    let mut figures: Vec<Figure> = contenders.iter().flat_map(ContenderReport::figures).collect();
    figures.extend(ratios.iter().flat_map(Figure::ratio));
    figures.extend(spent.iter().flat_map(spent_figures));
    let (what, settings) = (plan.sentence(), json!(plan.settings()));
    let mut report = Report::new(plan.kind.into_str(), what, settings, environment, figures);
    let [call, reply] = plan.on_wire();
    report.preface.push(format!("on the wire: {} bytes there, {} back", call.len, reply.len));
    for one in contenders.iter().filter(|one| one.round_trip.is_some()) {
        report.samples(one.name, &one.latency);
    }
    for (title, name) in [("round trip", "round_trip"), ("half of it", "half_round_trip")] {
        let timed = contenders.iter().filter_map(|one| Some((one.name, one.round_trip?)));
        let rows: Vec<(&str, Summary)> = timed.collect();
        if !rows.is_empty() {
            report.block(round_trips(title, name, &rows, &report.figures));
        }
    }
    let rows: Vec<Row> = contenders.iter().map(|one| Row::of(one.name)).collect();
    report.block(Table::of(&["per second"], &rows, &RATES, &report.figures));
    if !ratios.is_empty() {
        report.block(ratio_table(&ratios, plan.rounds));
    }
    if !spent.is_empty() {
        report.block(spent_table(spent));
    }
    report.detail(json!({ "contenders": contenders, "ratios": ratios, "spent": spent }));
    report
}

/// Each contender against each that was named before it, the last one first.
fn ratios(plan: &Plan, series: &[Series]) -> Vec<Ratio> {
    let ratio = if plan.is_timed() { Ratio::of_medians } else { Ratio::of_rates };
    let mut ratios = Vec::new();
    for (index, of) in series.iter().enumerate().rev() {
        ratios.extend(series[..index].iter().map(|to| ratio(of, to)));
    }
    ratios
}

/// What a side had the device do for each round trip.
fn spent_figures(spent: &Spent) -> Vec<Figure> {
    let Spent { name, side, round_trips, doorbells, sends, completions } = *spent;
    let parts = [("doorbells", doorbells), ("sends", sends), ("completions", completions)];
    let figure = |(part, value)| {
        let name_of = format!("{side}.{part}");
        Figure::new(name, name_of, value, Unit::PerCall, round_trips).better(Better::Lower)
    };
    parts.map(figure).to_vec()
}

/// Times by percentile: in microseconds if one of the medians is long.
fn round_trips(title: &str, name: &str, rows: &[(&str, Summary)], figures: &[Figure]) -> Table {
    let half = if name == "round_trip" { 1.0 } else { 0.5 };
    let slow = rows.iter().any(|(_, summary)| summary.p50_ns * half >= 100_000.0);
    let (unit, scale) = if slow { ("us", 1e3) } else { ("ns", 1.0) };
    let columns = PARTS.map(|(whole, of_half, head, digits)| {
        let part = if half == 1.0 { whole } else { of_half };
        match head {
            "samples" => Column::samples(head, part),
            _ => Column::scaled(head, part, scale, digits),
        }
    });
    let rows: Vec<Row> = rows.iter().map(|(name, _)| Row::of(name)).collect();
    Table::of(&[&format!("{title}, {unit}")], &rows, &columns, figures)
}

fn ratio_table(ratios: &[Ratio], rounds: u32) -> Table {
    let of = format!("of {rounds} rounds");
    let mut table =
        Table::new(&[0, 5], ["ratio of medians", &of, "paired", "lowest", "highest", ""]);
    for ratio in ratios {
        let Ratio { of, to, figure, value, paired, low, high, .. } = ratio;
        let values = [value, paired, low, high].map(|value| format!("{value:.3}"));
        let added = ratio.added_per_side_ns;
        let added = added.map_or_else(String::new, |added| format!("{added:+.0} ns per side"));
        table.row([format!("{of} / {to}, {figure}")].into_iter().chain(values).chain([added]));
    }
    table
}

fn spent_table(spent: &[Spent]) -> Table {
    let heads = ["for each round trip", "doorbells", "Sends", "completions", "samples"];
    let mut table = Table::new(&[0], heads);
    for Spent { name, side, doorbells, sends, completions, round_trips } in spent {
        let counts = [doorbells, sends, completions].map(|count| format!("{count:.3}"));
        let ends = [round_trips.to_string()];
        table.row([format!("{name}, {side}")].into_iter().chain(counts).chain(ends));
    }
    table
}

const RATES: [Column; 5] = [
    Column::thousands("median", "rate"),
    Column::lowest("lowest", "rate"),
    Column::highest("highest", "rate"),
    Column::digits("data, GB/s", "data", 3).or("0.000"),
    Column::samples("samples", "rate"),
];
/// The parts of a distribution that are shown: figures of the whole and of the half, and digits.
const PARTS: [(&str, &str, &str, usize); 8] = [
    ("round_trip.p50", "half_round_trip.p50", "p50", 0),
    ("round_trip.p90", "half_round_trip.p90", "p90", 0),
    ("round_trip.p99", "half_round_trip.p99", "p99", 0),
    ("round_trip.p99.9", "half_round_trip.p99.9", "p99.9", 0),
    ("round_trip.p99.99", "half_round_trip.p99.99", "p99.99", 0),
    ("round_trip.max", "half_round_trip.max", "max", 0),
    ("round_trip.mean", "half_round_trip.mean", "mean", 1),
    ("round_trip.p50", "half_round_trip.p50", "samples", 0),
];

#[cfg(test)]
mod tests {
    use super::super::args::Contest;
    use super::*;
    use crate::testing::{quiet, round};

    fn series(name: &'static str, times_ns: &[u64]) -> Series {
        Series { name, rounds: times_ns.iter().map(|ns| round(1, &[*ns])).collect() }
    }

    /// The report of an echo of 64 bytes; `None` on a machine with one core, which has no plan.
    fn summed(series: &[Series]) -> Option<Report> {
        let plan = Contest::parse("lat").expect("it parses").plan().ok()?;
        let spent = [Spent::new("raw", "client", [4, 16, 17], 16)];
        let notes = vec!["pages of 4 KiB".into()];
        Some(report(&plan, series, &spent, quiet(notes)))
    }

    #[test]
    fn the_table_labels_whole_and_half_round_trips() {
        let Some(report) = summed(&[series("floor", &[300, 300])]) else { return };
        let table = report.text();
        let row = |title: &str| {
            let mut lines = table.lines().skip_while(|line| !line.starts_with(title)).skip(1);
            lines.next().unwrap_or_default().split_whitespace().nth(1).map(str::to_owned)
        };
        assert_eq!(row("round trip, ns").as_deref(), Some("300"), "{table}");
        assert_eq!(row("half of it, ns").as_deref(), Some("150"), "{table}");
        assert!(table.contains("136 bytes there, 120 back") && table.contains("pages of 4 KiB"));
        assert!(table.contains("The machine was quiet."), "{table}");
    }

    #[test]
    fn the_ratio_and_what_a_side_adds_are_printed() {
        let all = [series("floor", &[300, 300]), series("raw", &[360, 360])];
        let ratio = Ratio::of_medians(&all[1], &all[0]);
        assert_eq!((ratio.value, ratio.added_per_side_ns), (1.2, Some(30.0)));
        let Some(report) = summed(&all) else { return };
        let table = report.text();
        assert!(table.contains("raw / floor, median") && table.contains("1.200"), "{table}");
        assert!(table.contains("+30 ns per side"), "{table}");
    }

    #[test]
    fn what_the_device_had_to_do_is_printed_by_round_trip() {
        let Some(report) = summed(&[series("raw", &[300])]) else { return };
        let table = report.text();
        let row = table.lines().find(|line| line.starts_with("raw, client")).unwrap_or_default();
        let figures: Vec<&str> = row.split_whitespace().skip(2).collect();
        assert_eq!(figures, ["0.250", "1.000", "1.062", "16"], "{table}");
    }

    #[test]
    fn json_has_every_figure_under_its_name() {
        let Some(report) = summed(&[series("floor", &[300, 301])]) else { return };
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("plain data");
        let contender = &json["contenders"][0];
        assert_eq!(contender["name"], "floor");
        assert_eq!(contender["round_trip"]["max_ns"], 301.0);
        assert_eq!(contender["half_round_trip"]["max_ns"], 150.5);
        assert_eq!(contender["rounds"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["build"]["rpcrdma"], env!("CARGO_PKG_VERSION"));
        assert!(json["machine"]["kernel"].is_string());
        assert_eq!(json["settings"]["request_wire_bytes"], 136);
    }

    #[test]
    fn slow_round_trips_are_shown_in_microseconds() {
        let Some(report) = summed(&[series("floor", &[250_000])]) else { return };
        assert!(report.text().contains("round trip, us"), "{}", report.text());
    }
}
