//! The result over shards: rates together and for each, and the ratio to the first number.

use serde_json::{Value, json};

use super::CoresPlan;
use crate::device::cores::CorePair;
use crate::device::jitter::Jitter;
use crate::modes::contest::table::count as thousands;
use crate::output::outcome::{
    At, Axis, Better, Curve, Distribution, Figure, Line, Lost, Outcome, Scene, Unit, line,
};
use crate::stats::meter::Round;
use crate::stats::rounds::median;

/// A result over numbers of shards, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct CoresReport {
    what: String,
    settings: Value,
    scene: Scene,
    points: Vec<PointReport>,
}

/// What was measured with one number of shards.
#[derive(Debug, Clone)]
pub struct PointReport {
    pairs: Vec<CorePair>,
    /// For every round, that of each shard.
    rounds: Vec<Vec<Round>>,
}

impl PointReport {
    /// Nothing yet of a shard on each of these.
    pub fn new(pairs: &[CorePair]) -> PointReport {
        PointReport { pairs: pairs.to_vec(), rounds: Vec::new() }
    }

    /// Whether anything was measured: a run may be ended before it was this number's turn.
    pub fn has_samples(&self) -> bool {
        !self.rounds.is_empty()
    }

    /// Takes a round in: what each shard did.
    pub fn take(&mut self, round: Vec<Round>) {
        self.rounds.push(round);
    }

    fn shards(&self) -> f64 {
        self.pairs.len() as f64
    }

    /// Calls per second of all shards together, in every round.
    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.iter().map(Round::rate).sum()).collect()
    }

    fn rate(&self) -> f64 {
        median(self.rates().into_iter())
    }

    /// The quotients of the rates to those of neighbouring rounds of another number.
    fn ratios(&self, first: &PointReport) -> Vec<f64> {
        self.rates().into_iter().zip(first.rates()).map(|(of, to)| of / to).collect()
    }

    /// The share of what as many times the first number would be, 1 if nothing is lost.
    fn efficiency(&self, first: &PointReport) -> f64 {
        self.rate() / first.rate() * first.shards() / self.shards()
    }

    fn figures(&self, first: &PointReport) -> Vec<Figure> {
        let at = At::new("shards", self.shards(), Unit::Count);
        let calls = self.rounds.iter().flatten().map(|round| round.completed).sum();
        let rates = self.rates();
        let each: Vec<f64> = rates.iter().map(|rate| rate / self.shards()).collect();
        let rate = |name: &'static str, rounds: Vec<f64>| {
            let value = median(rounds.iter().copied());
            Figure::new("rpc", name, value, Unit::PerSecond, calls).rounds(rounds)
        };
        let mut figures = vec![rate("rate", rates), rate("rate.per_core", each)];
        if self.pairs.len() != first.pairs.len() {
            let (ratios, samples) = (self.ratios(first), self.rounds.len() as u64);
            let ratio = self.rate() / first.rate();
            let ratio = Figure::new("rpc/first", "ratio.rate", ratio, Unit::Ratio, samples);
            figures.push(ratio.rounds(ratios).better(Better::Higher));
            let share = self.efficiency(first);
            let share = Figure::new("rpc/first", "efficiency", share, Unit::Share, samples);
            figures.push(share.better(Better::Higher));
        }
        figures.into_iter().map(|figure| figure.at(at.clone())).collect()
    }
}

impl CoresReport {
    /// Sums a run up.
    pub(super) fn new(
        plan: &CoresPlan,
        points: Vec<PointReport>,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
    ) -> CoresReport {
        let rounds = points.iter().flat_map(|point| point.rounds.iter().flatten());
        let lost = rounds.map(|round| (round.elapsed_ns, round.preempted));
        let lost = [Lost::of_rounds("rpc", lost)];
        let mut settings = serde_json::to_value(plan.base.settings()).unwrap_or_default();
        settings["mode"] = "cores".into();
        settings["shards"] = plan.counts().collect::<Vec<usize>>().into();
        CoresReport {
            what: plan.sentence(),
            settings,
            scene: Scene::new(plan.base.cores, notes, jitters, &lost),
            points,
        }
    }

    fn write_points(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<8}{:>14}{:>14}{:>14}{:>16}{:>10}{:>12}{:>14}",
                "shards",
                "rate/s",
                "lowest",
                "highest",
                "per core of it",
                "to first",
                "efficiency",
                "calls"
            ),
        );
        let Some(first) = self.points.first() else { return };
        for point in &self.points {
            let rates = point.rates();
            let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let high = rates.iter().copied().fold(0.0, f64::max);
            let each = point.rate() / point.shards();
            let [rate, low, high, each] = [point.rate(), low, high, each].map(thousands);
            let (ratio, efficiency) = (point.rate() / first.rate(), point.efficiency(first));
            let calls: u64 = point.rounds.iter().flatten().map(|round| round.completed).sum();
            let shards = point.pairs.len();
            line(
                out,
                format_args!(
                    "{shards:<8}{rate:>14}{low:>14}{high:>14}{each:>16}{ratio:>10.3}\
                     {efficiency:>12.3}{calls:>14}"
                ),
            );
        }
    }
}

impl Outcome for CoresReport {
    fn mode(&self) -> &str {
        "cores"
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
        let Some(first) = self.points.first() else { return Vec::new() };
        self.points.iter().flat_map(|point| point.figures(first)).collect()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        Vec::new()
    }

    fn curves(&self) -> Vec<Curve> {
        let Some(first) = self.points.first() else { return Vec::new() };
        let of = |name: &str, value: &dyn Fn(&PointReport) -> f64| {
            let points = self.points.iter().map(|point| (point.shards(), value(point))).collect();
            Line { name: name.to_owned(), points }
        };
        let each = first.rate() / first.shards();
        vec![Curve {
            title: "Rate by shards".into(),
            x: Axis { name: "shards".into(), unit: Unit::Count, log: false },
            y: Axis { name: "rate".into(), unit: Unit::PerSecond, log: false },
            lines: vec![
                of("rpc", &PointReport::rate),
                of("as many times one", &|point| each * point.shards()),
            ],
        }]
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        self.write_points(&mut out);
        self.scene.write_noise(&mut out);
        out
    }

    fn detail(&self) -> Value {
        let cores = |point: &PointReport| json!(point.pairs);
        json!({ "pairs": self.points.iter().map(cores).collect::<Vec<Value>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::latency::Latency;

    fn point(shards: u32, rates: &[&[u64]]) -> PointReport {
        let pair = |index| CorePair { client: 2 * index, server: 2 * index + 1 };
        let mut point = PointReport::new(&(0..shards).map(pair).collect::<Vec<_>>());
        for rates in rates {
            let round = |rate: &u64| Round {
                latency: Latency::new(),
                completed: *rate,
                elapsed_ns: 1_000_000_000,
                preempted: 0,
            };
            point.take(rates.iter().map(round).collect());
        }
        point
    }

    #[test]
    fn rates_of_shards_are_added_and_compared_with_as_many_times_one() {
        let one = point(1, &[&[100], &[120], &[100]]);
        let two = point(2, &[&[90, 90], &[100, 100], &[80, 100]]);
        assert_eq!((one.rate(), two.rate()), (100.0, 180.0));
        assert_eq!(two.efficiency(&one), 0.9);
        let figures = two.figures(&one);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).expect("it is");
        assert_eq!(of("ratio.rate").value, 1.8);
        assert_eq!(of("rate.per_core").value, 90.0);
        assert_eq!(of("rate").id(), "rpc@shards=2.rate");
        assert_eq!(of("rate").samples, 560);
        assert_eq!(one.figures(&one).len(), 2, "nothing is compared with itself");
    }
}
