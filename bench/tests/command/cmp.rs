//! Comparisons on the command line.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::{bench, errors, good, has, scratch, short, short_json, text};

#[test]
fn two_sides_are_compared_with_an_interval() {
    let Some(table) = short("cmp lat unix") else { return };
    assert!(table.starts_with("cmp: lat beside unix: echo of 64 bytes, window 1"), "{table}");
    has(
        &table,
        &["whole round trip", "lat, over", "95 % interval", "136 bytes there and 120 back"],
    );
    assert!(table.contains("fewer than 6 rounds"), "there are two\n{table}");
}

#[test]
fn a_saved_result_is_a_side() {
    let file = scratch("saved.json");
    let Some(_) = short(&format!("raw --json {}", file.display())) else { return };
    let json = short_json(&format!("cmp floor {}#floor", file.display())).expect("as before");
    std::fs::remove_file(&file).expect("it was written");
    let first = &json["comparisons"][0];
    assert_eq!((&first["paired"], &first["figure"]), (&false.into(), &"round_trip.median".into()));
    let labels: Vec<&Value> = json["distributions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|distribution| &distribution["name"])
        .collect();
    assert_eq!(labels.len(), 2, "{labels:?}");
}

/// Two results of a mode, each with the options of its own; `None` on a machine with one core.
fn two_results(name: &str, options: [&str; 2]) -> Option<[PathBuf; 2]> {
    let files = ["new", "old"].map(|which| scratch(&format!("{name}-{which}.json")));
    for (file, options) in files.iter().zip(options) {
        good(&format!("{options} --json {}", file.display()))?;
    }
    Some(files)
}

/// What a comparison of these files prints by such options.
fn compared(files: &[PathBuf; 2], options: &str) -> String {
    let [new, old] = files.each_ref().map(|file| file.display());
    let printed = good(&format!("cmp {new} {old} {options}"));
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was written"));
    printed.expect("files need no cores")
}

#[test]
fn two_results_of_a_mode_are_compared_point_by_point() {
    let each = "-n 200 -r 3 --warm-up 0";
    let new = format!("load --load 20%,40% --rate 20k {each}");
    let Some(files) =
        two_results("points", [&new, &format!("load --load 20% --rate 20k -w 8 {each}")])
    else {
        return;
    };
    let table = compared(&files, "");
    has(&table, &["load: echo of 64 bytes", "different settings: window is 32 and 8"]);
    let points =
        ["only in ", ": generator@load=0.4, rpc@load=0.4", "rpc@load=0.2 ", "rpc@rate=20000 "];
    has(&table, &points);
    has(&table, &["generator@load=0.2", "round_trip.p99.9", "achieved ", "95 % interval", "us "]);
    assert!(!table.contains("half_round_trip"), "it says the same again\n{table}");
}

#[test]
fn the_noise_of_a_comparison_of_results_is_theirs() {
    let options = "floor -n 100 -r 2 --warm-up 0";
    let Some(files) = two_results("noise", [options, options]) else { return };
    let read = |file: &PathBuf| -> Value {
        let text = std::fs::read_to_string(file).expect("it was written");
        serde_json::from_str(&text).expect("a result")
    };
    let (first, mut json) = (read(&files[0]), read(&files[1]));
    json["noise"] = serde_json::json!(["core 1 was away for 40 ms"]);
    std::fs::write(&files[1], json.to_string()).expect("it is ours");
    let text = compared(&files, "--json -");
    let compared: Value = serde_json::from_str(&text).expect("nothing but JSON");
    let noise = compared["noise"].as_array().expect("a list");
    let is_theirs =
        |reason: &Value| reason.as_str().is_some_and(|it| it.ends_with("away for 40 ms"));
    assert_eq!(noise.iter().filter(|reason| is_theirs(reason)).count(), 1, "{noise:?}");
    assert_eq!(compared["jitter_before"], first["jitter_before"], "nothing was probed");
    let first = &compared["comparisons"][0];
    assert!(first["outside_noise"].is_boolean() && first["unit"] == "ns", "{first}");
}

#[test]
fn results_that_share_no_point_are_refused_with_the_points_of_both() {
    let each = "-n 100 -r 1 --warm-up 0";
    let Some(files) =
        two_results("none", [&format!("load --rate 20k {each}"), &format!("raw {each}")])
    else {
        return;
    };
    let output = bench(&format!("cmp {} {}", files[0].display(), files[1].display()));
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was written"));
    let errors = errors(&output).expect("files need no cores");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    has(&errors, &["share no point", "rpc@rate=20000", "floor"]);
}

#[test]
fn a_mode_that_is_run_now_is_compared_with_a_result() {
    let file = scratch("idle.json");
    let idle = "idle --idle spin --pause 20us -n 4 -r 2";
    let Some(_) = good(&format!("{idle} --json {}", file.display())) else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["cmp", idle, file.to_str().expect("a name in ASCII")])
        .output()
        .expect("the program was built for this test");
    std::fs::remove_file(&file).expect("it was written");
    assert!(output.status.success(), "{output:?}");
    has(&text(&output.stdout), &["spin@pause=20us", "cpu.client", "round_trip.median"]);
}

#[test]
fn a_peer_that_is_not_installed_is_named_with_its_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["cmp", "lat", "ucx"])
        .env("PATH", "/nowhere")
        .output()
        .expect("the program was built for this test");
    let Some(errors) = errors(&output) else { return };
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("apt-get install ucx-utils"), "{errors}");
}

#[test]
fn a_peer_of_this_repository_that_is_not_installed_is_named_with_its_folder() {
    let output = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["cmp", "lat", "iceoryx2 --program /nowhere/ice"])
        .output()
        .expect("the program was built for this test");
    let Some(errors) = errors(&output) else { return };
    assert_eq!(output.status.code(), Some(1), "{errors}");
    has(&errors, &["/nowhere/ice", "cargo install --locked --path bench/peers/iceoryx2"]);
}

#[test]
fn a_side_that_is_none_is_refused_with_a_list_of_those_that_are() {
    let output = bench("cmp lat grpc");
    let Some(errors) = errors(&output) else { return };
    assert!(errors.contains("`grpc` is no side") && errors.contains("fi_pingpong"), "{errors}");
}
