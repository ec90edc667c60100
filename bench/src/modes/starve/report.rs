//! What starving did: rates beside each other, waits for credits, and whether anything was lost.

use serde_json::{Value, json};

use super::{Args, Fed, Slow};
use crate::device::cores::CorePair;
use crate::device::jitter::Jitter;
use crate::modes::contest::RatioReport;
use crate::output::outcome::{Better, Distribution, Figure, Lost, Outcome, Scene, Unit, line};
use crate::stats::latency::Latency;
use crate::stats::meter::Round;
use crate::stats::rounds::Series;

/// All rounds of one way to handle slow calls.
#[derive(Debug, Clone)]
pub struct Outcomes {
    slow: Slow,
    /// In the order they were run.
    pub rounds: Vec<Fed>,
}

/// A result, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct StarveReport {
    what: String,
    settings: Value,
    scene: Scene,
    contenders: Vec<Contender>,
    ratios: Vec<RatioReport>,
    /// Connections that were lost.
    closed: u64,
}

/// One contender, summed up.
#[derive(Debug, Clone)]
struct Contender {
    name: &'static str,
    rate: f64,
    rates: Vec<f64>,
    answered: u64,
    slow: u64,
    latency: Latency,
    stalls: Latency,
    recovered_ns: Vec<f64>,
    never_recovered: u64,
    lost: u64,
    twice: u64,
    failed: u64,
}

impl Outcomes {
    /// No round yet.
    pub fn new(slow: Slow) -> Outcomes {
        Outcomes { slow, rounds: Vec::new() }
    }

    fn series(&self) -> Series {
        let round = |fed: &Fed| Round {
            latency: Latency::new(),
            completed: fed.tally.answered,
            elapsed_ns: fed.elapsed_ns,
            preempted: fed.preempted,
        };
        Series { name: self.slow.name(), rounds: self.rounds.iter().map(round).collect() }
    }

    fn sum(&self) -> Contender {
        let series = self.series();
        let of = |part: fn(&Fed) -> u64| self.rounds.iter().map(part).sum::<u64>();
        let (mut latency, mut stalls) = (Latency::new(), Latency::new());
        for fed in &self.rounds {
            latency.merge(&fed.tally.latency);
            stalls.merge(&fed.tally.stalls);
        }
        let recovered = self.rounds.iter().filter_map(|fed| fed.recovered_ns);
        Contender {
            name: self.slow.name(),
            rate: series.rate(),
            rates: series.rounds.iter().map(Round::rate).collect(),
            answered: of(|fed| fed.tally.answered),
            slow: of(|fed| fed.slow),
            latency,
            stalls,
            recovered_ns: recovered.map(|ns| ns as f64).collect(),
            never_recovered: of(|fed| u64::from(fed.recovered_ns.is_none())),
            lost: of(|fed| fed.lost),
            twice: of(|fed| fed.tally.twice),
            failed: of(|fed| fed.tally.failed),
        }
    }
}

impl Contender {
    fn figures(&self) -> Vec<Figure> {
        let Contender { name, rate, answered, latency, stalls, .. } = self;
        let mut figures = Figure::round_trips(name, latency, &[]);
        let count = |part: &'static str, value: u64| {
            Figure::new(*name, part, value as f64, Unit::Count, *answered).better(Better::Lower)
        };
        figures.push(
            Figure::new(*name, "rate", *rate, Unit::PerSecond, *answered)
                .rounds(self.rates.clone()),
        );
        figures.extend(Figure::spread(name, "stall", stalls, &[], 1.0));
        let share = stalls.count() as f64 / (*answered).max(1) as f64;
        figures.push(
            Figure::new(*name, "stalled", share, Unit::Share, *answered).better(Better::Lower),
        );
        let longest = self.recovered_ns.iter().copied().fold(0.0, f64::max);
        let recovered = self.recovered_ns.len() as u64;
        figures.push(
            Figure::new(*name, "recovery.longest", longest, Unit::Ns, recovered)
                .rounds(self.recovered_ns.clone()),
        );
        figures.extend([
            count("slow", self.slow).better(Better::Neither),
            count("lost", self.lost),
            count("answered_twice", self.twice),
            count("failed", self.failed),
        ]);
        figures
    }

    /// What must not be.
    fn complaints(&self) -> impl Iterator<Item = String> {
        let Contender { name, .. } = *self;
        let parts = [
            (self.lost, "calls were never answered"),
            (self.twice, "calls were answered twice"),
            (self.failed, "calls failed, or came back with other bytes"),
            (self.never_recovered, "rounds did not recover"),
        ];
        let bad = parts.into_iter().filter(|(count, _)| *count > 0);
        bad.map(move |(count, what)| format!("{name}: {count} {what}"))
    }
}

impl StarveReport {
    /// Sums a run up.
    pub(super) fn new(
        args: &Args,
        cores: CorePair,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
        outcomes: [Outcomes; 3],
        closed: u64,
    ) -> StarveReport {
        let series = outcomes.each_ref().map(Outcomes::series);
        let lost = series.each_ref().map(|one| {
            let rounds = one.rounds.iter().map(|round| (round.elapsed_ns, round.preempted));
            Lost::of_rounds(one.name, rounds)
        });
        let ratios = series[1..].iter().map(|one| RatioReport::of_rates(one, &series[0])).collect();
        StarveReport {
            what: args.sentence(cores),
            settings: json!({
                "mode": MODE, "clients": args.clients, "connections": args.connections,
                "credits": args.credits, "wanted": args.wanted(), "granted": args.granted(),
                "slow_share": args.slow, "slow_ns": args.slow_time.as_nanos() as u64,
                "seed": args.seed.seed, "cores": cores, "rounds": args.length.rounds,
            }),
            scene: Scene::new(cores, notes, jitters, &lost),
            contenders: outcomes.iter().map(Outcomes::sum).collect(),
            ratios,
            closed,
        }
    }

    fn write_contenders(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<10}{:>12}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>6}{:>7}",
                "",
                "calls/s",
                "slow",
                "p50, us",
                "p99, us",
                "p99.9, us",
                "longest",
                "stall p99",
                "longest",
                "lost",
                "failed"
            ),
        );
        let us = |ns: u64| ns as f64 / 1e3;
        for one in &self.contenders {
            let at = |quantile| us(one.latency.quantile_ns(quantile));
            line(
                out,
                format_args!(
                    "{:<10}{:>12.0}{:>10}{:>12.1}{:>12.1}{:>12.1}{:>12.1}{:>12.1}{:>12.1}{:>6}{:>7}",
                    one.name,
                    one.rate,
                    one.slow,
                    at(0.5),
                    at(0.99),
                    at(0.999),
                    us(one.latency.max_ns()),
                    us(one.stalls.quantile_ns(0.99)),
                    us(one.stalls.max_ns()),
                    one.lost,
                    one.failed + one.twice
                ),
            );
        }
    }

    fn write_rest(&self, out: &mut String) {
        line(out, format_args!(""));
        for ratio in &self.ratios {
            let RatioReport { of, to, value, paired, low, high, .. } = ratio;
            line(
                out,
                format_args!(
                    "{of} / {to}, rate: {value:.3}, by neighbouring rounds {paired:.3} ({low:.3} to {high:.3})"
                ),
            );
        }
        for one in &self.contenders {
            let longest = one.recovered_ns.iter().copied().fold(0.0, f64::max) / 1e3;
            line(
                out,
                format_args!(
                    "{}: {} of {} calls waited for a credit; all answered {longest:.1} us after the \
                     load, at most",
                    one.name,
                    one.stalls.count(),
                    one.answered
                ),
            );
        }
        let closed = self.closed;
        line(
            out,
            format_args!(
                "connections lost, as after the first message without a Receive: {closed}"
            ),
        );
    }
}

impl Outcome for StarveReport {
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
        self.settings.clone()
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> =
            self.contenders.iter().flat_map(Contender::figures).collect();
        figures.extend(self.ratios.iter().flat_map(RatioReport::figures));
        let answered = self.contenders.iter().map(|one| one.answered).sum();
        let closed =
            Figure::new("all", "connections_lost", self.closed as f64, Unit::Count, answered);
        figures.push(closed.better(Better::Lower));
        figures
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        let each = self.contenders.iter();
        each.map(|one| Distribution { name: one.name.into(), latency: &one.latency }).collect()
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        self.write_contenders(&mut out);
        self.write_rest(&mut out);
        self.failures().iter().for_each(|text| line(&mut out, format_args!("{text}")));
        self.scene.write_noise(&mut out);
        out
    }

    fn failures(&self) -> Vec<String> {
        let lost = (self.closed > 0).then(|| format!("{} connections were lost", self.closed));
        self.contenders.iter().flat_map(Contender::complaints).chain(lost).collect()
    }
}

const MODE: &str = "starve";

#[cfg(test)]
mod tests {
    use super::super::Tally;
    use super::*;

    fn fed(answered: u64, lost: u64) -> Fed {
        let mut tally = Tally { answered, ..Tally::default() };
        (1..=answered).for_each(|ns| tally.latency.record(ns * 1000));
        tally.stalls.record(5000);
        Fed { tally, elapsed_ns: 1_000_000, recovered_ns: Some(70), lost, slow: 1, preempted: 0 }
    }

    #[test]
    fn rounds_are_added_up_and_the_rate_is_their_median() {
        let rounds = vec![fed(10, 0), fed(30, 0), fed(20, 0)];
        let sum = Outcomes { slow: Slow::Tickets, rounds }.sum();
        assert_eq!((sum.answered, sum.slow, sum.latency.count()), (60, 3, 60));
        assert!((sum.rate - 20_000.0).abs() < 1.0, "{}", sum.rate);
        let figures = sum.figures();
        let value = |id: &str| figures.iter().find(|one| one.id() == id).map(|one| one.value);
        assert_eq!(value("tickets.stalled"), Some(3.0 / 60.0));
        assert_eq!(value("tickets.recovery.longest"), Some(70.0));
        assert_eq!(value("tickets.lost"), Some(0.0));
        assert_eq!(sum.complaints().count(), 0);
    }

    #[test]
    fn whatever_is_lost_or_late_is_complained_of() {
        let mut bad = fed(10, 2);
        (bad.tally.twice, bad.tally.failed, bad.recovered_ns) = (3, 4, None);
        let sum = Outcomes { slow: Slow::Blocking, rounds: vec![bad] }.sum();
        let complaints: Vec<String> = sum.complaints().collect();
        assert_eq!(complaints[0], "blocking: 2 calls were never answered");
        assert_eq!(complaints.len(), 4);
    }
}
