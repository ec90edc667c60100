//! Every JSON key and figure of each mode, by name, as listed in `keys.txt`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::json;

/// A command in brackets, and below it what its JSON has besides what all have (`[*]`).
const KEYS: &str = include_str!("../keys.txt");

#[test]
fn no_key_and_no_figure_of_a_mode_is_lost() {
    let parts = KEYS.split("\n[").skip(1);
    let mut parts = parts.map(|part| part.split_once("]\n").expect("a command and its keys"));
    let (_, common) = parts.next().expect("what all have");
    for (options, lines) in parts {
        let Some(json) = json(options) else { return };
        let mut found = BTreeSet::new();
        keys(&json, &mut found);
        let expected = common.lines().chain(lines.lines()).flat_map(expanded);
        let expected: BTreeSet<String> = expected.filter(|key| !key.is_empty()).collect();
        let lost: Vec<&String> = expected.difference(&found).collect();
        assert!(lost.is_empty(), "{options}: {lost:#?}");
        let more: Vec<&String> =
            found.difference(&expected).filter(|key| !is_of_host(key)).collect();
        assert!(more.is_empty(), "{options}: write them down in keys.txt: {more:#?}");
    }
}

/// The keys that a line stands for: `PREFIX: A B`, and `*` in a figure for the parts of a
/// distribution.
fn expanded(line: &str) -> Vec<String> {
    if let Some((figure, names)) = line.split_once("): ") {
        let (of, unit) = figure.split_once(". (").expect("`figure OF. (UNIT, BETTER): NAMES`");
        let all = names.split(' ').flat_map(|name| match name.strip_suffix('*') {
            Some(start) => PARTS.iter().map(|part| format!("{start}{part}")).collect(),
            None => vec![name.to_owned()],
        });
        return all.map(|name| format!("{of}.{name}, {unit}")).collect();
    }
    match line.split_once(".: ") {
        Some((prefix, keys)) => keys.split(' ').map(|key| format!("{prefix}.{key}")).collect(),
        None => vec![line.to_owned()],
    }
}

const PARTS: [&str; 9] = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean", "stdev"];

/// Paths of all keys, and the names of all figures, distributions and curves.
fn keys(json: &Value, found: &mut BTreeSet<String>) {
    let mut open = vec![(String::new(), json)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                open.extend(members.iter().map(|(key, value)| (format!("{path}.{key}"), value)));
            }
            Value::Array(items) => {
                found.insert(format!("{path}[]"));
                open.extend(items.iter().map(|item| (format!("{path}[]"), item)));
                continue;
            }
            _ => {}
        }
        found.insert(path);
    }
    // The root has no name.
    found.remove("");
    let list = |key: &str| json[key].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for figure in list("figures") {
        let axis =
            figure["at"]["axis"].as_str().map_or_else(String::new, |axis| format!("@{axis}"));
        let [of, name, unit, better] =
            ["of", "name", "unit", "better"].map(|key| text(&figure[key]));
        found.insert(format!("figure {of}{axis}.{name}, {unit}, {better}"));
    }
    found.extend(list("distributions").map(|one| format!("distribution {}", text(&one["name"]))));
    for curve in list("curves") {
        let lines = curve["lines"].as_array().expect("a list").iter();
        let names: Vec<String> = lines.map(|line| text(&line["name"])).collect();
        found.insert(format!("curve {}: {}", text(&curve["title"]), names.join("; ")));
    }
}

/// Whether a key is there on some hosts only: what a finding is mended by, say.
fn is_of_host(key: &str) -> bool {
    key.contains(".fix.") || key.contains(".memlock_bytes") || key.contains(".governor")
}
