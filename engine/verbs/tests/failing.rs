//! Every function of the libraries fails in some test: in the scenario `verbs-faults`, or in a test on
//! the fake libraries. What cannot fail is listed here with the reason.

use std::collections::BTreeSet;

/// The lists of the functions.
const BOUND: [&str; 2] =
    [include_str!("../src/sys/verbs/mod.rs"), include_str!("../src/sys/cm.rs")];
/// Its rules have the form `fail FUNCTION CALLS ERROR`.
const SCENARIO: &str = include_str!("../../../tests/vm/scenarios/verbs-faults");
/// They have `refuse("FUNCTION", Some(ERROR))`.
const TESTS: [&str; 3] = [
    include_str!("../src/tests/ends.rs"),
    include_str!("../src/tests/failures.rs"),
    include_str!("../src/tests/events.rs"),
];

/// Functions that report no failure.
const CANNOT_FAIL: [(&str, &str); 6] = [
    ("ibv_get_device_name", "it returns a name that the device has"),
    ("ibv_ack_cq_events", "it returns nothing"),
    ("ibv_ack_async_event", "it returns nothing"),
    ("rdma_free_devices", "it returns nothing"),
    ("rdma_destroy_event_channel", "it returns nothing"),
    ("rdma_get_src_port", "it returns the port of a bound id"),
];

/// The names in the declarations `fn NAME(...)`.
fn bound() -> BTreeSet<&'static str> {
    let lines = BOUND.iter().flat_map(|text| text.lines());
    lines.filter_map(|line| Some(line.trim().strip_prefix("fn ")?.split_once('(')?.0)).collect()
}

/// The names behind these words.
fn behind(text: &'static str, words: &str, end: char) -> BTreeSet<&'static str> {
    text.split(words).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0)).collect()
}

#[test]
fn every_function_that_can_fail_fails_in_a_test() {
    let bound = bound();
    assert!(bound.len() > 40, "{bound:?}");
    let mut failing = behind(SCENARIO, "fail ", ' ');
    for text in TESTS {
        failing.extend(behind(text, "refuse(\"", '"'));
    }
    let excused: BTreeSet<_> = CANNOT_FAIL.iter().map(|(name, _)| *name).collect();
    let lacking: Vec<_> = bound.iter().filter(|it| !failing.contains(*it)).collect();
    let lacking: Vec<_> = lacking.into_iter().filter(|it| !excused.contains(*it)).collect();
    assert!(lacking.is_empty(), "no test has these fail: {lacking:?}");
    let odd: Vec<_> = excused.iter().filter(|it| !bound.contains(*it)).collect();
    assert!(odd.is_empty(), "these are not bound: {odd:?}");
    let both: Vec<_> = excused.intersection(&failing).collect();
    assert!(both.is_empty(), "these do fail: {both:?}");
}
