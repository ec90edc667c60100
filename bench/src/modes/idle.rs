//! `idle`: latency after a pause, and processor time of the pause, by idle policy.
//!
//! ```text
//!   every round:  spin 10 us, 100 us, ...   backoff 10 us, ...   block 10 us, ...   and back
//!                      └ pause ─ call ─▶ latency    └ both threads ─▶ processor time
//! ```

use std::time::Duration;

use rpcrdma::with_provider;
use rpcrdma_config::Config;
use serde_json::{Value, json};

use crate::args::{CallArgs, CoreArgs, DeviceArgs, EngineArgs, LengthArgs, SeedArgs, parse};
use crate::call::Load;
use crate::contenders::rpc::{Pauses, Rpc};
use crate::device::{Device, Devices};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::modes::experiment::Experiment;
use crate::output::{
    At, Axis, Column, OutputArgs, Quantity, Report, Row, Session, Table, Unit,
};
use crate::settings::Need;
use crate::stats::{Dice, End, Quota};
use crate::values::Idle;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Pauses before a call, as in 10us,5ms [default: 10us,100us,1ms,10ms,100ms]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = pause)]
    pub pause: Vec<Duration>,
    #[command(flatten)]
    pub call: CallArgs,
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// How the engine is set up; without --idle every policy is measured.
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub seed: SeedArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Clone)]
pub struct IdlePlan {
    args: Args,
    policies: Vec<Idle>,
    pauses: Vec<Duration>,
    load: Load,
    cores: CorePair,
    quota: Quota,
}

impl IdlePlan {
    pub fn new(args: &Args) -> Result<IdlePlan, BenchError> {
        args.device.check()?;
        Ok(IdlePlan {
            policies: args.engine.idle.map_or_else(|| POLICIES.to_vec(), |one| vec![one]),
            pauses: match &args.pause[..] {
                [] => PAUSES_US.map(Duration::from_micros).to_vec(),
                given => given.to_vec(),
            },
            load: args.call.one_by_one()?,
            cores: CorePair::choose(args.cores.cores)?,
            quota: args.length.quota(SECONDS, WARM_UP),
            args: args.clone(),
        })
    }

    pub fn sentence(&self) -> String {
        let IdlePlan { load, cores, args, .. } = self;
        let (rounds, seed) = (args.length.rounds, args.seed.seed);
        let policies = self.policies.iter().map(|policy| policy.into_str()).collect::<Vec<_>>();
        let pauses = self.pauses.iter().map(|pause| format!("{pause:?}")).collect::<Vec<_>>();
        format!(
            "idle: {}, one call after a pause of {} and up to a quarter more, policy {}, cores \
             {cores}, {rounds} rounds, seed {seed}",
            load.what(),
            pauses.join(", "),
            policies.join(", "),
        )
    }

    fn settings(&self) -> Value {
        json!({
            "op": self.load.shape.op.into_str(),
            "placement": self.load.placement.into_str(),
            "request_data_bytes": self.load.shape.request_data,
            "reply_data_bytes": self.load.shape.reply_data,
            "cores": self.cores,
            "rounds": self.args.length.rounds,
            "warm_up": self.quota.warm_up,
            "seed": self.args.seed.seed,
        })
    }

    /// How many calls of a round have such pauses before them: as many as its time allows, and one
    /// at least.
    fn calls(&self, pause: Duration) -> u64 {
        match self.quota.end {
            End::Count(count) => count,
            End::Time(time) => {
                let each = pause.as_secs_f64() * 1.125;
                ((time.as_secs_f64() / each) as u64).clamp(1, CALLS_MAX)
            }
        }
    }

    fn expected(&self) -> Duration {
        let round: Duration = self
            .pauses
            .iter()
            .map(|pause| pause.mul_f64(1.125 * (self.calls(*pause) + self.quota.warm_up) as f64))
            .sum();
        round * self.args.length.rounds * self.policies.len() as u32
    }

    /// A client and a server that idle in such a way.
    fn rpc<D: Device>(
        &self,
        open: impl FnOnce(&Config) -> Result<D, BenchError>,
        policy: Idle,
    ) -> Result<(Rpc<D::Provider>, Vec<String>), BenchError> {
        let data_len = self.load.shape.data_len();
        let need = Need { data_len, window: 1, connections: 1, by_rdma: false };
        let engine = EngineArgs { idle: Some(policy), ..self.args.engine.clone() };
        let config = engine.config(need, self.args.call.continuation, &self.args.device)?;
        let device = open(&config)?;
        let rpc = Rpc::on(&device, policy.into_str(), self.cores, &config, &self.load, true)?;
        let spin = config.engine().idle.spin;
        let mut notes = device.notes();
        notes.push(format!("{}: polls for {spin:?} before it pauses or sleeps", policy.into_str()));
        Ok((rpc, notes))
    }
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let plan = IdlePlan::new(args)?;
    session.announce(&plan.sentence())?;
    let device = &args.device;
    with_provider!(device.over(), |Opened| {
        let open = |config: &Config| Devices::of_both_ends(Opened::from_config, device, config);
        measure_on(&plan, session, open)
    })
}

fn measure_on<D: Device>(
    plan: &IdlePlan,
    session: &Session,
    open: impl Fn(&Config) -> Result<D, BenchError>,
) -> Result<Report, BenchError> {
    let (mut contenders, mut points, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for policy in &plan.policies {
        let (rpc, of_one) = plan.rpc(&open, *policy)?;
        notes.extend(of_one.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
        contenders.push(rpc);
        points.extend(plan.pauses.iter().map(|pause| (*policy, *pause)));
    }
    let (rounds, mut dice) = (plan.args.length.rounds, Dice::new(plan.args.seed.seed));
    let seeds: Vec<u64> = (0..rounds).map(|_| dice.roll()).collect();
    let experiment = Experiment {
        mode: "idle",
        what: plan.sentence(),
        settings: plan.settings(),
        cores: plan.cores,
        rounds,
        turns: points.len(),
        expected: plan.expected(),
        notes,
    };
    let (_, mut report) = experiment.run(session, |round, index, records| {
        let (policy, length) = points[index];
        let (calls, warm_up) = (plan.calls(length), plan.quota.warm_up);
        let pauses = Pauses { length, calls, warm_up, seed: seeds[round as usize] };
        let round = contenders[index / plan.pauses.len()].paused(&pauses)?;
        let record = records.at(policy.into_str(), at(length)).round_trips(&round.latency);
        record.value(CPU[0], round.cpu[0], 1).value(CPU[1], round.cpu[1], 1);
        // Threads that give their core away lose none: only those that spin count as disturbed.
        record.ran(round.elapsed_ns, if policy == Idle::Spin { round.preempted } else { 0 });
        Ok(())
    })?;
    let row = |(policy, pause): &(Idle, Duration)| Row {
        labels: vec![policy.into_str().to_owned(), format!("{pause:?}")],
        of: policy.into_str().to_owned(),
        at: Some(at(*pause)),
    };
    let rows: Vec<Row> = points.iter().map(row).collect();
    report.block(Table::of(&["policy", "pause"], &rows, &COLUMNS, &report.figures));
    curves(plan, &mut report);
    Ok(report)
}

fn at(pause: Duration) -> At {
    At::new("pause", pause.as_nanos() as f64, Unit::Ns)
}

fn curves(plan: &IdlePlan, report: &mut Report) {
    for (title, y, parts) in [
        (
            "Round trip after a pause",
            Axis::log("round trip", Unit::Ns),
            [("p50", "round_trip.p50"), ("p99", "round_trip.p99")],
        ),
        (
            "Processor time of a thread",
            Axis::new("processor time", Unit::Share),
            [("client", "cpu.client"), ("server", "cpu.server")],
        ),
    ] {
        let named = parts.iter().flat_map(|(part, figure)| {
            let of = plan.policies.iter().map(|policy| policy.into_str());
            of.map(move |of| (format!("{of}, {part}"), of, *figure))
        });
        let named: Vec<(String, &str, &str)> = named.collect();
        let lines: Vec<(&str, &str, &str)> =
            named.iter().map(|(name, of, figure)| (&**name, *of, *figure)).collect();
        report.curve(title, Axis::log("pause", Unit::Ns), y, &lines);
    }
}

/// The share of a processor that each side had.
const CPU: [Quantity; 2] = [
    Quantity::new("cpu.client", Unit::Share).lower(),
    Quantity::new("cpu.server", Unit::Share).lower(),
];
const COLUMNS: [Column; 8] = [
    Column::scaled("p50, us", "round_trip.p50", 1e3, 2),
    Column::scaled("p90", "round_trip.p90", 1e3, 2),
    Column::scaled("p99", "round_trip.p99", 1e3, 2),
    Column::scaled("p99.9", "round_trip.p99.9", 1e3, 2),
    Column::scaled("max", "round_trip.max", 1e3, 1),
    Column::samples("samples", "round_trip.p50"),
    Column::scaled("cpu client, %", "cpu.client", 0.01, 1),
    Column::scaled("server, %", "cpu.server", 0.01, 1),
];

/// A pause: 1 us to 10 s.
fn pause(text: &str) -> Result<Duration, String> {
    parse::duration(text, Duration::from_micros(1), Duration::from_secs(10))
}

const POLICIES: [Idle; 3] = [Idle::Spin, Idle::Backoff, Idle::Block];
const PAUSES_US: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
const SECONDS: Duration = Duration::from_secs(1);
/// The first call of a round comes back to a cache that others have used.
const WARM_UP: u64 = 1;
const CALLS_MAX: u64 = 10_000;

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench idle                              every policy, pauses from 10 us to 100 ms
  rpcrdma-bench idle --idle block --pause 5ms     the time to wake a thread
  rpcrdma-bench idle --profile laptop --pause 1ms,1s
                                                  with the idle times of a profile

Latency counts from the submission of a call. Processor time is that of the client's and the server's
thread over pauses and calls; 1 is a whole core.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::good_plan;

    fn plan(options: &str) -> Option<IdlePlan> {
        good_plan(options, IdlePlan::new)
    }

    #[test]
    fn every_policy_meets_every_pause_unless_requested_otherwise() {
        let Some(usual) = plan("") else { return };
        assert_eq!((usual.policies.len(), usual.pauses.len()), (3, 5));
        let one = plan("--idle block --pause 5ms").expect("the machine is the same");
        assert_eq!((one.policies, one.pauses), (vec![Idle::Block], vec![Duration::from_millis(5)]));
    }

    #[test]
    fn a_round_has_as_many_calls_as_its_time_allows_and_one_at_least() {
        let Some(usual) = plan("-t 1 -r 10") else { return };
        let calls = |us| usual.calls(Duration::from_micros(us));
        assert_eq!([calls(1), calls(1_000), calls(10_000)], [CALLS_MAX, 88, 8]);
        assert_eq!([calls(100_000), calls(1_000_000)], [1, 1]);
        let counted = plan("-n 30 -r 10").expect("the machine is the same");
        assert_eq!(counted.calls(Duration::from_secs(1)), 3);
    }

    #[test]
    fn pauses_have_bounds() {
        assert_eq!(pause("10us"), Ok(Duration::from_micros(10)));
        for wrong in ["", "0us", "11s", "5"] {
            assert!(pause(wrong).is_err(), "{wrong}");
        }
    }
}
