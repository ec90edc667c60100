//! The report of a run: the one description of a result for all outputs.
//!
//! ```text
//!   floor, lat, ..., distance, ... ──▶ Report ──▶ text, JSON, CSV, HdrHistogram, HTML, perftest
//!                     a saved JSON ──▶ Report ──┘
//! ```
//! Modes know no output, and outputs know no mode: a figure has a name, a unit and a sample count,
//! and comparing, drawing or checking figures needs no more.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::environment::Environment;
use super::figure::{At, Figure, Unit};
use crate::error::BenchError;
use crate::machine::{CorePair, Jitter};
use crate::stats::Latency;

/// A result, with all that is needed to believe it. In JSON: all of it but the text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    schema: u64,
    /// The mode, as it is written on the command line.
    pub mode: String,
    pub what: String,
    pub settings: Value,
    #[serde(flatten)]
    pub environment: Environment,
    #[serde(serialize_with = "finite")]
    pub figures: Vec<Figure>,
    /// Every sample of what was timed one by one: whole round trips.
    #[serde(default)]
    pub distributions: Vec<Distribution>,
    #[serde(default)]
    pub curves: Vec<Curve>,
    #[serde(flatten)]
    pub detail: Map<String, Value>,
    #[serde(skip)]
    pub preface: Vec<String>,
    /// Tables and lines of the text, with an empty line above each.
    #[serde(skip)]
    pub blocks: Vec<String>,
    /// Whether the text is the blocks alone, without the environment.
    #[serde(skip)]
    pub is_bare: bool,
    /// Why the mode itself calls the result bad, independent of conditions on figures: a leak, a
    /// regression. One line each; the program then ends with 2.
    #[serde(skip)]
    pub failures: Vec<String>,
    /// Whether the mode has a check of its own, which is inconclusive if the run is noisy.
    #[serde(skip)]
    pub is_checked: bool,
    /// The exit code for failures, if it is not that of a condition.
    #[serde(skip)]
    pub failed_code: Option<u8>,
    /// Further tables of the page.
    #[serde(skip)]
    pub listings: Vec<Listing>,
}

/// A table of the page: text in every cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Listing {
    pub title: String,
    pub heads: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// All samples of one contender, or of one at one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Whose: `rpc`, or with a point as a figure names it, `rpc@load=0.7`.
    pub name: String,
    /// Whole round trips.
    pub latency: Latency,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    pub name: String,
    pub unit: Unit,
    pub log: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Report {
    pub fn new(
        mode: &str,
        what: String,
        settings: Value,
        environment: Environment,
        figures: Vec<Figure>,
    ) -> Report {
        Report {
            schema: SCHEMA,
            mode: mode.to_owned(),
            what,
            settings,
            environment,
            figures,
            distributions: Vec::new(),
            curves: Vec::new(),
            detail: Map::new(),
            preface: Vec::new(),
            blocks: Vec::new(),
            is_bare: false,
            failures: Vec::new(),
            is_checked: false,
            failed_code: None,
            listings: Vec::new(),
        }
    }

    /// Of a process that another one listens to: nothing is printed.
    pub fn silent(mode: &str, cores: CorePair) -> Report {
        let unseen = |core| Jitter { core, gaps_per_second: 0.0, lost_share: 0.0, longest_ns: 0 };
        let environment = Environment::new(cores, Vec::new(), [cores.both().map(unseen); 2]);
        let report = Report::new(mode, String::new(), Value::Null, environment, Vec::new());
        Report { is_bare: true, ..report }
    }

    pub fn samples(&mut self, name: impl Into<String>, latency: &Latency) {
        let (name, latency) = (name.into(), latency.clone());
        self.distributions.push(Distribution { name, latency });
    }

    pub fn block(&mut self, text: impl ToString) {
        let text = text.to_string();
        if !text.is_empty() {
            self.blocks.push(text);
        }
    }

    /// With what the mode adds in JSON: an object.
    pub fn detail(&mut self, detail: Value) {
        if let Value::Object(detail) = detail {
            self.detail.extend(detail);
        }
    }

    /// With lines over the points of a sweep: the name, the contender and the figure of each.
    pub fn curve(&mut self, title: &str, x: Axis, y: Axis, lines: &[(&str, &str, &str)]) {
        let line = |(name, of, figure): &(&str, &str, &str)| {
            let swept = self.figures.iter().filter(|one| one.of == *of && one.name == *figure);
            Line::new(*name, swept.filter_map(|one| Some((one.at.as_ref()?.value, one.value))))
        };
        let lines = lines.iter().map(line).collect();
        self.curves.push(Curve { title: title.to_owned(), x, y, lines });
    }

    /// The figure of this contender and name, at this point.
    pub fn figure(&self, of: &str, at: Option<&At>, name: &str) -> Option<&Figure> {
        find(&self.figures, of, at, name)
    }

    pub fn text(&self) -> String {
        if self.is_bare {
            return self.blocks.concat();
        }
        let head = [&self.preface[..], &self.environment.head()].concat().join("\n");
        let foot = self.environment.foot().join("\n");
        let blocks = self.blocks.iter().map(|block| block.trim_end_matches('\n'));
        let parts: Vec<&str> = [&*head].into_iter().chain(blocks).chain([&*foot]).collect();
        parts.join("\n\n") + "\n"
    }

    /// All of it for programs, and to be read back later.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("a result is strings and finite numbers with string keys") + "\n"
    }

    pub fn read(path: &Path) -> Result<Report, BenchError> {
        let read = |reason| BenchError::Read { path: path.to_owned(), reason };
        let text = fs::read_to_string(path).map_err(|error| read(error.to_string()))?;
        Report::parse(&text).map_err(read)
    }

    pub fn parse(text: &str) -> Result<Report, String> {
        let whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match whole.get("schema").and_then(Value::as_u64) {
            Some(SCHEMA) => serde_json::from_value(whole).map_err(|error| error.to_string()),
            Some(other) => Err(format!("schema {other}; this program reads {SCHEMA}")),
            None => Err("no result of this program: it has no `schema`".into()),
        }
    }
}

impl Axis {
    pub fn new(name: &str, unit: Unit) -> Axis {
        Axis { name: name.to_owned(), unit, log: false }
    }

    pub fn log(name: &str, unit: Unit) -> Axis {
        Axis { log: true, ..Axis::new(name, unit) }
    }
}

impl Line {
    /// A line through these points, put in order.
    pub fn new(name: impl Into<String>, points: impl Iterator<Item = (f64, f64)>) -> Line {
        Line { name: name.into(), points: in_order(points.collect()) }
    }
}

fn in_order(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// The figure of this contender and name, at this point.
pub fn find<'a>(
    figures: &'a [Figure],
    of: &str,
    at: Option<&At>,
    name: &str,
) -> Option<&'a Figure> {
    figures.iter().find(|one| one.of == of && one.at.as_ref() == at && one.name == name)
}

/// Figures that are numbers: a ratio of nothing is none.
fn finite<S: Serializer>(figures: &[Figure], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(figures.iter().filter(|figure| figure.value.is_finite()))
}

/// The version of the JSON form: a later one reads an older one or says that it does not.
const SCHEMA: u64 = 1;

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::quiet;

    /// A report of no mode: two figures of a contender `a`, and one that is no number; of a run
    /// that is noisy for these reasons.
    pub(crate) fn odd(noise: &[&str]) -> Report {
        let mut environment = quiet(vec!["a note".into()]);
        environment.noise = noise.iter().map(|reason| (*reason).into()).collect();
        let figure = Figure::new("a", "round_trip.p50", 1.5, Unit::Ns, 2).rounds(vec![1.0, 2.0]);
        let at = figure.clone().at(At::new("load", 0.5, Unit::Share));
        let nothing = Figure::new("a/b", "ratio.rate", f64::NAN, Unit::Ratio, 0);
        let (what, settings) = ("odd: of the test".into(), json!({ "window": 3 }));
        let mut odd = Report::new("odd", what, settings, environment, vec![figure, at, nothing]);
        odd.samples("a", &Latency::of([5, 7]));
        odd.detail(json!({ "extra": [1, 2] }));
        odd.block("a table");
        odd
    }

    #[test]
    fn a_saved_result_is_read_back_as_it_was_and_saved_again_the_same() {
        let odd = odd(&[]);
        let saved = Report::parse(&odd.json()).expect("what was written");
        assert_eq!((&*saved.mode, &*saved.what), ("odd", "odd: of the test"));
        assert_eq!(saved.environment, odd.environment);
        assert_eq!(saved.settings["window"], 3);
        assert_eq!(saved.figures, odd.figures[..2], "and no figure that is no number");
        assert_eq!(saved.distributions, odd.distributions);
        assert_eq!(saved.detail, odd.detail);
        assert_eq!(saved.json(), odd.json());
    }

    #[test]
    fn what_is_no_result_is_refused_with_a_reason() {
        let other = odd(&[]).json().replacen("\"schema\": 1", "\"schema\": 9", 1);
        for (text, reason) in
            [("", "EOF"), ("{}", "no `schema`"), ("{\"schema\": 1}", "mode"), (&other, "schema 9")]
        {
            let error = Report::parse(text).expect_err("it is none");
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_text_has_the_scene_around_the_tables() {
        let mut odd = odd(&["core 1 was away"]);
        odd.preface.push("above".into());
        let text = odd.text();
        assert!(text.starts_with("above\nmachine:"), "{text}");
        assert!(text.contains("with:        a note") && text.contains("\n\na table\n\n"), "{text}");
        assert!(text.ends_with("  core 1 was away\n"), "{text}");
        assert_eq!(Report { is_bare: true, ..odd }.text(), "a table");
    }
}
