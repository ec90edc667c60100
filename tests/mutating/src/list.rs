//! The mutants that cargo-mutants would make of the crates.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// The crates that are measured.
pub const PACKAGES: [&str; 15] = [
    "rpcrdma-xdr",
    "rpcrdma-mempool",
    "rpcrdma-config",
    "rpcrdma-proto",
    "rpcrdma-provider",
    "rpcrdma-transport",
    "rpcrdma-fabric",
    "rpcrdma-shm",
    "rpcrdma-storage",
    "rpcrdma-iwarp",
    "rpcrdma-verbs",
    "rpcrdma",
    "rpcrdma-capi",
    "rpcrdma-nfs3",
    "rpcrdma-gen",
];

/// Files of these crates that are parts of tests: each behind a feature that only tests ask for.
const TEST_FILES: [&str; 3] =
    ["engine/iwarp/src/network", "engine/shm/src/hostile_peer", "engine/verbs/src/fake"];

/// A mutant.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its crate.
    pub package: String,
    /// Its file, from the root.
    pub file: String,
    /// The line where it begins.
    pub line: usize,
    /// What is changed in which function: `replace == with != in Array::is_empty`.
    pub change: String,
    /// The line where it begins, without its margin.
    pub code: String,
    /// The bytes that are replaced.
    pub part: Range<usize>,
    /// What takes their place.
    pub other: String,
}

/// As cargo-mutants writes it.
#[derive(Deserialize)]
struct Json {
    package: String,
    file: String,
    name: String,
    replacement: String,
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Point,
    end: Point,
}

#[derive(Deserialize)]
struct Point {
    line: usize,
    column: usize,
}

/// All mutants of the crates. cargo-mutants is installed below the target directory if it is not
/// there.
///
/// # Errors
/// If it cannot be installed, or prints something else.
pub fn mutants(root: &Path, target: &Path) -> Result<Vec<Listed>, String> {
    let tools = target.join("tools");
    let program = tools.join("bin/cargo-mutants");
    if !program.exists() {
        let mut cargo = Command::new("cargo");
        cargo.args(["install", "cargo-mutants", "--locked", "--root"]).arg(&tools);
        output(cargo)?;
    }
    let mut command = Command::new(program);
    command.current_dir(root).args(["mutants", "--list", "--json"]);
    command.args(PACKAGES.map(|package| format!("--package={package}")));
    let listed: Vec<Json> =
        serde_json::from_str(&output(command)?).map_err(|error| format!("its list: {error}"))?;
    let mut sources = BTreeMap::new();
    let mut found = Vec::new();
    for json in listed {
        if TEST_FILES.iter().any(|file| json.file.starts_with(file)) {
            continue;
        }
        if !sources.contains_key(&json.file) {
            let read = fs::read_to_string(root.join(&json.file));
            let text = read.map_err(|error| format!("{}: {error}", json.file))?;
            sources.insert(json.file.clone(), text);
        }
        let source = &sources[&json.file];
        found.push(json.mutant(source)?);
    }
    Ok(found)
}

impl Json {
    fn mutant(self, source: &str) -> Result<Listed, String> {
        let place =
            |point: &Point| offset(source, point).ok_or(format!("no such place: {}", self.name));
        let part = place(&self.span.start)?..place(&self.span.end)?;
        let change = self.name.splitn(4, ':').last().unwrap_or_default().trim().to_owned();
        let code = source.lines().nth(self.span.start.line - 1).unwrap_or_default().trim();
        Ok(Listed {
            package: self.package,
            line: self.span.start.line,
            change,
            code: code.to_owned(),
            part,
            other: self.replacement,
            file: self.file,
        })
    }
}

/// The byte of a line and a column, which count from 1.
fn offset(source: &str, point: &Point) -> Option<usize> {
    let before: usize = source.split_inclusive('\n').take(point.line - 1).map(str::len).sum();
    let line = source.get(before..)?;
    let mut chars = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    Some(before + chars.nth(point.column - 1)?)
}

fn output(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_byte() {
        let source = "a\nä = b\n";
        let at = |line, column| offset(source, &Point { line, column });
        assert_eq!(at(1, 1), Some(0));
        assert_eq!(at(2, 2), Some(4));
        assert_eq!(at(2, 4), Some(6));
        assert_eq!(at(3, 1), Some(source.len()));
    }

    #[test]
    fn a_mutant_is_known_by_its_change_and_its_line() {
        let json = Json {
            package: "package".into(),
            file: "src/a.rs".into(),
            name: "src/a.rs:2:5: replace a::b -> c with d".into(),
            replacement: "d".into(),
            span: Span { start: Point { line: 2, column: 5 }, end: Point { line: 2, column: 6 } },
        };
        let mutant = json.mutant("fn b() {\n    x\n}\n").expect("a mutant");
        assert_eq!(mutant.change, "replace a::b -> c with d");
        assert_eq!((mutant.code.as_str(), mutant.part), ("x", 13..14));
    }
}
