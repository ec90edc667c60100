//! JSON: all of an outcome, for programs, and to be read back later.

use serde_json::{Map, Value, json};

use crate::output::outcome::{Distribution, Figure, Outcome, SCHEMA};

/// The text of the file.
pub fn text(outcome: &dyn Outcome) -> String {
    let mut all = common(outcome);
    if let Value::Object(detail) = outcome.detail() {
        all.extend(detail);
    }
    let mut text = serde_json::to_string_pretty(&all)
        .expect("a result is strings and finite numbers with string keys");
    text.push('\n');
    text
}

/// What an outcome of any mode has.
pub(crate) fn common(outcome: &dyn Outcome) -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    put("schema", SCHEMA.into());
    put("mode", outcome.mode().into());
    put("what", outcome.what().into());
    put("settings", outcome.settings());
    if let Value::Object(scene) = value(outcome.scene()) {
        scene.into_iter().for_each(|(key, part)| drop(put(&key, part)));
    }
    // A quotient of nothing is no figure.
    let figures: Vec<Figure> =
        outcome.figures().into_iter().filter(|figure| figure.value.is_finite()).collect();
    put("figures", value(&figures));
    let kept = |Distribution { name, latency }| json!({ "name": name, "latency": latency });
    put("distributions", outcome.distributions().into_iter().map(kept).collect());
    put("curves", value(&outcome.curves()));
    all
}

fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).expect("plain data with string keys")
}
