//! The command as a person types it: what it prints, where, and how it ends.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(options.split_whitespace())
        .output()
        .expect("the program was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints text")
}

/// A short run's standard output; `None` on a machine with one core, which the program refuses.
fn good(options: &str) -> Option<String> {
    let output = bench(&format!("{options} -n 300 -r 2 --warm-up 10"));
    let errors = text(&output.stderr);
    if errors.contains("two threads that spin need two") {
        return None;
    }
    assert!(output.status.success(), "{options}: {errors}");
    assert_eq!(errors, "", "nothing of the progress goes into a pipe");
    Some(text(&output.stdout))
}

#[test]
fn the_floor_is_printed_as_a_table() {
    let Some(table) = good("floor") else { return };
    assert!(table.starts_with("floor: echo of 64 bytes, window 1"), "{table}");
    for part in ["round trip, ns", "half of it, ns", "p99.99", "max", "machine:", "jitter:"] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
}

#[test]
fn raw_runs_beside_the_floor_and_the_ratio_is_printed() {
    let Some(table) = good("raw") else { return };
    assert!(table.contains("raw / floor, median") && table.contains("ns per side"), "{table}");
    assert!(table.contains("inline sends of 136 in pages of"), "{table}");
}

#[test]
fn without_a_mode_the_round_trip_of_an_rpc_is_measured() {
    let Some(table) = good("") else { return };
    assert!(table.starts_with("lat: echo of 64 bytes, window 1"), "{table}");
    for part in ["rpc / floor, median", "rpc / raw, median", "raw / floor, median", "1 connection"]
    {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
}

#[test]
fn many_connections_are_measured_beside_one() {
    let Some(table) = good("rate --connections 5") else { return };
    assert!(table.contains("rpc / rpc, one, rate"), "{table}");
    assert!(!table.contains("round trip, ns"), "rates are counted\n{table}");
}

#[test]
fn bandwidth_is_printed_in_bytes() {
    let Some(table) = good("bw") else { return };
    assert!(table.starts_with("bw: read of 65536 bytes, placed by sends, window 8"), "{table}");
    assert!(table.contains("data, GB/s"), "{table}");
}

#[test]
fn a_configuration_file_is_taken_and_a_wrong_one_named() {
    let path = std::env::temp_dir().join(format!("rpcrdma-bench-{}.toml", std::process::id()));
    std::fs::write(&path, "[receive]\ninline = \"2KiB\"\n").expect("a writable place");
    let table = good(&format!("lat --config {}", path.display()));
    std::fs::write(&path, "[receive]\ninlien = \"2KiB\"\n").expect("a writable place");
    let wrong = bench(&format!("lat --config {}", path.display()));
    std::fs::remove_file(&path).expect("the file is ours");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("inlien"), "{wrong:?}");
    let Some(table) = table else { return };
    assert!(table.contains("Receives of 2048 + "), "{table}");
}

#[test]
fn json_alone_goes_to_the_output_when_asked_for() {
    let Some(json) = good("raw -w 8 --json -") else { return };
    let json: Value = serde_json::from_str(&json).expect("nothing but JSON");
    let names: Vec<&str> = json["contenders"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|contender| contender["name"].as_str())
        .collect();
    assert_eq!(names, ["floor", "raw"]);
    assert_eq!(json["settings"]["window"], 8);
    assert_eq!(json["contenders"][1]["rounds"].as_array().map(Vec::len), Some(2));
    assert!(json["contenders"][1]["rate"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(json["contenders"][1]["round_trip"].is_null(), "a window is counted, not timed");
    assert_eq!(json["ratios"][0]["of"], "raw");
    assert!(json["machine"]["cpu"].is_string() && json["build"]["rustc"].is_string());
    assert_eq!(json["jitter_before"].as_array().map(Vec::len), Some(2));
}

#[test]
fn json_in_a_file_leaves_the_table_on_the_output() {
    let path = std::env::temp_dir().join(format!("rpcrdma-bench-{}.json", std::process::id()));
    let Some(table) = good(&format!("floor --json {}", path.display())) else { return };
    assert!(table.contains("round trip, ns"), "{table}");
    let json = std::fs::read_to_string(&path).expect("the file was written");
    std::fs::remove_file(&path).expect("the file is ours");
    let json: Value = serde_json::from_str(&json).expect("nothing but JSON");
    assert_eq!(json["contenders"][0]["round_trip"]["count"], 300);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    if good("floor").is_none() {
        return;
    }
    let output = bench("floor -n 10 -r 1 --json /nowhere/result.json");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/result.json"), "{output:?}");
}

#[test]
fn options_that_make_no_sense_end_with_a_reason() {
    for (options, reason) in [
        ("sideways", "invalid value 'sideways'"),
        ("floor -w 0", "0 is not in 1..=4096"),
        ("floor --size 4KB", "4KB"),
        ("floor --cores 1", "two cores, as in 2,3"),
        ("floor -t 1 -n 5", "cannot be used with"),
    ] {
        let output = bench(options);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {errors}");
        assert!(errors.contains(reason), "{options}: {errors}");
    }
}

#[test]
fn a_core_that_is_not_there_is_named() {
    if good("floor").is_none() {
        return;
    }
    let output = bench("floor --cores 0,900");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("core 900"), "{output:?}");
}

#[test]
fn the_help_has_examples() {
    let output = bench("--help");
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("Examples:"));
}
