//! The modes that count, wait and starve, as a person types them.

use std::process::{Command, Output};

fn bench(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(options.split_whitespace())
        .output()
        .expect("the program was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints text")
}

#[test]
fn what_an_rpc_costs_is_counted_by_whoever_is_there() {
    let output = bench("cost -n 500 --warm-up 100");
    if text(&output.stderr).contains("two threads that spin need two") {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.starts_with("cost: echo of 64 bytes, window 32, 500 calls counted"), "{table}");
    let figure = |name: &str| {
        let row = table.lines().find(|line| line.starts_with(name));
        let row = row.unwrap_or_else(|| panic!("no {name} in\n{table}"));
        let words: Vec<&str> = row[name.len()..].split_whitespace().take(2).collect();
        words.iter().map(|word| word.parse::<f64>()).collect::<Result<Vec<_>, _>>()
    };
    assert_eq!(figure("sends "), Ok(vec![1.0, 1.0]));
    // The thread's own handful of them for the round, and none for a call.
    let allocations = figure("allocations ").expect("always counted");
    assert!(allocations.iter().all(|each| *each < 0.2), "{table}");
    match figure("instructions ") {
        Ok(sides) => assert!(sides.iter().all(|each| *each > 100.0), "{table}"),
        Err(_) => assert!(table.contains("valgrind is missing"), "{table}"),
    }
    match figure("system calls ") {
        Ok(sides) => assert!(sides.iter().all(|each| *each < 0.2), "{table}"),
        Err(_) => assert!(table.contains("strace"), "{table}"),
    }
}

/// What a short run prints, and how it ends; `None` on a machine with one core.
fn good(options: &str) -> Option<String> {
    let output = bench(options);
    if text(&output.stderr).contains("two threads that spin need two") {
        return None;
    }
    assert!(output.status.success(), "{options}: {output:?}");
    Some(text(&output.stdout))
}

#[test]
fn a_soak_tells_what_rises_in_time() {
    let Some(table) = good("soak -t 1s --interval 50ms") else { return };
    assert!(table.starts_with("soak: echo of 64 bytes, window 1, 1 s"), "{table}");
    for part in ["looked at 20 times", "memory ", "descriptors ", "out ", "p99 ", "at least"] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    assert!(!table.contains("leak: descriptors") && !table.contains("leak: out"), "{table}");
}

#[test]
fn a_soak_that_is_too_short_for_a_trend_says_so() {
    let Some(table) = good("soak -t 100ms --interval 50ms -w 8 --judge") else { return };
    assert!(table.contains("too short") && table.contains("looked at 2 times"), "{table}");
    assert!(!table.contains("p99 "), "calls of a window are counted, not timed\n{table}");
}

#[test]
fn starving_shows_three_ways_to_be_slow_and_loses_nothing() {
    let Some(table) = good("starve -t 0.2 -r 2 --slow 0.01 --slow-time 100us") else { return };
    assert!(table.contains("want 512 calls under way, the server grants 128"), "{table}");
    for part in ["even ", "tickets / even, rate", "blocking / even, rate", "waited for a credit"] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    assert!(table.contains("message without a Receive: 0"), "{table}");
}

#[test]
fn starving_names_every_figure_for_programs() {
    let Some(json) = good("starve -t 0.1 -r 2 --json -") else { return };
    let json: serde_json::Value = serde_json::from_str(&json).expect("nothing but JSON");
    let figures = json["figures"].as_array().expect("a list");
    for (of, name) in [
        ("tickets/even", "ratio.rate"),
        ("tickets", "stall.max"),
        ("tickets", "recovery.longest"),
        ("even", "lost"),
        ("all", "connections_lost"),
    ] {
        assert!(figures.iter().any(|one| one["of"] == of && one["name"] == name), "{of}.{name}");
    }
}
