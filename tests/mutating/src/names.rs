//! The names of tests in docs/conformance.md: which file has a test, and which program runs it.
//!
//! A textual search: a name leads to a file, and the file must contain that test.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where the parts of the workspace are that tests are named by.
const PARTS: [(&str, &str); 19] = [
    ("xdr", "xdr"),
    ("mempool", "mempool"),
    ("config", "config"),
    ("proto", "engine/proto"),
    ("provider", "engine/provider"),
    ("transport", "engine/transport"),
    ("fabric", "engine/fabric"),
    ("shm", "engine/shm"),
    ("storage", "engine/storage"),
    ("iwarp", "engine/iwarp"),
    ("verbs", "engine/verbs"),
    ("engine", "engine"),
    ("capi", "engine/capi"),
    ("nfs3", "engine/nfs3"),
    ("gen", "engine/gen"),
    ("top", "engine/top"),
    ("bench", "bench"),
    ("tests", "tests"),
    ("block_store", "engine/examples/block_store"),
];

/// Where the scenarios of the suite become tests of the fabric, in any version and in version one.
const SCENARIOS: [&str; 2] = ["api::auto::", "api::version_one::"];

/// How cargo selects a test program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The unit tests of a library.
    Lib,
    /// The unit tests of a program.
    Bin,
    /// A program of the folder `tests`.
    Test,
    /// The tests of an example.
    Example,
}

/// A test program of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Program {
    /// The package that it is of.
    pub package: String,
    /// How cargo selects it.
    pub kind: Kind,
    /// Its name for cargo. That of a library is not needed, and empty.
    pub name: String,
}

/// A test, as its program names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Its program.
    pub program: Program,
    /// Its modules and its name; of a scenario `room::name`.
    path: String,
    is_scenario: bool,
}

impl Test {
    /// Whether the program calls this test so. A scenario is a test of each of two versions.
    #[must_use]
    pub fn is_listed_as(&self, listed: &str) -> bool {
        if !self.is_scenario {
            return listed == self.path;
        }
        SCENARIOS.iter().any(|place| listed.strip_prefix(place) == Some(&self.path))
    }
}

/// The test `part::file::module::name`, the scenario `suite::room::name` or the rule of a device
/// `conformance::group::name`, of the workspace.
///
/// # Errors
/// What is missing of it.
pub fn find(root: &Path, path: &str) -> Result<Test, String> {
    let mut steps: Vec<&str> = path.split("::").collect();
    let name = steps.pop().expect("split gives one at least");
    let Some((part, modules)) = steps.split_first() else { return Err("no path".into()) };
    if *part == "suite" {
        let [room] = modules else { return Err("suite::room::name is a scenario".into()) };
        return scenario(root, room, name);
    }
    if *part == "conformance" {
        let [group] = modules else { return Err("conformance::group::name is a rule".into()) };
        return rule(root, group, name);
    }
    let folder = PARTS.iter().find(|(known, _)| known == part);
    let Some((_, folder)) = folder else { return Err(format!("no part {part}")) };
    let mut why = "no such file";
    for source in sources_of(&root.join(folder), modules) {
        why = match source.inner.iter().find(|module| !has_module(&source.text, module)) {
            Some(_) => "no such module there",
            None if has_test(&source.text, name) => {
                let steps = source.path.iter().chain([&name]).copied().collect::<Vec<_>>();
                let is_scenario = false;
                return Ok(Test { program: source.program?, path: steps.join("::"), is_scenario });
            }
            None => "no such test there",
        };
    }
    Err(why.into())
}

/// A file that some modules lead to.
struct Source<'a> {
    text: String,
    /// The modules inside of it.
    inner: &'a [&'a str],
    /// The modules of its program, those inside of it included.
    path: &'a [&'a str],
    program: Result<Program, String>,
}

/// The files that some of the modules lead to.
fn sources_of<'a>(folder: &Path, modules: &'a [&'a str]) -> Vec<Source<'a>> {
    let mut found = Vec::new();
    for count in 0..=modules.len() {
        let (outer, inner) = modules.split_at(count);
        let outer = outer.join("/");
        let mut add = |path: PathBuf, modules: &'a [&'a str], program: Result<Program, String>| {
            if let Ok(text) = fs::read_to_string(path) {
                found.push(Source { text, inner, path: modules, program });
            }
        };
        let names = match count {
            0 => vec!["lib.rs".into()],
            _ => vec![format!("{outer}.rs"), format!("{outer}/mod.rs")],
        };
        for name in names {
            add(folder.join("src").join(name), modules, unit_tests(folder));
        }
        let name = if count == 0 { "main.rs".into() } else { format!("{outer}.rs") };
        add(folder.join(name), modules, example(folder));
        if let [program, path @ ..] = modules
            && count == 1
        {
            add(folder.join(format!("tests/{program}.rs")), path, test(folder, program));
        }
        for program in programs(folder) {
            let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            add(program.join(format!("{outer}.rs")), modules, test(folder, name));
        }
    }
    found
}

/// The folders of a part that are test programs of several files.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("tests")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("main.rs").exists()).collect()
}

fn unit_tests(folder: &Path) -> Result<Program, String> {
    let package = package(folder)?;
    match folder.join("src/lib.rs").exists() {
        true => Ok(Program { package, kind: Kind::Lib, name: String::new() }),
        false => Ok(Program { name: package.clone(), package, kind: Kind::Bin }),
    }
}

fn test(folder: &Path, name: &str) -> Result<Program, String> {
    Ok(Program { package: package(folder)?, kind: Kind::Test, name: name.to_owned() })
}

/// That of `PACKAGE/examples/NAME`.
fn example(folder: &Path) -> Result<Program, String> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let package = package(folder.ancestors().nth(2).unwrap_or(folder))?;
    Ok(Program { package, kind: Kind::Example, name })
}

/// The name in the manifest of a folder.
///
/// # Errors
/// If there is no manifest, or no name in it.
pub fn package(folder: &Path) -> Result<String, String> {
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.map(str::to_owned).ok_or(format!("{} names no package", path.display()))
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

/// The scenario, if the suite lists it and has it.
fn scenario(root: &Path, room: &str, name: &str) -> Result<Test, String> {
    let is_listed = is_listed(&root.join("engine/suite/src/list.rs"), room, name);
    let text = fs::read_to_string(root.join(format!("engine/suite/src/scenarios/{room}.rs")));
    let is_there = text.is_ok_and(|text| text.contains(&format!("pub fn {name}<")));
    match (is_listed, is_there) {
        (true, true) => {
            let program = test(&root.join("engine"), "fabric")?;
            Ok(Test { program, path: format!("{room}::{name}"), is_scenario: true })
        }
        (false, _) => Err("not in the list of the suite".into()),
        (true, false) => Err("no such scenario".into()),
    }
}

/// The rule, if the conformance suite lists it and has it: a test of the transport.
fn rule(root: &Path, group: &str, name: &str) -> Result<Test, String> {
    let suite = root.join("tests/conformance/src");
    let text = fs::read_to_string(suite.join(format!("rules/{group}.rs")));
    let is_there = text.is_ok_and(|text| text.contains(&format!("fn {name}<")));
    match (is_listed(&suite.join("list.rs"), group, name), is_there) {
        (true, true) => {
            let program = test(&root.join("engine/transport"), "conformance")?;
            Ok(Test { program, path: format!("{group}::{name}"), is_scenario: false })
        }
        (false, _) => Err("not in the list of the conformance suite".into()),
        (true, false) => Err("no such rule".into()),
    }
}

/// Whether a list has the entry `group: ..., name, ...;`.
fn is_listed(list: &Path, group: &str, name: &str) -> bool {
    let text = fs::read_to_string(list).unwrap_or_default();
    let names = text.split(&format!(" {group}:")).nth(1).and_then(|rest| rest.split(';').next());
    names.is_some_and(|names| names.split([',', '\n']).any(|entry| entry.trim() == name))
}
