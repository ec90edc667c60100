//! `idle`: what a call takes after a pause, and what the pause costs, by idle policy.
//!
//! ```text
//!   every round:  spin 10 us, 100 us, ...   backoff 10 us, ...   block 10 us, ...   and back
//!                      └ pause ─ call ─▶ latency    └ both threads ─▶ processor time
//! ```

mod report;

use std::time::Duration;

pub use report::{IdleReport, PointReport};

use crate::args::{
    CallArgs, CoreArgs, DeviceArgs, EngineArgs, Idle, LengthArgs, OutputArgs, Over, SeedArgs, parse,
};
use crate::contenders::rpc::{Pauses, Rpc};
use crate::device::cores::CorePair;
use crate::device::jitter;
use crate::device::site::{Fabrics, Site};
use crate::device::verbs::Device;
use crate::error::BenchError;
use crate::modes::contest::{Load, PROBE_TIME};
use crate::output::outcome::Outcome;
use crate::output::session::Session;
use crate::settings::Need;
use crate::stats::dice::Dice;
use crate::stats::meter::End;
use crate::stop;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Pauses before a call, as in 10us,5ms [default: 10us,100us,1ms,10ms,100ms]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = pause)]
    pub pause: Vec<Duration>,
    /// What one call does.
    #[command(flatten)]
    pub call: CallArgs,
    /// Where the threads run.
    #[command(flatten)]
    pub cores: CoreArgs,
    /// What carries the messages.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// How the engine is set up; without --idle every policy is measured.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// How long.
    #[command(flatten)]
    pub length: LengthArgs,
    /// Where chance begins.
    #[command(flatten)]
    pub seed: SeedArgs,
    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A run over policies and pauses, completely described.
#[derive(Debug, Clone)]
pub struct IdlePlan {
    policies: Vec<Idle>,
    pauses: Vec<Duration>,
    load: Load,
    engine: EngineArgs,
    device: DeviceArgs,
    call: CallArgs,
    cores: CorePair,
    rounds: u32,
    end: End,
    warm_up: u64,
    seed: u64,
}

impl IdlePlan {
    /// Fills in the defaults.
    ///
    /// # Errors
    /// When options contradict each other, or the machine does not have the cores.
    pub fn new(args: &Args) -> Result<IdlePlan, BenchError> {
        args.device.check()?;
        let quota = args.length.quota(SECONDS, WARM_UP);
        Ok(IdlePlan {
            policies: args.engine.idle.map_or_else(|| POLICIES.to_vec(), |one| vec![one]),
            pauses: match &args.pause[..] {
                [] => PAUSES_US.map(Duration::from_micros).to_vec(),
                given => given.to_vec(),
            },
            load: Load::one_by_one(&args.call)?,
            engine: args.engine.clone(),
            device: args.device.clone(),
            call: args.call.clone(),
            cores: CorePair::choose(args.cores.cores)?,
            rounds: args.length.rounds,
            end: quota.end,
            warm_up: quota.warm_up,
            seed: args.seed.seed,
        })
    }

    /// What is measured, as a sentence for people.
    pub fn sentence(&self) -> String {
        let IdlePlan { load, cores, rounds, seed, .. } = self;
        let policies = self.policies.iter().map(|policy| policy.name()).collect::<Vec<_>>();
        let pauses = self.pauses.iter().map(|pause| format!("{pause:?}")).collect::<Vec<_>>();
        format!(
            "idle: {}, one call after a pause of {} and up to a quarter more, policy {}, cores \
             {cores}, {rounds} rounds, seed {seed}",
            load.what(),
            pauses.join(", "),
            policies.join(", "),
        )
    }

    /// How many calls of a round have such pauses before them: as many as its time allows, and one
    /// at least.
    fn calls(&self, pause: Duration) -> u64 {
        match self.end {
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
            .map(|pause| pause.mul_f64(1.125 * (self.calls(*pause) + self.warm_up) as f64))
            .sum();
        round * self.rounds * self.policies.len() as u32
    }

    /// A client and a server that idle in such a way.
    fn rpc<S: Site>(
        &self,
        site: impl FnOnce(&rpcrdma_config::Config) -> Result<S, BenchError>,
        policy: Idle,
    ) -> Result<(Rpc<S::Provider>, Vec<String>), BenchError> {
        let data_len = self.load.shape.data_len();
        let need = Need { data_len, window: 1, connections: 1 };
        let engine = EngineArgs { idle: Some(policy), ..self.engine.clone() };
        let config = engine.config(need, self.call.continuation, &self.device)?;
        let site = site(&config)?;
        let (provider, at) = (site.open()?, site.at());
        let rpc = Rpc::new(policy.name(), provider, at, self.cores, &config, &self.load, true)?;
        let spin = config.engine().idle.spin;
        let mut notes = site.notes();
        notes.push(format!("{}: polls for {spin:?} before it does otherwise", policy.name()));
        Ok((rpc, notes))
    }
}

/// Measures.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn measure(args: &Args, session: &Session) -> Result<impl Outcome + use<>, BenchError> {
    let plan = IdlePlan::new(args)?;
    session.announce(&plan.sentence())?;
    match args.device.provider {
        Over::Fabric => measure_on(&plan, session, |config| Ok(Fabrics::new(config))),
        Over::Verbs => measure_on(&plan, session, |config| Device::open(&args.device, config)),
    }
}

fn measure_on<S: Site>(
    plan: &IdlePlan,
    session: &Session,
    site: impl Fn(&rpcrdma_config::Config) -> Result<S, BenchError>,
) -> Result<IdleReport, BenchError> {
    let (mut contenders, mut notes) = (Vec::new(), Vec::new());
    for policy in &plan.policies {
        let (rpc, of_one) = plan.rpc(&site, *policy)?;
        notes.extend(of_one.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
        contenders.push(rpc);
    }
    let mut points: Vec<PointReport> = Vec::new();
    for policy in &plan.policies {
        points.extend(plan.pauses.iter().map(|pause| PointReport::new(*policy, *pause)));
    }
    let progress = session.progress(plan.rounds * points.len() as u32, plan.expected());
    let before = jitter::probe(plan.cores, PROBE_TIME)?;
    let mut dice = Dice::new(plan.seed);
    let mut done = 0;
    for round in 0..plan.rounds {
        let seed = dice.roll();
        for turn in 0..points.len() {
            if stop::is_wished() {
                break;
            }
            let index = if round % 2 == 0 { turn } else { points.len() - 1 - turn };
            let pause = plan.pauses[index % plan.pauses.len()];
            let (calls, warm_up) = (plan.calls(pause), plan.warm_up);
            let pauses = Pauses { length: pause, calls, warm_up, seed };
            points[index].take(contenders[index / plan.pauses.len()].paused(&pauses)?);
            done += 1;
            progress.step(done);
        }
    }
    drop(progress);
    points.retain(PointReport::has_samples);
    let after = jitter::probe(plan.cores, PROBE_TIME)?;
    Ok(IdleReport::new(plan, points, notes, [before, after]))
}

/// A pause: 1 us to 10 s.
fn pause(text: &str) -> Result<Duration, String> {
    parse::duration(text, Duration::from_micros(1), Duration::from_secs(10))
}

const POLICIES: [Idle; 3] = [Idle::Spin, Idle::Backoff, Idle::Block];
const PAUSES_US: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
/// For each policy and pause.
const SECONDS: Duration = Duration::from_secs(1);
/// The first call of a round comes back to a cache that others have used.
const WARM_UP: u64 = 1;
/// In one round.
const CALLS_MAX: u64 = 10_000;

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench idle                              every policy, pauses from 10 us to 100 ms
  rpcrdma-bench idle --idle block --pause 5ms     how long it takes to wake a thread
  rpcrdma-bench idle --profile laptop --pause 1ms,1s
                                                  with the times of a profile

Latency counts from the submit of a call. Processor time is that of the client's thread and of the
server's over pauses and calls together: 1 is a core for itself.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan_of;

    fn plan(options: &str) -> Option<Result<IdlePlan, BenchError>> {
        plan_of(options, IdlePlan::new)
    }

    #[test]
    fn every_policy_meets_every_pause_unless_told_otherwise() {
        let Some(usual) = plan("") else { return };
        let usual = usual.expect("the defaults fit together");
        assert_eq!((usual.policies.len(), usual.pauses.len()), (3, 5));
        let one = plan("--idle block --pause 5ms").expect("the machine is the same");
        let one = one.expect("they fit together");
        assert_eq!((one.policies, one.pauses), (vec![Idle::Block], vec![Duration::from_millis(5)]));
    }

    #[test]
    fn a_round_has_as_many_calls_as_its_time_allows_and_one_at_least() {
        let Some(usual) = plan("-t 1 -r 10") else { return };
        let usual = usual.expect("they fit together");
        let calls = |us| usual.calls(Duration::from_micros(us));
        assert_eq!([calls(1), calls(1_000), calls(10_000)], [CALLS_MAX, 88, 8]);
        assert_eq!([calls(100_000), calls(1_000_000)], [1, 1]);
        let counted = plan("-n 30 -r 10").expect("the machine is the same").expect("they fit");
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
