//! Comparisons on the command line.

use std::process::Command;

use serde_json::Value;

use crate::{bench, errors, has, scratch, short, short_json};

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
