//! The result over connections: rate, round trip and memory, and the ratio to the first number.

use serde_json::{Value, json};

use super::ConnsPlan;
use crate::device::jitter::Jitter;
use crate::modes::contest::table::count as thousands;
use crate::output::outcome::{
    At, Axis, Better, Curve, Distribution, Figure, Line, Lost, Outcome, Scene, Unit, line,
};
use crate::stats::latency::{Latency, Summary};
use crate::stats::meter::Round;
use crate::stats::rounds::{Ratio, Series};

/// A result over numbers of connections, with all that is needed to believe it.
#[derive(Debug, Clone)]
pub struct ConnsReport {
    what: String,
    settings: Value,
    scene: Scene,
    points: Vec<PointReport>,
}

/// What was measured with one number of connections.
#[derive(Debug, Clone)]
pub struct PointReport {
    connections: u32,
    /// By how many bytes the process grew when they connected.
    grown: u64,
    /// With many calls under way.
    rate: Series,
    /// One call after the other.
    single: Series,
    /// All round trips of these.
    latency: Latency,
}

impl PointReport {
    /// Nothing yet of so many connections, which took so much memory.
    pub fn new(connections: u32, grown: u64) -> PointReport {
        let series = || Series { name: "rpc", rounds: Vec::new() };
        let (rate, single, latency) = (series(), series(), Latency::new());
        PointReport { connections, grown, rate, single, latency }
    }

    /// Whether anything was measured: a run may be ended before it was this number's turn.
    pub fn has_samples(&self) -> bool {
        !self.rate.rounds.is_empty()
    }

    /// Takes a round in: one with many under way, one with calls one after the other.
    pub fn take(&mut self, rate: Round, single: Round) {
        self.latency.merge(&single.latency);
        self.rate.rounds.push(rate);
        self.single.rounds.push(single);
    }

    fn at(&self) -> At {
        At::new("connections", self.connections.into(), Unit::Count)
    }

    /// Bytes for each connection and end. `None` of so few that pages of 4 KiB say nothing.
    fn memory(&self) -> Option<f64> {
        let ends = 2.0 * f64::from(self.connections);
        (self.connections >= MANY).then(|| self.grown as f64 / ends)
    }

    /// The rate over that of the first number.
    fn ratio(&self, first: &PointReport) -> Ratio {
        Ratio::new(&self.rate, &first.rate, Round::rate)
    }

    fn distribution(&self) -> Distribution<'_> {
        Distribution { name: format!("rpc@{}", self.at()), latency: &self.latency }
    }

    fn figures(&self, first: &PointReport) -> Vec<Figure> {
        let rates: Vec<f64> = self.rate.rounds.iter().map(Round::rate).collect();
        let calls = self.rate.rounds.iter().map(|round| round.completed).sum();
        let rounds: Vec<&Latency> = self.single.rounds.iter().map(|one| &one.latency).collect();
        let mut figures = Figure::round_trips("rpc", &self.latency, &rounds);
        let rate = Figure::new("rpc", "rate", self.rate.rate(), Unit::PerSecond, calls);
        figures.push(rate.rounds(rates));
        if let Some(memory) = self.memory() {
            let samples = u64::from(self.connections);
            let memory = Figure::new("rpc", "memory", memory, Unit::Bytes, samples);
            figures.push(memory.better(Better::Lower));
        }
        if self.connections != first.connections {
            let Ratio { value, paired, low, high, rounds } = self.ratio(first);
            let samples = rounds.len() as u64;
            let ratio = |name: &'static str, value| {
                let ratio = Figure::new("rpc/first", name, value, Unit::Ratio, samples);
                ratio.better(Better::Higher)
            };
            figures.push(ratio("ratio.rate", value).rounds(rounds));
            figures.push(ratio("ratio.rate.paired", paired));
            figures.push(ratio("ratio.rate.lowest", low));
            figures.push(ratio("ratio.rate.highest", high));
        }
        figures.into_iter().map(|figure| figure.at(self.at())).collect()
    }
}

impl ConnsReport {
    /// Sums a run up.
    pub(super) fn new(
        plan: &ConnsPlan,
        points: Vec<PointReport>,
        notes: Vec<String>,
        jitters: [[Jitter; 2]; 2],
    ) -> ConnsReport {
        let rounds =
            points.iter().flat_map(|point| point.rate.rounds.iter().chain(&point.single.rounds));
        let lost = rounds.map(|round| (round.elapsed_ns, round.preempted));
        let lost = [Lost::of_rounds("rpc", lost)];
        let first = plan.first();
        let mut settings = serde_json::to_value(first.settings()).unwrap_or_default();
        settings["mode"] = "conns".into();
        settings["connections"] = plan.counts().collect::<Vec<u32>>().into();
        ConnsReport {
            what: plan.sentence(),
            settings,
            scene: Scene::new(first.cores, notes, jitters, &lost),
            points,
        }
    }

    fn write_points(&self, out: &mut String) {
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<12}{:>13}{:>10}{:>9}{:>9}{:>10}{:>10}{:>10}{:>11}{:>11}{:>12}",
                "connections",
                "rate/s",
                "to first",
                "lowest",
                "highest",
                "p50, ns",
                "p99",
                "p99.9",
                "max",
                "samples",
                "memory, B"
            ),
        );
        let Some(first) = self.points.first() else { return };
        for point in &self.points {
            let Summary { count, p50_ns, p99_ns, p99_9_ns, max_ns, .. } =
                point.latency.summary(1.0);
            let Ratio { value, low, high, .. } = point.ratio(first);
            let (connections, rate) = (point.connections, thousands(point.rate.rate()));
            let memory = point.memory().map_or("-".into(), |bytes| format!("{bytes:.0}"));
            line(
                out,
                format_args!(
                    "{connections:<12}{rate:>13}{value:>10.3}{low:>9.3}{high:>9.3}{p50_ns:>10.0}\
                     {p99_ns:>10.0}{p99_9_ns:>10.0}{max_ns:>11.0}{count:>11}{memory:>12}"
                ),
            );
        }
    }

    fn line(&self, name: &str, value: impl Fn(&PointReport) -> Option<f64>) -> Line {
        let at = |point: &PointReport| Some((f64::from(point.connections), value(point)?));
        let mut points: Vec<(f64, f64)> = self.points.iter().filter_map(at).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name: name.to_owned(), points }
    }
}

impl Outcome for ConnsReport {
    fn mode(&self) -> &str {
        "conns"
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
        self.points.iter().map(PointReport::distribution).collect()
    }

    fn curves(&self) -> Vec<Curve> {
        let connections = || Axis { name: "connections".into(), unit: Unit::Count, log: true };
        let axis = |name: &str, unit, log| Axis { name: name.to_owned(), unit, log };
        let quantile = |name, quantile| {
            self.line(name, |point| Some(point.latency.quantile_ns(quantile) as f64))
        };
        vec![
            Curve {
                title: "Rate by connections".into(),
                x: connections(),
                y: axis("rate", Unit::PerSecond, false),
                lines: vec![self.line("rpc", |point| Some(point.rate.rate()))],
            },
            Curve {
                title: "Round trip by connections".into(),
                x: connections(),
                y: axis("round trip", Unit::Ns, true),
                lines: vec![quantile("p50", 0.5), quantile("p99", 0.99)],
            },
            Curve {
                title: "Memory of a connection, each end".into(),
                x: connections(),
                y: axis("memory", Unit::Bytes, false),
                lines: vec![self.line("rpc", PointReport::memory)],
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

    fn detail(&self) -> Value {
        let grown = |point: &PointReport| json!({ "connections": point.connections, "grown_bytes": point.grown });
        json!({ "memory": self.points.iter().map(grown).collect::<Vec<Value>>() })
    }
}

/// Fewer connections take so few pages that chance decides about them.
const MANY: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn round(rate: u64) -> Round {
        Round { latency: Latency::new(), completed: rate, elapsed_ns: 1_000_000_000, preempted: 0 }
    }

    fn point(connections: u32, rates: &[u64]) -> PointReport {
        let mut point = PointReport::new(connections, 1 << 20);
        rates.iter().for_each(|rate| point.take(round(*rate), round(0)));
        point
    }

    #[test]
    fn the_ratio_is_to_the_first_number() {
        let (one, many) = (point(1, &[100, 200, 300]), point(1024, &[90, 170, 270]));
        let figures = many.figures(&one);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name);
        let ratio = of("ratio.rate").expect("it is there");
        assert_eq!(ratio.id(), "rpc/first@connections=1024.ratio.rate");
        assert_eq!(ratio.value, 0.85);
        assert_eq!(ratio.rounds, [0.9, 0.85, 0.9]);
        assert_eq!(of("ratio.rate.paired").expect("it is there").value, 0.9);
        assert!(!one.figures(&one).iter().any(|figure| figure.of == "rpc/first"));
    }

    #[test]
    fn memory_is_of_one_end_of_a_connection_and_of_many_only() {
        assert_eq!(point(1024, &[]).memory(), Some(512.0));
        assert_eq!(point(MANY, &[]).memory(), Some((1 << 20) as f64 / 128.0));
        assert_eq!(point(MANY - 1, &[]).memory(), None);
    }
}
