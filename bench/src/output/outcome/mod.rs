//! The outcome of any mode: what every output knows, and all that it knows.
//!
//! ```text
//!   floor, lat, ..., distance, ... ──▶ Outcome ──▶ table, JSON, ...
//!                         a saved JSON ──▶ Saved ──┘
//! ```
//! Modes know no output, and outputs know no mode: a figure has a name, a unit and a sample count,
//! and whoever compares, draws or judges figures needs no more.

mod figure;
mod saved;
mod scene;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use figure::{At, Better, Figure, Unit};
pub use saved::Saved;
pub use scene::{Lost, Scene, line};

use crate::stats::latency::Latency;

/// A result, with all that is needed to believe it.
pub trait Outcome {
    /// The mode, as it is written on the command line.
    fn mode(&self) -> &str;

    /// What was measured, as a sentence.
    fn what(&self) -> &str;

    /// Where it was measured, and how quietly.
    fn scene(&self) -> &Scene;

    /// What was measured, in numbers.
    fn settings(&self) -> Value;

    /// Every number of the result.
    fn figures(&self) -> Vec<Figure>;

    /// Every sample of what was timed one by one: whole round trips.
    fn distributions(&self) -> Vec<Distribution<'_>>;

    /// What is worth drawing as lines.
    fn curves(&self) -> Vec<Curve> {
        Vec::new()
    }

    /// All of it for people, but the sentence.
    fn table(&self) -> String;

    /// Why the mode itself calls the result bad, whatever was asked of its figures: a leak, a
    /// regression. Each in a line; the program then ends with 2.
    fn failures(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the mode was asked for a verdict of its own, which a noisy run cannot have.
    fn wants_verdict(&self) -> bool {
        false
    }

    /// What JSON has beside the rest: an object, or null.
    fn detail(&self) -> Value {
        Value::Null
    }
}

/// All samples of one contender, or of one at one point.
#[derive(Debug, Clone)]
pub struct Distribution<'a> {
    /// Whose: `rpc`, or with a point as a figure names it, `rpc@load=0.7`.
    pub name: String,
    /// Whole round trips.
    pub latency: &'a Latency,
}

/// Lines over a common axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What is to be seen.
    pub title: String,
    /// What was varied.
    pub x: Axis,
    /// What came of it.
    pub y: Axis,
    /// One for each contender.
    pub lines: Vec<Line>,
}

/// An axis of a drawing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it shows.
    pub name: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Whether it is logarithmic.
    pub log: bool,
}

/// A line in a drawing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Whose.
    pub name: String,
    /// In the order of the axis.
    pub points: Vec<(f64, f64)>,
}

/// The version of the JSON form: a later one reads an older one or says that it does not.
pub const SCHEMA: u64 = 1;

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::device::cores::CorePair;
    use crate::device::jitter::Jitter;

    /// An outcome of no mode: two figures of a contender `a`, and one that is no number.
    pub(crate) struct Odd {
        pub(crate) scene: Scene,
        pub(crate) latency: Latency,
        pub(crate) failure: Option<String>,
    }

    impl Odd {
        /// Of a run that is noisy for these reasons.
        pub(crate) fn new(noise: &[&str]) -> Odd {
            let cores = CorePair { client: 0, server: 1 };
            let quiet =
                Jitter { core: 0, gaps_per_second: 250.0, lost_share: 0.005, longest_ns: 25_000 };
            let mut latency = Latency::new();
            [5, 7].iter().for_each(|ns| latency.record(*ns));
            let scene = Scene::new(cores, vec!["a note".into()], [[quiet; 2]; 2], &[]);
            let noise = noise.iter().map(|reason| (*reason).into()).collect();
            Odd { scene: Scene { noise, ..scene }, latency, failure: None }
        }
    }

    impl Outcome for Odd {
        fn mode(&self) -> &str {
            "odd"
        }

        fn what(&self) -> &str {
            "odd: of the test"
        }

        fn scene(&self) -> &Scene {
            &self.scene
        }

        fn settings(&self) -> Value {
            json!({ "window": 3 })
        }

        fn figures(&self) -> Vec<Figure> {
            let figure =
                Figure::new("a", "round_trip.p50", 1.5, Unit::Ns, 2).rounds(vec![1.0, 2.0]);
            let at = figure.clone().at(At::new("load", 0.5, Unit::Share));
            let nothing = Figure::new("a/b", "ratio.rate", f64::NAN, Unit::Ratio, 0);
            vec![figure, at, nothing]
        }

        fn distributions(&self) -> Vec<Distribution<'_>> {
            vec![Distribution { name: "a".into(), latency: &self.latency }]
        }

        fn table(&self) -> String {
            "a table\n".into()
        }

        fn failures(&self) -> Vec<String> {
            self.failure.clone().into_iter().collect()
        }

        fn detail(&self) -> Value {
            json!({ "extra": [1, 2] })
        }
    }
}
