//! `conns`: the cost of many connections on one shared receive queue.
//!
//! ```text
//!   1, 4, 16, ... connections ──▶ every round: the rate with many under way, then one by one
//! ```
//! Before that: the memory of an idle connection. With each number: the time to connect, and what
//! the processes then hold.

use std::time::{Duration, Instant};

use rpcrdma_config::Config;
use serde_json::json;

use crate::contenders::rpc::{IDLE, Rpc, idle_memory};
use crate::contenders::tally::Held;
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::modes::contest::{self, Plan};
use crate::modes::sweep::Sweep;
use crate::output::{
    At, Axis, Better, Column, Environment, Figure, Lost, Report, Row, Session, Table, Unit,
};
use crate::settings;
use crate::stats::{Latency, Ratio, Round, Series};
use crate::values::Over;

/// The options of the mode.
pub type Args = contest::Args<Own>;

/// Those of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct Own {
    /// Numbers of connections, as in 1,32,1024; the first is the reference
    /// [default: 1,4,16,64,256,1024,4096; verbs: 1,4,16,64]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub counts: Vec<u32>,
}

#[derive(Debug, Clone)]
pub struct ConnsPlan {
    /// One for each number, with an engine made for so many.
    plans: Vec<Plan>,
}

impl ConnsPlan {
    pub fn new(args: &Args) -> Result<ConnsPlan, BenchError> {
        if args.contest.window.connections > 1 {
            let text = "conns has its own list: use --counts instead of --connections";
            return Err(BenchError::Usage(text.into()));
        }
        let usual: &[u32] = match args.contest.device.over() {
            Over::Fabric | Over::Shm | Over::Tcp => &COUNTS,
            Over::Verbs => &COUNTS_VERBS,
        };
        let counts = if args.more.counts.is_empty() { usual } else { &args.more.counts };
        let plan = |count: &u32| {
            let mut contest = args.contest.clone();
            contest.window.connections = *count;
            // Twice as many calls as connections: each has carried something.
            let warm_up = WARM_UP.max(2 * u64::from(*count));
            patient(Plan::of_rate(&contest, &args.length, SECONDS, warm_up)?)
        };
        let plans = counts.iter().map(plan).collect::<Result<Vec<Plan>, BenchError>>()?;
        Ok(ConnsPlan { plans })
    }

    fn first(&self) -> &Plan {
        self.plans.first().expect("there is a list of its own for none")
    }

    fn counts(&self) -> impl Iterator<Item = u32> {
        self.plans.iter().map(|plan| plan.load.connections)
    }

    pub fn sentence(&self) -> String {
        let Plan { load, cores, rounds, .. } = self.first();
        let counts = self.counts().map(|count| count.to_string()).collect::<Vec<_>>();
        format!(
            "conns: {}, {} connections, {} calls under way and one by one, cores {cores}, {rounds} \
             rounds",
            load.what(),
            counts.join(", "),
            load.window
        )
    }
}

/// The same without time limits of connections: the engines of a number are not polled while those
/// of others are measured.
fn patient(plan: Plan) -> Result<Plan, BenchError> {
    let mut raw = plan.config.raw().clone();
    settings::patient(&mut raw);
    Ok(Plan { config: Config::try_from(raw)?, ..plan })
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let plan = &ConnsPlan::new(args)?;
    session.announce(&plan.sentence())?;
    let (device, config) = (&args.contest.device, &plan.first().config);
    // First, while nothing else takes or returns memory.
    let memory = match device.over() {
        Over::Fabric => Some(idle_memory(plan.first().cores)?),
        Over::Shm | Over::Tcp | Over::Verbs => None,
    };
    on_device!(device, config, open, |device| measure_on(device, plan, memory, session))
}

fn measure_on<D: Device>(
    device: &D,
    plan: &ConnsPlan,
    memory: Option<f64>,
    session: &Session,
) -> Result<Report, BenchError> {
    let first = plan.first();
    let (mut contenders, mut points, mut notes) = (Vec::new(), Vec::new(), device.notes());
    for Plan { cores, config, load, .. } in &plan.plans {
        let (began, before) = (Instant::now(), Held::here(0));
        let mut rpc = Rpc::on(device, "rpc", *cores, config, load, false)?;
        let set_up = SetUp::new(began.elapsed(), before, rpc.held());
        notes.extend(rpc.notes().into_iter().next());
        points.push(Point::new(load.connections, set_up));
        contenders.push(rpc);
    }
    // Each point has two rounds.
    let expected = first.expected(2 * contenders.len() as u32);
    let sweep = Sweep { expected, ..first.sweep(contenders.len()) };
    let environment = sweep.run(session, notes, |_, index| {
        let rpc = &mut contenders[index];
        let quota = plan.plans[index].quota;
        points[index].rate.rounds.push(rpc.closed(quota)?);
        points[index].single.rounds.push(rpc.one_by_one(quota)?);
        Ok(())
    })?;
    Ok(report(plan, &points, memory, environment))
}

/// What it took to make an engine on each side, and the connections between them.
#[derive(Debug, Clone, Copy, Default)]
struct SetUp {
    time: Duration,
    /// Bytes that both sides hold more than before.
    memory: f64,
    descriptors: f64,
}

impl SetUp {
    fn new(time: Duration, before: Held, after: Held) -> SetUp {
        let grown = |before: u64, after: u64| after as f64 - before as f64;
        SetUp {
            time,
            memory: grown(before.memory_bytes, after.memory_bytes),
            descriptors: grown(before.descriptors, after.descriptors),
        }
    }

    fn figures(&self) -> [Figure; 3] {
        let of = |name: &'static str, value, unit| {
            Figure::new("rpc", name, value, unit, 1).better(Better::Lower)
        };
        [
            of("set_up.time", self.time.as_nanos() as f64, Unit::Ns),
            of("set_up.memory", self.memory, Unit::Bytes),
            of("set_up.descriptors", self.descriptors, Unit::Count),
        ]
    }
}

struct Point {
    connections: u32,
    set_up: SetUp,
    rate: Series,
    single: Series,
}

impl Point {
    fn new(connections: u32, set_up: SetUp) -> Point {
        let series = |name| Series { name, rounds: Vec::new() };
        Point { connections, set_up, rate: series("rpc"), single: series("rpc") }
    }

    fn at(&self) -> At {
        At::new("connections", self.connections.into(), Unit::Count)
    }

    fn figures(&self, first: &Point) -> Vec<Figure> {
        let rates: Vec<f64> = self.rate.rounds.iter().map(Round::rate).collect();
        let rounds: Vec<&Latency> = self.single.rounds.iter().map(|one| &one.latency).collect();
        let mut figures = Figure::round_trips("rpc", &self.single.latency(), &rounds);
        let (rate, calls) = (self.rate.rate(), self.rate.completed());
        figures.push(Figure::new("rpc", "rate", rate, Unit::PerSecond, calls).rounds(rates));
        figures.extend(self.set_up.figures());
        if self.connections != first.connections {
            let ratio = Ratio::of_rates(&self.rate, &first.rate);
            figures.extend(Figure::ratio(&Ratio { to: "first", ..ratio }));
        }
        figures.into_iter().map(|figure| figure.at(self.at())).collect()
    }
}

fn report(
    plan: &ConnsPlan,
    points: &[Point],
    memory: Option<f64>,
    environment: Environment,
) -> Report {
    let first = plan.first();
    let rounds = points.iter().flat_map(|one| one.rate.rounds.iter().chain(&one.single.rounds));
    let environment = environment.lost(&[Lost::of("rpc", rounds)]);
    let own = json!({ "connections": plan.counts().collect::<Vec<u32>>() });
    let settings = first.settings("conns", own);
    let mut figures = Figure::of_each(points, |one| one.figures(&points[0]));
    let rows = Row::swept(&figures, "rpc", |at| vec![at.value.to_string()]);
    let table = Table::of(&["connections"], &rows, &COLUMNS, &figures);
    figures.extend(memory.map(|bytes| {
        let samples = (2 * IDLE).into();
        Figure::new("idle", "memory", bytes, Unit::Bytes, samples).better(Better::Lower)
    }));
    let mut report = Report::new("conns", plan.sentence(), settings, environment, figures);
    for point in points {
        report.samples(format!("rpc@{}", point.at()), &point.single.latency());
    }
    let x = || Axis::log("connections", Unit::Count);
    let rate = Axis::new("rate", Unit::PerSecond);
    report.curve("Rate by connections", x(), rate, &[("rpc", "rpc", "rate")]);
    let times = [("p50", "rpc", "round_trip.p50"), ("p99", "rpc", "round_trip.p99")];
    let round_trip = Axis::log("round trip", Unit::Ns);
    report.curve("Round trip by connections", x(), round_trip, &times);
    report.block(table);
    if let Some(bytes) = memory {
        let text = "of memory on each side, without the pools of its shard";
        report.block(format!("an idle connection takes {bytes:.0} bytes {text}"));
    }
    report
}

const COLUMNS: [Column; 12] = [
    Column::thousands("rate/s", "rate"),
    Column::digits("to first", "ratio.rate", 3).of("rpc/first").or("1.000"),
    Column::digits("lowest", "ratio.rate.lowest", 3).of("rpc/first").or("1.000"),
    Column::digits("highest", "ratio.rate.highest", 3).of("rpc/first").or("1.000"),
    Column::digits("p50, ns", "round_trip.p50", 0),
    Column::digits("p99", "round_trip.p99", 0),
    Column::digits("p99.9", "round_trip.p99.9", 0),
    Column::digits("max", "round_trip.max", 0),
    Column::samples("samples", "round_trip.p50"),
    Column::scaled("set-up, s", "set_up.time", 1e9, 2),
    Column::scaled("MiB", "set_up.memory", MIB, 0),
    Column::digits("descriptors", "set_up.descriptors", 0),
];
const MIB: f64 = 1_048_576.0;
const COUNTS: [u32; 7] = [1, 4, 16, 64, 256, 1024, 4096];
/// Queue pairs of a device are not so many, and take milliseconds each.
const COUNTS_VERBS: [u32; 4] = [1, 4, 16, 64];
/// For each number, once with many under way and once one by one.
const SECONDS: Duration = Duration::from_secs(1);
/// At least.
const WARM_UP: u64 = 8192;

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench conns                             from 1 to 4096 connections
  rpcrdma-bench conns --counts 1,1024             the goal: 0.85 of the rate of one
  rpcrdma-bench conns --counts 1,10000 -w 1024    one shard of an appliance
  rpcrdma-bench conns --counts 1,64 --op read -p send -w 64
                                                  reads of pages, 64 in flight
  rpcrdma-bench conns --counts 1,1024 --fail-if 'rpc/first@connections=1024.ratio.rate<0.85'

Each number has its own engine, and all of them exist until the end. Calls use the connections in
turn. The last columns have what the engines of a number and their connections took: time, resident
memory and descriptors, of both sides together. Shared memory takes a descriptor and 8 MiB of address
space for each connection and side (`shm.staging`): see `ulimit -n`. Over the fabric, the memory of an
idle connection is measured first: engines with 256 and with 512 connections and the same pools.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{good_plan, is_refused, round};

    fn plan(options: &str) -> Option<ConnsPlan> {
        good_plan(options, ConnsPlan::new)
    }

    #[test]
    fn the_usual_counts_go_up_to_what_the_provider_has() {
        let Some(usual) = plan("") else { return };
        assert_eq!(usual.counts().collect::<Vec<_>>(), COUNTS);
        let verbs = plan("--provider verbs").expect("the machine is the same");
        assert_eq!(verbs.counts().collect::<Vec<_>>(), COUNTS_VERBS);
    }

    #[test]
    fn every_count_has_an_engine_for_as_many() {
        let Some(two) = plan("--counts 3,700 -w 5") else { return };
        for plan in &two.plans {
            assert!(plan.config.connections().max.value() >= plan.load.connections);
            assert_eq!(plan.config.connections().send_timeout, None);
        }
        assert_eq!(two.first().load.window, 5);
        assert!(two.sentence().contains("3, 700 connections, 5 calls"), "{}", two.sentence());
    }

    #[test]
    fn the_option_of_other_modes_is_refused() {
        assert!(is_refused("-k 5", ConnsPlan::new));
    }

    fn point(connections: u32, rates: &[u64]) -> Point {
        let mut point = Point::new(connections, SetUp::default());
        point.rate.rounds = rates.iter().map(|rate| round(*rate, &[])).collect();
        point
    }

    #[test]
    fn the_ratio_is_to_the_first_number() {
        let (one, many) = (point(1, &[100, 200, 300]), point(1024, &[90, 170, 270]));
        let figures = many.figures(&one);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name);
        let ratio = of("ratio.rate").expect("it is there");
        assert_eq!(ratio.id(), "rpc/first@connections=1024.ratio.rate");
        assert_eq!(ratio.value, 0.85);
        assert_eq!(ratio.rounds, [0.9, 0.85, 0.9]);
        assert_eq!(of("ratio.rate.paired").expect("it is there").value, 0.9);
        assert!(!one.figures(&one).iter().any(|figure| figure.of == "rpc/first"));
    }
}
