//! The result of a load: latency, backlog and lateness at every rate.

use serde_json::{Value, json};

use super::{LoadPlan, Measured, OpenRound, Point};
use crate::device::jitter::Jitter;
use crate::modes::contest::table::count as thousands;
use crate::output::outcome::{
    At, Axis, Better, Curve, Distribution, Figure, Line, Lost, Outcome, Scene, Unit, line,
};
use crate::stats::latency::{Latency, Summary};
use crate::stats::meter::Round;
use crate::stats::rounds::median;

/// A result at several rates, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct LoadReport {
    what: String,
    settings: Value,
    scene: Scene,
    /// What the closed loop did before: what shares are shares of.
    capacity: f64,
    /// What it did in each round.
    closed: Vec<Round>,
    points: Vec<PointReport>,
}

/// What was measured at one rate.
#[derive(Debug, Clone)]
pub struct PointReport {
    point: Point,
    /// From the intended start, every call of every round.
    response: Latency,
    /// How late the generator was, of every round.
    lateness: Latency,
    rounds: Vec<OpenRound>,
}

impl PointReport {
    /// Nothing yet.
    pub fn new(point: Point) -> PointReport {
        let (response, lateness) = (Latency::new(), Latency::new());
        PointReport { point, response, lateness, rounds: Vec::new() }
    }

    /// Whether anything was measured: a run may be ended before it was this point's turn.
    pub fn has_samples(&self) -> bool {
        !self.rounds.is_empty()
    }

    /// Takes a round in, unless it was ended before it began. The generator's lateness is kept of
    /// all rounds together.
    pub fn take(&mut self, mut round: OpenRound) {
        if round.offered == 0 {
            return;
        }
        self.response.merge(&round.response);
        self.lateness.merge(&round.lateness);
        round.lateness = Latency::new();
        self.rounds.push(round);
    }

    /// Calls due per second, over all rounds.
    pub fn offered(&self) -> f64 {
        median(self.rounds.iter().map(OpenRound::offered_rate))
    }

    /// Calls ended per second: the median of the rounds.
    pub fn achieved(&self) -> f64 {
        median(self.rounds.iter().map(OpenRound::achieved_rate))
    }

    /// What was achieved of what was offered, 0 to 1: the median of the rounds.
    pub fn share(&self) -> f64 {
        median(self.rounds.iter().map(share))
    }

    fn distribution(&self) -> Distribution<'_> {
        Distribution { name: format!("rpc@{}", self.point.at()), latency: &self.response }
    }

    fn most(&self, of: fn(&OpenRound) -> u64) -> u64 {
        self.rounds.iter().map(of).max().unwrap_or_default()
    }

    fn figures(&self) -> Vec<Figure> {
        let rounds: Vec<&Latency> = self.rounds.iter().map(|round| &round.response).collect();
        let samples = self.response.count();
        let of = |name: &'static str, value: f64, unit: Unit, one: &dyn Fn(&OpenRound) -> f64| {
            let rounds = self.rounds.iter().map(one).collect();
            Figure::new("rpc", name, value, unit, samples).rounds(rounds)
        };
        let count = |name, of_one: fn(&OpenRound) -> u64| {
            let most = self.most(of_one) as f64;
            of(name, most, Unit::Count, &|round| of_one(round) as f64).better(Better::Lower)
        };
        let mut figures = Figure::spread("rpc", "round_trip", &self.response, &rounds, 1.0);
        let offered = of("offered", self.offered(), Unit::PerSecond, &OpenRound::offered_rate);
        figures.extend([
            offered.better(Better::Neither),
            of("achieved", self.achieved(), Unit::PerSecond, &OpenRound::achieved_rate),
            of("achieved_share", self.share(), Unit::Share, &share).better(Better::Higher),
            count("backlog.max", |round| round.backlog_max),
            count("backlog.end", |round| round.backlog_end),
            count("given_up", |round| round.given_up),
        ]);
        figures.extend(Figure::spread("generator", "late", &self.lateness, &[], 1.0));
        figures.into_iter().map(|figure| figure.at(self.point.at())).collect()
    }

    /// The rounds as JSON has them.
    fn detail(&self) -> Value {
        let round = |round: &OpenRound| {
            json!({
                "offered": round.offered,
                "completed": round.completed,
                "given_up": round.given_up,
                "backlog_max": round.backlog_max,
                "backlog_end": round.backlog_end,
                "time_ns": round.time_ns,
                "elapsed_ns": round.elapsed_ns,
                "preempted": round.preempted,
            })
        };
        let At { axis, value, unit } = self.point.at();
        let rounds: Vec<Value> = self.rounds.iter().map(round).collect();
        json!({ "axis": axis, "value": value, "unit": unit, "rounds": rounds })
    }
}

impl LoadReport {
    /// Sums a run up.
    pub(super) fn new(
        plan: &LoadPlan,
        capacity: f64,
        measured: Measured,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
    ) -> LoadReport {
        let Measured { closed, points } = measured;
        let open = points.iter().flat_map(|point| &point.rounds);
        let lost = [
            Lost::of_rounds("closed", closed.iter().map(|one| (one.elapsed_ns, one.preempted))),
            Lost::of_rounds("rpc", open.map(|one| (one.elapsed_ns, one.preempted))),
        ];
        let mut settings = serde_json::to_value(plan.base.settings()).unwrap_or_default();
        settings["mode"] = "load".into();
        settings["arrivals"] = plan.law.name().into();
        settings["seed"] = plan.seed.into();
        LoadReport {
            what: plan.sentence(),
            settings,
            scene: Scene::new(plan.base.cores, notes, jitters, &lost),
            capacity,
            closed,
            points,
        }
    }

    fn write_capacity(&self, out: &mut String) {
        let rounds = self.closed.len();
        let then = median(self.closed.iter().map(Round::rate));
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "closed loop  {} /s before, {} /s between the others (median of {rounds} rounds); \
                 shares are of the first",
                thousands(self.capacity),
                thousands(then)
            ),
        );
    }

    fn write_response(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<14}{:>12}{:>12}{:>8}{:>11}{:>11}{:>11}{:>11}{:>11}{:>12}{:>10}",
                "from due, us",
                "offered/s",
                "achieved",
                "share",
                "p50",
                "p90",
                "p99",
                "p99.9",
                "p99.99",
                "max",
                "samples"
            ),
        );
        for point in &self.points {
            let Summary { p50_ns, p90_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns, count, .. } =
                point.response.summary(1.0);
            let [p50, p90, p99, p99_9, p99_99, max] =
                [p50_ns, p90_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns].map(|ns| ns / 1e3);
            let [offered, achieved] = [point.offered(), point.achieved()].map(thousands);
            let (name, share) = (title(point.point), point.share());
            line(
                out,
                format_args!(
                    "{name:<14}{offered:>12}{achieved:>12}{share:>8.4}{p50:>11.2}{p90:>11.2}\
                     {p99:>11.2}{p99_9:>11.2}{p99_99:>11.2}{max:>12.1}{count:>10}"
                ),
            );
        }
    }

    fn write_backlog(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<14}{:>12}{:>12}{:>12}   {:>9}{:>9}{:>10}{:>11}",
                "could not go",
                "backlog max",
                "at the end",
                "given up",
                "late p50",
                "p99",
                "p99.9",
                "max, us"
            ),
        );
        for point in &self.points {
            let [max, end, given_up] = [
                point.most(|round| round.backlog_max),
                point.most(|round| round.backlog_end),
                point.most(|round| round.given_up),
            ];
            let Summary { p50_ns, p99_ns, p99_9_ns, max_ns, .. } = point.lateness.summary(1.0);
            let [p50, p99, p99_9, late] = [p50_ns, p99_ns, p99_9_ns, max_ns].map(|ns| ns / 1e3);
            let name = title(point.point);
            line(
                out,
                format_args!(
                    "{name:<14}{max:>12}{end:>12}{given_up:>12}   {p50:>9.2}{p99:>9.2}{p99_9:>10.2}\
                     {late:>11.1}"
                ),
            );
        }
    }
}

impl Outcome for LoadReport {
    fn mode(&self) -> &str {
        "load"
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
        let rates: Vec<f64> = self.closed.iter().map(Round::rate).collect();
        let samples = self.closed.iter().map(|round| round.completed).sum();
        let then = median(rates.iter().copied());
        let mut figures = vec![
            Figure::new("closed", "rate", then, Unit::PerSecond, samples).rounds(rates),
            Figure::new("closed", "rate.before", self.capacity, Unit::PerSecond, samples),
        ];
        figures.extend(self.points.iter().flat_map(PointReport::figures));
        figures
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        self.points.iter().map(PointReport::distribution).collect()
    }

    fn curves(&self) -> Vec<Curve> {
        let axis = |name: &str, unit, log| Axis { name: name.to_owned(), unit, log };
        let share = |point: &PointReport| match point.point {
            Point::Share(share) => share,
            Point::Rate(rate) => rate / self.capacity.max(1.0),
        };
        let quantile = |(name, quantile): (&str, f64)| Line {
            name: name.to_owned(),
            points: sorted(
                self.points
                    .iter()
                    .map(|point| (share(point), point.response.quantile_ns(quantile) as f64)),
            ),
        };
        let achieved = self.points.iter().map(|point| (point.offered(), point.achieved()));
        let even = self.points.iter().map(|point| (point.offered(), point.offered()));
        vec![
            Curve {
                title: "Latency from the intended start, by load".into(),
                x: axis("load", Unit::Share, false),
                y: axis("latency", Unit::Ns, true),
                lines: QUANTILES.into_iter().map(quantile).collect(),
            },
            Curve {
                title: "What was achieved of what was offered".into(),
                x: axis("offered", Unit::PerSecond, false),
                y: axis("achieved", Unit::PerSecond, false),
                lines: vec![
                    Line { name: "rpc".into(), points: sorted(achieved) },
                    Line { name: "all of it".into(), points: sorted(even) },
                ],
            },
        ]
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        self.write_capacity(&mut out);
        self.write_response(&mut out);
        self.write_backlog(&mut out);
        self.scene.write_noise(&mut out);
        out
    }

    fn detail(&self) -> Value {
        let points: Vec<Value> = self.points.iter().map(PointReport::detail).collect();
        json!({ "capacity": self.capacity, "points": points })
    }
}

fn share(round: &OpenRound) -> f64 {
    let offered = round.offered_rate();
    if offered > 0.0 { round.achieved_rate() / offered } else { 0.0 }
}

/// A point as a row names it.
fn title(point: Point) -> String {
    match point {
        Point::Share(share) => format!("{:.4} %", share * 100.0).replace(".0000", ""),
        Point::Rate(rate) => format!("{} /s", thousands(rate)),
    }
}

/// Points in the order of their first coordinate.
fn sorted(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];
