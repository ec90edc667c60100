//! The words of sources and pages: those of the field, and none of a dialect that was spoken here.

use std::collections::BTreeSet;
use std::fs;

use rpcrdma_tests::tracked::{files, root};

/// Words that are not used, and what is said instead. They are found as parts of names, too.
const DIALECT: &[(&[&str], &str)] = &[
    (&["tell", "tells", "told", "teller"], "notify, report, state"),
    (&["doze", "dozes", "bed", "nap", "naps"], "idle, park, wait, sleep"),
    (&["verdict", "verdicts"], "outcome, result"),
    (&["judge", "judges", "judged"], "check, classify"),
    (&["hear", "hears", "heard"], "receive, read, poll"),
    (&["wish", "wishes", "wished"], "requested, parameters"),
    (&["seat", "seats", "board", "boards"], "endpoint, fake state"),
    (&["chore", "chores", "errand", "errands"], "pending work, task"),
    (&["party", "parties", "roster", "rosters"], "peer quota, shard registry"),
    (&["desk", "desks"], "queue"),
    (&["outlook", "outlooks"], "readiness"),
    (&["greeting", "greetings", "goodbye", "goodbyes"], "handshake, disconnect"),
    (&["settle", "settles", "settled"], "quiesce"),
    (&["rogue", "rogues", "ordeal", "ordeals"], "hostile peer, stress test"),
    (&["scribbler", "scribblers", "newcomer", "newcomers"], "corrupting peer, new connection"),
    (&["vain"], "empty poll, without effect"),
    (&["nobody", "somebody", "anybody", "everybody", "whom", "whoever"], "no process, all, ..."),
    (&["obtained", "obtains"], "provided, actual"),
    (&["rests"], "is idle, is not used"),
    (&["land", "lands", "landed"], "complete, arrive, is placed"),
    (&["aim", "aims", "aimed"], "target"),
    (&["borne"], "allowed"),
];

/// Ends of the names of files that others have written.
const FOREIGN: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT", "packaging/copyright", "Cargo.lock"];

/// Where a word means something else: file, word, what.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("docs/bench.md", "board", "the board ID of a NIC"),
    ("bench/src/modes/prove/facts.rs", "board", "the `board_id` of a NIC in sysfs"),
    ("bench/tests/keys.txt", "board", "the `board_id` of a NIC in sysfs"),
    ("tests/vm/guest/etc/passwd", "nobody", "the user of that name"),
    ("tests/vm/suites/pjdfstest.toml", "nobody", "the user of that name"),
];

/// The words of a line, in small letters: `a_name`, `AName` and `a name` are two words each, as is
/// `QPName`.
fn words(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    let is = |at: usize, kind: fn(char) -> bool| letters.get(at).is_some_and(|it| kind(*it));
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let is_behind_small = at > 0 && is(at - 1, char::is_lowercase);
        let starts = letter.is_uppercase() && (is_behind_small || is(at + 1, char::is_lowercase));
        if starts || !letter.is_alphabetic() {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().expect("the one begun").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A line without what is in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_words_are_those_of_the_field() {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    let own = "tests/tests/words.rs";
    let is_ours = |name: &String| name != own && !FOREIGN.iter().any(|end| name.ends_with(end));
    for name in files().into_iter().filter(is_ours) {
        // What is no text has no words.
        let Ok(text) = fs::read_to_string(root().join(&name)) else { continue };
        // What a name was, the change log states in backticks.
        let has_old_names = name == "CHANGELOG.md";
        for (at, line) in text.lines().enumerate() {
            let line = if has_old_names { without_code(line) } else { line.to_owned() };
            for word in words(&line) {
                let Some((_, instead)) = DIALECT.iter().find(|it| it.0.contains(&&*word)) else {
                    continue;
                };
                if let Some(allowed) = ALLOWED.iter().find(|it| (it.0, it.1) == (&*name, &*word)) {
                    used.insert(*allowed);
                } else {
                    found.push(format!("{name}:{}: {word}; say: {instead}", at + 1));
                }
            }
        }
    }
    assert_eq!(found, [""; 0]);
    assert_eq!(used.len(), ALLOWED.len(), "only these are needed: {used:?}");
}

#[test]
fn words_are_found_in_names_and_sentences() {
    let line = "fn is_told(of: HeardCaller, HTTPBed) { nap2(\"Whoever\") }";
    let expected = ["fn", "is", "told", "of", "heard", "caller", "http", "bed", "nap", "whoever"];
    assert_eq!(words(line), expected);
}
