//! The result of a comparison: the figures of every side, and ratios with their intervals.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::bootstrap::{Interval, ROUNDS_MIN};
use super::compare::Comparison;
use super::entrant::MeasuredSide;
use crate::output::{Environment, Figure, Report, Row, Table, contender_tables, value};

#[derive(Debug)]
pub struct Compared {
    /// The sides, in the order they were named.
    pub measured: Vec<MeasuredSide>,
    /// The first with every other: what is to be looked at first stands first.
    pub comparisons: Vec<Vec<Comparison>>,
    /// Peers that are not there, and how they are had.
    pub absent: Vec<String>,
    /// By which share the first ratio of a pair may be worse, if that is to be checked.
    pub allowed: Option<f64>,
}

impl Compared {
    pub fn report(&self, what: String, settings: Value, environment: Environment) -> Report {
        let mut figures = Figure::of_each(&self.measured, |one| one.figures.clone());
        figures.extend(Figure::of_each(&self.comparisons.concat(), Comparison::figures));
        let mut report = Report::new("cmp", what, settings, environment, figures);
        for one in &self.measured {
            one.latencies.iter().for_each(|(name, latency)| report.samples(name, latency));
        }
        if self.is_of_results() {
            self.results().into_iter().for_each(|block| report.block(block));
        } else {
            let rows: Vec<Row> = self.measured.iter().map(|one| Row::of(&one.label)).collect();
            let tables = contender_tables(&rows, &report.figures);
            tables.into_iter().for_each(|table| report.block(table));
            report.block(self.ratios());
        }
        if self.comparisons.iter().flatten().any(|one| one.rounds < ROUNDS_MIN) {
            report.block("fewer than 6 rounds: the intervals are narrower than 95 %");
        }
        if !self.absent.is_empty() {
            let lines = self.absent.iter().map(|absent| format!("not there:   {absent}\n"));
            report.block(lines.collect::<String>());
        }
        report.is_checked = self.allowed.is_some();
        report.failures = self.regressions();
        report.detail(json!({ "comparisons": self.comparisons.concat(), "absent": self.absent }));
        report
    }

    fn regressions(&self) -> Vec<String> {
        let Some(allowed) = self.allowed else { return Vec::new() };
        let firsts = self.comparisons.iter().flatten().filter(|one| one.is_first);
        let worse = firsts.filter(|one| one.regression() > allowed);
        worse.map(|one| one.regression_sentence(allowed)).collect()
    }

    fn ratios(&self) -> Table {
        let first = self.measured.first().map_or("", |first| &first.label);
        let head = format!("{first}, over");
        let mut table = Table::new(&[0, 1, 3, 4], [&head, "figure", "ratio", "95 % interval", ""]);
        // Of many pairs only what is to be looked at first: the rest is in the JSON.
        let shown = if self.comparisons.len() > 1 { 1 } else { usize::MAX };
        for pair in &self.comparisons {
            for (index, one) in pair.iter().take(shown).enumerate() {
                let Interval { value, low, high } = one.ratio.unwrap_or_default();
                let to = if index == 0 { one.to.clone() } else { String::new() };
                let interval = format!("{} to {}", ratio(low), ratio(high));
                let unpaired = if one.paired { "" } else { ", not in one run" };
                let result = format!("{}{unpaired}", one.result());
                table.row([to, one.short().to_owned(), ratio(value), interval, result]);
            }
        }
        table
    }

    /// Whether whole results are compared, point by point.
    fn is_of_results(&self) -> bool {
        self.measured.iter().all(|side| side.result.is_some())
    }

    /// For each pair what differs between the runs, and every figure of every point of both.
    fn results(&self) -> Vec<String> {
        let mut blocks = Vec::new();
        let Some((first, others)) = self.measured.split_first() else { return blocks };
        for (other, pair) in others.iter().zip(&self.comparisons) {
            blocks.push(differences(first, other).join("\n"));
            let heads = ["", "figure", &first.label, &other.label, "ratio", "95 % interval", ""];
            let mut table = Table::new(&[0, 1, 5, 6], heads);
            let mut last = None;
            for one in pair {
                let point = first.point(&one.of, one.at.as_ref());
                let shown = if last.as_ref() == Some(&point) { String::new() } else { point.clone() };
                last = Some(point);
                let [of, to] = [one.of_value, one.to_value].map(|it| value::text(it, one.unit));
                let [middle, interval] = one.ratio.map_or_else(Default::default, |it| {
                    [ratio(it.value), format!("{} to {}", ratio(it.low), ratio(it.high))]
                });
                table.row([shown, one.figure.to_string(), of, to, middle, interval, one.result()]);
            }
            blocks.push(table.to_string());
        }
        blocks
    }
}

/// What two results do not share: their modes, machines, settings and points.
fn differences(of: &MeasuredSide, to: &MeasuredSide) -> Vec<String> {
    let (Some(above), Some(below)) = (&of.result, &to.result) else { return Vec::new() };
    let mut lines = vec![
        format!("{}: {}", of.label, above.what),
        format!("{}: {}", to.label, below.what),
    ];
    if above.mode != below.mode {
        lines.push(format!(
            "different modes: {} is of `{}`, {} of `{}`; only points of one name are compared",
            of.label, above.mode, to.label, below.mode
        ));
    }
    let (one, other) = (&above.environment, &below.environment);
    if one.machine.cpu != other.machine.cpu || one.machine.kernel != other.machine.kernel {
        let [one, other] = [one, other].map(|it| it.machine.lines().join(", "));
        lines.push(format!("different machines: {one}; {other}"));
    }
    if one.build != other.build {
        lines.push(format!("different programs: {}; {}", one.build.line(), other.build.line()));
    }
    let none = serde_json::Map::new();
    let [one, other] = [above, below].map(|it| it.settings.as_object().unwrap_or(&none));
    let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for key in keys.into_iter().filter(|key| one.get(*key) != other.get(*key)) {
        let value = |of: &Map<String, Value>| of.get(key).map_or("none".into(), Value::to_string);
        lines.push(format!("different settings: {key} is {} and {}", value(one), value(other)));
    }
    let (one, other) = (of.points(), to.points());
    for (side, only) in [(of, &one - &other), (to, &other - &one)] {
        if !only.is_empty() {
            let names: Vec<&str> = only.iter().map(String::as_str).collect();
            lines.push(format!("only in {}: {}", side.label, names.join(", ")));
        }
    }
    lines
}

/// A ratio with three digits behind the point, more if it is small.
fn ratio(value: f64) -> String {
    if value < 0.1 { format!("{value:.4}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::cmp::compare::FigureOrder;
    use crate::output::Unit;
    use crate::stats::Latency;
    use crate::testing::quiet;

    fn measured(label: &str, rounds: &[f64]) -> MeasuredSide {
        let figure = |name: &'static str| {
            Figure::new(label, name, rounds[0], Unit::Ns, 500).rounds(rounds.to_vec())
        };
        MeasuredSide {
            label: label.into(),
            figures: vec![figure("round_trip.median"), figure("round_trip.mean")],
            latencies: vec![(label.into(), Latency::of([rounds[0] as u64]))],
            lost: None,
            is_live: true,
            result: None,
        }
    }

    fn compared(sides: &[(&str, [f64; 6])]) -> Compared {
        let measured: Vec<MeasuredSide> =
            sides.iter().map(|(label, rounds)| measured(label, rounds)).collect();
        let compare = |other| Comparison::all(&measured[0], other, FigureOrder::RateFirst, 1);
        let comparisons = measured[1..].iter().map(compare).collect();
        let absent = vec!["ucx_perftest is not installed".into()];
        Compared { measured, comparisons, absent, allowed: None }
    }

    fn report(compared: &Compared) -> Report {
        let environment = quiet(vec!["a note".into()]);
        compared.report("cmp: a beside others".into(), json!({}), environment)
    }

    const ONE: [f64; 6] = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0];
    const TWO: [f64; 6] = [200.0, 201.0, 199.0, 200.0, 202.0, 198.0];

    #[test]
    fn the_table_shows_both_sides_the_ratio_and_how_sure_it_is() {
        let table = report(&compared(&[("a", ONE), ("b", TWO)])).text();
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
        let table = report(&compared(&[("a", ONE), ("b", TWO), ("c", ONE)])).text();
        assert!(!table.contains("\n                  mean"), "{table}");
        assert!(table.contains("no difference seen"), "{table}");
    }

    #[test]
    fn a_regression_is_one_if_all_of_the_interval_is_beyond_what_is_allowed() {
        let regressions = |first, second, allowed| {
            report(&Compared { allowed, ..compared(&[("a", first), ("b", second)]) }).failures
        };
        assert_eq!(regressions(TWO, ONE, None), [""; 0], "no limit was given");
        assert_eq!(regressions(ONE, TWO, Some(0.0)), [""; 0], "it is better");
        assert_eq!(regressions(ONE, ONE, Some(0.0)), [""; 0], "it is the same");
        let failures = regressions(TWO, ONE, Some(0.05));
        assert!(failures[0].starts_with("a over b, median: worse by at least 9"), "{failures:?}");
        let low = compared(&[("a", TWO), ("b", ONE)]).comparisons[0][0].regression();
        assert_eq!(regressions(TWO, ONE, Some(low)), [""; 0], "the edge is allowed");
    }

    #[test]
    fn few_rounds_are_said_to_be_few() {
        let mut compared = compared(&[("a", ONE), ("b", TWO)]);
        assert!(!report(&compared).text().contains("fewer than 6"));
        compared.comparisons[0][0].rounds = ROUNDS_MIN - 1;
        assert!(report(&compared).text().contains("fewer than 6 rounds"));
    }

    #[test]
    fn json_has_figures_and_samples_of_both_sides_and_the_interval() {
        let text = report(&compared(&[("a", ONE), ("b", TWO)])).json();
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
    }
}
