//! The report of a contest: figures of the contenders, and their ratios.

use serde::Serialize;
use serde_json::{Value, json};

use super::plan::Plan;
use crate::call::Shape;
use crate::contenders::floor::title;
use crate::output::{Better, Column, Environment, Figure, Lost, Report, Row, Table, Unit};
use crate::stats::{Latency, Ratio, Round, Series, Spent};

#[derive(Debug, Clone, Copy, Serialize)]
pub struct RoundReport {
    /// The interpolated median, when round trips were timed.
    pub median_ns: Option<f64>,
    pub rate: f64,
    pub completed: u64,
    pub elapsed_ns: u64,
    pub preempted: u64,
}

/// A series of round trips that carry so many bytes of data both ways together, in JSON.
fn contender(series: &Series, data_len: usize) -> Value {
    let latency = series.latency();
    let timed = latency.count() > 0;
    json!({
        "name": series.name,
        "round_trip": timed.then(|| latency.summary(1.0)),
        // What others print as latency.
        "half_round_trip": timed.then(|| latency.summary(0.5)),
        // Over the rounds, interpolated within the clock's step.
        "median_ns": timed.then(|| series.median_ns()),
        "rate": series.rate(),
        // 10^9 bytes per second, headers not counted.
        "data_gb_per_s": series.rate() * data_len as f64 / 1e9,
        "preempted": series.preempted(),
        "rounds": series.rounds.iter().map(RoundReport::new).collect::<Vec<_>>(),
    })
}

/// The figures of a series of round trips that carry so many bytes of data both ways together.
pub fn figures(series: &Series, data_len: usize) -> Vec<Figure> {
    let (latency, completed) = (series.latency(), series.completed());
    let latencies: Vec<&Latency> = series.rounds.iter().map(|round| &round.latency).collect();
    let mut figures = Vec::new();
    if latency.count() > 0 {
        figures = Figure::round_trips(series.name, &latency, &latencies);
        let (name, median) = ("round_trip.median", |round: &Round| round.latency.median_ns());
        figures.push(Figure::of_rounds(series, name, Unit::Ns, latency.count(), median));
    }
    figures.push(Figure::of_rounds(series, "rate", Unit::PerSecond, completed, Round::rate));
    if series.rate() > 0.0 {
        let data = |round: &Round| round.rate() * data_len as f64 / 1e9;
        figures.push(Figure::of_rounds(series, "data", Unit::GbPerSecond, completed, data));
    }
    let lost = series.rounds.iter().map(|round| round.preempted as f64).collect();
    let preempted = series.preempted() as f64;
    let preempted = Figure::new(series.name, "preempted", preempted, Unit::Count, completed);
    figures.push(preempted.rounds(lost));
    figures
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
    let data_len = request_data + reply_data;
    let ratios = ratios(plan, series);
    let lost: Vec<Lost> = series.iter().map(|one| Lost::of(one.name, one.rounds.iter())).collect();
    let environment = environment.lost(&lost);
    let mut figures = Figure::of_each(series, |one| figures(one, data_len));
    figures.extend(Figure::of_each(&ratios, Figure::ratio));
    figures.extend(Figure::of_each(spent, spent_figures));
    let (what, mode) = (plan.sentence(), plan.kind.into_str());
    let settings = plan.settings(mode, json!({}));
    let mut report = Report::new(mode, what, settings, environment, figures);
    let [call, reply] = plan.on_wire();
    report.preface.push(format!("on the wire: {} bytes there, {} back", call.len, reply.len));
    let row = |one: &Series| Row { labels: vec![title(one.name).into()], ..Row::of(one.name) };
    let timed: Vec<&Series> = series.iter().filter(|one| one.latency().count() > 0).collect();
    timed.iter().for_each(|one| report.samples(one.name, &one.latency()));
    if !timed.is_empty() {
        let rows: Vec<Row> = timed.iter().map(|one| row(one)).collect();
        report.block(round_trips("round trip", &WHOLE, &rows, &report.figures));
        report.block(round_trips("half of it", &HALF, &rows, &report.figures));
    }
    let rows: Vec<Row> = series.iter().map(row).collect();
    report.block(Table::of(&["per second"], &rows, &RATES, &report.figures));
    if !ratios.is_empty() {
        report.block(ratio_table(&ratios, plan.rounds));
    }
    if !spent.is_empty() {
        report.block(spent_table(spent));
    }
    let contenders: Vec<Value> = series.iter().map(|one| contender(one, data_len)).collect();
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
fn round_trips(title: &str, parts: &[&'static str; 7], rows: &[Row], figures: &[Figure]) -> Table {
    let is_slow = |figure: &Figure| figure.name == parts[0] && figure.value >= 100_000.0;
    let (unit, scale) = if figures.iter().any(is_slow) { ("us", 1e3) } else { ("ns", 1.0) };
    let columns = HEADS.iter().zip(parts);
    let columns = columns.map(|((head, digits), part)| Column::scaled(head, part, scale, *digits));
    let columns: Vec<Column> = columns.chain([Column::samples("samples", parts[0])]).collect();
    Table::of(&[&format!("{title}, {unit}")], rows, &columns, figures)
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
        let pair = format!("{} / {}, {figure}", title(of), title(to));
        table.row([pair].into_iter().chain(values).chain([added]));
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
/// The parts of a distribution that are shown, with their digits, and their figures.
const HEADS: [(&str, usize); 7] =
    [("p50", 0), ("p90", 0), ("p99", 0), ("p99.9", 0), ("p99.99", 0), ("max", 0), ("mean", 1)];
const WHOLE: [&str; 7] = [
    "round_trip.p50",
    "round_trip.p90",
    "round_trip.p99",
    "round_trip.p99.9",
    "round_trip.p99.99",
    "round_trip.max",
    "round_trip.mean",
];
const HALF: [&str; 7] = [
    "half_round_trip.p50",
    "half_round_trip.p90",
    "half_round_trip.p99",
    "half_round_trip.p99.9",
    "half_round_trip.p99.99",
    "half_round_trip.max",
    "half_round_trip.mean",
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
            lines.next().unwrap_or_default().split_whitespace().nth(2).map(str::to_owned)
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
        assert!(table.contains("raw / serial floor, median"), "{table}");
        assert!(table.contains("1.200"), "{table}");
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
