//! The files of the engine import each other in one direction: no file imports one that imports it.
//! Textual: the paths that begin with `crate`, `super` or `self` are read out of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The names of the modules that a file is, from the crate on.
type Module = Vec<String>;

/// Modules that may import each other, and why.
const MAY_IMPORT_EACH_OTHER: [(&str, &str); 2] = [
    ("api::handle", "a handle takes the answer to a ticket"),
    ("api::ticket", "a ticket that is dropped tells the shard by its handle"),
];

/// Names at the root of the crate that are other crates.
const OTHER_CRATES: [&str; 3] = ["provider", "fabric", "verbs"];

fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            walk(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root).expect("below the root").with_extension("");
            let names = relative.iter().map(|name| name.to_str().expect("ASCII").to_owned());
            let module = names.filter(|name| name != "mod" && name != "lib").collect();
            found.insert(module, path);
        }
    }
}

/// The code in front of the tests of a file, without comments, in one line.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(line).trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// The paths that a piece of code names from `crate`, `super` or `self` on.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            // A path goes on, or begins, with what is part of a name.
            if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                found.extend(tree(&code[at..]));
            }
        }
    }
    found
}

/// The paths of a tree of imports, or the one path that is no tree.
fn tree(code: &str) -> Vec<String> {
    let (mut found, mut prefixes) = (Vec::new(), Vec::new());
    let mut path = String::new();
    for next in code.chars() {
        match next {
            '{' if path.ends_with("::") => prefixes.push(path.clone()),
            ',' | '}' if !prefixes.is_empty() => {
                found.push(core::mem::take(&mut path));
                if next == '}' {
                    prefixes.pop();
                }
                path = prefixes.last().cloned().unwrap_or_default();
                if prefixes.is_empty() {
                    return found;
                }
            }
            ' ' if !prefixes.is_empty() => {}
            next if next.is_alphanumeric() || next == '_' || next == ':' => path.push(next),
            _ => break,
        }
    }
    found.push(path);
    found
}

/// The module that a path of this module leads into.
fn target(from: &Module, path: &str, modules: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let mut base = from.clone();
    let mut names = path.split("::").filter(|name| !name.is_empty()).peekable();
    match names.peek().copied() {
        Some("crate") => base.clear(),
        Some("super") => drop(base.pop()),
        _ => {}
    }
    let first = names.next();
    while names.next_if_eq(&"super").is_some() {
        base.pop();
    }
    if first == Some("crate") && names.peek().is_some_and(|name| OTHER_CRATES.contains(name)) {
        return None;
    }
    for name in names {
        base.push(name.to_owned());
        if !modules.contains_key(&base) {
            base.pop();
            break;
        }
    }
    (base != *from).then_some(base)
}

/// Which module imports which.
fn imports() -> BTreeMap<Module, BTreeSet<Module>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src");
    let mut modules = BTreeMap::new();
    walk(&root, &root, &mut modules);
    assert!(modules.len() > 80, "all files are found");
    let of = |(module, path): (&Module, &PathBuf)| {
        let code = code(&fs::read_to_string(path).expect("text"));
        let targets = paths(&code).iter().filter_map(|it| target(module, it, &modules)).collect();
        (module.clone(), targets)
    };
    modules.iter().map(of).collect()
}

#[test]
fn no_file_of_the_engine_imports_one_that_imports_it() {
    let mut rest = imports();
    let count = rest.values().map(BTreeSet::len).sum::<usize>();
    assert!(count > 300, "imports are read: {count}");
    loop {
        let before = rest.len();
        // Whoever imports none of the others, or is imported by none, is in no circle.
        let all: BTreeSet<Module> = rest.keys().cloned().collect();
        rest.retain(|_, targets| targets.iter().any(|it| all.contains(it)));
        let imported: BTreeSet<Module> = rest.values().flatten().cloned().collect();
        rest.retain(|module, _| imported.contains(module));
        if rest.len() == before {
            break;
        }
    }
    let circle: Vec<String> = rest.keys().map(|module| module.join("::")).collect();
    assert_eq!(circle, MAY_IMPORT_EACH_OTHER.map(|(module, _)| module));
}

#[test]
fn imports_are_read_out_of_trees_and_out_of_the_code() {
    let text = "use crate::a::{b::{C, D}, e}; // crate::no\nfn f() -> super::g::H { mycrate::x() }\n\
                #[cfg(test)]\nmod tests { use crate::t; }";
    let found = paths(&code(text));
    assert_eq!(
        found,
        ["crate::a::b::C", "crate::a::b::D", "crate::a::", "crate::a::e", "super::g::H"]
    );
}
