//! The conformance table: every row is complete, and every test that it names exists.
//!
//! A textual check, as in `structure.rs`: a name leads to a file, and the file must contain that
//! test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the parts of the workspace are that tests are named by.
const PARTS: [(&str, &str); 11] = [
    ("xdr", "xdr"),
    ("mempool", "mempool"),
    ("config", "config"),
    ("proto", "engine/proto"),
    ("engine", "engine"),
    ("transport", "engine/transport"),
    ("fabric", "engine/fabric"),
    ("bench", "bench"),
    ("tests", "tests"),
    ("block_store", "engine/examples/block_store"),
    ("nfs3", "engine/nfs3"),
];

/// What the rows of a document are numbered with.
const DOCUMENTS: [&str; 8] = ["8166", "5666", "V2", "XCHAR", "RTR", "8167", "8267", "8797"];

/// Rows of which a part has no test yet, marked `(open)`.
const OPEN: &[&str] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    number: String,
    /// Source, rule, what we do, test.
    cells: Vec<String>,
}

/// The rows of all tables in the text: lines whose first cell is the number of a rule.
fn rows(text: &str) -> Vec<Row> {
    let cells_of = |line: &str| -> Option<Row> {
        let inner = line.strip_prefix('|')?.strip_suffix('|')?;
        let mut cells = inner.split('|').map(|cell| cell.trim().to_owned());
        let number = cells.next().filter(|number| document_of(number).is_some())?;
        Some(Row { number, cells: cells.collect() })
    };
    text.lines().filter_map(cells_of).collect()
}

/// `8166` of `8166-12`.
fn document_of(number: &str) -> Option<&'static str> {
    let (document, count) = number.split_once('-')?;
    let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    DOCUMENTS.into_iter().find(|known| is_count && *known == document)
}

/// Everything that is wrong with a table. `is_there` says whether a test is, `wire` is
/// docs/wire.md, `open` are the rows that may lack a test.
fn faults(
    text: &str,
    wire: &str,
    open: &[&str],
    is_there: impl Fn(&str) -> Result<(), String>,
) -> Vec<String> {
    let rows = rows(text);
    let tests_of: BTreeMap<&str, &str> = rows
        .iter()
        .filter_map(|row| Some((row.number.as_str(), row.cells.last()?.as_str())))
        .collect();
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    let mut unproved = BTreeSet::new();
    for Row { number, cells } in &rows {
        let mut fault = |what: String| faults.push(format!("{number}: {what}"));
        if !seen.insert(number.as_str()) {
            fault("the number is there twice".into());
        }
        let [_, _, does, test] = cells.as_slice() else {
            fault(format!("{} cells behind the number, not 4", cells.len()));
            continue;
        };
        if cells.iter().any(String::is_empty) {
            fault("an empty cell".into());
        }
        for decision in decisions_in(does) {
            if !wire.contains(&format!("**{decision}. ")) {
                fault(format!("docs/wire.md has no {decision}"));
            }
        }
        if let Some(reason) = test.strip_prefix("cannot apply: ") {
            if reason.split_whitespace().count() < 3 {
                fault("no reason why it cannot apply".into());
            }
        } else if let Some(other) = test.strip_prefix("as ") {
            let is_other = tests_of.get(other).is_some_and(|test| !test.starts_with("as "));
            if !is_other {
                fault(format!("{other} is no row with tests"));
            }
        } else {
            for name in test.split(", ") {
                if name == "(open)" {
                    unproved.insert(number.as_str());
                    continue;
                }
                let bare = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
                let outcome = bare.map_or_else(|| Err("no test in backticks".into()), &is_there);
                if let Err(why) = outcome {
                    fault(format!("{name}: {why}"));
                }
            }
        }
    }
    let listed: BTreeSet<&str> = open.iter().copied().collect();
    faults.extend(unproved.difference(&listed).map(|row| format!("{row}: no test")));
    faults.extend(listed.difference(&unproved).map(|row| format!("{row}: is not open")));
    faults
}

/// The decisions cited in a cell: `wire.md E6, E14` are two.
fn decisions_in(cell: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in cell.match_indices("wire.md ") {
        let rest = cell.get(at + 8..).unwrap_or_default();
        let words = rest.split([' ', ',', ')', '.', ';']).filter(|word| !word.is_empty());
        found.extend(words.take_while(|word| {
            let count = word.strip_prefix(['N', 'X', 'B', 'P', 'E', 'C', 'W']).unwrap_or_default();
            !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit())
        }));
    }
    found
}

/// Whether the test `part::file::module::name` is there, or the scenario `suite::room::name`.
fn find(path: &str) -> Result<(), String> {
    let mut steps: Vec<&str> = path.split("::").collect();
    let name = steps.pop().expect("split gives one at least");
    let Some((part, modules)) = steps.split_first() else { return Err("no path".into()) };
    if *part == "suite" {
        let [room] = modules else { return Err("suite::room::name is a scenario".into()) };
        return scenario(room, name);
    }
    let folder = PARTS.iter().find(|(known, _)| known == part);
    let Some((_, folder)) = folder else { return Err(format!("no part {part}")) };
    let sources = sources_of(&root().join(folder), modules);
    let mut why = "no such file";
    for (text, inner) in sources {
        why = match inner.iter().find(|module| !has_module(&text, module)) {
            Some(_) => "no such module there",
            None if has_test(&text, name) => return Ok(()),
            None => "no such test there",
        };
    }
    Err(why.into())
}

/// The files that some of the modules lead to, each with the modules inside of it.
fn sources_of<'a>(folder: &Path, modules: &'a [&'a str]) -> Vec<(String, &'a [&'a str])> {
    let mut found = Vec::new();
    for count in 0..=modules.len() {
        let (outer, inner) = modules.split_at(count);
        let outer = outer.join("/");
        let names = match count {
            0 => vec!["src/lib.rs".into(), "main.rs".into()],
            _ => vec![
                format!("src/{outer}.rs"),
                format!("src/{outer}/mod.rs"),
                format!("tests/{outer}.rs"),
                format!("{outer}.rs"),
            ],
        };
        let in_programs =
            programs(folder).into_iter().map(|program| program.join(format!("{outer}.rs")));
        let paths = names.iter().map(|name| folder.join(name)).chain(in_programs);
        let texts = paths.filter_map(|path| fs::read_to_string(path).ok());
        found.extend(texts.map(|text| (text, inner)));
    }
    found
}

/// The folders of a part that are test programs of several files.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("tests")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("main.rs").exists()).collect()
}

fn has_module(text: &str, module: &str) -> bool {
    text.lines().any(|line| line.trim() == format!("mod {module} {{"))
}

/// Whether there is a function of that name with `#[test]` above it.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let head = format!("fn {name}(");
    let is_test = |at: usize| {
        let above = lines.get(..at).unwrap_or_default().iter().rev();
        let mut attributes = above.take_while(|line| line.starts_with('#'));
        attributes.any(|line| *line == "#[test]")
    };
    lines.iter().enumerate().any(|(at, line)| line.starts_with(&head) && is_test(at))
}

/// Whether the suite has a scenario, and makes a test of it.
fn scenario(room: &str, name: &str) -> Result<(), String> {
    let list = read("engine/suite/src/list.rs");
    let rooms = list.split(&format!(" {room}: ")).nth(1).and_then(|rest| rest.split(';').next());
    let is_listed = rooms.is_some_and(|names| names.split([',', '\n']).any(|n| n.trim() == name));
    let text = fs::read_to_string(root().join(format!("engine/suite/src/scenarios/{room}.rs")));
    let is_there = text.is_ok_and(|text| text.contains(&format!("pub fn {name}<")));
    match (is_listed, is_there) {
        (true, true) => Ok(()),
        (false, _) => Err("not in the list of the suite".into()),
        (true, false) => Err("no such scenario".into()),
    }
}

#[test]
fn every_rule_names_an_existing_test() {
    let table = read("docs/conformance.md");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows(&table) {
        *counts.entry(document_of(&row.number).expect("a row has one")).or_default() += 1;
    }
    println!("rows: {counts:?}");
    assert_eq!(counts.len(), DOCUMENTS.len(), "every document has rows");
    let faults = faults(&table, &read("docs/wire.md"), OPEN, find);
    assert!(faults.is_empty(), "docs/conformance.md:\n{}", faults.join("\n"));
}

#[test]
fn every_limit_of_a_peer_names_an_existing_test() {
    let page = read("docs/security.md");
    let (_, table) = page.split_once("\n## Silent, slow").expect("the table of limits");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut faults = Vec::new();
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [peer, .., tests] = cells.as_slice() else { panic!("{row}") };
        assert_eq!(cells.len(), 6, "{row}");
        for name in tests.split(", ") {
            let bare = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
            if let Err(why) = bare.map_or(Err("no test in backticks".into()), find) {
                faults.push(format!("{peer}: {name}: {why}"));
            }
        }
        count += 1;
    }
    assert!(count > 10, "{count} rows");
    assert!(faults.is_empty(), "docs/security.md:\n{}", faults.join("\n"));
}

#[test]
fn every_line_of_a_table_is_a_row() {
    // A misspelt number would make its row invisible.
    let table = read("docs/conformance.md");
    let (_, parts) = table.split_once("\n## ").expect("parts, behind the legend");
    let lines = parts.lines().filter(|line| line.starts_with('|'));
    let others: BTreeSet<&str> = lines.filter(|line| rows(line).is_empty()).collect();
    let heads = ["| Number | Source | Rule | What we do | Test |", "|---|---|---|---|---|"];
    assert_eq!(others, BTreeSet::from(heads));
}

/// What is wrong with a table of one row.
fn faults_of(row: &str) -> Vec<String> {
    faults(row, "**E6. Credits.**", &[], find)
}

#[test]
fn a_row_in_order_has_no_fault() {
    let fine = [
        "| 8166-1 | 1 MUST | rule | it is so (wire.md E6) | `xdr::header::tests::nomsg_without_a_chunk_is_refused` |",
        "| V2-1 | 1 MUST | rule | it is so | `proto::conversation::handshake::properties_count_once`, `suite::inline::every_length_is_echoed` |",
        "| RTR-9 | 1 | rule | it is so | cannot apply: it is for authors |",
        "| 8267-1 | 1 | rule | it is so | `block_store::tests::files_of_any_length_come_back_as_they_were` |",
        "| XCHAR-1 | 1 | rule | it is so | `xdr::roundtrip::any_bytes_do_no_harm` |",
        "| XCHAR-2 | 1 | rule | it is so | `fabric::tests::rules::an_inline_send_needs_no_key` |",
    ];
    assert_eq!(faults_of(&fine.join("\n")), [""; 0]);
    let open = "| 8166-1 | 1 | rule | soon | (open) |";
    assert_eq!(faults(open, "", &["8166-1"], find), [""; 0]);
    let same = "| 8166-1 | 1 | rule | a | cannot apply: for some reason |\n| 5666-1 | 1 | rule | b | as 8166-1 |";
    assert_eq!(faults_of(same), [""; 0]);
}

#[test]
fn every_fault_of_a_row_is_found() {
    let bad = [
        ("| V2-1 | 1 | rule | | (open) |", "an empty cell"),
        ("| V2-1 | 1 | rule | so | (open) |", "no test"),
        ("| V2-1 | 1 | rule | (open) |", "3 cells"),
        ("| V2-1 | 1 | rule | wire.md E6, E7 | (open) |", "no E7"),
        ("| V2-1 | 1 | rule | so | cannot apply: so |", "no reason"),
        ("| V2-1 | 1 | rule | so | as V2-2 |", "no row"),
        ("| V2-1 | 1 | rule | so | as V2-1 |", "no row"),
        ("| V2-1 | 1 | rule | so | xdr::header::tests::x |", "no test in backticks"),
        ("| V2-1 | 1 | rule | so | `xdr::header::tests::no_such_name` |", "no such test"),
        (
            "| V2-1 | 1 | rule | so | `xdr::header::nomsg::nomsg_without_a_chunk_is_refused` |",
            "no such module",
        ),
        ("| V2-1 | 1 | rule | so | `xdr::nowhere::name` |", "no such module"),
        ("| V2-1 | 1 | rule | so | `nowhere::header::name` |", "no part"),
        ("| V2-1 | 1 | rule | so | `name` |", "no path"),
        // A function that is no test.
        ("| V2-1 | 1 | rule | so | `xdr::header::tests::encoded` |", "no such test"),
        ("| V2-1 | 1 | rule | so | `suite::inline::no_such_name` |", "not in the list"),
        ("| V2-1 | 1 | rule | so | `suite::placed::every_length_is_echoed` |", "not in the list"),
        ("| V2-1 | 1 | rule | so | `suite::every_length_is_echoed` |", "is a scenario"),
    ];
    for (row, what) in bad {
        let faults = faults_of(row);
        assert!(faults.iter().any(|fault| fault.contains(what)), "{row}: {faults:?}");
    }
    let twice = "| V2-1 | 1 | r | w | cannot apply: for some reason |\n";
    assert_eq!(faults_of(&twice.repeat(2)), ["V2-1: the number is there twice"]);
    let stale = faults(twice, "", &["V2-1"], find);
    assert_eq!(stale, ["V2-1: is not open"]);
}
