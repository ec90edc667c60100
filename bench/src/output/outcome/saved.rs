//! A result that was saved as JSON, read back.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Curve, Distribution, Figure, Outcome, SCHEMA, Scene, line};
use crate::error::BenchError;
use crate::stats::latency::Latency;

/// An outcome of an earlier run, of whatever mode.
#[derive(Debug, Clone, Deserialize)]
pub struct Saved {
    schema: u64,
    mode: String,
    what: String,
    settings: Value,
    #[serde(flatten)]
    scene: Scene,
    figures: Vec<Figure>,
    #[serde(default)]
    distributions: Vec<Kept>,
    #[serde(default)]
    curves: Vec<Curve>,
    /// All of it.
    #[serde(skip)]
    whole: Value,
}

/// A distribution as it is kept.
#[derive(Debug, Clone, Deserialize)]
struct Kept {
    name: String,
    latency: Latency,
}

impl Saved {
    /// Reads a file that `--json` has written.
    ///
    /// # Errors
    /// If it cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Saved, BenchError> {
        let read = |reason| BenchError::Read { path: path.to_owned(), reason };
        let text = fs::read_to_string(path).map_err(|error| read(error.to_string()))?;
        Saved::parse(&text).map_err(read)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Saved, String> {
        let whole: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match whole.get("schema").and_then(Value::as_u64) {
            Some(SCHEMA) => {}
            Some(other) => return Err(format!("schema {other}; this program reads {SCHEMA}")),
            None => return Err("no result of this program: it has no `schema`".into()),
        }
        let saved: Saved = serde_json::from_value(whole.clone()).map_err(|e| e.to_string())?;
        debug_assert_eq!(saved.schema, SCHEMA, "looked at above");
        Ok(Saved { whole, ..saved })
    }
}

impl Outcome for Saved {
    fn mode(&self) -> &str {
        &self.mode
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
        self.figures.clone()
    }

    fn distributions(&self) -> Vec<Distribution<'_>> {
        let kept = self.distributions.iter();
        kept.map(|Kept { name, latency }| Distribution { name: name.clone(), latency }).collect()
    }

    fn curves(&self) -> Vec<Curve> {
        self.curves.clone()
    }

    fn table(&self) -> String {
        let mut out = String::new();
        self.scene.write_head(&mut out);
        write_figures(&mut out, &self.figures);
        self.scene.write_noise(&mut out);
        out
    }

    /// What the mode had added.
    fn detail(&self) -> Value {
        let Value::Object(whole) = &self.whole else { return Value::Null };
        let known = Value::Object(crate::output::json::common(self));
        let is_more = |(key, _): &(&String, &Value)| known.get(key.as_str()).is_none();
        let more: Map<String, Value> =
            whole.iter().filter(is_more).map(|(key, value)| (key.clone(), value.clone())).collect();
        Value::Object(more)
    }
}

/// Figures as a list: a row for each.
pub fn write_figures(out: &mut String, figures: &[Figure]) {
    let width = figures.iter().map(|figure| figure.id().len()).max().unwrap_or_default();
    line(out, format_args!(""));
    line(out, format_args!("{:<width$}{:>18}  {:<14}{:>12}", "figure", "", "unit", "samples"));
    for figure in figures {
        let (value, unit, samples) = (figure.value, figure.unit.symbol(), figure.samples);
        line(out, format_args!("{:<width$}{value:>18.3}  {unit:<14}{samples:>12}", figure.id()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json;
    use crate::output::outcome::tests::Odd;

    #[test]
    fn a_saved_result_is_read_back_as_it_was_and_saved_again_the_same() {
        let odd = Odd::new(&[]);
        let text = json::text(&odd);
        let saved = Saved::parse(&text).expect("what was written");
        assert_eq!((saved.mode(), saved.what()), ("odd", "odd: of the test"));
        assert_eq!(saved.scene(), odd.scene());
        assert_eq!(saved.settings()["window"], 3);
        assert_eq!(saved.figures(), odd.figures()[..2], "and no figure that is no number");
        assert_eq!(saved.distributions()[0].latency, &odd.latency);
        assert_eq!(saved.detail(), odd.detail());
        assert_eq!(json::text(&saved), text);
        let table = saved.table();
        assert!(table.contains("a@load=0.5.round_trip.p50") && table.contains("a note"), "{table}");
    }

    #[test]
    fn what_is_no_result_is_refused_with_a_reason() {
        let other = json::text(&Odd::new(&[])).replacen("\"schema\": 1", "\"schema\": 9", 1);
        for (text, reason) in
            [("", "EOF"), ("{}", "no `schema`"), ("{\"schema\": 1}", "mode"), (&other, "schema 9")]
        {
            let error = Saved::parse(text).expect_err("it is none");
            assert!(error.contains(reason), "{error}");
        }
    }
}
