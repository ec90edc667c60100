//! The contests: the table and the JSON of each.

use serde_json::Value;

use crate::{bench, errors, has, scratch, short, short_json, text};

#[test]
fn each_contest_prints_its_table() {
    for (options, start, parts, missing) in [
        (
            "floor",
            "floor: echo of 64 bytes, window 1",
            &[
                "round trip, ns",
                "half of it, ns",
                "p99.99",
                "max",
                "machine:",
                "jitter:",
                "serial floor / prefetched floor, median",
                "floor: the serial floor asks",
                "prefetched_floor: the prefetched floor asks",
            ][..],
            "raw",
        ),
        (
            "raw",
            "raw: echo of 64 bytes, window 1",
            &[
                "raw / serial floor, median",
                "floor: the serial floor asks",
                "ns per side",
                "inline sends of 136 in pages of",
            ],
            "rpc /",
        ),
        (
            "",
            "lat: echo of 64 bytes, window 1",
            &[
                "rpc / serial floor, median",
                "rpc / raw, median",
                "raw / serial floor, median",
                "1 connection",
            ],
            "prefetched",
        ),
        (
            "--prefetched-floor",
            "lat: echo of 64 bytes, window 1",
            &["rpc / serial floor, median", "rpc / prefetched floor, median"],
            "rpc, one",
        ),
        // Rates are counted, and many connections are measured beside one.
        ("rate --connections 5", "rate: ", &["rpc / rpc, one, rate"], "round trip, ns"),
        (
            "bw",
            "bw: read of 65536 bytes, placed by sends, window 8",
            &["data, GB/s"],
            "round trip, ns",
        ),
    ] {
        let Some(table) = short(options) else { return };
        assert!(table.starts_with(start), "{table}");
        has(&table, parts);
        assert!(!table.contains(missing), "{missing} in\n{table}");
    }
}

#[test]
fn round_trips_over_a_distance_are_counted_and_timed() {
    let Some(table) = short("distance -s 4KiB --delay 0us,5us") else { return };
    assert!(table.starts_with("distance: write and read of 4096 bytes, 0 and 5 us"), "{table}");
    let row = |title: &str, way: &str| {
        let row = table.lines().find_map(|line| line.strip_prefix(title)?.trim().strip_prefix(way));
        let row = row.unwrap_or_else(|| panic!("no {title}, {way} in\n{table}"));
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // In virtual time, and by what the shards did; the third figure is of this machine's clock.
    assert_eq!(row("write 4 KiB", "one ")[..2], ["2", "2"]);
    assert_eq!(row("write 4 KiB", "sends ")[..2], ["1", "1"]);
    assert_eq!(row("read 4 KiB", "one ")[..2], ["1", "1"]);
    let parts =
        ["one, local", "p50, us, at", "to sends, at", "jitter:", "Receives of 1024 + 32768"];
    has(&table, &parts);
}

#[test]
fn json_over_a_distance_has_every_count_and_every_time() {
    let Some(json) = short_json("distance --op write -s 64KiB --delay 5us") else { return };
    let of = |list: &str, way: &str| {
        let list = json[list].as_array().expect("a list");
        let found = list.iter().find(|one| one["way"] == way);
        found.unwrap_or_else(|| panic!("no {way} in {list:?}")).clone()
    };
    for (way, round_trips, reads) in [("one", 2, 1.0), ("one-local", 2, 1.0), ("sends", 1, 0.0)] {
        let count = of("counts", way);
        assert_eq!((&count["op"], &count["size_bytes"]), (&"write".into(), &65_536.into()));
        assert_eq!(count["round_trips"], round_trips);
        assert_eq!(count["by_counters"], round_trips);
        assert_eq!(count["calls_ns"][0], 10_000 * round_trips);
        let measured = of("measured", way);
        assert_eq!(measured["call"]["count"], 300);
        assert_eq!(measured["delay_ns"], 5000);
        assert_eq!(measured["per_call"]["reads"], reads);
        let (median, rest) = (measured["median_ns"].as_f64(), measured["rest_ns"].as_f64());
        let rest = rest.expect("the round trips are known") + f64::from(10_000 * round_trips);
        assert!(median.is_some_and(|median| (median - rest).abs() < 1.0));
    }
    assert_eq!(of("measured", "one")["ratio"]["to"], "sends");
    assert!(json["disagreements"].is_array() && json["machine"]["cpu"].is_string());
}

#[test]
fn a_configuration_file_is_taken_and_a_wrong_one_named() {
    let path = scratch("config.toml");
    std::fs::write(&path, "[receive]\ninline = \"2KiB\"\n").expect("a writable place");
    let table = short(&format!("lat --config {}", path.display()));
    std::fs::write(&path, "[receive]\ninlien = \"2KiB\"\n").expect("a writable place");
    let wrong = bench(&format!("lat --config {}", path.display()));
    std::fs::remove_file(&path).expect("the file is ours");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("inlien"), "{wrong:?}");
    let Some(table) = table else { return };
    assert!(table.contains("Receives of 2048 + "), "{table}");
}

#[test]
fn json_says_of_every_contender_what_it_took() {
    let Some(json) = short_json("raw -w 8") else { return };
    let contenders = json["contenders"].as_array().expect("a list").iter();
    let names: Vec<&str> = contenders.filter_map(|one| one["name"].as_str()).collect();
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
fn json_has_every_figure_by_its_name_with_unit_and_samples() {
    let Some(json) = short_json("raw") else { return };
    let figures = json["figures"].as_array().expect("a list");
    let figure = |of: &str, name: &str| -> Value {
        let found = figures.iter().find(|one| one["of"] == of && one["name"] == name);
        found.unwrap_or_else(|| panic!("no {of}.{name} in {figures:?}")).clone()
    };
    for part in ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean", "stdev"] {
        let whole = figure("raw", &format!("round_trip.{part}"));
        let half = figure("raw", &format!("half_round_trip.{part}"));
        assert_eq!((&whole["unit"], &whole["samples"]), (&"ns".into(), &300.into()));
        let [whole, half] = [whole, half].map(|one| one["value"].as_f64().expect("a number"));
        assert_eq!(whole, half * 2.0, "{part}");
    }
    assert_eq!(figure("raw/floor", "ratio.median")["rounds"].as_array().map(Vec::len), Some(2));
    assert_eq!(figure("raw", "client.doorbells")["unit"], "per call");
    assert_eq!((&json["schema"], &json["mode"]), (&1.into(), &"raw".into()));
    assert_eq!(json["distributions"][1]["latency"]["samples"], 300);
}

#[test]
fn a_device_that_is_not_there_is_named_and_so_is_a_library_that_is_not_there() {
    let output = bench("lat --provider verbs --device nonesuch0 -n 10");
    let Some(errors) = errors(&output) else { return };
    assert!(!output.status.success());
    let is_said = errors.contains("nonesuch0") || errors.contains(".so.1");
    assert!(is_said || errors.contains("no RDMA device"), "{errors}");
}
