//! TCP, with the two ends in two processes.

use crate::{answered, bench, errors, good, has, json, short, short_json};

#[test]
fn a_round_trip_is_measured_beside_the_floor_and_counted_on_both_sides() {
    let Some(json) = short_json("lat --provider tcp --op read -s 5000 -p send --touch all") else {
        return;
    };
    let notes = json["notes"].to_string();
    has(&notes, &["tcp: iWARP without checksums", "rpc: the server is at 127.0.0.1:"]);
    let figures = json["figures"].as_array().expect("a list").iter();
    let names = figures.filter(|one| one["of"] == "rpc").filter_map(|one| one["name"].as_str());
    let names: Vec<&str> = names.collect();
    for name in ["round_trip.p50", "client.doorbells", "server.doorbells", "server.sends"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
}

#[test]
fn rates_and_bandwidth_are_measured_over_one_connection_and_many() {
    for options in ["rate", "rate -k 9 -w 64 --touch all", "bw --op write --touch all"] {
        let Some(table) = short(&format!("{options} --provider tcp")) else { return };
        has(&table, &["rpc", "raw", "floor"]);
    }
}

#[test]
fn every_other_mode_runs_over_tcp() {
    let Some(table) = good("load --provider tcp --load 20% -n 200 -r 1 --warm-up 10") else {
        return;
    };
    has(&table, &["rpc: the server is at 127.0.0.1:"]);
    let Some(table) = good("conns --provider tcp --counts 1,20 -n 200 -r 1 --warm-up 0") else {
        return;
    };
    has(&table, &["rpc: the server is at 127.0.0.1:"]);
    let churn = "churn --provider tcp --churn 300 --standing 3 -t 0.6 -r 1 --warm-up 10";
    let Some(churned) = json(churn) else { return };
    let count = |name: &str| {
        let mut figures = churned["figures"].as_array().expect("a list").iter();
        let found = figures.find(|one| one["of"] == "connections" && one["name"] == name);
        found.and_then(|one| one["value"].as_f64()).expect("a figure")
    };
    assert!(count("made") > 0.0 && count("failed") == 0.0 && count("asked") == count("made"));
    let soak = "soak --provider tcp -t 200ms --interval 50ms";
    let idle = "idle --provider tcp --idle block --pause 20ms -n 8 -r 1";
    let cost = "cost --provider tcp -n 500 --warm-up 100";
    for line in [soak, idle, cost] {
        if json(line).is_none() {
            return;
        }
    }
}

#[test]
fn a_server_of_another_host_answers() {
    answered(&["--provider", "tcp", "--port", "0"], "lat --provider tcp");
    answered(&["--provider", "tcp", "--listen", "[::1]:0"], "lat --provider tcp");
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (options, why) in [
        ("lat --provider tcp --device mlx5_0", "for --provider verbs"),
        ("floor --provider tcp --connect 127.0.0.1", "runs both ends itself"),
        ("lat --provider tcp --connect shm:@no-listener", "--provider shm"),
        ("lat --provider tcp --connect 127.0.0.1:1", "answers at 127.0.0.1:1"),
        ("serve --provider tcp --listen shm:@no-listener", "--provider shm"),
    ] {
        let output = bench(options);
        let Some(errors) = errors(&output) else { return };
        assert!(!output.status.success() && errors.contains(why), "{options}: {errors}");
    }
}
