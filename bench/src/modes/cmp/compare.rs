//! The figures that two sides share, and their ratios.

use std::borrow::Cow;

use serde::Serialize;

use super::bootstrap::{Interval, Pairing};
use super::entrant::MeasuredSide;
use crate::output::{Better, Figure, Unit};

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub of: String,
    pub to: String,
    /// The figure: `round_trip.median`, `rate`.
    pub figure: Cow<'static, str>,
    /// That of the side above the line: the median of its rounds.
    pub of_value: f64,
    pub to_value: f64,
    pub unit: Unit,
    pub better: Better,
    /// One over the other, and how sure that is.
    #[serde(flatten)]
    pub ratio: Interval,
    /// Whether the rounds of both were run in turns.
    pub paired: bool,
    /// Rounds of the side that has fewer.
    pub rounds: usize,
    pub samples: u64,
    /// The ratios of neighbouring rounds, if they were run in turns.
    #[serde(skip)]
    pub neighbours: Vec<f64>,
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
            Comparison::one(of.figure(name)?, to.figure(name)?, of.is_live && to.is_live, seed)
        };
        let timed: Vec<Comparison> = ROUND_TRIPS.iter().filter_map(compare).collect();
        if !timed.is_empty() {
            return timed;
        }
        match order {
            FigureOrder::RateFirst => ["rate", "data"].iter().filter_map(compare).collect(),
            FigureOrder::DataFirst => ["data", "rate"].iter().filter_map(compare).collect(),
        }
    }

    fn one(of: &Figure, to: &Figure, paired: bool, seed: u64) -> Option<Comparison> {
        if of.unit != to.unit {
            return None;
        }
        let pairing = if paired { Pairing::Paired } else { Pairing::Unpaired };
        let middle = |figure: &Figure| crate::stats::rounds::median(figure.rounds.iter().copied());
        let neighbours = of.rounds.iter().zip(&to.rounds).map(|(of, to)| of / to);
        Some(Comparison {
            ratio: Interval::of_medians(&of.rounds, &to.rounds, pairing, seed)?,
            of: of.of.clone(),
            to: to.of.clone(),
            figure: of.name.clone(),
            of_value: middle(of),
            to_value: middle(to),
            unit: of.unit,
            better: of.better,
            paired,
            rounds: of.rounds.len().min(to.rounds.len()),
            samples: of.samples + to.samples,
            neighbours: if paired { neighbours.collect() } else { Vec::new() },
        })
    }

    /// By which share the side above the line is worse for sure: the near end of the interval,
    /// below 0 if it may be better.
    pub fn regression(&self) -> f64 {
        match self.better {
            Better::Higher => 1.0 - self.ratio.high,
            Better::Lower | Better::Neither => self.ratio.low - 1.0,
        }
    }

    /// That it is worse by more than that share, in words.
    pub fn regression_sentence(&self, allowed: f64) -> String {
        let Comparison { of, to, ratio: Interval { value, low, high }, .. } = self;
        format!(
            "{of} over {to}, {}: worse by at least {:.1} %, {:.1} % are allowed (ratio {value:.3}, \
             {low:.3} to {high:.3})",
            self.short(),
            self.regression() * 100.0,
            allowed * 100.0
        )
    }

    pub fn result(&self) -> String {
        let Interval { value, .. } = self.ratio;
        if self.ratio.contains(1.0) {
            return "no difference seen".into();
        }
        let good = match self.better {
            Better::Higher => value,
            Better::Lower | Better::Neither => 1.0 / value,
        };
        let [faster, slower] = match self.better {
            Better::Higher => ["more", "less"],
            Better::Lower | Better::Neither => ["faster", "slower"],
        };
        match good {
            good if good >= 2.0 => {
                format!("{good:.1} times as {}", if faster == "more" { "much" } else { "fast" })
            }
            good if good >= 1.0 => format!("{:.1} % {faster}", (good - 1.0) * 100.0),
            good if good > 0.5 => format!("{:.1} % {slower}", (1.0 / good - 1.0) * 100.0),
            good => format!("{:.1} times {slower}", 1.0 / good),
        }
    }

    /// The figure without what it is a figure of: `median`, `rate`.
    pub fn short(&self) -> &str {
        self.figure.strip_prefix("round_trip.").unwrap_or(&self.figure)
    }

    /// Its numbers as figures of the ratio: `ratio.median` and the ends of its interval, and if
    /// it is the `first` of its pair, the same as `ratio`, and `regression`.
    pub fn figures(&self, first: bool) -> Vec<Figure> {
        let of = format!("{}/{}", self.of, self.to);
        let Interval { value, low, high } = self.ratio;
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
        if first {
            figures.extend(named("ratio"));
            let worse = self.regression();
            let worse = Figure::new(&of, "regression", worse, Unit::Share, self.samples);
            figures.push(worse.better(Better::Lower));
        }
        figures
    }
}

/// What is looked at first where round trips were not timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureOrder {
    RateFirst,
    DataFirst,
}

/// Medians before means: who has only a mean is compared by that.
const ROUND_TRIPS: [&str; 4] =
    ["round_trip.median", "round_trip.mean", "round_trip.p99", "round_trip.p99.9"];

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
            latency: None,
            lost: None,
            is_live: true,
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
        assert!((means[0].ratio.value - 1.1).abs() < 0.001, "{means:?}");
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
        let ids: Vec<String> = one.figures(true).iter().map(Figure::id).collect();
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
        assert_eq!(one.figures(false).len(), 3);
        assert_eq!(one.figures(true)[0].rounds.len(), SLOW.len());
    }
}
