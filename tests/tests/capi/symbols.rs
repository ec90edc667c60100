//! The symbols of the libraries are the functions of the header, each with its version.

use std::collections::BTreeSet;
use std::process::Command;

use crate::toolchain::{has, include, library, succeed};

/// The functions that the header declares, and does not define itself.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(include().join("rpcrdma.h")).expect("it is committed");
    let code: String = header
        .lines()
        .take_while(|line| *line != "#ifndef RPCRDMA_INLINE")
        .filter(|line| !line.trim_start().starts_with(['*', '/', '#']))
        .collect::<Vec<_>>()
        .join("\n");
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let before_arguments = code.split('(').filter_map(|text| {
        let name = text.rsplit(|letter| !is_part(letter)).next()?;
        name.starts_with("rpcrdma_").then(|| name.to_owned())
    });
    let all: BTreeSet<String> = before_arguments.collect();
    assert!(all.len() > 50, "the functions are found: {all:?}");
    all
}

/// What `nm` lists of a library, by its options.
fn listed(options: &[&str], name: &str) -> Vec<(String, String)> {
    let said = succeed(Command::new("nm").args(options).arg(library(name)));
    let lines = said.lines().filter_map(|line| line.rsplit_once(' '));
    let kind = |start: &str| start.chars().last().map(String::from).unwrap_or_default();
    lines.map(|(start, name)| (kind(start), name.to_owned())).collect()
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header_with_their_version() {
    if !has("binutils") {
        return;
    }
    let options = ["--dynamic", "--defined-only", "--with-symbol-versions"];
    let symbols = listed(&options, "librpcrdma.so").into_iter();
    let exported: BTreeSet<String> =
        symbols.filter(|(kind, _)| kind != "A").map(|(_, name)| name).collect();
    let expected = declared().iter().map(|name| format!("{name}@@RPCRDMA_1")).collect();
    assert_eq!(exported, expected);
}

#[test]
fn the_static_library_defines_the_functions_of_the_header() {
    if !has("binutils") {
        return;
    }
    let symbols = listed(&["--extern-only", "--defined-only", "--quiet"], "librpcrdma.a");
    let defined: BTreeSet<String> = symbols.into_iter().map(|(_, name)| name).collect();
    let missing: Vec<String> = declared().difference(&defined).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_shared_library_has_its_name_and_needs_no_other_than_the_systems() {
    if !has("binutils") {
        return;
    }
    let said = succeed(Command::new("readelf").arg("--dynamic").arg(library("librpcrdma.so")));
    assert!(said.contains("Library soname: [librpcrdma.so.1]"), "{said}");
    let needed = said.lines().filter(|line| line.contains("(NEEDED)"));
    let names: Vec<&str> = needed.filter_map(|line| line.split(['[', ']']).nth(1)).collect();
    let is_of_system = |name: &&str| {
        name.starts_with("libc.so")
            || ["libgcc_s", "libm.", "ld-linux"].iter().any(|start| name.starts_with(start))
    };
    assert!(names.iter().all(is_of_system), "{names:?}");
}
