//! The figures that two sides share, and their ratios.

use std::borrow::Cow;

use serde::Serialize;

use super::bootstrap::{Interval, Pairing};
use super::entrant::MeasuredSide;
use crate::output::{At, Better, Figure, Unit};
use crate::stats::median;

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub of: String,
    pub to: String,
    /// The point of both, if they are of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// The figure: `round_trip.median`, `rate`.
    pub figure: Cow<'static, str>,
    /// That of the side above the line: the median of its rounds.
    pub of_value: f64,
    pub to_value: f64,
    pub unit: Unit,
    pub better: Better,
    /// One over the other, and how sure that is; nothing of what is 0 or has no rounds.
    #[serde(flatten)]
    pub ratio: Option<Interval>,
    /// Whether the difference is more than the noise of the rounds of both; nothing if either has
    /// fewer than two.
    pub outside_noise: Option<bool>,
    /// Whether the rounds of both were run in turns.
    pub paired: bool,
    /// Rounds of the side that has fewer.
    pub rounds: usize,
    pub samples: u64,
    /// The ratios of neighbouring rounds, if they were run in turns.
    #[serde(skip)]
    pub neighbours: Vec<f64>,
    /// Whether it is what is looked at first of its pair, or of its point.
    #[serde(skip)]
    pub is_first: bool,
}

impl Comparison {
    /// Compares every figure that both sides have of every round: what is to be looked at first
    /// stands first. Round trips where both have them, rates and data where one has none.
    pub fn all(
        of: &MeasuredSide,
        to: &MeasuredSide,
        order: FigureOrder,
        seed: u64,
    ) -> Vec<Comparison> {
        let compare = |name: &&str| {
            let one = Comparison::one(of.figure(name)?, to.figure(name)?, of, to, seed)?;
            one.ratio.is_some().then_some(one)
        };
        let timed: Vec<Comparison> = ROUND_TRIPS.iter().filter_map(compare).collect();
        let mut all = match order {
            _ if !timed.is_empty() => timed,
            FigureOrder::RateFirst => ["rate", "data"].iter().filter_map(compare).collect(),
            FigureOrder::DataFirst => ["data", "rate"].iter().filter_map(compare).collect(),
        };
        all.first_mut().into_iter().for_each(|first| first.is_first = true);
        all
    }

    /// Compares every figure of every point that two whole results share.
    pub fn points(of: &MeasuredSide, to: &MeasuredSide, seed: u64) -> Vec<Comparison> {
        let mut all: Vec<Comparison> = Vec::new();
        for figure in of.figures.iter().filter(|figure| !is_derived(&figure.name)) {
            let whose = &figure.of[of.label.len()..];
            let is_same = |other: &&Figure| {
                other.name == figure.name
                    && other.at == figure.at
                    && other.of.strip_prefix(&*to.label) == Some(whose)
            };
            let Some(other) = to.figures.iter().find(is_same) else { continue };
            let Some(mut one) = Comparison::one(figure, other, of, to, seed) else { continue };
            let is_headline = HEADLINES.contains(&&*one.figure) && one.ratio.is_some();
            let is_new = !all.iter().any(|it| it.is_first && it.of == one.of && it.at == one.at);
            one.is_first = is_headline && is_new;
            all.push(one);
        }
        all
    }

    fn one(
        above: &Figure,
        below: &Figure,
        of: &MeasuredSide,
        to: &MeasuredSide,
        seed: u64,
    ) -> Option<Comparison> {
        if above.unit != below.unit {
            return None;
        }
        let paired = of.is_live && to.is_live;
        let pairing = if paired { Pairing::Paired } else { Pairing::Unpaired };
        let middle = |figure: &Figure| match &figure.rounds[..] {
            [] => figure.value,
            rounds => median(rounds.iter().copied()),
        };
        let neighbours = above.rounds.iter().zip(&below.rounds).map(|(of, to)| of / to);
        Some(Comparison {
            ratio: Interval::of_medians(&above.rounds, &below.rounds, pairing, seed),
            outside_noise: outside(&above.rounds, &below.rounds, pairing, seed),
            of: above.of.clone(),
            to: below.of.clone(),
            at: above.at.clone(),
            figure: above.name.clone(),
            of_value: middle(above),
            to_value: middle(below),
            unit: above.unit,
            better: above.better,
            paired,
            rounds: above.rounds.len().min(below.rounds.len()),
            samples: above.samples + below.samples,
            neighbours: if paired { neighbours.collect() } else { Vec::new() },
            is_first: false,
        })
    }

    /// By which share the side above the line is worse for sure: the near end of the interval,
    /// below 0 if it may be better.
    pub fn regression(&self) -> f64 {
        let Some(Interval { low, high, .. }) = self.ratio else { return 0.0 };
        match self.better {
            Better::Higher => 1.0 - high,
            Better::Lower | Better::Neither => low - 1.0,
        }
    }

    /// That it is worse by more than that share, in words.
    pub fn regression_sentence(&self, allowed: f64) -> String {
        let Comparison { of, to, .. } = self;
        let at = self.at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
        let Interval { value, low, high } = self.ratio.unwrap_or_default();
        format!(
            "{of} over {to}{at}, {}: worse by at least {:.1} %, {:.1} % are allowed (ratio \
             {value:.3}, {low:.3} to {high:.3})",
            self.short(),
            self.regression() * 100.0,
            allowed * 100.0
        )
    }

    pub fn result(&self) -> String {
        let Some(Interval { value, .. }) = self.ratio else {
            return match self.outside_noise {
                _ if self.of_value == self.to_value => "equal",
                Some(true) => "different",
                Some(false) => "no difference seen",
                None => "no rounds: the noise is not known",
            }
            .into();
        };
        match self.outside_noise {
            Some(true) => {}
            Some(false) => return "no difference seen".into(),
            None => return format!("{}: one round, the noise is not known", self.change(value)),
        }
        self.change(value)
    }

    fn change(&self, value: f64) -> String {
        // Of times, less is faster.
        let (good, [better, worse, many]) = match self.unit {
            Unit::Ns => (1.0 / value, ["faster", "slower", "fast"]),
            _ => (value, ["more", "less", "much"]),
        };
        match good {
            good if good >= 2.0 => format!("{good:.1} times as {many}"),
            good if good >= 1.0 => format!("{:.1} % {better}", (good - 1.0) * 100.0),
            good if good > 0.5 => format!("{:.1} % {worse}", (1.0 / good - 1.0) * 100.0),
            good => format!("{:.1} times {worse}", 1.0 / good),
        }
    }

    /// The figure without what it is a figure of: `median`, `rate`.
    pub fn short(&self) -> &str {
        self.figure.strip_prefix("round_trip.").unwrap_or(&self.figure)
    }

    /// Its numbers as figures of the ratio: `ratio.median` and the ends of its interval, and if
    /// it is the first of its pair or its point, the same as `ratio`, and `regression`.
    pub fn figures(&self) -> Vec<Figure> {
        let of = format!("{}/{}", self.of, self.to);
        let Some(Interval { value, low, high }) = self.ratio else { return Vec::new() };
        let figure = |name: String, value: f64| {
            Figure::new(&of, name, value, Unit::Ratio, self.samples).better(self.better)
        };
        let named = |name: &str| {
            [
                figure(name.to_owned(), value).rounds(self.neighbours.clone()),
                figure(format!("{name}.low"), low),
                figure(format!("{name}.high"), high),
            ]
        };
        let mut figures = named(&format!("ratio.{}", self.short())).to_vec();
        if self.is_first {
            figures.extend(named("ratio"));
            let worse = self.regression();
            let worse = Figure::new(&of, "regression", worse, Unit::Share, self.samples);
            figures.push(worse.better(Better::Lower));
        }
        figures.into_iter().map(|figure| Figure { at: self.at.clone(), ..figure }).collect()
    }
}

/// What is looked at first where round trips were not timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureOrder {
    RateFirst,
    DataFirst,
}

/// Whether two figures differ by more than their rounds do among themselves: the interval of their
/// ratio does not contain 1. Where there is no ratio, since something is 0, the rounds of one lie
/// above all those of the other.
fn outside(of: &[f64], to: &[f64], pairing: Pairing, seed: u64) -> Option<bool> {
    if of.len().min(to.len()) < 2 {
        return None;
    }
    if let Some(ratio) = Interval::of_medians(of, to, pairing, seed) {
        return Some(!ratio.contains(1.0));
    }
    let ends = |rounds: &[f64]| {
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        (least, rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    };
    let ((of_least, of_most), (to_least, to_most)) = (ends(of), ends(to));
    Some(of_least > to_most || to_least > of_most)
}

/// Whether a figure says what another one says, too: half of a round trip, the spread of a ratio.
fn is_derived(name: &str) -> bool {
    let ends = [".paired", ".lowest", ".highest", ".low", ".high"];
    let is_spread = name.starts_with("ratio") && ends.iter().any(|end| name.ends_with(end));
    name.starts_with("half_") || is_spread
}

/// Medians before means: who has only a mean is compared by that.
const ROUND_TRIPS: [&str; 4] =
    ["round_trip.median", "round_trip.mean", "round_trip.p99", "round_trip.p99.9"];
/// What is looked at first of a point.
const HEADLINES: [&str; 4] = ["round_trip.median", "round_trip.p50", "rate", "data"];

#[cfg(test)]
mod tests {
    use super::*;

    fn side(label: &str, figures: &[(&'static str, Unit, &[f64])]) -> MeasuredSide {
        let figure = |(name, unit, rounds): &(&'static str, Unit, &[f64])| {
            Figure::new(label, *name, rounds[0], *unit, 10).rounds(rounds.to_vec())
        };
        MeasuredSide {
            label: label.into(),
            figures: figures.iter().map(figure).collect(),
            latencies: Vec::new(),
            lost: None,
            is_live: true,
            result: None,
        }
    }

    const SLOW: &[f64] = &[221.0, 220.0, 219.0, 220.0, 221.0, 219.0];
    const FAST: &[f64] = &[200.0, 201.0, 199.0, 200.0, 200.0, 200.0];

    fn names(all: &[Comparison]) -> Vec<&str> {
        all.iter().map(Comparison::short).collect()
    }

    #[test]
    fn medians_are_compared_with_medians_and_means_with_a_side_that_has_only_means() {
        let full = side(
            "lat",
            &[("round_trip.mean", Unit::Ns, SLOW), ("round_trip.median", Unit::Ns, SLOW)],
        );
        let mean = side("fi", &[("round_trip.mean", Unit::Ns, FAST)]);
        assert_eq!(
            names(&Comparison::all(&full, &full, FigureOrder::RateFirst, 1)),
            ["median", "mean"]
        );
        let means = Comparison::all(&full, &mean, FigureOrder::RateFirst, 1);
        assert_eq!(names(&means), ["mean"]);
        let ratio = means[0].ratio.expect("none is 0");
        assert!((ratio.value - 1.1).abs() < 0.001, "{means:?}");
        assert!((0.08..0.1).contains(&means[0].regression()), "{means:?}");
    }

    #[test]
    fn rates_are_compared_only_where_no_round_trip_is() {
        let both = side("a", &[("rate", Unit::PerSecond, SLOW), ("data", Unit::GbPerSecond, SLOW)]);
        let other =
            side("b", &[("rate", Unit::PerSecond, FAST), ("data", Unit::GbPerSecond, FAST)]);
        assert_eq!(
            names(&Comparison::all(&both, &other, FigureOrder::RateFirst, 1)),
            ["rate", "data"]
        );
        let first = Comparison::all(&both, &other, FigureOrder::DataFirst, 1);
        assert_eq!(names(&first), ["data", "rate"]);
        assert!(first[0].regression() < -0.09, "more is better: {first:?}");
        let timed = side("c", &[("round_trip.mean", Unit::Ns, FAST)]);
        assert!(Comparison::all(&both, &timed, FigureOrder::RateFirst, 1).is_empty());
    }

    #[test]
    fn sides_of_different_runs_are_not_paired() {
        let live = side("a", &[("round_trip.median", Unit::Ns, SLOW)]);
        let saved =
            MeasuredSide { is_live: false, ..side("b", &[("round_trip.median", Unit::Ns, FAST)]) };
        let all = Comparison::all(&live, &saved, FigureOrder::RateFirst, 1);
        assert!(!all[0].paired && all[0].neighbours.is_empty(), "{all:?}");
        assert!(Comparison::all(&live, &live, FigureOrder::RateFirst, 1)[0].paired);
    }

    #[test]
    fn a_result_names_the_better_side_or_none() {
        let result = |of: &[f64], to: &[f64], unit| {
            let (a, b) = (side("a", &[("rate", unit, of)]), side("b", &[("rate", unit, to)]));
            Comparison::all(&a, &b, FigureOrder::RateFirst, 1)[0].result()
        };
        assert_eq!(result(SLOW, FAST, Unit::Ns), "10.0 % slower");
        assert_eq!(result(FAST, SLOW, Unit::Ns), "10.0 % faster");
        assert_eq!(result(SLOW, FAST, Unit::PerSecond), "10.0 % more");
        assert_eq!(result(FAST, FAST, Unit::Ns), "no difference seen");
        let far: Vec<f64> = FAST.iter().map(|ns| ns * 7.0).collect();
        assert_eq!(result(FAST, &far, Unit::Ns), "7.0 times as fast");
        assert_eq!(result(&far, FAST, Unit::Ns), "7.0 times slower");
    }

    #[test]
    fn the_first_comparison_of_a_pair_is_its_ratio() {
        let (a, b) = (
            side("a", &[("round_trip.median", Unit::Ns, SLOW)]),
            side("b", &[("round_trip.median", Unit::Ns, FAST)]),
        );
        let one = &Comparison::all(&a, &b, FigureOrder::RateFirst, 1)[0];
        let ids: Vec<String> = one.figures().iter().map(Figure::id).collect();
        assert_eq!(
            ids,
            [
                "a/b.ratio.median",
                "a/b.ratio.median.low",
                "a/b.ratio.median.high",
                "a/b.ratio",
                "a/b.ratio.low",
                "a/b.ratio.high",
                "a/b.regression"
            ]
        );
        assert_eq!(one.figures()[0].rounds.len(), SLOW.len());
        let second = Comparison { is_first: false, ..one.clone() };
        assert_eq!(second.figures().len(), 3);
    }
    fn at(label: &str, load: f64, rounds: &[f64]) -> Figure {
        let at = At::new("load", load, Unit::Share);
        let figure = Figure::new(label, "round_trip.p99.9", rounds[0], Unit::Ns, 7);
        figure.rounds(rounds.to_vec()).at(at)
    }

    #[test]
    fn points_of_two_results_are_matched_by_their_names() {
        let (mut of, mut to) = (side("new", &[]), side("old", &[]));
        of.figures = vec![at("new", 0.5, SLOW), at("new", 0.7, SLOW), at("new#generator", 0.7, FAST)];
        to.figures = vec![at("old", 0.7, FAST), at("old", 0.9, FAST), at("old#generator", 0.7, FAST)];
        let all = Comparison::points(&of, &to, 1);
        let points: Vec<String> =
            all.iter().map(|one| of.point(&one.of, one.at.as_ref())).collect();
        assert_eq!(points, ["new@load=0.7", "generator@load=0.7"]);
        assert_eq!(all[0].outside_noise, Some(true));
        assert_eq!((all[0].result(), all[1].result()), ("10.0 % slower".into(), "no difference seen".into()));
        assert_eq!(all[0].figures()[0].id(), "new/old@load=0.7.ratio.p99.9");
    }

    #[test]
    fn what_has_no_ratio_is_compared_by_its_rounds() {
        let result = |of: &[f64], to: &[f64]| {
            let both = [("backlog.max", Unit::Count, of), ("backlog.max", Unit::Count, to)];
            let [of, to] = both.map(|figure| side("a", &[figure]));
            let all = Comparison::points(&of, &to, 1);
            (all[0].outside_noise, all[0].result())
        };
        assert_eq!(result(&[0.0, 0.0], &[0.0, 0.0]), (Some(false), "equal".into()));
        assert_eq!(result(&[0.0, 2.0], &[1.0, 0.0]).0, Some(false));
        assert_eq!(result(&[0.0, 2.0], &[9.0, 8.0]), (Some(true), "different".into()));
        let (outside, said) = result(&[3.0], &[2.0]);
        assert!(outside.is_none() && said.contains("50.0 % more: one round"), "{said}");
    }
}
