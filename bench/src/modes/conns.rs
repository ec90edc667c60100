//! `conns`: the cost of many connections on one shared receive queue.
//!
//! ```text
//!   1, 4, 16, ... connections ──▶ every round: the rate with many under way, then one by one
//! ```
//! Before that: the memory of an idle connection. With each number: the time to connect, and what
//! the processes then hold.

use std::time::{Duration, Instant};

use rpcrdma::ProviderKind;
use rpcrdma_config::Config;
use serde_json::json;

use crate::contenders::rpc::{IDLE, Rpc, idle_memory};
use crate::contenders::tally::Held;
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::modes::contest::{self, Plan};
use crate::modes::experiment::Experiment;
use crate::output::{
    At, Axis, Better, Column, Figure, Quantity, Ratio, Report, Row, Session, Table, Unit,
};
use crate::settings;

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
            ProviderKind::Verbs => &COUNTS_VERBS,
            _ => &COUNTS,
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
        ProviderKind::Fabric => Some(idle_memory(plan.first().cores)?),
        _ => None,
    };
    on_device!(device, config, of_both_ends, |device| measure_on(device, plan, memory, session))
}

fn measure_on<D: Device>(
    device: &D,
    plan: &ConnsPlan,
    memory: Option<f64>,
    session: &Session,
) -> Result<Report, BenchError> {
    let (mut contenders, mut set_up, mut notes) = (Vec::new(), Vec::new(), device.notes());
    for Plan { cores, config, load, .. } in &plan.plans {
        let (began, before) = (Instant::now(), Held::here(0));
        let mut rpc = Rpc::on(device, "rpc", *cores, config, load, false)?;
        set_up.push(taken(began.elapsed(), before, rpc.held()));
        notes.extend(rpc.notes().into_iter().next());
        contenders.push(rpc);
    }
    let (first, turns) = (plan.first(), contenders.len());
    let own = json!({ "connections": plan.counts().collect::<Vec<u32>>() });
    let experiment = first.experiment("conns", plan.sentence(), own, turns).noting(notes);
    // Each point has two rounds.
    let experiment = Experiment { expected: first.expected(2 * turns as u32), ..experiment };
    let (records, mut report) = experiment.run(session, |round, index, records| {
        let (rpc, Plan { quota, load, .. }) = (&mut contenders[index], &plan.plans[index]);
        let (rate, single) = (rpc.closed(*quota)?, rpc.one_by_one(*quota)?);
        let record = records.at("rpc", At::new("connections", load.connections.into(), Unit::Count));
        record.round_trips(&single.latency).ran(single.elapsed_ns, single.preempted).round(&rate);
        for (quantity, value) in set_up[index].iter().filter(|_| round == 0) {
            record.value(*quantity, *value, 1);
        }
        Ok(())
    })?;
    report.figures.extend(Figure::of_each(&Ratio::to_first(&records, "rate"), Ratio::figures));
    let rows = Row::swept(&report.figures, "rpc", |at| vec![at.value.to_string()]);
    report.block(Table::of(&["connections"], &rows, &COLUMNS, &report.figures));
    if let Some(bytes) = memory {
        let memory = Figure::new("idle", "memory", bytes, Unit::Bytes, (2 * IDLE).into());
        report.figures.push(memory.better(Better::Lower));
        let text = "of memory on each side, without the pools of its shard";
        report.block(format!("an idle connection takes {bytes:.0} bytes {text}"));
    }
    let x = || Axis::log("connections", Unit::Count);
    let rate = Axis::new("rate", Unit::PerSecond);
    report.curve("Rate by connections", x(), rate, &[("rpc", "rpc", "rate")]);
    let times = [("p50", "rpc", "round_trip.p50"), ("p99", "rpc", "round_trip.p99")];
    report.curve("Round trip by connections", x(), Axis::log("round trip", Unit::Ns), &times);
    Ok(report)
}

/// What it took to make an engine on each side, and the connections between them.
fn taken(time: Duration, before: Held, after: Held) -> [(Quantity, f64); 3] {
    let grown = |before: u64, after: u64| after as f64 - before as f64;
    [
        (Quantity::new("set_up.time", Unit::Ns), time.as_nanos() as f64),
        (
            Quantity::new("set_up.memory", Unit::Bytes).lower(),
            grown(before.memory_bytes, after.memory_bytes),
        ),
        (
            Quantity::count("set_up.descriptors").lower(),
            grown(before.descriptors, after.descriptors),
        ),
    ]
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
    use crate::testing::{good_plan, is_refused};

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
}
