//! Comparisons as a person types them: what is printed, where, and how they end.

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

/// A file for one test.
fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("rpcrdma-bench-{}-{name}", std::process::id()))
}

#[test]
fn two_sides_are_compared_with_an_interval() {
    let Some(table) = good("cmp lat unix") else { return };
    assert!(table.starts_with("cmp: lat beside unix: echo of 64 bytes, window 1"), "{table}");
    for part in ["whole round trip", "lat, over", "95 % interval", "136 bytes there and 120 back"] {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
    assert!(table.contains("fewer than 6 rounds"), "there are two\n{table}");
}

#[test]
fn a_saved_result_is_a_side() {
    let file = scratch("saved.json");
    let Some(_) = good(&format!("raw --json {}", file.display())) else { return };
    let json = good(&format!("cmp floor {}#floor --json -", file.display()));
    let json: Value = serde_json::from_str(&json.expect("as before")).expect("nothing but JSON");
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

#[test]
fn a_peer_that_is_not_installed_is_named_with_its_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["cmp", "lat", "ucx"])
        .env("PATH", "/nowhere")
        .output()
        .expect("the program was built for this test");
    let errors = text(&output.stderr);
    if errors.contains("two threads that spin need two") {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("apt-get install ucx-utils"), "{errors}");
}

#[test]
fn a_side_that_is_none_is_refused_with_a_list_of_those_that_are() {
    let output = bench("cmp lat grpc");
    let errors = text(&output.stderr);
    if !errors.contains("two threads that spin need two") {
        assert!(errors.contains("`grpc` is no side") && errors.contains("fi_pingpong"), "{errors}");
    }
}

/// A short comparison with these options: its exit code, and whether the run was noisy.
fn judged(options: &str) -> Option<(Option<i32>, bool, String)> {
    good("floor")?;
    let output = bench(&format!("cmp {options} -n 3000 -r 8 --warm-up 10"));
    let is_noisy = text(&output.stdout).contains("NOISY");
    Some((output.status.code(), is_noisy, text(&output.stderr)))
}

#[test]
fn the_ratio_decides_the_exit_code_unless_the_run_is_noisy() {
    for (options, code) in [
        ("floor unix --fail-if ratio>1000", 0),
        ("unix floor --fail-if ratio>0.001", 2),
        ("floor unix --regression 5%", 0),
        ("unix floor --regression 5%", 2),
    ] {
        let Some((ended, is_noisy, errors)) = judged(options) else { return };
        let expected = if is_noisy { 3 } else { code };
        assert_eq!(ended, Some(expected), "{options}: {errors}");
        assert_eq!(errors.is_empty(), expected == 0, "{options}: {errors}");
    }
}

#[test]
fn a_ratio_of_many_pairs_has_to_be_named() {
    let Some((ended, _, errors)) = judged("floor unix tcp --fail-if ratio>1") else { return };
    assert_eq!(ended, Some(1), "{errors}");
    assert!(
        errors.contains("floor/unix.ratio ") && errors.contains("floor/tcp.ratio "),
        "{errors}"
    );
    let Some((ended, ..)) = judged("floor unix tcp --fail-if floor/tcp.ratio>1000") else { return };
    assert!(matches!(ended, Some(0 | 3)));
}

#[test]
fn a_server_needs_a_device_and_says_so() {
    let output = bench("serve");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("lives inside one process"), "{errors}");
    let output = bench("lat --connect 127.0.0.1");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("--connect is for --provider verbs"), "{errors}");
}
