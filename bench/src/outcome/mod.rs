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

use crate::latency::Latency;

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
