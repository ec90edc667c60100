//! The report of a contest: figures of the contenders, and their ratios.

use super::plan::Plan;
use crate::call::Shape;
use crate::output::{
    Better, Column, Figure, Quantity, Ratio, Record, Records, Report, Row, Table, Unit, title,
};
use crate::stats::{Round, Spent};

/// Takes a round in whose round trips carry so many bytes of data, both ways together.
pub fn take(record: &mut Record, round: &Round, data_len: usize) {
    record.round(round).value(DATA, round.rate() * data_len as f64 / 1e9, round.completed).value(
        PREEMPTED,
        round.preempted as f64,
        round.completed,
    );
}

pub(super) fn report(
    plan: &Plan,
    records: &Records,
    spent: &[Spent],
    mut report: Report,
) -> Report {
    let ratios = ratios(plan, records);
    report.figures.extend(Figure::of_each(&ratios, Ratio::figures));
    report.figures.extend(Figure::of_each(spent, spent_figures));
    let [call, reply] = plan.on_wire();
    report.preface.push(format!("on the wire: {} bytes there, {} back", call.len, reply.len));
    let row = |one: &Record| Row { labels: vec![title(&one.of).into()], ..Row::of(&one.of) };
    let timed = records.iter().filter(|one| one.samples().is_some());
    let rows: Vec<Row> = timed.map(row).collect();
    if !rows.is_empty() {
        report.block(round_trips("round trip", &WHOLE, &rows, &report.figures));
        report.block(round_trips("half of it", &HALF, &rows, &report.figures));
    }
    let rows: Vec<Row> = records.iter().map(row).collect();
    report.block(Table::of(&["per second"], &rows, &RATES, &report.figures));
    if !ratios.is_empty() {
        report.block(Ratio::table(&ratios));
    }
    if !spent.is_empty() {
        report.block(spent_table(spent));
    }
    report
}

/// Each contender against each that was named before it, the last one first.
fn ratios(plan: &Plan, records: &Records) -> Vec<Ratio> {
    let figure = if plan.is_timed() { "round_trip.median" } else { "rate" };
    let all: Vec<&Record> = records.iter().collect();
    let mut ratios = Vec::new();
    for (index, of) in all.iter().enumerate().rev() {
        ratios.extend(all[..index].iter().filter_map(|to| Ratio::new(of, to, figure)));
    }
    ratios
}

/// Bytes of data of a round trip, both ways together.
pub fn data_len(plan: &Plan) -> usize {
    let Shape { request_data, reply_data, .. } = plan.load.shape;
    request_data + reply_data
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

/// 10^9 bytes per second, headers not counted.
const DATA: Quantity = Quantity::new("data", Unit::GbPerSecond);
const PREEMPTED: Quantity = Quantity::count("preempted");
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
    use serde_json::json;

    use super::super::args::Contest;
    use super::*;
    use crate::testing::{quiet, round};

    /// The report of an echo of 64 bytes, with the round trips of each contender in its rounds;
    /// `None` on a machine with one core, which has no plan.
    fn summed(contenders: &[(&str, &[u64])]) -> Option<Report> {
        let plan = Contest::parse("lat").expect("it parses").plan().ok()?;
        let mut records = Records::default();
        for (name, times) in contenders {
            times.iter().for_each(|ns| take(records.of(name), &round(1, &[*ns]), 128));
        }
        let spent = [Spent::new("raw", "client", [4, 16, 17], 16)];
        let environment = quiet(vec!["pages of 4 KiB".into()]);
        let settings = plan.settings("lat", json!({}));
        let made = Report::new("lat", String::new(), settings, environment, records.figures());
        Some(report(&plan, &records, &spent, made))
    }

    #[test]
    fn the_table_labels_whole_and_half_round_trips() {
        let Some(report) = summed(&[("floor", &[300, 300])]) else { return };
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
    fn what_the_device_had_to_do_is_printed_by_round_trip() {
        let Some(report) = summed(&[("raw", &[300])]) else { return };
        let table = report.text();
        let row = table.lines().find(|line| line.starts_with("raw, client")).unwrap_or_default();
        let figures: Vec<&str> = row.split_whitespace().skip(2).collect();
        assert_eq!(figures, ["0.250", "1.000", "1.062", "16"], "{table}");
    }

    #[test]
    fn slow_round_trips_are_shown_in_microseconds() {
        let Some(report) = summed(&[("floor", &[250_000])]) else { return };
        assert!(report.text().contains("round trip, us"), "{}", report.text());
    }
}
