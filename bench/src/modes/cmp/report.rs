//! The result of a comparison: the figures of every side, and ratios with their intervals.

use serde::Serialize;
use serde_json::{Value, json};

use super::bootstrap::{Interval, ROUNDS_MIN};
use super::compare::Comparison;
use super::entrant::Measured;
use crate::device::cores::CorePair;
use crate::output::outcome::{Distribution, Figure, Outcome, Scene, line};

/// A result, with all that is needed to believe it.
#[derive(Debug)]
pub struct Report {
    /// What was compared, in words.
    pub what: String,
    /// What was compared, and how.
    pub settings: Settings,
    /// Where, and how quietly.
    pub scene: Scene,
    /// The sides, in the order they were named.
    pub measured: Vec<Measured>,
    /// The first with every other: what is to be looked at first stands first.
    pub comparisons: Vec<Vec<Comparison>>,
    /// Peers that are not there, and how they are had.
    pub absent: Vec<String>,
    /// By which share the first ratio of a pair may be worse, if that is to be judged.
    pub allowed: Option<f64>,
}

/// How it was compared.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// What each side is called, and how it was asked for.
    pub sides: Vec<(String, String)>,
    /// Where they ran.
    pub cores: CorePair,
    /// Rounds of each.
    pub rounds: u32,
    /// What the draws of the bootstrap began with.
    pub seed: u64,
    /// Draws for one interval.
    pub resamples: usize,
    /// How much of the ratios drawn lies in it.
    pub confidence: f64,
}

impl Outcome for Report {
    fn mode(&self) -> &str {
        "cmp"
    }

    fn what(&self) -> &str {
        &self.what
    }

    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn settings(&self) -> Value {
        json!(self.settings)
    }

    fn figures(&self) -> Vec<Figure> {
        let sides = self.measured.iter().flat_map(|one| one.figures.iter().cloned());
        let pairs = self.comparisons.iter().flat_map(|pair| {
            pair.iter().enumerate().flat_map(|(index, one)| one.figures(index == 0))
        });
        sides.chain(pairs).collect()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        self.measured.iter().filter_map(Measured::distribution).collect()
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        self.write_round_trips(&mut out);
        self.write_rates(&mut out);
        self.write_ratios(&mut out);
        for absent in &self.absent {
            line(&mut out, format_args!("not there:   {absent}"));
        }
        self.scene.write_noise(&mut out);
        out
    }

    fn failures(&self) -> Vec<String> {
        let Some(allowed) = self.allowed else { return Vec::new() };
        let firsts = self.comparisons.iter().filter_map(|pair| pair.first());
        let worse = firsts.filter(|one| one.regression() > allowed);
        worse.map(|one| one.regression_sentence(allowed)).collect()
    }

    fn wants_verdict(&self) -> bool {
        self.allowed.is_some()
    }

    fn detail(&self) -> Value {
        json!({ "comparisons": self.comparisons.concat(), "absent": self.absent })
    }
}

impl Report {
    fn write_round_trips(&self, out: &mut String) {
        let timed: Vec<&Measured> =
            self.measured.iter().filter(|one| one.figure("round_trip.mean").is_some()).collect();
        if timed.is_empty() {
            return;
        }
        line(out, format_args!(""));
        let mut head = format!("{:<WIDTH$}", "whole round trip");
        COLUMNS.iter().for_each(|(title, ..)| head.push_str(&format!("{title:>11}")));
        line(out, format_args!("{head}{:>14}", "samples"));
        for one in timed {
            let mut row = format!("{:<WIDTH$}", one.label);
            for (_, name, factor) in COLUMNS {
                let shown = one.figure(name).map(|figure| time(figure.value * factor));
                let shown = shown.unwrap_or("-".into());
                row.push_str(&format!("{shown:>11}"));
            }
            let samples = one.figure("round_trip.mean").map_or(0, |figure| figure.samples);
            line(out, format_args!("{row}{samples:>14}"));
        }
    }

    fn write_rates(&self, out: &mut String) {
        if self.measured.iter().any(|one| one.figure("round_trip.mean").is_some()) {
            return;
        }
        line(out, format_args!(""));
        line(
            out,
            format_args!(
                "{:<WIDTH$}{:>16}{:>14}{:>14}",
                "", "round trips/s", "data, GB/s", "counted"
            ),
        );
        for one in &self.measured {
            let value = |name| one.figure(name).map(|figure| figure.value);
            let rate = value("rate").map_or("-".into(), |rate| format!("{rate:.0}"));
            let data = value("data").map_or("-".into(), |data| format!("{data:.3}"));
            let samples = one.figure("rate").map_or(0, |figure| figure.samples);
            line(out, format_args!("{:<WIDTH$}{rate:>16}{data:>14}{samples:>14}", one.label));
        }
    }

    fn write_ratios(&self, out: &mut String) {
        let Some(first) = self.measured.first() else { return };
        line(out, format_args!(""));
        let title = format!("{}, over", first.label);
        line(
            out,
            format_args!("{title:<WIDTH$}{:<10}{:>9}   {:<18}", "figure", "ratio", "95 % interval"),
        );
        let few = self.comparisons.iter().flatten().any(|one| one.rounds < ROUNDS_MIN);
        // Of many pairs only what is to be looked at first: the rest is in the JSON.
        let shown = if self.comparisons.len() > 1 { 1 } else { usize::MAX };
        for pair in &self.comparisons {
            for (index, one) in pair.iter().take(shown).enumerate() {
                let to = if index == 0 { one.to.as_str() } else { "" };
                write_ratio(out, to, one);
            }
        }
        if few {
            let text = "fewer than 6 rounds: the intervals are narrower than 95 %";
            line(out, format_args!("{text}"));
        }
    }
}

fn write_ratio(out: &mut String, to: &str, one: &Comparison) {
    let Interval { value, low, high } = one.ratio;
    let interval = format!("{} to {}", ratio(low), ratio(high));
    let unpaired = if one.paired { "" } else { ", not in one run" };
    let (value, figure, verdict) = (ratio(value), one.short(), one.verdict());
    line(
        out,
        format_args!("{to:<WIDTH$}{figure:<10}{value:>9}   {interval:<18} {verdict}{unpaired}"),
    );
}

/// A ratio with three digits behind the point, more if it is small.
fn ratio(value: f64) -> String {
    if value < 0.1 { format!("{value:.4}") } else { format!("{value:.3}") }
}

/// A time with three or four digits.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

/// Columns of the table of round trips: a figure of whole ones, times a factor.
const COLUMNS: [(&str, &str, f64); 6] = [
    ("median", "round_trip.median", 1.0),
    ("half of it", "round_trip.median", 0.5),
    ("mean", "round_trip.mean", 1.0),
    ("p99", "round_trip.p99", 1.0),
    ("p99.9", "round_trip.p99.9", 1.0),
    ("max", "round_trip.max", 1.0),
];
/// Characters of a side's name.
const WIDTH: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::jitter::Jitter;
    use crate::modes::cmp::compare::Order;
    use crate::output::json;
    use crate::stats::latency::Latency;

    fn measured(label: &str, rounds: &[f64]) -> Measured {
        let figure = |name: &'static str| {
            let figure = Figure::new(label, name, rounds[0], crate::output::outcome::Unit::Ns, 500);
            figure.rounds(rounds.to_vec())
        };
        let mut latency = Latency::new();
        latency.record(rounds[0] as u64);
        Measured {
            label: label.into(),
            figures: vec![figure("round_trip.median"), figure("round_trip.mean")],
            latency: Some(latency),
            lost: None,
            is_live: true,
        }
    }

    fn report(sides: &[(&str, [f64; 6])]) -> Report {
        let measured: Vec<Measured> =
            sides.iter().map(|(label, rounds)| measured(label, rounds)).collect();
        let cores = CorePair { client: 0, server: 1 };
        let quiet = Jitter { core: 0, gaps_per_second: 9.0, lost_share: 0.0, longest_ns: 9 };
        let comparisons = measured[1..]
            .iter()
            .map(|other| Comparison::all(&measured[0], other, Order::RateFirst, 1))
            .collect();
        Report {
            what: "cmp: a beside others".into(),
            settings: Settings {
                sides: vec![("a".into(), "lat".into())],
                cores,
                rounds: 6,
                seed: 1,
                resamples: 4000,
                confidence: 0.95,
            },
            scene: Scene::new(cores, vec!["a note".into()], [[quiet; 2]; 2], &[]),
            measured,
            comparisons,
            absent: vec!["ucx_perftest is not installed".into()],
            allowed: None,
        }
    }

    const ONE: [f64; 6] = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0];
    const TWO: [f64; 6] = [200.0, 201.0, 199.0, 200.0, 202.0, 198.0];

    #[test]
    fn the_table_shows_both_sides_the_ratio_and_how_sure_it_is() {
        let table = report(&[("a", ONE), ("b", TWO)]).table();
        let row = |from: &str, nth: usize| {
            let mut rows = table.lines().skip_while(|line| !line.starts_with(from));
            rows.nth(nth)
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(row("whole round trip", 1)[..5], ["a", "100", "ns", "50", "ns"], "{table}");
        assert_eq!(row("whole round trip", 2).last().map(String::as_str), Some("500"), "{table}");
        assert_eq!(row("a, over", 1)[..3], ["b", "median", "0.500"], "{table}");
        assert!(table.contains("2.0 times as fast") && table.contains("not there:   ucx_perftest"));
        assert_eq!(row("a, over", 2)[0], "mean", "all figures of the only pair are shown");
    }

    #[test]
    fn of_many_pairs_one_row_each_is_shown() {
        let table = report(&[("a", ONE), ("b", TWO), ("c", ONE)]).table();
        assert!(!table.contains("\n                  mean"), "{table}");
        assert!(table.contains("no difference seen"), "{table}");
    }

    #[test]
    fn a_regression_is_one_if_all_of_the_interval_is_beyond_what_is_allowed() {
        let judged = |first, second, allowed| {
            Report { allowed, ..report(&[("a", first), ("b", second)]) }.failures()
        };
        assert_eq!(judged(TWO, ONE, None), [""; 0], "nobody asked");
        assert_eq!(judged(ONE, TWO, Some(0.0)), [""; 0], "it is better");
        assert_eq!(judged(ONE, ONE, Some(0.0)), [""; 0], "it is the same");
        let failures = judged(TWO, ONE, Some(0.05));
        assert!(failures[0].starts_with("a over b, median: worse by at least 9"), "{failures:?}");
        let low = report(&[("a", TWO), ("b", ONE)]).comparisons[0][0].regression();
        assert_eq!(judged(TWO, ONE, Some(low)), [""; 0], "the edge is allowed");
    }

    #[test]
    fn few_rounds_are_said_to_be_few() {
        let mut report = report(&[("a", ONE), ("b", TWO)]);
        assert!(!report.table().contains("fewer than 6"));
        report.comparisons[0][0].rounds = ROUNDS_MIN - 1;
        assert!(report.table().contains("fewer than 6 rounds"));
    }

    #[test]
    fn json_has_figures_and_samples_of_both_sides_and_the_interval() {
        let text = json::text(&report(&[("a", ONE), ("b", TWO)]));
        let json: Value = serde_json::from_str(&text).expect("plain data");
        let figure = |of: &str, name: &str| {
            let figures = json["figures"].as_array().expect("a list");
            let found = figures.iter().find(|figure| figure["of"] == of && figure["name"] == name);
            found.unwrap_or_else(|| panic!("no {of}.{name}"))["value"].clone()
        };
        assert_eq!(figure("a", "round_trip.median"), 100.0);
        assert_eq!(figure("a/b", "ratio"), 0.5);
        assert!(figure("a/b", "ratio.low").as_f64().is_some_and(|low| (0.48..0.5).contains(&low)));
        assert_eq!(json["distributions"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["comparisons"][0]["paired"], true);
        assert_eq!((&json["comparisons"][0]["to"], &json["mode"]), (&"b".into(), &"cmp".into()));
        assert_eq!(json["absent"][0], "ucx_perftest is not installed");
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!((ratio(1.05), ratio(0.0123)), ("1.050".into(), "0.0123".into()));
        assert_eq!((time(443.4), time(65_210.0)), ("443 ns".into(), "65.2 us".into()));
        assert_eq!(time(1.5e6), "1.5 ms");
    }
}
