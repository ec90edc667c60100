//! Exit codes and their reasons.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::{bench, errors, short, text};

#[test]
fn options_that_make_no_sense_end_with_a_reason() {
    for (options, reason) in [
        ("sideways", "unrecognized subcommand 'sideways'"),
        ("-r 3 lat", "cannot be used with"),
        ("rate --stat /", "unexpected argument '--stat'"),
        ("distance --op echo", "calls whose data go one way"),
        ("floor -w 0", "0 is not in 1..=16384"),
        ("floor --size 4KB", "4KB"),
        ("floor --cores 1", "two cores, as in 2,3"),
        ("floor -t 1 -n 5", "cannot be used with"),
        ("distance --delay 1500ns", "in whole microseconds"),
        ("floor --cores 0,900", "core 900"),
        ("load --load 0", "a share of the capacity"),
        ("load --rate fast", "calls per second"),
        ("load --arrivals sometimes", "sometimes"),
        ("idle --pause 11s", "1µs to 10s"),
        ("cores --shards 1024", "need 2048 cores"),
        ("cores -k 3", "--connections"),
        ("churn -n 5", "--seconds"),
        ("churn --churn 0", "calls per second"),
        ("conns --counts 0", "0 is not in 1..=16384"),
        ("conns --address 127.0.0.1", "--provider verbs"),
        ("idle --device rxe0", "--provider verbs"),
        ("serve", "lives inside one process"),
        ("lat --provider fabric --connect 127.0.0.1", "--connect is for --provider verbs"),
        ("floor --fail-if floor.round_trip.p50=1us", "as in rpc.round_trip.p99>5us"),
    ] {
        let output = bench(options);
        let Some(errors) = errors(&output) else { continue };
        assert_eq!(output.status.code(), Some(1), "{options}: {errors}");
        assert!(errors.contains(reason), "{options}: {errors}");
        assert_eq!(text(&output.stdout), "", "{options}: nothing is measured");
    }
}

/// A short run of `floor` with these options: the exit code, and whether it was noisy.
fn short_floor(options: &str) -> Option<(Option<i32>, bool, String)> {
    ended(&format!("floor -n 300 -r 2 --warm-up 10 {options}"))
}

fn ended(options: &str) -> Option<(Option<i32>, bool, String)> {
    let output = bench(options);
    let is_noisy = text(&output.stdout).contains("NOISY");
    Some((output.status.code(), is_noisy, errors(&output)?))
}

#[test]
fn a_condition_that_holds_is_on_the_page() {
    let condition = "--fail-if floor.round_trip.p50>1ns";
    let output = bench(&format!("floor -n 300 -r 2 --warm-up 10 {condition} --html -"));
    let Some(errors) = errors(&output) else { return };
    let failures = "\"failures\":[\"floor.round_trip.p50>1ns holds";
    let is_listed = text(&output.stdout).contains(failures);
    assert_eq!(is_listed, output.status.code() == Some(2), "a noisy run has no outcome: {errors}");
}

#[test]
fn a_condition_decides_the_exit_code_unless_the_run_is_noisy() {
    for (condition, code, reason) in [
        ("floor.round_trip.p50>1ns", 2, "failed: floor.round_trip.p50>1ns holds: it is"),
        ("floor.round_trip.p50>1s", 0, ""),
    ] {
        let Some((ended, is_noisy, errors)) = short_floor(&format!("--fail-if {condition}")) else {
            return;
        };
        if is_noisy {
            assert_eq!(ended, Some(3), "{errors}");
            assert!(errors.contains("noisy, inconclusive: "), "{errors}");
        } else {
            assert_eq!(ended, Some(code), "{errors}");
            assert!(errors.contains(reason), "{errors}");
        }
    }
}

#[test]
fn noise_is_a_failure_only_when_asked() {
    let Some((ended, _, errors)) = short_floor("") else { return };
    assert_eq!((ended, errors.as_str()), (Some(0), ""));
    let (ended, is_noisy, errors) = short_floor("--strict").expect("the machine is the same");
    assert_eq!(ended, Some(if is_noisy { 3 } else { 0 }), "{errors}");
}

#[test]
fn a_condition_on_a_figure_that_is_not_there_lists_those_that_are() {
    let Some((ended, _, errors)) = short_floor("--fail-if rpc.round_trip.p50>1us") else { return };
    assert_eq!(ended, Some(1), "{errors}");
    assert!(errors.contains("no figure `rpc.round_trip.p50`"), "{errors}");
    assert!(errors.contains("\n  floor.half_round_trip.p99 (ns)\n"), "{errors}");
}

/// A short comparison with these options: its exit code, and whether the run was noisy.
fn compared(options: &str) -> Option<(Option<i32>, bool, String)> {
    ended(&format!("cmp {options} -n 3000 -r 8 --warm-up 10"))
}

#[test]
fn the_ratio_decides_the_exit_code_unless_the_run_is_noisy() {
    for (options, code) in [
        ("floor unix --fail-if ratio>1000", 0),
        ("unix floor --fail-if ratio>0.001", 2),
        ("floor unix --regression 5%", 0),
        ("unix floor --regression 5%", 2),
    ] {
        let Some((ended, is_noisy, errors)) = compared(options) else { return };
        let expected = if is_noisy { 3 } else { code };
        assert_eq!(ended, Some(expected), "{options}: {errors}");
        assert_eq!(errors.is_empty(), expected == 0, "{options}: {errors}");
    }
}

#[test]
fn a_ratio_of_many_pairs_has_to_be_named() {
    let Some((ended, _, errors)) = compared("floor unix tcp --fail-if ratio>1") else { return };
    assert_eq!(ended, Some(1), "{errors}");
    let named = ["floor/unix.ratio ", "floor/tcp.ratio "];
    assert!(named.iter().all(|name| errors.contains(name)), "{errors}");
    let named = compared("floor unix tcp --fail-if floor/tcp.ratio>1000");
    assert!(matches!(named, Some((Some(0 | 3), ..))), "{named:?}");
}

#[test]
fn ctrl_c_ends_a_run_with_what_was_measured_so_far() {
    if short("floor").is_none() {
        return;
    }
    let mut run = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["floor", "-t", "300", "-r", "3", "--warm-up", "10"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    let mut out = BufReader::new(run.stdout.take().expect("it is piped"));
    let mut sentence = String::new();
    // It listens before it says what it does.
    out.read_line(&mut sentence).expect("it is text");
    let kill = format!("kill -INT {}", run.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    let mut table = String::new();
    out.read_to_string(&mut table).expect("it is text");
    let ended = run.wait().expect("it is ours");
    assert_eq!(ended.code(), Some(0), "{table}");
    assert!(table.contains("INTERRUPTED"), "{table}");
    let row = table.lines().find(|line| line.starts_with("serial floor")).expect("a row");
    let samples: u64 = row.split_whitespace().last().and_then(|n| n.parse().ok()).expect("a count");
    assert!(samples > 0, "{table}");
}
