//! The report of `starve`: rates, waits for credits, and losses.

use serde_json::Value;

use super::caller::CallTally;
use super::server::Slow;
use crate::output::{Better, Column, Environment, Figure, Lost, Report, Row, Table, Unit};
use crate::stats::{Latency, Ratio, Round, Series};

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

#[derive(Debug, Clone)]
pub struct Outcomes {
    slow: Slow,
    pub rounds: Vec<Fed>,
}

impl Outcomes {
    pub fn new(slow: Slow) -> Outcomes {
        Outcomes { slow, rounds: Vec::new() }
    }

    fn name(&self) -> &'static str {
        self.slow.into_str()
    }

    fn series(&self) -> Series {
        let round = |fed: &Fed| Round {
            latency: Latency::new(),
            completed: fed.tally.answered,
            elapsed_ns: fed.elapsed_ns,
            preempted: fed.preempted,
        };
        Series { name: self.name(), rounds: self.rounds.iter().map(round).collect() }
    }

    fn sum(&self, of: fn(&Fed) -> u64) -> u64 {
        self.rounds.iter().map(of).sum()
    }

    fn latency(&self) -> Latency {
        Latency::merged(self.rounds.iter().map(|fed| &fed.tally.latency))
    }

    fn stalls(&self) -> Latency {
        Latency::merged(self.rounds.iter().map(|fed| &fed.tally.stalls))
    }

    fn answered(&self) -> u64 {
        self.sum(|fed| fed.tally.answered)
    }

    /// From the end of the load until all that was open was answered, of every round that did.
    fn recovered_ns(&self) -> Vec<f64> {
        self.rounds.iter().filter_map(|fed| Some(fed.recovered_ns? as f64)).collect()
    }

    fn figures(&self) -> Vec<Figure> {
        let (name, answered, stalls) = (self.name(), self.answered(), self.stalls());
        let mut figures = Figure::round_trips(name, &self.latency(), &[]);
        let count = |part: &'static str, value: u64| {
            Figure::new(name, part, value as f64, Unit::Count, answered).better(Better::Lower)
        };
        let series = self.series();
        let rates = series.rounds.iter().map(Round::rate).collect();
        let rate = Figure::new(name, "rate", series.rate(), Unit::PerSecond, answered);
        figures.push(rate.rounds(rates));
        figures.extend(Figure::spread(name, "stall", &stalls, &[], 1.0));
        let share = stalls.count() as f64 / answered.max(1) as f64;
        let stalled = Figure::new(name, "stalled", share, Unit::Share, answered);
        figures.push(stalled.better(Better::Lower));
        let recovered = self.recovered_ns();
        let (longest, samples) =
            (recovered.iter().copied().fold(0.0, f64::max), recovered.len() as u64);
        let longest = Figure::new(name, "recovery.longest", longest, Unit::Ns, samples);
        figures.extend([
            longest.rounds(recovered),
            count("slow", self.sum(|fed| fed.slow)).better(Better::Neither),
            count("lost", self.sum(|fed| fed.lost)),
            count("answered_twice", self.sum(|fed| fed.tally.twice)),
            count("failed", self.sum(|fed| fed.tally.failed)),
        ]);
        figures
    }

    /// What must not be.
    fn complaints(&self) -> impl Iterator<Item = String> {
        let name = self.name();
        let parts = [
            (self.sum(|fed| fed.lost), "calls were never answered"),
            (self.sum(|fed| fed.tally.twice), "calls were answered twice"),
            (self.sum(|fed| fed.tally.failed), "calls failed, or came back with other bytes"),
            (self.sum(|fed| fed.recovered_ns.is_none().into()), "rounds did not recover"),
        ];
        let bad = parts.into_iter().filter(|(count, _)| *count > 0);
        bad.map(move |(count, what)| format!("{name}: {count} {what}"))
    }
}

/// Sums a run up; `closed` is how many connections were lost.
pub(super) fn report(
    what: String,
    settings: Value,
    environment: Environment,
    outcomes: &[Outcomes; 3],
    closed: u64,
) -> Report {
    let series = outcomes.each_ref().map(Outcomes::series);
    let lost = series.each_ref().map(|one| Lost::of(one.name, one.rounds.iter()));
    let ratios: Vec<Ratio> =
        series[1..].iter().map(|one| Ratio::of_rates(one, &series[0])).collect();
    let environment = environment.lost(&lost);
    let mut figures = Figure::of_each(outcomes, Outcomes::figures);
    figures.extend(Figure::of_each(&ratios, Figure::ratio));
    let answered = outcomes.iter().map(Outcomes::answered).sum();
    let lost = Figure::new("all", "connections_lost", closed as f64, Unit::Count, answered);
    figures.push(lost.better(Better::Lower));
    let mut report = Report::new("starve", what, settings, environment, figures);
    let rows: Vec<Row> = outcomes.iter().map(|one| Row::of(one.name())).collect();
    report.block(Table::of(&[""], &rows, &COLUMNS, &report.figures));
    outcomes.iter().for_each(|one| report.samples(one.name(), &one.latency()));
    report.failures = outcomes.iter().flat_map(Outcomes::complaints).collect();
    if closed > 0 {
        report.failures.push(format!("{closed} connections were lost"));
    }
    let ratios = ratios.iter().map(|Ratio { of, to, value, paired, low, high, .. }| {
        format!(
            "{of} / {to}, rate: {value:.3}, by neighbouring rounds {paired:.3} ({low:.3} to \
             {high:.3})"
        )
    });
    let waits = outcomes.iter().map(|one| {
        let longest = one.recovered_ns().into_iter().fold(0.0, f64::max) / 1e3;
        format!(
            "{}: {} of {} calls waited for a credit; all answered {longest:.1} us after the load, \
             at most",
            one.name(),
            one.stalls().count(),
            one.answered()
        )
    });
    let lost = format!("connections lost, as after the first message without a Receive: {closed}");
    let lines = ratios.chain(waits).chain([lost]).chain(report.failures.clone());
    report.block(lines.collect::<Vec<String>>().join("\n"));
    report
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(answered: u64, lost: u64) -> Fed {
        let mut tally = CallTally { answered, ..CallTally::default() };
        (1..=answered).for_each(|ns| tally.latency.record(ns * 1000));
        tally.stalls.record(5000);
        Fed { tally, elapsed_ns: 1_000_000, recovered_ns: Some(70), lost, slow: 1, preempted: 0 }
    }

    #[test]
    fn rounds_are_added_up_and_the_rate_is_their_median() {
        let rounds = vec![fed(10, 0), fed(30, 0), fed(20, 0)];
        let sum = Outcomes { slow: Slow::Tickets, rounds };
        let figures = sum.figures();
        let figure = |id: &str| figures.iter().find(|one| one.id() == id).expect("it is there");
        let value = |id: &str| figure(id).value;
        assert_eq!((sum.answered(), value("tickets.slow"), sum.latency().count()), (60, 3.0, 60));
        assert!((value("tickets.rate") - 20_000.0).abs() < 1.0, "{}", value("tickets.rate"));
        assert_eq!(value("tickets.stalled"), 3.0 / 60.0);
        assert_eq!(value("tickets.recovery.longest"), 70.0);
        assert_eq!(value("tickets.lost"), 0.0);
        assert_eq!(sum.complaints().count(), 0);
    }

    #[test]
    fn whatever_is_lost_or_late_is_complained_of() {
        let mut bad = fed(10, 2);
        (bad.tally.twice, bad.tally.failed, bad.recovered_ns) = (3, 4, None);
        let sum = Outcomes { slow: Slow::Blocking, rounds: vec![bad] };
        let complaints: Vec<String> = sum.complaints().collect();
        assert_eq!(complaints[0], "blocking: 2 calls were never answered");
        assert_eq!(complaints.len(), 4);
    }
}
