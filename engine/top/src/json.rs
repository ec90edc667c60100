//! A scrape as JSON: for each name a list of samples with their labels.

use serde_json::{Map, Value, json};

use crate::samples::Sample;

/// All samples by name, in their order.
pub fn json(samples: &[Sample]) -> Value {
    let mut names = Map::new();
    for sample in samples {
        let labels: Map<String, Value> =
            sample.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let entry = names.entry(&sample.name).or_insert_with(|| json!([]));
        let list = entry.as_array_mut().expect("every entry is a list");
        list.push(json!({ "labels": labels, "value": number(sample.value) }));
    }
    Value::Object(names)
}

/// Whole numbers without a point, as they are counted.
fn number(value: f64) -> Value {
    let is_whole = value.fract() == 0.0 && value.abs() < EXACT;
    if is_whole { json!(value as i64) } else { json!(value) }
}

/// Whole numbers below this are exact.
const EXACT: f64 = 9_007_199_254_740_992.0;
