//! The result of idleness: latency after pauses, and processor time, by policy.

use std::time::Duration;

use serde_json::{Value, json};

use super::IdlePlan;
use crate::args::Idle;
use crate::contenders::rpc::PausedRound;
use crate::device::jitter::Jitter;
use crate::output::outcome::{
    At, Axis, Better, Curve, Distribution, Figure, Line, Lost, Outcome, Scene, Unit, line,
};
use crate::stats::latency::{Latency, Summary};
use crate::stats::rounds::median;

/// A result over policies and pauses, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct IdleReport {
    what: String,
    settings: Value,
    scene: Scene,
    points: Vec<PointReport>,
}

/// What was measured of one policy with one pause.
#[derive(Debug, Clone)]
pub struct PointReport {
    policy: Idle,
    pause: Duration,
    latency: Latency,
    rounds: Vec<PausedRound>,
}

impl PointReport {
    /// Nothing yet.
    pub fn new(policy: Idle, pause: Duration) -> PointReport {
        PointReport { policy, pause, latency: Latency::new(), rounds: Vec::new() }
    }

    /// Whether anything was measured: a run may be ended before it was this point's turn.
    pub fn has_samples(&self) -> bool {
        !self.rounds.is_empty()
    }

    /// Takes a round in.
    pub fn take(&mut self, round: PausedRound) {
        self.latency.merge(&round.latency);
        self.rounds.push(round);
    }

    fn at(&self) -> At {
        At::new("pause", self.pause.as_nanos() as f64, Unit::Ns)
    }

    fn distribution(&self) -> Distribution<'_> {
        let name = format!("{}@{}", self.policy.name(), self.at());
        Distribution { name, latency: &self.latency }
    }

    /// The share of a processor that a side had: the median of the rounds.
    fn cpu(&self, side: usize) -> f64 {
        median(self.rounds.iter().map(|round| round.cpu[side]))
    }

    fn figures(&self) -> Vec<Figure> {
        let rounds: Vec<&Latency> = self.rounds.iter().map(|round| &round.latency).collect();
        let mut figures = Figure::round_trips(self.policy.name(), &self.latency, &rounds);
        for (side, name) in SIDES.into_iter().enumerate() {
            let rounds = self.rounds.iter().map(|round| round.cpu[side]).collect();
            let samples = self.rounds.len() as u64;
            let cpu = Figure::new(self.policy.name(), name, self.cpu(side), Unit::Share, samples);
            figures.push(cpu.rounds(rounds).better(Better::Lower));
        }
        figures.into_iter().map(|figure| figure.at(self.at())).collect()
    }
}

impl IdleReport {
    /// Sums a run up.
    pub(super) fn new(
        plan: &IdlePlan,
        points: Vec<PointReport>,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
    ) -> IdleReport {
        // Threads that give their core away lose none: only those that spin count as disturbed.
        let spinning = points.iter().filter(|point| point.policy == Idle::Spin);
        let rounds = spinning.flat_map(|point| &point.rounds);
        let lost = rounds.map(|round| (round.elapsed_ns, round.preempted));
        let lost = [Lost::of_rounds("spin", lost)];
        IdleReport {
            what: plan.sentence(),
            settings: json!({
                "op": plan.load.shape.op.name(),
                "placement": plan.load.placement.name(),
                "request_data_bytes": plan.load.shape.request_data,
                "reply_data_bytes": plan.load.shape.reply_data,
                "cores": plan.cores,
                "rounds": plan.rounds,
                "warm_up": plan.warm_up,
                "seed": plan.seed,
            }),
            scene: Scene::new(plan.cores, notes, jitters, &lost),
            points,
        }
    }

    fn write_points(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>11}{:>10}   {:>10}{:>10}",
                "policy",
                "pause",
                "p50, us",
                "p90",
                "p99",
                "p99.9",
                "max",
                "samples",
                "cpu client",
                "server"
            ),
        );
        for point in &self.points {
            let Summary { count, p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns, .. } =
                point.latency.summary(1.0);
            let [p50, p90, p99, p99_9, max] =
                [p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns].map(|ns| ns / 1e3);
            let (policy, pause) = (point.policy.name(), format!("{:?}", point.pause));
            let [client, server] = [0, 1].map(|side| point.cpu(side) * 100.0);
            line(
                out,
                format_args!(
                    "{policy:<10}{pause:>10}{p50:>10.2}{p90:>10.2}{p99:>10.2}{p99_9:>10.2}\
                     {max:>11.1}{count:>10}   {client:>8.1} %{server:>8.1} %"
                ),
            );
        }
    }

    /// A line for each policy, over the pauses.
    fn lines(&self, value: impl Fn(&PointReport) -> f64, of: &str) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for point in &self.points {
            let name = format!("{}, {of}", point.policy.name());
            let at = (point.pause.as_nanos() as f64, value(point));
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(at),
                None => lines.push(Line { name, points: vec![at] }),
            }
        }
        for line in &mut lines {
            line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        lines
    }
}

impl Outcome for IdleReport {
    fn mode(&self) -> &str {
        "idle"
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
        self.points.iter().flat_map(PointReport::figures).collect()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        self.points.iter().map(PointReport::distribution).collect()
    }

    fn curves(&self) -> Vec<Curve> {
        let pause = || Axis { name: "pause".into(), unit: Unit::Ns, log: true };
        let mut latencies = self.lines(|point| point.latency.quantile_ns(0.5) as f64, "p50");
        latencies.extend(self.lines(|point| point.latency.quantile_ns(0.99) as f64, "p99"));
        let mut cpu = self.lines(|point| point.cpu(0), "client");
        cpu.extend(self.lines(|point| point.cpu(1), "server"));
        vec![
            Curve {
                title: "Round trip after a pause".into(),
                x: pause(),
                y: Axis { name: "round trip".into(), unit: Unit::Ns, log: true },
                lines: latencies,
            },
            Curve {
                title: "Processor time of a thread".into(),
                x: pause(),
                y: Axis { name: "processor time".into(), unit: Unit::Share, log: false },
                lines: cpu,
            },
        ]
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        self.write_points(&mut out);
        self.scene.write_noise(&mut out);
        out
    }
}

const SIDES: [&str; 2] = ["cpu.client", "cpu.server"];
