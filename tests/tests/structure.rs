//! The structure of the sources: rules of docs/style.md and docs/architecture.md that a compiler
//! does not check. The checks are textual; comments, strings and test modules are removed first.

use std::collections::BTreeSet;
use std::fs;

use rpcrdma_tests::tracked::{files, root};

/// A source file, as it is and cut down to code.
struct Source {
    /// From the root of the workspace, with slashes.
    name: String,
    text: String,
    /// Its lines outside of test modules, without comments and contents of strings.
    code: Vec<String>,
}

fn sources() -> Vec<Source> {
    let names = files().into_iter().filter(|name| name.ends_with(".rs"));
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).expect("text");
        let code = code_of(&text);
        Source { name, text, code }
    };
    names.map(read).collect()
}

/// Lines up to the first test module, without comments and contents of strings.
fn code_of(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_end = |at: &usize| {
        let item = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
        let module = item.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'));
        lines[*at].starts_with("#[cfg(") && lines[*at].contains("test") && module
    };
    let end = (0..lines.len()).find(is_end).unwrap_or(lines.len());
    lines[..end].iter().map(|line| bare(line)).collect()
}

/// A line without its comment and without the contents of its strings.
fn bare(line: &str) -> String {
    let mut bare = String::new();
    let mut rest = line.chars().peekable();
    let mut is_string = false;
    while let Some(next) = rest.next() {
        match next {
            '\\' if is_string => drop(rest.next()),
            '\'' if !is_string && rest.peek() == Some(&'"') => drop(rest.next()),
            '"' => is_string = !is_string,
            '/' if !is_string && rest.peek() == Some(&'/') => break,
            _ if is_string => {}
            other => bare.push(other),
        }
    }
    bare
}

/// Whether `word` stands in `line` as a word of its own.
fn has_word(line: &str, word: &str) -> bool {
    let is_part =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| line.as_bytes().get(before));
        !is_part(before) && !is_part(line.as_bytes().get(at + word.len()))
    })
}

/// The lints of the workspace are those of each crate: `unsafe_code`, which rejects unsafe code but
/// in modules that begin with `#![expect(unsafe_code, reason = "...")]`.
#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    let mut count = 0;
    for name in files().iter().filter(|name| name.ends_with("/Cargo.toml")) {
        let manifest = fs::read_to_string(root().join(name)).expect("text");
        // A workspace of its own cannot take them over.
        let is_strict = ["[lints]\nworkspace = true\n", "[lints.rust]\nunsafe_code = \"forbid\"\n"]
            .iter()
            .any(|lints| manifest.contains(lints));
        assert!(is_strict, "{name} has not the lints of the workspace");
        count += 1;
    }
    assert!(count > 20, "{count} crates are found");
}

/// Programs that end by themselves, and print what they were started for.
const PRINTERS: &[&str] = &[
    "bench/instructions/",
    "bench/peers/",
    "engine/capi/build.rs",
    "bench/build.rs",
    "engine/examples/epoll/",
    "engine/examples/gateway/",
    "engine/suite/",
    "tests/",
];

/// `println` and the like panic where nothing can be written: the reader has gone, the disk is
/// full. That is no failure of what serves.
#[test]
fn what_serves_does_not_print_with_a_panic() {
    for source in sources() {
        if PRINTERS.iter().any(|place| source.name.starts_with(place))
            || source.name.contains("/tests/")
            || source.name.ends_with("/tests.rs")
        {
            continue;
        }
        let prints = |line: &String| {
            ["print!", "println!", "eprint!", "eprintln!"].iter().any(|word| line.contains(word))
        };
        let line = source.code.iter().position(prints);
        assert_eq!(line.map(|at| at + 1), None, "use writeln in {}", source.name);
    }
}

/// What a turn of a shard reaches, from the completion to the wire: files, and folders.
const DATA_PATH: [&str; 18] = [
    "engine/fabric/src/rings/",
    "engine/fabric/src/sleeper.rs",
    "engine/proto/src/",
    "engine/provider/src/work.rs",
    "engine/src/api/",
    "engine/src/engine/shard.rs",
    "engine/src/handle/",
    "engine/src/mailbox.rs",
    "engine/src/message/",
    "engine/src/onc.rs",
    "engine/src/shard/",
    "engine/src/state/",
    "engine/src/stats/",
    "engine/src/ulb/",
    "engine/transport/src/",
    "engine/verbs/src/queues/",
    "engine/verbs/src/wc.rs",
    "mempool/src/",
];

/// What is in these folders, and runs when something is set up, has failed or is observed.
const SETUP: [&str; 20] = [
    "engine/fabric/src/rings/mod.rs",
    "engine/src/api/handler.rs",
    "engine/src/shard/memory.rs",
    "engine/src/shard/start.rs",
    "engine/src/stats/inspection.rs",
    "engine/transport/src/barrier.rs",
    "engine/transport/src/callers.rs",
    "engine/transport/src/conn.rs",
    "engine/transport/src/device.rs",
    "engine/transport/src/limits.rs",
    "engine/transport/src/numbers.rs",
    "engine/transport/src/settings.rs",
    "engine/transport/src/socket_cm.rs",
    "engine/transport/src/sync.rs",
    "engine/verbs/src/queues/control.rs",
    "engine/verbs/src/queues/windows.rs",
    "mempool/src/memfd.rs",
    "mempool/src/registered.rs",
    "mempool/src/testing.rs",
    "mempool/src/topology/",
];

/// The sources of the data path, without tests.
fn data_path() -> Vec<Source> {
    let sources = sources();
    for place in DATA_PATH.iter().chain(&SETUP) {
        let is_there = sources.iter().any(|source| source.name.starts_with(place));
        assert!(is_there, "{place} is not there");
    }
    let is_in = |name: &str, places: &[&str]| places.iter().any(|place| name.starts_with(place));
    let is_tests = |name: &str| name.contains("/tests/") || name.ends_with("/tests.rs");
    let on_path = |name: &str| is_in(name, &DATA_PATH) && !is_in(name, &SETUP) && !is_tests(name);
    sources.into_iter().filter(|source| on_path(&source.name)).collect()
}

/// Words that have no place on the data path, but for what is said here: file, word, reason.
const NOT_THERE: [&str; 8] =
    ["dyn", "Mutex", "RwLock", "HashMap", "BTreeMap", "Rc", "RefCell", "async"];
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    ("engine/transport/src/keys.rs", "Mutex", "taken when memory is registered, and once after"),
    ("mempool/src/free_list.rs", "Mutex", "numbers the pools of the process when they are made"),
];

/// Arguments of functions that short messages do not pass: compiled once for all handlers, or asked
/// for a registration, which is a system call.
const COLD: [&str; 3] =
    ["handler: &mut dyn Handler", "exposer: &mut dyn Exposer", "exposer: &'a mut dyn Exposer"];

/// Functions that each short message passes, which are compiled for each handler.
const FOR_EACH_HANDLER: [(&str, &str); 6] = [
    ("engine/src/shard/mod.rs", "fn turn<H: Handler>("),
    ("engine/src/shard/completions.rs", "fn take_in<H: Handler>("),
    ("engine/src/shard/completions.rs", "fn receive_short<H: AsHandler + ?Sized>("),
    ("engine/src/shard/receive/deliver.rs", "fn deliver_short<H: AsHandler + ?Sized>("),
    ("engine/src/shard/receive/deliver.rs", "fn deliver_mapped<H: AsHandler + ?Sized>("),
    ("engine/src/shard/receive/deliver.rs", "fn deliver<'a, H: AsHandler + ?Sized>("),
];

#[test]
fn the_data_path_has_no_locks_and_no_indirect_calls() {
    let sources = data_path();
    for source in &sources {
        for word in NOT_THERE {
            let name = &source.name;
            if EXCEPTIONS.iter().any(|(file, except, _)| (*file, *except) == (name, word)) {
                continue;
            }
            let is_found = |line: &str| {
                has_word(line, word) && !COLD.iter().any(|argument| line.contains(argument))
            };
            let line = source.code.iter().position(|line| is_found(line));
            assert_eq!(line.map(|at| at + 1), None, "{word} in {name}");
        }
    }
    for (file, head) in FOR_EACH_HANDLER {
        let source = sources.iter().find(|source| source.name == *file).expect("it is there");
        assert!(source.code.iter().any(|line| line.contains(head)), "{head} is not in {file}");
    }
    for (file, word, reason) in EXCEPTIONS {
        let source = sources.iter().find(|source| source.name == *file).expect("it is there");
        let is_used = source.code.iter().any(|line| has_word(line, word));
        assert!(is_used, "{file} has no {word} any more ({reason})");
    }
}

/// What allocates.
const ALLOCATIONS: [&str; 12] = [
    "Vec::with_capacity(",
    "VecDeque::with_capacity(",
    "vec![",
    "Box::new(",
    "Box::from(",
    "Arc::new(",
    "String::from(",
    "format!(",
    ".to_string(",
    ".to_owned(",
    ".to_vec(",
    ".into_boxed_slice(",
];

/// Functions that may allocate: not `new`, which all may.
const MAY_ALLOCATE: [(&str, &str, &str); 6] = [
    ("engine/transport/src/queues.rs", "attach", "a connection comes"),
    ("engine/transport/src/keys.rs", "add_reader", "queues are opened"),
    ("engine/src/state/peers.rs", "insert", "a connection comes"),
    ("engine/src/ulb/data.rs", "to_vec", "a program wants a copy"),
    ("mempool/src/loan.rs", "lay_out", "a pool is made"),
    ("mempool/src/recv.rs", "drop", "a pool is dropped"),
];

#[test]
fn the_data_path_allocates_at_setup_only() {
    let sources = data_path();
    let mut found = Vec::new();
    let mut used: BTreeSet<&(&str, &str, &str)> = BTreeSet::new();
    for source in &sources {
        let file = &source.name;
        let mut function = "";
        for (at, line) in source.code.iter().enumerate() {
            if let Some((_, rest)) = line.split_once("fn ") {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                function = &rest[..end.unwrap_or(rest.len())];
            }
            let Some(what) = ALLOCATIONS.iter().find(|what| line.contains(**what)) else {
                continue;
            };
            let entry = MAY_ALLOCATE.iter().find(|entry| (entry.0, entry.1) == (file, function));
            used.extend(entry);
            if function != "new" && entry.is_none() {
                found.push(format!("{what} in {file}:{}, in {function}", at + 1));
            }
        }
    }
    assert_eq!(found, [""; 0]);
    for entry in MAY_ALLOCATE {
        let (file, function, _) = entry;
        let source = sources.iter().find(|source| source.name == *file).expect("it is there");
        let exists = source.code.iter().any(|line| line.contains(&format!("fn {function}")));
        assert!(exists, "{file} has no function {function}");
        assert!(used.contains(&entry), "{function} in {file} does not allocate");
    }
}

/// Endings of the names of enums that are reasons of a failure.
const REASONS: [&str; 7] =
    ["Error", "Fatal", "Reason", "Refusal", "Refused", "Rejection", "Violation"];

/// Enums that name no reason, or whose variants are complete.
const COMPLETE: [(&str, &str); 2] = [
    ("RdmaError", "the error messages of the protocol: who decodes one handles each"),
    ("Execution", "executed, not executed, unknown"),
];

/// A new reason is no breaking change; outside of its crate, a match has an arm for what it will be.
#[test]
fn public_errors_may_become_more() {
    let mut complete: BTreeSet<&str> = BTreeSet::new();
    let mut count = 0;
    for source in sources() {
        let is_crate = source.name.contains("/src/") && !source.name.starts_with("tests/");
        if !is_crate || source.name.contains("/tests/") {
            continue;
        }
        for (at, line) in source.code.iter().enumerate() {
            let Some(name) = line.strip_prefix("pub enum ") else { continue };
            let name = name.split([' ', '<', '{']).next().unwrap_or_default();
            let attributes = attributes_above(&source.code, at);
            let derives =
                attributes.iter().any(|it| it.contains("derive") && has_word(it, "Error"));
            if !derives && !REASONS.iter().any(|ending| name.ends_with(ending)) {
                continue;
            }
            count += 1;
            let entry = COMPLETE.iter().find(|entry| entry.0 == name);
            complete.extend(entry.map(|entry| entry.0));
            let is_open = attributes.contains(&"#[non_exhaustive]");
            assert_ne!(is_open, entry.is_some(), "{name} in {}: #[non_exhaustive]", source.name);
        }
    }
    assert!(count > 40, "{count} enums are found");
    assert_eq!(complete.len(), COMPLETE.len(), "only {complete:?} are there");
}

/// The lines of attributes directly above a line, also of attributes of several lines.
fn attributes_above(code: &[String], at: usize) -> Vec<&str> {
    let is_attribute = |line: &&String| {
        line.starts_with("#[") || line.starts_with("    ") || line.starts_with(")]")
    };
    code[..at].iter().rev().take_while(is_attribute).map(String::as_str).collect()
}

#[test]
fn reserved_messages_are_never_made() {
    // RFC 8166 4.6: only the receive path mentions RDMA_MSGP and RDMA_DONE.
    let mut count = 0;
    for source in sources() {
        let is_ours = source.name.starts_with("engine/") && !source.name.contains("/tests/");
        for line in source.code.iter().filter(|_| is_ours) {
            let is_named = ["Body::Msgp", "Body::Done"].iter().any(|name| line.contains(name));
            let is_pattern = line.contains("=>") || line.contains("matches!(");
            assert!(is_pattern || !is_named, "{}: {line}", source.name);
            count += usize::from(is_named);
        }
    }
    assert!(count > 0, "the protocol looks at them");
}

#[test]
fn no_file_is_longer_than_500_lines() {
    for source in sources() {
        if !source.name.contains("/tests/") {
            let len = source.code.len();
            assert!(len <= 500, "{} has {len} lines without its tests", source.name);
        }
    }
}

#[test]
fn every_file_states_its_subject() {
    for source in sources() {
        let first = source.text.lines().next().unwrap_or_default();
        let is_said = first.starts_with("//! ") && first.len() > 12;
        assert!(is_said, "{} begins with {first:?}", source.name);
    }
}

#[test]
fn every_citation_of_a_decision_leads_somewhere() {
    let wire = fs::read_to_string(root().join("docs/wire.md")).expect("docs/wire.md");
    let mut cited = BTreeSet::new();
    for source in sources() {
        // Citations go on in the next line of a comment.
        let text = source.text.replace("\n", " ").replace(" //! ", " ").replace(" /// ", " ");
        for (at, _) in text.match_indices("wire.md ") {
            let words = text[at + 8..].split([' ', ',', ')', '.', ';', ':', '`', '"', '-']);
            for word in words.filter(|word| !word.is_empty() && *word != "and") {
                if !is_decision(word) {
                    break;
                }
                cited.insert((word.to_owned(), source.name.clone()));
            }
        }
    }
    assert!(cited.len() > 100, "the citations are found");
    for (decision, file) in cited {
        let heading = format!("**{decision}. ");
        assert!(wire.contains(&heading), "{file} cites {decision}, which docs/wire.md has not");
    }
}

/// One of the letters of docs/wire.md and a number.
fn is_decision(word: &str) -> bool {
    let number = word.strip_prefix(['N', 'X', 'B', 'P', 'E', 'C', 'W']).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[test]
fn strings_and_comments_are_no_code() {
    assert_eq!(bare(r#"let a = "un//safe\" {"; // dyn"#), "let a = ; ");
    assert_eq!(bare("match c { '\"' => dyn }"), "match c { ' => dyn }");
    assert!(has_word("&dyn Trait", "dyn") && !has_word("dynamic", "dyn"));
    assert!(!has_word("dyn_code", "dyn"));
    for also in ["", "#[cfg(not(loom))]\n"] {
        let text = format!("fn a() {{}}\n#[cfg(test)]\n{also}mod tests {{\n unsafe {{}} }}");
        assert_eq!(code_of(&text), ["fn a() {}"]);
    }
}

/// The functions that the walk of a message names: `Core::flush`, or `deliver`.
#[test]
fn the_functions_of_the_walk_exist() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let walk = page.split("## The walk of one message").nth(1).expect("the walk");
    let walk = walk.split("\n## ").next().expect("it has an end");
    let code: Vec<Source> = sources();
    let mut count = 0;
    for name in walk.split('`').skip(1).step_by(2).filter(|name| !name.contains(['/', '.'])) {
        let (of, function) = name.rsplit_once("::").unwrap_or(("", name));
        if !function.starts_with(|first: char| first.is_ascii_lowercase()) {
            continue;
        }
        count += 1;
        let defines = |source: &Source| {
            let is_function = [format!("fn {function}("), format!("fn {function}<")];
            let is_of = [format!("impl {of} "), "impl<".to_owned(), format!("trait {of} ")];
            is_function.iter().any(|text| source.text.contains(text))
                && (of.is_empty() || is_of.iter().any(|text| source.text.contains(text)))
                && source.text.contains(of)
        };
        assert!(code.iter().any(defines), "`{name}` of the walk is no function");
    }
    assert!(count > 30, "{count} functions are a walk");
}

/// The most functions between completion and post on the short way, and the most files.
const CALLS_MAX: usize = 40;
const FILES_MAX: usize = 15;

#[test]
fn the_short_way_is_as_short_as_the_walk_states() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let sources = sources();
    for title in ["Plain echo", "Placed WRITE"] {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("| {title} | ")));
        let (counts, list) = line.and_then(|line| line.split_once(" | ")).expect(title);
        let walk: Vec<Function> =
            list.split('`').skip(1).step_by(2).map(|name| Function::find(&sources, name)).collect();
        for (at, function) in walk.iter().enumerate().skip(1) {
            let is_called = walk[..at].iter().any(|before| before.calls(function.name));
            // The handler calls it, which is a program's.
            let is_called = is_called || function.name == "send";
            assert!(is_called, "{title}: nothing before it calls {}", function.name);
        }
        let files: BTreeSet<&str> = walk.iter().map(|function| function.file).collect();
        assert_eq!(counts, format!("{} calls in {} files", walk.len(), files.len()), "{title}");
        assert!(walk.len() <= CALLS_MAX && files.len() <= FILES_MAX, "{title}: {files:?}");
    }
}

/// A function of the engine or the protocol.
struct Function<'a> {
    name: &'a str,
    file: &'a str,
    body: String,
}

impl<'a> Function<'a> {
    /// The only function of this name: `Core::flush`, or `deliver`.
    fn find(sources: &'a [Source], name: &'a str) -> Function<'a> {
        let (of, function) = name.rsplit_once("::").unwrap_or(("", name));
        let mut found = Vec::new();
        for source in sources.iter().filter(|source| is_engine(&source.name)) {
            let mut owner = "";
            for (at, line) in source.code.iter().enumerate() {
                if line.starts_with('}') {
                    owner = "";
                } else if line.starts_with("impl") {
                    owner = line;
                }
                let is_it = line.contains(&format!("fn {function}("))
                    || line.contains(&format!("fn {function}<"));
                let is_of = if of.is_empty() { owner.is_empty() } else { has_word(owner, of) };
                if is_it && is_of {
                    let indent = line.len() - line.trim_start().len();
                    let end = format!("{}}}", " ".repeat(indent));
                    let rest = source.code[at + 1..].iter().take_while(|line| **line != end);
                    let body = rest.map(|line| format!("{line}\n")).collect();
                    found.push(Function { name: function, file: &source.name, body });
                }
            }
        }
        assert_eq!(found.len(), 1, "`{name}` of the walk is one function");
        found.remove(0)
    }

    /// Whether its body calls a function of this name.
    fn calls(&self, name: &str) -> bool {
        let calls = [format!("{name}("), format!("{name}::<")];
        calls.iter().any(|call| {
            self.body.match_indices(call.as_str()).any(|(at, _)| {
                !self.body[..at].ends_with(|last: char| last.is_alphanumeric() || last == '_')
            })
        })
    }
}

/// Whether a file is of the engine itself, or of the protocol.
fn is_engine(name: &str) -> bool {
    ["engine/src/", "engine/proto/src/"].iter().any(|folder| name.starts_with(folder))
}
