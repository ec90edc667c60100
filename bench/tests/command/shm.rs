//! Shared memory, with the two ends in two processes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{answered, bench, errors, good, has, json, scratch, short, short_json};

fn figures(json: &Value, of: &str) -> Vec<String> {
    let figures = json["figures"].as_array().expect("a list").iter();
    let names = figures.filter(|one| one["of"] == of).filter_map(|one| one["name"].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn a_round_trip_is_measured_beside_the_floor_and_counted_on_both_sides() {
    let Some(json) = short_json("lat --provider shm --op read -s 5000 -p send --touch all") else {
        return;
    };
    let notes = json["notes"].to_string();
    has(&notes, &["shm: rings of ", "rpc: the server is at shm:@"]);
    let names = figures(&json, "rpc");
    for name in ["round_trip.p50", "client.doorbells", "server.doorbells", "server.sends"] {
        assert!(names.iter().any(|one| one == name), "no {name} in {names:?}");
    }
    assert!(figures(&json, "rpc/floor").contains(&"ratio.median".to_owned()));
}

#[test]
fn rates_and_bandwidth_are_measured_over_one_connection_and_many() {
    for options in ["rate", "rate -k 9 -w 64 --touch all", "bw --op write --touch all"] {
        let Some(table) = short(&format!("{options} --provider shm")) else { return };
        has(&table, &["rpc", "raw", "floor"]);
    }
}

#[test]
fn both_processes_count_what_a_call_costs() {
    let Some(json) = json("cost --provider shm -n 500 --warm-up 100") else { return };
    for of in ["client", "server"] {
        let value = |name: &str| {
            let mut figures = json["figures"].as_array().expect("a list").iter();
            let found = figures.find(|one| one["of"] == of && one["name"] == name);
            found.and_then(|one| one["value"].as_f64())
        };
        assert_eq!(
            (value("sends"), value("completions").map(|count| count > 0.0)),
            (Some(1.0), Some(true))
        );
        // The thread's own handful of them for the round, and none for a call.
        assert!(value("allocations").is_some_and(|each| each < 0.2), "{of}");
        assert!(value("system_calls").is_none_or(|each| each < 0.2), "{of}");
        assert!(value("instructions").is_none_or(|each| each > 100.0), "{of}");
    }
    let missing = json["missing"].to_string();
    for (program, figure) in [("strace", "system_calls"), ("valgrind", "instructions")] {
        let is_missing = missing.contains(figure);
        assert!(!is_missing || missing.contains(&format!("{program} is missing")), "{missing}");
    }
}

#[test]
fn open_loops_and_connections_that_come_and_go_have_their_server_elsewhere() {
    let Some(table) = good("load --provider shm --load 20% -n 200 -r 1 --warm-up 10") else {
        return;
    };
    has(&table, &["rpc: the server is at shm:@"]);
    let Some(table) = good("conns --provider shm --counts 1,20 -n 200 -r 1 --warm-up 0") else {
        return;
    };
    has(&table, &["rpc: the server is at shm:@"]);
    let churn = "churn --provider shm --churn 300 --standing 3 -t 0.6 -r 1 --warm-up 10";
    let Some(json) = json(churn) else { return };
    let count = |name: &str| {
        let mut figures = json["figures"].as_array().expect("a list").iter();
        let found = figures.find(|one| one["of"] == "connections" && one["name"] == name);
        found.and_then(|one| one["value"].as_f64()).expect("a figure")
    };
    assert!(count("made") > 0.0 && count("failed") == 0.0 && count("asked") == count("made"));
}

#[test]
fn a_soak_looks_at_both_processes() {
    let one = |provider: &str| {
        let json = json(&format!("soak --provider {provider} -t 200ms --interval 50ms"))?;
        Some(json["samples"][0]["descriptors"].as_u64().expect("a number"))
    };
    let (Some(one_process), Some(two)) = (one("fabric"), one("shm")) else { return };
    assert!(two > one_process + 3, "{two} descriptors in two processes, {one_process} in one");
}

#[test]
fn pauses_are_slept_through_in_both_processes() {
    let Some(json) = json("idle --provider shm --idle block --pause 20ms -n 8 -r 1") else {
        return;
    };
    let figures = json["figures"].as_array().expect("a list");
    for name in ["cpu.client", "cpu.server"] {
        let found = figures.iter().find(|one| one["name"] == name).expect("a figure");
        let share = found["value"].as_f64().expect("a share");
        assert!(share > 0.0 && share < 0.9, "{name}: {share}");
    }
}

#[test]
fn a_server_in_another_terminal_answers() {
    let path = scratch("serve.sock");
    let socket = format!("shm:{}", path.display());
    answered(&["--provider", "shm", "--port", "0"], "lat --provider shm");
    answered(&["--listen", &socket], "lat");
    assert!(!path.exists(), "the socket goes with the server");
}

#[test]
fn a_server_whose_reader_has_gone_answers() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["serve", "--once", "--provider", "shm", "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    let mut first = String::new();
    let mut out = BufReader::new(server.stdout.take().expect("a pipe"));
    out.read_line(&mut first).expect("text");
    drop(out);
    // A machine with one core is refused.
    let Some((_, rest)) = first.split_once("connect to ") else {
        assert!(!server.wait().expect("it ends").success());
        return;
    };
    let at = rest.split(',').next().expect("an address");
    short(&format!("lat --provider shm --connect {at}")).expect("two cores");
    let ended = server.wait_with_output().expect("it ends");
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn one_process_and_two_are_compared() {
    let output = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["cmp", "lat", "lat --provider shm", "-n", "300", "-r", "2", "--warm-up", "10"])
        .output()
        .expect("the program was built for this test");
    let Some(errors) = errors(&output) else { return };
    assert!(output.status.success(), "{errors}");
    has(&crate::text(&output.stdout), &["lat, over", "lat --provider shm  median"]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (options, why) in [
        ("lat --provider shm --device mlx5_0", "for --provider verbs"),
        ("floor --provider shm --connect 127.0.0.1", "runs both ends itself"),
        ("floor --connect shm:@no-listener", "runs both ends itself"),
        ("lat --connect shm:@no-listener", "answers at shm:@no-listener"),
        ("lat --provider verbs --connect shm:@no-listener", "--provider shm"),
        ("lat --connect shm:b.sock", "an absolute path"),
        ("serve --provider verbs --listen shm:@no-listener", "--provider shm"),
        ("serve --listen shm:/no/such/folder/b.sock", "/no/such/folder/b.sock"),
        ("churn --provider shm --connect 127.0.0.1", "runs both ends itself"),
    ] {
        let output = bench(options);
        let Some(errors) = errors(&output) else { return };
        assert!(!output.status.success() && errors.contains(why), "{options}: {errors}");
    }
}
