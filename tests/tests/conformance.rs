//! The conformance table: every row is complete, and every test that it names exists.
//!
//! A textual check, as in `structure.rs`: a name leads to a file, and the file must contain that
//! test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rpcrdma_mutants::names;
use rpcrdma_mutants::rules::{DOCUMENTS, Row, document_of, rows};
use rpcrdma_mutants::table::{self, Mutation};
use rpcrdma_tests::tracked::root;

/// Rows of which a part has no test yet, marked `(open)`.
const OPEN: &[&str] = &[];

/// What a row begins with that has a reason in place of tests.
const REASONS: [&str; 2] = ["cannot apply: ", "cannot be broken: "];

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What the cells of a table refer to.
struct Sources<'a> {
    /// docs/wire.md.
    wire: &'a str,
    /// The rows that may lack a test.
    open: &'a [&'a str],
    /// The table of the mutations.
    mutations: &'a [Mutation],
}

/// Everything that is wrong with a table.
fn faults(text: &str, sources: &Sources<'_>) -> Vec<String> {
    let rows = rows(text);
    let tests_of: BTreeMap<&str, &str> = rows
        .iter()
        .filter_map(|row| Some((row.number.as_str(), row.cells.get(3)?.as_str())))
        .collect();
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    let mut unproved = BTreeSet::new();
    for row in &rows {
        let number = row.number.as_str();
        let mut fault = |what: String| faults.push(format!("{number}: {what}"));
        if !seen.insert(number) {
            fault("the number is there twice".into());
        }
        let [_, _, does, test, mutation] = row.cells.as_slice() else {
            fault(format!("{} cells behind the number, not 5", row.cells.len()));
            continue;
        };
        if row.cells.iter().any(String::is_empty) {
            fault("an empty cell".into());
        }
        for decision in decisions_in(does) {
            if !sources.wire.contains(&format!("**{decision}. ")) {
                fault(format!("docs/wire.md has no {decision}"));
            }
        }
        let mut has_tests = false;
        if let Some(reason) = REASONS.iter().find_map(|why| test.strip_prefix(why)) {
            if reason.split_whitespace().count() < 3 {
                fault("no reason".into());
            }
        } else if let Some(other) = test.strip_prefix("as ") {
            let is_other = tests_of.get(other).is_some_and(|test| !test.starts_with("as "));
            if !is_other {
                fault(format!("{other} is no row with tests"));
            }
        } else {
            has_tests = true;
            for name in test.split(", ") {
                if name == "(open)" {
                    unproved.insert(number);
                    continue;
                }
                if let Err(why) = bare(name).ok_or("no test in backticks".into()).and_then(find) {
                    fault(format!("{name}: {why}"));
                }
            }
        }
        match has_tests {
            true => faults.extend(mutation_faults(row, sources.mutations)),
            false if mutation != "-" => fault("a mutation, and no test".into()),
            false => {}
        }
    }
    let listed: BTreeSet<&str> = sources.open.iter().copied().collect();
    faults.extend(unproved.difference(&listed).map(|row| format!("{row}: no test")));
    faults.extend(listed.difference(&unproved).map(|row| format!("{row}: is not open")));
    faults
}

/// What is wrong with the mutations of a row that names tests.
fn mutation_faults(row: &Row, mutations: &[Mutation]) -> Vec<String> {
    let Row { number, cells } = row;
    let [.., tests, names] = cells.as_slice() else { return Vec::new() };
    let fault = |name: &str| {
        // As long as there is no test.
        if name == "(open)" && tests == "(open)" {
            return None;
        }
        let Some(id) = bare(name) else { return Some("no mutation in backticks".into()) };
        let Some(mutation) = mutations.iter().find(|mutation| mutation.id == id) else {
            return Some(format!("no mutation {id}"));
        };
        let test = mutation.test.as_str();
        let is_of_row = tests.split(", ").any(|name| bare(name) == Some(test));
        (!is_of_row).then(|| format!("{test}, which notices {id}, is no test of the row"))
    };
    let faults = names.split(", ").filter_map(fault);
    faults.map(|what| format!("{number}: {what}")).collect()
}

/// `name`, without its backticks.
fn bare(name: &str) -> Option<&str> {
    name.strip_prefix('`')?.strip_suffix('`')
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
    names::find(&root(), path).map(drop)
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
    let mutations = table::read(&root(), table::ROWS).expect("the table of mutations");
    let wire = read("docs/wire.md");
    let sources = Sources { wire: &wire, open: OPEN, mutations: &mutations };
    let mut faults = faults(&table, &sources);
    let rows = rows(&table);
    let named: BTreeSet<&str> = rows.iter().flat_map(Row::mutations).collect();
    let unnamed = mutations.iter().filter(|mutation| !named.contains(mutation.id.as_str()));
    faults.extend(unnamed.map(|mutation| format!("{}: no row names it", mutation.id)));
    assert!(faults.is_empty(), "docs/conformance.md:\n{}", faults.join("\n"));
}

#[test]
fn every_mutation_has_its_text_and_its_test() {
    for path in [table::ROWS, table::SURVIVORS] {
        let mutations = table::read(&root(), path).expect("a table of mutations");
        let faults = table::faults(&root(), &mutations);
        assert!(faults.is_empty(), "{path}:\n{}", faults.join("\n"));
    }
    let equivalent = table::equivalent(&root()).expect("the table of equivalent mutants");
    let faults: Vec<_> = equivalent.iter().filter_map(|one| one.check(&root()).err()).collect();
    assert!(faults.is_empty(), "{}: {faults:#?}", table::EQUIVALENT);
}

/// The last cells of the rows of a table of docs/security.md, behind the heading that begins so.
fn last_cells(heading: &str, columns: usize) -> Vec<String> {
    let page = read("docs/security.md");
    let (_, section) = page.split_once(heading).expect("the section");
    let section = section.split("\n## ").next().expect("split gives one at least");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let last = |row: &str| {
        let row = row.strip_prefix('|').and_then(|row| row.strip_suffix('|')).expect("bars");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), columns, "{row}");
        cells[columns - 1].to_owned()
    };
    rows.map(last).collect()
}

#[test]
fn every_limit_of_a_peer_names_an_existing_test() {
    let cells = last_cells("\n## Silent, slow", 6);
    assert!(cells.len() > 10, "{cells:?}");
    let names = cells.iter().flat_map(|cell| cell.split(", "));
    let fault = |name| bare(name).ok_or("no test in backticks".into()).and_then(find).err();
    let faults: Vec<_> = names.filter_map(|name| Some((name, fault(name)?))).collect();
    assert!(faults.is_empty(), "docs/security.md: {faults:#?}");
}

#[test]
fn every_time_until_silence_is_noticed_names_existing_tests_and_scenarios() {
    let cells = last_cells("\n## How long until silence", 5);
    let names: Vec<&str> =
        cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 10, "{names:?}");
    let fault = |name: &str| match name.contains("::") {
        true => find(name).err(),
        false if root().join("tests/vm/scenarios").join(name).is_file() => None,
        false => Some("no scenario".into()),
    };
    let faults: Vec<_> = names.into_iter().filter_map(|name| Some((name, fault(name)?))).collect();
    assert!(faults.is_empty(), "docs/security.md: {faults:#?}");
}

#[test]
fn every_line_of_a_table_is_a_row() {
    // A misspelt number would make its row invisible.
    let table = read("docs/conformance.md");
    let (_, parts) = table.split_once("\n## ").expect("parts, behind the legend");
    let lines = parts.lines().filter(|line| line.starts_with('|'));
    let others: BTreeSet<&str> = lines.filter(|line| rows(line).is_empty()).collect();
    let heads =
        ["| Number | Source | Rule | What we do | Test | Mutation |", "|---|---|---|---|---|---|"];
    assert_eq!(others, BTreeSet::from(heads));
}

/// What is wrong with a table of one row.
fn faults_of(row: &str) -> Vec<String> {
    faults_with(row, &[])
}

/// The same, with rows that may lack a test.
fn faults_with(row: &str, open: &[&str]) -> Vec<String> {
    let mutation = |id: &str, test: &str| Mutation {
        id: id.into(),
        file: "xdr/src/header.rs".into(),
        function: None,
        text: "text".into(),
        other: "other".into(),
        survived: false,
        test: test.into(),
    };
    let mutations = [
        mutation("no-check", "xdr::header::tests::nomsg_without_a_chunk_is_refused"),
        mutation("no-echo", "suite::inline::every_length_is_echoed"),
        mutation("no-file", "block_store::tests::files_of_any_length_come_back_as_they_were"),
        mutation("harm", "xdr::roundtrip::any_bytes_do_no_harm"),
        mutation("key", "conformance::messages::an_inline_send_needs_no_key"),
    ];
    let sources = Sources { wire: "**E6. Credits.**", open, mutations: &mutations };
    faults(row, &sources)
}

#[test]
fn a_row_in_order_has_no_fault() {
    let fine = [
        "| 8166-1 | 1 MUST | rule | it is so (wire.md E6) | `xdr::header::tests::nomsg_without_a_chunk_is_refused` | `no-check` |",
        "| V2-1 | 1 MUST | rule | it is so | `proto::conversation::handshake::properties_count_once`, `suite::inline::every_length_is_echoed` | `no-echo` |",
        "| RTR-9 | 1 | rule | it is so | cannot apply: it is for authors | - |",
        "| 8267-1 | 1 | rule | it is so | `block_store::tests::files_of_any_length_come_back_as_they_were` | `no-file` |",
        "| XCHAR-1 | 1 | rule | it is so | `xdr::roundtrip::any_bytes_do_no_harm` | `harm` |",
        "| XCHAR-2 | 1 | rule | it is so | `conformance::messages::an_inline_send_needs_no_key` | `key` |",
    ];
    assert_eq!(faults_of(&fine.join("\n")), [""; 0]);
    let open = "| 8166-1 | 1 | rule | soon | (open) | (open) |";
    assert_eq!(faults_with(open, &["8166-1"]), [""; 0]);
    let same = "| 8166-1 | 1 | rule | a | cannot apply: for some reason | - |\n| 5666-1 | 1 | rule | b | as 8166-1 | - |";
    assert_eq!(faults_of(same), [""; 0]);
}

#[test]
fn every_fault_of_a_row_is_found() {
    let bad = [
        ("| V2-1 | 1 | rule | | (open) | (open) |", "an empty cell"),
        ("| V2-1 | 1 | rule | so | (open) | (open) |", "no test"),
        ("| V2-1 | 1 | rule | so | (open) |", "4 cells"),
        ("| V2-1 | 1 | rule | wire.md E6, E7 | (open) | (open) |", "no E7"),
        ("| V2-1 | 1 | rule | so | cannot apply: so | - |", "no reason"),
        ("| V2-1 | 1 | rule | so | cannot be broken: so | - |", "no reason"),
        ("| V2-1 | 1 | rule | so | cannot apply: for some reason | (open) |", "and no test"),
        (
            "| V2-1 | 1 | rule | so | `xdr::roundtrip::any_bytes_do_no_harm` | (open) |",
            "in backticks",
        ),
        (
            "| V2-1 | 1 | rule | so | `xdr::roundtrip::any_bytes_do_no_harm` | no-check |",
            "in backticks",
        ),
        (
            "| V2-1 | 1 | rule | so | `xdr::roundtrip::any_bytes_do_no_harm` | `other` |",
            "no mutation",
        ),
        (
            "| V2-1 | 1 | rule | so | `xdr::roundtrip::any_bytes_do_no_harm` | `no-check` |",
            "is no test of the row",
        ),
        ("| V2-1 | 1 | rule | so | as V2-2 | - |", "no row"),
        ("| V2-1 | 1 | rule | so | as V2-1 | - |", "no row"),
        ("| V2-1 | 1 | rule | so | xdr::header::tests::x | (open) |", "no test in backticks"),
        ("| V2-1 | 1 | rule | so | `xdr::header::tests::no_such_name` | (open) |", "no such test"),
        (
            "| V2-1 | 1 | rule | so | `xdr::header::nomsg::nomsg_without_a_chunk_is_refused` | (open) |",
            "no such module",
        ),
        ("| V2-1 | 1 | rule | so | `xdr::nowhere::name` | (open) |", "no such module"),
        ("| V2-1 | 1 | rule | so | `nowhere::header::name` | (open) |", "no part"),
        ("| V2-1 | 1 | rule | so | `name` | (open) |", "no path"),
        // A function that is no test.
        ("| V2-1 | 1 | rule | so | `xdr::header::tests::encoded` | (open) |", "no such test"),
        ("| V2-1 | 1 | rule | so | `suite::inline::no_such_name` | (open) |", "not in the list"),
        (
            "| V2-1 | 1 | rule | so | `suite::placed::every_length_is_echoed` | (open) |",
            "not in the list",
        ),
        ("| V2-1 | 1 | rule | so | `suite::every_length_is_echoed` | (open) |", "is a scenario"),
    ];
    for (row, what) in bad {
        let faults = faults_of(row);
        assert!(faults.iter().any(|fault| fault.contains(what)), "{row}: {faults:?}");
    }
    let twice = "| V2-1 | 1 | r | w | cannot apply: for some reason | - |\n";
    assert_eq!(faults_of(&twice.repeat(2)), ["V2-1: the number is there twice"]);
    let stale = faults_with(twice, &["V2-1"]);
    assert_eq!(stale, ["V2-1: is not open"]);
}
