//! The result of churn: rate and latency without and with it, and what became of the connections.

use serde_json::{Value, json};

use super::ChurnPlan;
use crate::contenders::rpc::{ChurnRound, Churned};
use crate::device::jitter::Jitter;
use crate::modes::contest::table::count as thousands;
use crate::output::outcome::{Better, Distribution, Figure, Lost, Outcome, Scene, Unit, line};
use crate::stats::latency::{Latency, Summary};
use crate::stats::rounds::median;

/// A result without and with churn, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct ChurnReport {
    what: String,
    settings: Value,
    scene: Scene,
    still: SideReport,
    churn: SideReport,
}

/// What was measured without churn, or with it.
#[derive(Debug, Clone)]
pub struct SideReport {
    name: &'static str,
    latency: Latency,
    churned: Churned,
    rounds: Vec<ChurnRound>,
}

impl SideReport {
    /// Nothing yet.
    pub fn new(name: &'static str) -> SideReport {
        let (latency, churned) = (Latency::new(), Churned::default());
        SideReport { name, latency, churned, rounds: Vec::new() }
    }

    /// Takes a round in, unless it was ended before it had both its halves.
    pub fn take(&mut self, round: ChurnRound) {
        if round.filled.elapsed_ns == 0 || round.open.offered == 0 {
            return;
        }
        self.latency.merge(&round.open.response);
        self.churned.merge(&round.churned);
        self.rounds.push(round);
    }

    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.filled.rate()).collect()
    }

    fn rate(&self) -> f64 {
        median(self.rates().into_iter())
    }

    fn quantiles(&self, quantile: f64) -> Vec<f64> {
        let of = |round: &ChurnRound| round.open.response.quantile_ns(quantile) as f64;
        self.rounds.iter().map(of).collect()
    }

    fn backlog_max(&self) -> u64 {
        self.rounds.iter().map(|round| round.open.backlog_max).max().unwrap_or_default()
    }

    fn figures(&self) -> Vec<Figure> {
        let rounds: Vec<&Latency> = self.rounds.iter().map(|one| &one.open.response).collect();
        let calls = self.rounds.iter().map(|round| round.filled.completed).sum();
        let rate = Figure::new(self.name, "rate", self.rate(), Unit::PerSecond, calls);
        let backlog = self.backlog_max() as f64;
        let backlog =
            Figure::new(self.name, "backlog.max", backlog, Unit::Count, self.latency.count());
        let mut figures = vec![rate.rounds(self.rates()), backlog.better(Better::Lower)];
        figures.extend(Figure::spread(self.name, "round_trip", &self.latency, &rounds, 1.0));
        figures
    }
}

impl ChurnReport {
    /// Sums a run up.
    pub(super) fn new(
        plan: &ChurnPlan,
        [still, churn]: [SideReport; 2],
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
    ) -> ChurnReport {
        // A core that the control thread has taken is a part of what is measured with churn.
        let rounds = still
            .rounds
            .iter()
            .map(|round| (round.filled.elapsed_ns + round.open.elapsed_ns, round.open.preempted));
        let lost = [Lost::of_rounds("still", rounds)];
        let mut settings = serde_json::to_value(plan.base.settings()).unwrap_or_default();
        settings["mode"] = "churn".into();
        settings["churn_per_second"] = plan.rate.into();
        settings["standing"] = plan.standing.into();
        settings["load"] = plan.load.into();
        settings["seed"] = plan.seed.into();
        ChurnReport {
            what: plan.sentence(),
            settings,
            scene: Scene::new(plan.base.cores, notes, jitters, &lost),
            still,
            churn,
        }
    }

    /// With churn over without it: what, the quotient of the medians, and those of the rounds.
    fn ratios(&self) -> Vec<(&'static str, f64, Vec<f64>, Better)> {
        let ratio = |name, of: Vec<f64>, to: Vec<f64>, better| {
            let value = median(of.iter().copied()) / median(to.iter().copied());
            let rounds = of.iter().zip(&to).map(|(of, to)| of / to).collect();
            (name, value, rounds, better)
        };
        let mut ratios =
            vec![ratio("ratio.rate", self.churn.rates(), self.still.rates(), Better::Higher)];
        for (name, quantile) in [("ratio.p50", 0.5), ("ratio.p99", 0.99), ("ratio.p99.9", 0.999)] {
            let [of, to] = [&self.churn, &self.still].map(|side| side.quantiles(quantile));
            ratios.push(ratio(name, of, to, Better::Lower));
        }
        ratios
    }

    fn write_sides(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<10}{:>14}   {:>14}{:>10}{:>10}{:>10}{:>11}{:>11}{:>13}",
                "",
                "rate/s, full",
                "from due, us:",
                "p50",
                "p99",
                "p99.9",
                "max",
                "samples",
                "backlog max"
            ),
        );
        for side in [&self.still, &self.churn] {
            let Summary { count, p50_ns, p99_ns, p99_9_ns, max_ns, .. } = side.latency.summary(1.0);
            let [p50, p99, p99_9, max] = [p50_ns, p99_ns, p99_9_ns, max_ns].map(|ns| ns / 1e3);
            let (name, rate, backlog) = (side.name, thousands(side.rate()), side.backlog_max());
            line(
                out,
                format_args!(
                    "{name:<10}{rate:>14}   {:>14}{p50:>10.2}{p99:>10.2}{p99_9:>10.2}{max:>11.1}\
                     {count:>11}{backlog:>13}",
                    ""
                ),
            );
        }
        line(out, format_args!(""));
        for (name, value, ..) in self.ratios() {
            let name = name.strip_prefix("ratio.").unwrap_or(name);
            line(out, format_args!("churn / still, {name:<8}{value:>8.3}"));
        }
    }

    fn write_connections(&self, out: &mut String) {
        let Churned { connect, asked, made, failed, skipped } = &self.churn.churned;
        let Summary { p50_ns, p99_ns, max_ns, .. } = connect.summary(1.0);
        let [p50, p99, max] = [p50_ns, p99_ns, max_ns].map(|ns| ns / 1e3);
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "connections: {asked} asked for, {made} made, {failed} failed, {skipped} not asked \
                 for since others were under way; to connect, us: p50 {p50:.0}, p99 {p99:.0}, max \
                 {max:.0}"
            ),
        );
    }
}

impl Outcome for ChurnReport {
    fn mode(&self) -> &str {
        "churn"
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
        let mut figures = self.still.figures();
        figures.extend(self.churn.figures());
        let samples = self.churn.rounds.len() as u64;
        for (name, value, rounds, better) in self.ratios() {
            let ratio = Figure::new("churn/still", name, value, Unit::Ratio, samples);
            figures.push(ratio.rounds(rounds).better(better));
        }
        let Churned { connect, asked, made, failed, skipped } = &self.churn.churned;
        figures.extend(Figure::spread("connections", "connect", connect, &[], 1.0));
        let count = |name: &'static str, value: u64| {
            Figure::new("connections", name, value as f64, Unit::Count, *asked)
        };
        figures.extend([
            count("asked", *asked),
            count("made", *made),
            count("failed", *failed).better(Better::Lower),
            count("skipped", *skipped).better(Better::Lower),
        ]);
        figures
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        let side = |side: &'static str, latency| Distribution { name: side.into(), latency };
        vec![
            side(self.still.name, &self.still.latency),
            side(self.churn.name, &self.churn.latency),
            side("connections", &self.churn.churned.connect),
        ]
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        self.write_sides(&mut out);
        self.write_connections(&mut out);
        self.scene.write_noise(&mut out);
        out
    }

    fn detail(&self) -> Value {
        let rounds = |side: &SideReport| {
            let round = |round: &ChurnRound| {
                json!({
                    "rate": round.filled.rate(),
                    "offered": round.open.offered,
                    "completed": round.open.completed,
                    "backlog_max": round.open.backlog_max,
                    "connections_made": round.churned.made,
                    "connections_failed": round.churned.failed,
                    "preempted": round.open.preempted,
                })
            };
            side.rounds.iter().map(round).collect::<Vec<Value>>()
        };
        json!({ "still": rounds(&self.still), "churn": rounds(&self.churn) })
    }
}
