//! A figure: one number of a result, with its name, its unit and its sample count.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::stats::Latency;

/// One number of a result.
///
/// Its name in text is `rpc.round_trip.p99`; at a point of a sweep `rpc@load=0.7.round_trip.p99`;
/// of a ratio `rpc/floor.ratio.median`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Whose: a contender, or the ratio of two.
    pub of: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// What: `round_trip.p50`, `rate`, `ratio.median`.
    pub name: Cow<'static, str>,
    pub value: f64,
    pub unit: Unit,
    pub samples: u64,
    pub better: Better,
    /// The same of every round, in order, if there are rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct At {
    /// What is varied: `load`, `delay`, `connections`.
    pub axis: Cow<'static, str>,
    pub value: f64,
    pub unit: Unit,
}

/// The units, each with its symbol in text and in JSON.
macro_rules! units {
    ($($(#[$about:meta])* $unit:ident = $symbol:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, VariantArray)]
        pub enum Unit {
            $($(#[$about])* #[serde(rename = $symbol)] $unit,)*
        }

        impl Unit {
            pub fn symbol(self) -> &'static str {
                match self {
                    $(Unit::$unit => $symbol,)*
                }
            }
        }
    };
}

units! {
    Ns = "ns",
    PerSecond = "1/s",
    /// 10^9 bytes in a second.
    GbPerSecond = "GB/s",
    Bytes = "B",
    Count = "count",
    PerCall = "per call",
    Instructions = "instructions",
    Ratio = "x",
    /// A part of a whole, 0 to 1.
    Share = "share",
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
    Neither,
}

impl Figure {
    /// A number from so many samples. Times are better when lower, rates when higher, other units
    /// are neutral: [`Figure::better`] changes that.
    pub fn new(
        of: impl Into<String>,
        name: impl Into<Cow<'static, str>>,
        value: f64,
        unit: Unit,
        samples: u64,
    ) -> Figure {
        let (of, name, better) = (of.into(), name.into(), Better::usual(unit));
        Figure { of, at: None, name, value, unit, samples, better, rounds: Vec::new() }
    }

    /// The figures of all of them, in their order.
    pub fn of_each<T>(items: &[T], figures: impl Fn(&T) -> Vec<Figure>) -> Vec<Figure> {
        let mut all = Vec::new();
        // Not `flat_map`, which is ten times the code for every type.
        items.iter().for_each(|item| all.extend(figures(item)));
        all
    }

    /// The parts of a distribution, each as `NAME.p50` and so on, times `factor`.
    pub fn parts(
        of: &str,
        name: &str,
        latency: &Latency,
        rounds: &[Parts],
        factor: f64,
    ) -> Vec<Figure> {
        let Parts(values) = Parts::of(latency);
        let figure = |index: usize| {
            let rounds = rounds.iter().map(|Parts(values)| values[index] * factor).collect();
            let (name, value) = (format!("{name}.{}", PARTS[index].0), values[index] * factor);
            Figure::new(of, name, value, Unit::Ns, latency.count()).rounds(rounds)
        };
        (0..PARTS.len()).map(figure).collect()
    }

    /// A distribution of round trips: whole ones as `round_trip`, and half of each as
    /// `half_round_trip`, which is what others print as latency.
    pub fn round_trips(of: &str, latency: &Latency, rounds: &[Parts]) -> Vec<Figure> {
        let whole = Figure::parts(of, "round_trip", latency, rounds, 1.0);
        let half = Figure::parts(of, "half_round_trip", latency, rounds, 0.5);
        whole.into_iter().chain(half).collect()
    }

    #[must_use]
    pub fn at(self, at: At) -> Figure {
        Figure { at: Some(at), ..self }
    }

    #[must_use]
    pub fn better(self, better: Better) -> Figure {
        Figure { better, ..self }
    }

    /// With the same figure of every round; left out where one of them is no number.
    #[must_use]
    pub fn rounds(self, rounds: Vec<f64>) -> Figure {
        let are_numbers = rounds.iter().all(|value| value.is_finite());
        Figure { rounds: if are_numbers { rounds } else { Vec::new() }, ..self }
    }

    pub fn id(&self) -> String {
        format!("{}.{}", self.point(), self.name)
    }

    /// Whose it is, and where: `rpc`, or `rpc@load=0.7`.
    pub fn point(&self) -> String {
        point(&self.of, self.at.as_ref())
    }
}

/// The name of a point: whose, and at which value of what is varied.
pub fn point(of: &str, at: Option<&At>) -> String {
    at.map_or_else(|| of.to_owned(), |at| format!("{of}@{at}"))
}

/// What text calls a contender: a floor by its kind, others by their names.
pub fn title(name: &str) -> &str {
    match name {
        SERIAL_FLOOR => "serial floor",
        PREFETCHED_FLOOR => "prefetched floor",
        other => other,
    }
}

/// The name since before there were two: saved results have it.
pub const SERIAL_FLOOR: &str = "floor";
pub const PREFETCHED_FLOOR: &str = "prefetched_floor";

impl Better {
    /// Times are better when lower, rates when higher, and of the rest neither.
    pub const fn usual(unit: Unit) -> Better {
        match unit {
            Unit::Ns | Unit::Instructions => Better::Lower,
            Unit::PerSecond | Unit::GbPerSecond => Better::Higher,
            _ => Better::Neither,
        }
    }
}

impl At {
    pub fn new(axis: impl Into<Cow<'static, str>>, value: f64, unit: Unit) -> At {
        At { axis: axis.into(), value, unit }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let At { axis, value, unit } = self;
        match unit {
            Unit::Ns if value % 1e3 == 0.0 => write!(f, "{axis}={}us", value / 1e3),
            Unit::Ns => write!(f, "{axis}={value}ns"),
            _ => write!(f, "{axis}={value}"),
        }
    }
}

/// The parts of a distribution, as `PARTS` names them: what is kept of every round.
#[derive(Debug, Clone, Copy)]
pub struct Parts([f64; PARTS.len()]);

impl Parts {
    pub fn of(latency: &Latency) -> Parts {
        Parts(PARTS.map(|(_, part)| part(latency)))
    }
}

type Part = fn(&Latency) -> f64;

const PARTS: [(&str, Part); 9] = [
    ("min", |latency| latency.min_ns() as f64),
    ("p50", |latency| latency.quantile_ns(0.5) as f64),
    ("p90", |latency| latency.quantile_ns(0.9) as f64),
    ("p99", |latency| latency.quantile_ns(0.99) as f64),
    ("p99.9", |latency| latency.quantile_ns(0.999) as f64),
    ("p99.99", |latency| latency.quantile_ns(0.9999) as f64),
    ("max", |latency| latency.max_ns() as f64),
    ("mean", Latency::mean_ns),
    ("stdev", Latency::stdev_ns),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_text_has_the_point_before_the_figure() {
        let figure = Figure::new("rpc", "round_trip.p99", 1.0, Unit::Ns, 1);
        assert_eq!(figure.id(), "rpc.round_trip.p99");
        let at = |at| figure.clone().at(at).id();
        assert_eq!(at(At::new("load", 0.7, Unit::Share)), "rpc@load=0.7.round_trip.p99");
        assert_eq!(at(At::new("delay", 5e3, Unit::Ns)), "rpc@delay=5us.round_trip.p99");
        assert_eq!(at(At::new("delay", 1.0, Unit::Ns)), "rpc@delay=1ns.round_trip.p99");
        assert_eq!(at(At::new("size", 64.0, Unit::Bytes)), "rpc@size=64.round_trip.p99");
    }

    #[test]
    fn every_unit_is_in_json_as_in_text() {
        for unit in Unit::VARIANTS {
            assert_eq!(serde_json::to_value(unit).expect("a string"), unit.symbol());
        }
    }

    #[test]
    fn round_trips_are_given_whole_and_half_with_the_true_maximum() {
        let mut latency = Latency::new();
        (1..=1000).for_each(|ns| latency.record(ns));
        latency.record(1_234_567_891);
        let figures = Figure::round_trips("rpc", &latency, &[Parts::of(&latency)]);
        let of = |name: &str| figures.iter().find(|one| one.name == name).expect("it is there");
        assert_eq!(of("round_trip.max").value, 1_234_567_891.0);
        assert_eq!(of("half_round_trip.max").value, 1_234_567_891.0 / 2.0);
        assert_eq!(of("half_round_trip.min").value, 0.5);
        assert_eq!(
            (of("round_trip.p50").samples, of("round_trip.p50").better),
            (1001, Better::Lower)
        );
        assert_eq!(of("half_round_trip.p50").rounds, [of("half_round_trip.p50").value]);
        assert_eq!(figures.len(), 2 * PARTS.len());
    }

    #[test]
    fn rounds_that_are_no_numbers_are_left_out() {
        let figure = Figure::new("a/b", "ratio.rate", 1.0, Unit::Ratio, 2);
        assert!(figure.clone().rounds(vec![1.0, f64::NAN]).rounds.is_empty());
        assert_eq!(figure.rounds(vec![1.0, 2.0]).rounds, [1.0, 2.0]);
    }
}
