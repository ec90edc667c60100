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
    let figures = json["figures"].as_array().expect("a list");
    let of = |way: &str, name: &str| {
        let of = format!("write 64 KiB, {way}");
        let found = figures.iter().find(|one| one["of"] == of && one["name"] == name);
        found.unwrap_or_else(|| panic!("no {of}.{name} in {figures:?}")).clone()
    };
    let value = |way: &str, name: &str| of(way, name)["value"].as_f64().expect("a number");
    for (way, round_trips, reads) in
        [("one", 2.0, 1.0), ("one, local", 2.0, 1.0), ("sends", 1.0, 0.0)]
    {
        assert_eq!(value(way, "round_trips.virtual"), round_trips);
        assert_eq!(value(way, "round_trips.counters"), round_trips);
        assert!(value(way, "round_trips.time") >= round_trips);
        assert_eq!(value(way, "reads"), reads);
        let p50 = of(way, "round_trip.p50");
        assert_eq!((&p50["samples"], &p50["at"]["value"]), (&300.into(), &5000.0.into()));
        let (median, rest) = (of(way, "round_trip.median"), of(way, "round_trip.rest"));
        for (median, rest) in median["rounds"]
            .as_array()
            .into_iter()
            .flatten()
            .zip(rest["rounds"].as_array().into_iter().flatten())
        {
            let both = rest.as_f64().expect("a number") + 10_000.0 * round_trips;
            assert!((median.as_f64().expect("a number") - both).abs() < 1.0);
        }
    }
    assert!(value("one/sends", "ratio.median") > 1.0);
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
    let figures = json["figures"].as_array().expect("a list");
    let of = |name: &str| figures.iter().filter(|one| one["of"] == name).collect::<Vec<_>>();
    assert!(!of("floor").is_empty());
    let rate = of("raw").into_iter().find(|one| one["name"] == "rate").expect("a rate");
    assert_eq!(rate["rounds"].as_array().map(Vec::len), Some(2));
    assert!(rate["value"].as_f64().is_some_and(|rate| rate > 0.0));
    let is_time =
        |one: &&Value| one["name"].as_str().is_some_and(|it| it.starts_with("round_trip"));
    assert!(!of("raw").iter().any(is_time), "a window is counted, not timed");
    assert_eq!(json["settings"]["window"], 8);
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
