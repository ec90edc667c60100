//! Short runs of the modes beside the contests.

use serde_json::Value;

use crate::{good, has, json};

/// The figure of such a name, at such a value of its axis if it has one.
fn figure(json: &Value, of: &str, at: Option<f64>, name: &str) -> Value {
    let figures = json["figures"].as_array().expect("a list");
    let found = figures.iter().find(|figure| {
        figure["of"] == of && figure["name"] == name && figure["at"]["value"].as_f64() == at
    });
    found.unwrap_or_else(|| panic!("no {of} {name} at {at:?} in {figures:#?}")).clone()
}

fn value(json: &Value, of: &str, at: Option<f64>, name: &str) -> f64 {
    figure(json, of, at, name)["value"].as_f64().expect("a number")
}

#[test]
fn a_load_is_offered_at_shares_of_the_capacity() {
    let Some(table) = good("load -n 600 -r 2 --warm-up 10") else { return };
    assert!(table.starts_with("load: echo of 64 bytes, poisson arrivals at 10 rates"), "{table}");
    has(&table, &["closed loop", "from due, us", "backlog max", "late p50", "\n10 %", "\n95 %"]);
}

#[test]
fn every_call_of_a_load_is_in_its_distribution_and_its_count() {
    let Some(json) = json("load --load 20%,70% --rate 20k -n 1000 -r 2 --warm-up 0") else {
        return;
    };
    assert_eq!((&json["mode"], &json["settings"]["arrivals"]), (&"load".into(), &"poisson".into()));
    for (at, axis) in [(0.2, "load"), (0.7, "load"), (20_000.0, "rate")] {
        let p50 = figure(&json, "rpc", Some(at), "round_trip.p50");
        assert_eq!((&p50["samples"], &p50["at"]["axis"]), (&1000.into(), &axis.into()));
        assert_eq!(p50["rounds"].as_array().map(Vec::len), Some(2));
        for name in ["achieved_share", "backlog.max", "backlog.end", "given_up"] {
            assert!(value(&json, "rpc", Some(at), name) >= 0.0);
        }
        assert!(value(&json, "generator", Some(at), "late.p99") >= 0.0);
    }
    let capacity = value(&json, "closed", None, "rate.before");
    let offered = |at| value(&json, "rpc", Some(at), "offered");
    // Five hundred random waits in a round are no exact rate, but not half of it or twice.
    for (at, rate) in [(0.7, 0.7 * capacity), (20_000.0, 20_000.0)] {
        assert!((0.6..1.6).contains(&(offered(at) / rate)), "{} for {rate}", offered(at));
    }
    let names: Vec<&str> = json["distributions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["rpc@load=0.2", "rpc@load=0.7", "rpc@rate=20000"]);
    assert_eq!(json["curves"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_overload_is_stated_and_clients_share_a_rate() {
    let json = json("load --load 300% --rate 3k --clients 3 -n 600 -r 2 --warm-up 0");
    let Some(json) = json else { return };
    let overloads = json["overloads"].as_array().expect("a list");
    let is_stated = |at: &str| {
        let start = format!("OVERLOAD at {at}: ");
        overloads.iter().any(|one| one.as_str().is_some_and(|text| text.starts_with(&start)))
    };
    assert!(is_stated("300 %"), "{overloads:?}");
    assert!(value(&json, "rpc", Some(3.0), "achieved_share") < 0.99);
    assert_eq!(json["settings"]["clients"], 3);
    let offered = value(&json, "rpc", Some(3000.0), "offered");
    assert!((0.5..2.0).contains(&(offered / 3000.0)), "{offered} of all clients");
    assert_eq!(figure(&json, "rpc", Some(3000.0), "round_trip.p50")["samples"], 600);
}

#[test]
fn even_arrivals_are_as_fast_as_they_are_requested() {
    let Some(json) = json("load --rate 10k --arrivals constant -n 400 -r 1 --warm-up 1") else {
        return;
    };
    let offered = value(&json, "rpc", Some(10_000.0), "offered");
    assert!((offered / 10_000.0 - 1.0).abs() < 0.01, "{offered}");
}

#[test]
fn calls_after_pauses_are_measured_by_policy_with_their_processor_time() {
    let Some(json) = json("idle --pause 20us,3ms -n 8 -r 2") else { return };
    for policy in ["spin", "backoff", "block"] {
        for pause in [20e3, 3e6] {
            let p50 = figure(&json, policy, Some(pause), "round_trip.p50");
            assert_eq!((&p50["samples"], &p50["at"]["axis"]), (&8.into(), &"pause".into()));
            for name in ["cpu.client", "cpu.server"] {
                let share = value(&json, policy, Some(pause), name);
                assert!((0.0..=1.0).contains(&share), "{share}");
            }
        }
    }
    assert_eq!(json["curves"].as_array().map(Vec::len), Some(2));
    let Some(table) = good("idle --idle block --pause 2ms -n 2 -r 1") else { return };
    assert!(table.contains("block") && table.contains("cpu client"), "{table}");
    assert!(!table.contains("backoff"), "one policy was asked for\n{table}");
}

#[test]
fn connections_are_compared_with_the_first_number_of_them() {
    let Some(json) = json("conns --counts 1,100 -n 400 -r 2 --warm-up 10") else { return };
    let ratio = figure(&json, "rpc/first", Some(100.0), "ratio.rate");
    assert_eq!(ratio["rounds"].as_array().map(Vec::len), Some(2));
    assert!(ratio["value"].as_f64().is_some_and(|ratio| ratio > 0.0));
    let memory = value(&json, "idle", None, "memory");
    assert!((512.0..=4096.0).contains(&memory), "{memory} bytes of an idle connection");
    assert_eq!(figure(&json, "rpc", Some(1.0), "round_trip.p99")["samples"], 400);
    assert_eq!(json["settings"]["connections"], serde_json::json!([1, 100]));
    let Some(table) = good("conns --counts 2,3 -n 200 -r 1 --warm-up 0") else { return };
    assert!(table.contains("to first") && table.contains("an idle connection takes "), "{table}");
}

#[test]
fn shards_are_measured_as_far_as_the_cores_go_and_the_rest_is_said() {
    let Some(table) = good("cores --shards 1 -n 400 -r 2 --warm-up 10") else { return };
    assert!(table.starts_with("cores: echo of 64 bytes, 1 shard(s)"), "{table}");
    assert!(table.contains("per core of it") && table.contains("efficiency"), "{table}");
    let Some(json) = json("cores -n 400 -r 2 --warm-up 10") else { return };
    assert!(value(&json, "rpc", Some(1.0), "rate") > 0.0);
    let most = json["settings"]["shards"].as_array().expect("a list").len();
    let is_said = json["notes"].to_string().contains("not measured");
    assert_eq!(is_said, most == 1, "{}", json["notes"]);
}

#[test]
fn connections_come_and_go_beside_a_load() {
    let Some(json) = json("churn --churn 300 --standing 3 -t 0.6 -r 2 --warm-up 10") else {
        return;
    };
    for side in ["still", "churn"] {
        assert!(value(&json, side, None, "rate") > 0.0);
        assert!(value(&json, side, None, "round_trip.p50") > 0.0);
    }
    let count = |name| value(&json, "connections", None, name);
    assert!(count("made") > 0.0, "some were made in a second");
    assert_eq!(count("failed"), 0.0);
    assert_eq!(count("asked"), count("made"), "each of them came, and had gone at the end");
    assert_eq!(figure(&json, "connections", None, "connect.p99")["samples"], count("made"));
    let Some(table) = good("churn -t 0.1 -r 1") else { return };
    assert!(table.contains("churn / still, p99") && table.contains("to connect, us"), "{table}");
}

#[test]
fn what_an_rpc_costs_is_counted_by_every_counter_that_is_there() {
    let Some(table) = good("cost -n 500 --warm-up 100") else { return };
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

#[test]
fn a_soak_reports_what_rises_in_time() {
    let Some(table) = good("soak -t 1s --interval 50ms") else { return };
    assert!(table.starts_with("soak: echo of 64 bytes, window 1, 1 s"), "{table}");
    has(&table, &["looked at 20 times", "memory ", "descriptors ", "out ", "p99 ", "at least"]);
    assert!(!table.contains("leak: descriptors") && !table.contains("leak: out"), "{table}");
}

#[test]
fn a_soak_that_is_too_short_for_a_trend_says_so() {
    let Some(table) = good("soak -t 100ms --interval 50ms -w 8 --check") else { return };
    assert!(table.contains("too short") && table.contains("looked at 2 times"), "{table}");
    assert!(!table.contains("p99 "), "calls of a window are counted, not timed\n{table}");
}

#[test]
fn starving_shows_three_ways_to_be_slow_and_loses_nothing() {
    let Some(table) = good("starve -t 0.2 -r 2 --slow 0.01 --slow-time 100us") else { return };
    assert!(table.contains("want 512 calls under way, the server grants 128"), "{table}");
    has(
        &table,
        &[
            "even ",
            "tickets / even, rate",
            "blocking / even, rate",
            "waited for a credit",
            "stall p99",
        ],
    );
    assert!(table.contains("message without a Receive: 0"), "{table}");
}

#[test]
fn starving_names_every_figure_for_programs() {
    let Some(json) = json("starve -t 0.1 -r 2") else { return };
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
