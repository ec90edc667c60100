//! Reports of several modes, generated from a seed, for the tests of the page.

use rpcrdma_bench::machine::Jitter;
use rpcrdma_bench::machine::env::{Build, HugePages, Machine};
use rpcrdma_bench::output::{At, Axis, Curve, Environment, Figure, Line, Listing, Report, Unit};
use rpcrdma_bench::stats::{Dice, Latency};
use serde_json::json;

/// One of every kind that looks different.
pub fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("lat", lat()),
        ("load", load()),
        ("distance", distance()),
        ("conns", conns()),
        ("cmp", cmp()),
        ("bw", bw()),
        ("empty", sample("floor", "floor: nothing was measured")),
        ("hostile", hostile()),
    ]
}

pub fn sample(mode: &'static str, what: &str) -> Report {
    let jitter =
        |core| Jitter { core, gaps_per_second: 245.0, lost_share: 0.0049, longest_ns: 21_000 };
    let fixed = |text: &'static str| text.into();
    let environment = Environment {
        build: Build { profile: fixed("release"), opt_level: fixed("3"), ..Build::THIS },
        machine: Machine {
            cpu: "AMD EPYC 7302 16-Core Processor".to_owned(),
            cores_online: 16,
            virtual_machine: false,
            isolated: vec![4, 5, 6, 7],
            numa_nodes: 2,
            governor: [Some("performance".to_owned()), Some("performance".to_owned())],
            kernel: "6.12.48".to_owned(),
            huge_pages: HugePages { page_bytes: 2 << 20, total: 512, free: 500 },
            transparent_huge_pages: Some("madvise".to_owned()),
            memlock_bytes: None,
        },
        clock_step_ns: 9.6,
        notes: vec!["fabric: rings of 64 slots, delay 0 ns".to_owned()],
        jitter_before: [jitter(4), jitter(5)],
        jitter_after: [jitter(4), jitter(5)],
        noise: Vec::new(),
        interrupted: false,
        ended_ms: 0,
        command: Vec::new(),
    };
    let cores = json!({ "client": 4, "server": 5 });
    let settings =
        json!({ "op": "echo", "size_bytes": 64, "window": 1, "rounds": 10, "cores": cores });
    let mut report = Report::new(mode, what.to_owned(), settings, environment, Vec::new());
    report.block(format!("what is printed of {what}"));
    report
}

/// Round trips round a median, with the tail that a timer tick gives.
fn round_trips(seed: u64, median_ns: f64, samples: u32) -> Latency {
    let mut dice = Dice::new(seed);
    let mut latency = Latency::new();
    for _ in 0..samples {
        // The sum of some even ones is nearly normal.
        let bell = (0..6).map(|_| dice.share()).sum::<f64>() / 3.0 - 1.0;
        let tick = if dice.share() < 0.002 { dice.wait(9000.0) } else { 0.0 };
        latency
            .record((median_ns * (1.0 + 0.12 * bell) + dice.wait(median_ns / 40.0) + tick) as u64);
    }
    latency
}

fn rounds(seed: u64, value: f64) -> Vec<f64> {
    let mut dice = Dice::new(seed);
    (0..10).map(|round| value * (0.98 + 0.03 * dice.share() + 0.002 * f64::from(round))).collect()
}

fn contender(sample: &mut Report, name: &str, seed: u64, median_ns: f64) {
    let latency = round_trips(seed, median_ns, 60_000);
    let with_rounds = |figure: Figure| {
        let rounds = rounds(seed, figure.value);
        figure.rounds(rounds)
    };
    sample.figures.extend(Figure::round_trips(name, &latency, &[]).into_iter().map(with_rounds));
    let median =
        Figure::new(name, "round_trip.median", latency.median_ns(), Unit::Ns, latency.count());
    sample.figures.push(with_rounds(median));
    let rate = Figure::new(name, "rate", 1e9 / median_ns, Unit::PerSecond, latency.count());
    sample.figures.push(with_rounds(rate));
    sample.samples(name, &latency);
}

fn ratio(of: &str, value: f64, low: f64, high: f64, ends: [&'static str; 2]) -> Vec<Figure> {
    let figure = |part: &str, value| {
        Figure::new(of, format!("ratio.median{part}"), value, Unit::Ratio, 120_000)
    };
    vec![figure("", value), figure(ends[0], low), figure(ends[1], high)]
}

fn lat() -> Report {
    let mut lat = sample("lat", "lat: echo of 64 bytes, window 1, 1 connection, over the fabric");
    contender(&mut lat, "floor", 1, 330.0);
    contender(&mut lat, "raw", 2, 395.0);
    contender(&mut lat, "rpc", 3, 448.0);
    let ends = [".lowest", ".highest"];
    lat.figures.extend(ratio("rpc/raw", 1.134, 1.12, 1.16, ends));
    lat.figures.extend(ratio("rpc/floor", 1.357, 1.33, 1.41, ends));
    lat.figures.extend(ratio("raw/floor", 1.197, 1.18, 1.22, ends));
    lat
}

fn load() -> Report {
    let mut load = sample("load", "load: open loop, Poisson arrivals, 10 to 95 % of 3.1 M/s");
    load.environment.noise = vec!["core 5 was away for 4.1 ms at once".to_owned()];
    let loads = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
    let line = |name: &str, base: f64| Line {
        name: name.to_owned(),
        points: loads.iter().map(|load| (*load, base / (1.0 - load))).collect(),
    };
    load.curves.push(Curve {
        title: "Latency against load".to_owned(),
        x: Axis {
            name: "offered load, share of capacity".to_owned(),
            unit: Unit::Share,
            log: false,
        },
        y: Axis { name: "latency from the intended start".to_owned(), unit: Unit::Ns, log: true },
        lines: vec![
            line("p50", 460.0),
            line("p99", 900.0),
            line("p99.9", 4200.0),
            line("max", 31_000.0),
        ],
    });
    for (at, share) in loads.iter().enumerate() {
        let latency = round_trips(at as u64, 460.0 / (1.0 - share), 5_000);
        let at = At::new("load", *share, Unit::Share);
        let figures = Figure::round_trips("rpc", &latency, &[]);
        load.figures.extend(figures.into_iter().map(|figure| figure.at(at.clone())));
        let achieved = Figure::new("rpc", "achieved", 0.999, Unit::Share, latency.count());
        load.figures.push(achieved.at(at.clone()));
        load.samples(format!("rpc@{at}"), &latency);
    }
    load
}

fn distance() -> Report {
    let mut distance = sample("distance", "distance: write and read of 64 KiB at 0 to 500 us");
    for (way, trips) in WAYS.into_iter().zip([1.0, 2.0, 2.0, 2.0]) {
        for delay in [0.0, 5e3, 50e3, 500e3] {
            let median = 11_000.0 + 2.0 * delay * trips;
            let name = format!("write 64 KiB, {way}");
            let figure = Figure::new(name, "round_trip.p50", median, Unit::Ns, 3000);
            distance.figures.push(figure.at(At::new("delay", delay, Unit::Ns)));
        }
    }
    let names = WAYS.map(|way| format!("write 64 KiB, {way}"));
    let lines = names.each_ref().map(|name| (&**name, &**name, "round_trip.p50"));
    let (x, y) = (Axis::log("delay", Unit::Ns), Axis::log("round trip", Unit::Ns));
    distance.curve("Round trip, median against delay", x, y, &lines);
    distance
}

fn conns() -> Report {
    let mut conns = sample("conns", "conns: 1 to 4096 connections on one shared receive queue");
    let counts = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0f64];
    for (name, rate, loss) in [("floor", 18.4e6, 0.0), ("rpc", 3.1e6, 0.02)] {
        for count in counts {
            let figure = Figure::new(
                name,
                "rate",
                rate * (1.0 - loss * count.ln()),
                Unit::PerSecond,
                2_000_000,
            );
            conns.figures.push(figure.at(At::new("connections", count, Unit::Count)));
        }
    }
    let (x, y) = (Axis::log("connections", Unit::Count), Axis::log("rate", Unit::PerSecond));
    let lines = [("floor", "floor", "rate"), ("rpc", "rpc", "rate")];
    conns.curve("Round trips a second against connections", x, y, &lines);
    conns
}

fn cmp() -> Report {
    let mut cmp = sample(
        "cmp",
        "cmp: rpc against ib_send_lat, ucx_perftest, unix and TCP sockets, interleaved",
    );
    contender(&mut cmp, "rpc", 3, 448.0);
    contender(&mut cmp, "ucx_perftest", 4, 655.0);
    contender(&mut cmp, "fi_pingpong", 5, 1180.0);
    contender(&mut cmp, "unix socket", 6, 3200.0);
    contender(&mut cmp, "tcp socket", 7, 5500.0);
    let ends = [".low", ".high"];
    cmp.figures.extend(ratio("rpc/ucx_perftest", 0.684, 0.671, 0.699, ends));
    cmp.figures.extend(ratio("rpc/fi_pingpong", 0.380, 0.372, 0.389, ends));
    cmp.figures.extend(ratio("rpc/unix socket", 0.140, 0.133, 0.149, ends));
    cmp.figures.extend(ratio("rpc/tcp socket", 0.0815, 0.078, 0.086, ends));
    // The first of a pair stands under a short name, too.
    let short =
        |part| Figure::new("rpc/tcp socket", format!("ratio{part}"), 0.0815, Unit::Ratio, 9);
    cmp.figures.extend(["", ".low", ".high"].map(short));
    cmp
}

/// Rates without times.
fn bw() -> Report {
    let mut bw = sample("bw", "bw: read of 64 KiB, placed by sends, window 8");
    for (name, seed, data) in [("floor", 1, 24.2), ("raw", 2, 22.9), ("rpc", 3, 21.7)] {
        let rate = Figure::new(name, "rate", data * 1e9 / 65_536.0, Unit::PerSecond, 700_000);
        bw.figures.push(rate.clone().rounds(rounds(seed, rate.value)));
        bw.figures.push(Figure::new(name, "data", data, Unit::GbPerSecond, 700_000));
    }
    bw
}

/// Everything that comes from outside has markup in it, and names without end.
pub fn hostile() -> Report {
    let mut hostile = lat();
    let rename = |of: &str| of.replace("rpc", EVIL);
    for figure in &mut hostile.figures {
        figure.of = rename(&figure.of);
    }
    for one in &mut hostile.distributions {
        one.name = rename(&one.name);
    }
    let long = "a-name-without-any-place-to-break-it-".repeat(12);
    hostile.what = format!("{EVIL} {long}");
    hostile.environment.notes = vec![EVIL.to_owned(), long.clone()];
    hostile.environment.noise = vec![EVIL.to_owned(), long.clone()];
    hostile.environment.machine.cpu = EVIL.to_owned();
    hostile.environment.machine.kernel = EVIL.to_owned();
    hostile.environment.interrupted = true;
    hostile.settings = json!({ EVIL: EVIL, "long": &long, "list": [EVIL] });
    let axis = |unit| Axis { name: EVIL.to_owned(), unit, log: false };
    hostile.curves.push(Curve {
        title: EVIL.to_owned(),
        x: axis(Unit::Count),
        y: axis(Unit::Count),
        lines: vec![
            Line {
                name: EVIL.to_owned(),
                points: vec![(0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)],
            },
            Line { name: String::new(), points: Vec::new() },
        ],
    });
    let rows = vec![vec![EVIL.to_owned(), long]];
    hostile.listings.push(Listing { title: EVIL.to_owned(), heads: vec![EVIL, EVIL], rows });
    hostile.figures.push(Figure::new(EVIL, EVIL, f64::NAN, Unit::Ns, 0));
    hostile
}

const WAYS: [&str; 4] = ["sends", "one", "one-local", "exposed"];

/// What a page must show and never do.
pub const EVIL: &str = "</style><script>window.evil=1</script><img src=x onerror='window.evil=1'>\" onload=\"window.evil=1";
