//! The command as a person types it: what it prints, where, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

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
fn round_trips_over_a_distance_are_counted_and_timed() {
    let Some(table) = good("distance -s 4KiB --delay 0us,5us") else { return };
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
    for part in ["one, local", "p50, us, at", "to sends, at", "jitter:", "Receives of 1024 + 32768"]
    {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
}

#[test]
fn json_over_a_distance_has_every_count_and_every_time() {
    let Some(json) = good("distance --op write -s 64KiB --delay 5us --json -") else { return };
    let json: Value = serde_json::from_str(&json).expect("nothing but JSON");
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
fn a_page_of_html_is_written_beside_the_table() {
    let path = std::env::temp_dir().join(format!("rpcrdma-bench-{}.html", std::process::id()));
    let Some(table) = good(&format!("lat --html {}", path.display())) else { return };
    let page = std::fs::read_to_string(&path).expect("it was written");
    std::fs::remove_file(&path).expect("the file is ours");
    assert!(table.contains("round trip, ns"), "{table}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    for part in ["Quotients", "rpc/floor", "Times by percentile", "round by round"] {
        assert!(page.contains(part), "no {part}");
    }
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
fn json_has_every_figure_by_its_name_with_unit_and_samples() {
    let Some(json) = good("raw --format json") else { return };
    let json: Value = serde_json::from_str(&json).expect("nothing but JSON");
    let figures = json["figures"].as_array().expect("a list");
    let figure = |of: &str, name: &str| {
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

/// What a parser of `ib_send_lat` reads: the row under the names of the columns.
fn columns(text: &str) -> Vec<(String, f64)> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let head = lines.next().expect("a line with the names of the columns");
    let head = head.replace("% percentile", "%").replace("BW ", "BW");
    let row = lines.next().expect("a row");
    let numbers = row.split_whitespace().map(|word| word.parse::<f64>().expect("a number"));
    let all: Vec<_> = head.split_whitespace().map(str::to_owned).zip(numbers).collect();
    assert_eq!(all.len(), row.split_whitespace().count(), "a name for each number");
    let rest: Vec<&str> = lines.collect();
    assert!(rest.len() == 1 && rest[0].bytes().all(|byte| byte == b'-'), "{rest:?}");
    all
}

const IB_SEND_LAT: &str = include_str!("peers/ib_send_lat-4.5-64.txt");

#[test]
fn a_parser_of_ib_send_lat_reads_the_round_trip_of_an_rpc() {
    let theirs = columns(IB_SEND_LAT);
    assert_eq!((theirs[0].1, theirs[4].1), (64.0, 13.15), "the parser is one of ib_send_lat");
    let head = IB_SEND_LAT.lines().find(|line| line.starts_with(" #bytes")).expect("a table");
    let Some(printed) = good("lat --format perftest") else { return };
    assert!(printed.lines().any(|line| line == head), "{printed}");
    let ours = columns(&printed);
    let names =
        |all: &[(String, f64)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    let value = |name: &str| ours.iter().find(|(of, _)| of == name).expect("a column").1;
    assert_eq!((value("#bytes"), value("#iterations")), (64.0, 300.0));
    let rising =
        ["t_min[usec]", "t_typical[usec]", "99%[usec]", "99.9%[usec]", "t_max[usec]"].map(value);
    assert!(rising.is_sorted() && rising[0] > 0.0, "{printed}");
}

#[test]
fn a_parser_of_ib_send_bw_reads_a_rate() {
    let Some(printed) = good("bw -s 4KiB --format perftest") else { return };
    let ours = columns(&printed);
    let names: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
    let expected =
        ["#bytes", "#iterations", "BWpeak[MB/sec]", "BWaverage[MB/sec]", "MsgRate[Mpps]"];
    assert_eq!(names, expected, "{printed}");
    let (average, rate) = (ours[3].1, ours[4].1);
    let of_rate = rate * 1e6 * 4096.0 / f64::from(1 << 20);
    assert!((average / of_rate - 1.0).abs() < 0.01, "{printed}");
    assert!(ours[2].1 >= average, "{printed}");
}

#[test]
fn a_sweep_has_no_form_in_perftest() {
    if good("floor").is_none() {
        return;
    }
    let options = "distance --op read -s 4KiB --delay 5us -n 10 -r 1 --format perftest";
    let output = bench(options);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no form for distance"), "{output:?}");
}

#[test]
fn csv_has_a_line_for_every_figure_of_json() {
    let path = std::env::temp_dir().join(format!("rpcrdma-bench-{}.csv", std::process::id()));
    let Some(json) = good(&format!("rate -k 3 --format json --csv {}", path.display())) else {
        return;
    };
    let csv = std::fs::read_to_string(&path).expect("the file was written");
    std::fs::remove_file(&path).expect("the file is ours");
    let json: Value = serde_json::from_str(&json).expect("nothing but JSON");
    let figures = json["figures"].as_array().expect("a list");
    assert!(
        csv.starts_with("mode,of,axis,at,figure,value,unit,samples\nrate,floor,,,rate,"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), figures.len() + 1);
    assert!(csv.contains("\nrate,\"rpc, one\",,,rate,"), "{csv}");
}

#[test]
fn an_hdr_log_has_the_samples_of_every_contender() {
    let Some(log) = good("raw --hdr -") else { return };
    let intervals: Vec<&str> = log.lines().filter(|line| line.starts_with("Tag=")).collect();
    let tags: Vec<&str> = intervals.iter().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(tags, ["Tag=floor", "Tag=raw"], "{log}");
    assert!(intervals.iter().all(|line| line.contains(",HISTFA")), "{log}");
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
    assert_eq!(text(&output.stdout), "", "nothing is measured for nothing");
    assert!(text(&output.stderr).contains("/nowhere/result.json"), "{output:?}");
}

#[test]
fn options_that_make_no_sense_end_with_a_reason() {
    for (options, reason) in [
        ("sideways", "unrecognized subcommand 'sideways'"),
        ("-r 3 lat", "cannot be used with"),
        ("rate --stat /", "unexpected argument '--stat'"),
        ("distance --op echo", "calls whose data go one way"),
        ("floor -w 0", "0 is not in 1..=4096"),
        ("floor --size 4KB", "4KB"),
        ("floor --cores 1", "two cores, as in 2,3"),
        ("floor -t 1 -n 5", "cannot be used with"),
        ("distance --delay 1500ns", "in whole microseconds"),
    ] {
        let output = bench(options);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{options}: {errors}");
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

#[test]
fn a_device_that_is_not_there_is_named_and_so_is_a_library_that_is_not_there() {
    let output = bench("lat --provider verbs --device nonesuch0 -n 10");
    let errors = text(&output.stderr);
    if errors.contains("two threads that spin need two") {
        return;
    }
    assert!(!output.status.success());
    let is_said = errors.contains("nonesuch0") || errors.contains(".so.1");
    assert!(is_said || errors.contains("no RDMA device"), "{errors}");
}

/// A short run of `floor` with these options: the exit code, and whether it was noisy.
fn judged(options: &str) -> Option<(Option<i32>, bool, String)> {
    good("floor")?;
    let output = bench(&format!("floor -n 300 -r 2 --warm-up 10 {options}"));
    let is_noisy = text(&output.stdout).contains("NOISY");
    Some((output.status.code(), is_noisy, text(&output.stderr)))
}

#[test]
fn a_condition_decides_the_exit_code_unless_the_run_is_noisy() {
    for (condition, code, reason) in [
        ("floor.round_trip.p50>1ns", 2, "failed: floor.round_trip.p50>1ns holds: it is"),
        ("floor.round_trip.p50>1s", 0, ""),
    ] {
        let Some((ended, is_noisy, errors)) = judged(&format!("--fail-if {condition}")) else {
            return;
        };
        if is_noisy {
            assert_eq!(ended, Some(3), "{errors}");
            assert!(errors.contains("noisy, no verdict: "), "{errors}");
        } else {
            assert_eq!(ended, Some(code), "{errors}");
            assert!(errors.contains(reason), "{errors}");
        }
    }
}

#[test]
fn noise_is_a_failure_only_when_asked() {
    let Some((ended, _, errors)) = judged("") else { return };
    assert_eq!((ended, errors.as_str()), (Some(0), ""));
    let (ended, is_noisy, errors) = judged("--strict").expect("the machine is the same");
    assert_eq!(ended, Some(if is_noisy { 3 } else { 0 }), "{errors}");
}

#[test]
fn a_condition_on_a_figure_that_is_not_there_lists_those_that_are() {
    let Some((ended, _, errors)) = judged("--fail-if rpc.round_trip.p50>1us") else { return };
    assert_eq!(ended, Some(1), "{errors}");
    assert!(errors.contains("no figure `rpc.round_trip.p50`"), "{errors}");
    assert!(errors.contains("\n  floor.half_round_trip.p99 (ns)\n"), "{errors}");
}

#[test]
fn a_condition_that_is_none_is_refused_before_anything_is_measured() {
    let output = bench("floor --fail-if floor.round_trip.p50=1us");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("as in rpc.round_trip.p99>5us"), "{output:?}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn ctrl_c_ends_a_run_with_what_was_measured_so_far() {
    if good("floor").is_none() {
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
    let row = table.lines().find(|line| line.starts_with("floor")).expect("a row");
    let samples: u64 = row.split_whitespace().last().and_then(|n| n.parse().ok()).expect("a count");
    assert!(samples > 0, "{table}");
}

#[test]
fn a_recipe_is_taken_and_what_is_typed_wins() {
    let path =
        std::env::temp_dir().join(format!("rpcrdma-bench-{}-recipe.toml", std::process::id()));
    let run = |recipe: &str, options: &str| {
        std::fs::write(&path, recipe).expect("a writable place");
        let output = bench(&format!("floor --recipe {} {options}", path.display()));
        std::fs::remove_file(&path).expect("the file is ours");
        output
    };
    let recipe = "iterations = 20\nwarm-up = 1\n[floor]\nrounds = 3\nformat = \"csv\"\n";
    let taken = run(recipe, "");
    if text(&taken.stderr).contains("two threads that spin need two") {
        return;
    }
    assert!(text(&taken.stdout).contains(",ns,21\n"), "3 rounds of 7: {taken:?}");
    let typed = run(recipe, "-r 1");
    assert!(text(&typed.stdout).contains(",ns,20\n"), "1 round of 20: {typed:?}");
    let wrong = run("\n[floor]\nruonds = 3\n", "");
    assert_eq!(wrong.status.code(), Some(1));
    let expected = format!("{}, line 3: `floor` has no option --ruonds", path.display());
    assert!(text(&wrong.stderr).contains(&expected), "{wrong:?}");
}

#[test]
fn completions_and_the_man_page_are_printed() {
    let man = bench("man");
    assert!(man.status.success() && text(&man.stdout).contains(".TH rpcrdma-bench 1"), "{man:?}");
    let bash = bench("completions bash");
    assert!(bash.status.success() && text(&bash.stdout).contains("complete -F"), "{bash:?}");
}
