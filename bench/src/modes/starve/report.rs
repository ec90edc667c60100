//! The report of `starve`: rates, waits for credits, and losses.

use super::CONTENDERS;
use super::caller::CallTally;
use super::server::Slow;
use crate::output::{
    Better, Column, Figure, Quantity, RATE, Ratio, Record, Records, Report, Row, Table, Unit,
};

/// The outcome of a round.
#[derive(Debug, Clone)]
pub struct Fed {
    pub tally: CallTally,
    pub elapsed_ns: u64,
    /// From the last slow call until every call that was open then was answered, in nanoseconds;
    /// `None` if some never were.
    pub recovered_ns: Option<u64>,
    /// Calls that were not answered when all had had time.
    pub lost: u64,
    pub slow: u64,
    pub preempted: u64,
}

pub(super) fn take(records: &mut Records, slow: Slow, fed: &Fed) {
    let Fed { tally, elapsed_ns, recovered_ns, lost, slow: slow_calls, preempted } = fed;
    let CallTally { answered, twice, failed, latency, stalls } = tally;
    let record = records.of(slow.into_str()).round_trips(latency).times("stall", stalls);
    record.value(RATE, *answered as f64 * 1e9 / (*elapsed_ns).max(1) as f64, *answered);
    record.value(STALLED, stalls.count() as f64 / (*answered).max(1) as f64, *answered);
    if let Some(recovered_ns) = recovered_ns {
        record.value(RECOVERY, *recovered_ns as f64, 1);
    }
    let stuck = recovered_ns.is_none().into();
    let counts = [slow_calls, lost, twice, failed, &stuck];
    for (quantity, count) in COUNTS.into_iter().zip(counts) {
        record.value(quantity, *count as f64, *answered);
    }
    record.ran(*elapsed_ns, *preempted);
}

/// What must not be.
fn complaints(record: &Record) -> Vec<String> {
    let bad = COMPLAINTS.iter().filter_map(|(name, what)| {
        let count = record.figure(name)?.value;
        (count > 0.0).then(|| format!("{}: {count} {what}", record.of))
    });
    bad.collect()
}

/// Sums a run up; `closed` is how many connections were lost.
pub(super) fn summed(records: &Records, closed: u64, mut report: Report) -> Report {
    let all: Vec<&Record> = records.iter().collect();
    let ratios: Vec<Ratio> =
        all.iter().skip(1).filter_map(|one| Ratio::new(one, all[0], "rate")).collect();
    report.figures.extend(Figure::of_each(&ratios, Ratio::figures));
    let calls = all.iter().filter_map(|one| Some(one.figure("rate")?.samples)).sum();
    let lost = Figure::new("all", "connections_lost", closed as f64, Unit::Count, calls);
    report.figures.push(lost.better(Better::Lower));
    let rows = CONTENDERS.map(|slow| Row::of(slow.into_str()));
    report.block(Table::of(&[""], &rows, &COLUMNS, &report.figures));
    report.block(Table::of(&["waited for a credit"], &rows, &WAITS, &report.figures));
    report.block(Ratio::table(&ratios));
    report.failures = all.iter().copied().flat_map(complaints).collect();
    if closed > 0 {
        report.failures.push(format!("{closed} connections were lost"));
    }
    let lost = format!("connections lost, as after the first message without a Receive: {closed}");
    let lines: Vec<String> = [lost].into_iter().chain(report.failures.clone()).collect();
    report.block(lines.join("\n"));
    report
}

const STALLED: Quantity = Quantity::new("stalled", Unit::Share).lower();
/// From the end of the load until all that was open was answered, of every round that did.
const RECOVERY: Quantity = Quantity::new("recovery.longest", Unit::Ns).largest();
const COUNTS: [Quantity; 5] = [
    Quantity::count("slow"),
    Quantity::count("lost").lower(),
    Quantity::count("answered_twice").lower(),
    Quantity::count("failed").lower(),
    Quantity::count("not_recovered").lower(),
];
const COMPLAINTS: [(&str, &str); 4] = [
    ("lost", "calls were never answered"),
    ("answered_twice", "calls were answered twice"),
    ("failed", "calls failed, or came back with other bytes"),
    ("not_recovered", "rounds did not recover"),
];
const COLUMNS: [Column; 11] = [
    Column::digits("calls/s", "rate", 0),
    Column::digits("slow", "slow", 0),
    Column::scaled("p50, us", "round_trip.p50", 1e3, 1),
    Column::scaled("p99, us", "round_trip.p99", 1e3, 1),
    Column::scaled("p99.9, us", "round_trip.p99.9", 1e3, 1),
    Column::scaled("longest", "round_trip.max", 1e3, 1),
    Column::scaled("stall p99", "stall.p99", 1e3, 1),
    Column::scaled("longest", "stall.max", 1e3, 1),
    Column::digits("lost", "lost", 0),
    Column::digits("failed", "failed", 0),
    Column::digits("answered twice", "answered_twice", 0),
];
const WAITS: [Column; 3] = [
    Column::scaled("% of the calls", "stalled", 0.01, 2),
    Column::scaled("all answered, us after the load", "recovery.longest", 1e3, 1),
    Column::samples("calls", "stalled"),
];
