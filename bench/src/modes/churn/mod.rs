//! `churn`: what a load suffers when connections come and go beside it.
//!
//! ```text
//!   every round:  still: rate, then latency at a load     churn: the same, connections come and go
//! ```

mod report;

use std::time::Duration;

use rpcrdma_config::Config;

pub use report::{ChurnReport, SideReport};

use crate::args::{LengthArgs, OutputArgs, Over, SeedArgs};
use crate::contenders::arrivals::Law;
use crate::contenders::open::Offer;
use crate::contenders::rpc::{Churn, PENDING_MAX, Rpc};
use crate::device::jitter;
use crate::device::site::{Fabrics, Site};
use crate::device::verbs::Device;
use crate::error::BenchError;
use crate::modes::contest::{ContestArgs, Kind, Load, PROBE_TIME, Plan, PlanArgs};
use crate::modes::load::{rate, share};
use crate::output::outcome::Outcome;
use crate::output::session::Session;
use crate::stats::dice::Dice;
use crate::stats::meter::{End, Quota};
use crate::stop;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Connections that come, and go, in a second
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "200")]
    pub churn: f64,
    /// How many of these stand at one time
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub standing: u32,
    /// The load that latency is measured at, as a share of what the system does without churn
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "50%")]
    pub load: f64,
    /// What is measured, and on what; the connections that carry the load stay.
    #[command(flatten)]
    pub contest: ContestArgs,
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

/// A run with and without churn, completely described.
#[derive(Debug, Clone)]
pub struct ChurnPlan {
    base: Plan,
    rate: f64,
    standing: u32,
    load: f64,
    seed: u64,
}

impl ChurnPlan {
    /// Fills in the defaults.
    ///
    /// # Errors
    /// When options contradict each other, or the machine does not have the cores.
    pub fn new(args: &Args) -> Result<ChurnPlan, BenchError> {
        let Args { contest, length, .. } = args;
        if length.iterations.is_some() {
            let text = "churn is measured for a time: --seconds in place of --iterations";
            return Err(BenchError::Usage(text.into()));
        }
        let of = PlanArgs { contest, length, sends_per_post: &[], stat: None };
        let base = Plan::new(Kind::Rate, &of)?;
        let config = with_room(&base.config, &base.load, args.standing)?;
        let quota = length.quota(SECONDS, WARM_UP);
        let (rate, standing, load) = (args.churn, args.standing, args.load);
        Ok(ChurnPlan {
            base: Plan { config, quota, ..base },
            rate,
            standing,
            load,
            seed: args.seed.seed,
        })
    }

    /// What is measured, as a sentence for people.
    pub fn sentence(&self) -> String {
        let Plan { load, cores, rounds, .. } = &self.base;
        format!(
            "churn: {}, {} calls under way over {} connection(s), then poisson arrivals at {} % of \
             the rate, without and with {} connections a second that come and go, cores {cores}, \
             {rounds} rounds of {:.3} s and {:.3} s, seed {}",
            load.what(),
            load.window,
            load.connections,
            self.load * 100.0,
            self.rate,
            self.time().as_secs_f64(),
            self.time().as_secs_f64(),
            self.seed
        )
    }

    /// The length of each half of a round.
    fn time(&self) -> Duration {
        match self.base.quota.end {
            End::Time(time) => time / 2,
            End::Count(_) => Duration::ZERO,
        }
    }

    fn offer(&self, capacity: f64, seed: u64) -> Offer {
        let rate = (self.load * capacity).max(1.0);
        let warm_up = Duration::from_secs_f64(self.base.quota.warm_up as f64 / rate);
        Offer {
            law: Law::Poisson,
            rate,
            seed,
            warm_up: warm_up.min(self.time() / 10),
            time: self.time(),
            count_max: u64::MAX,
        }
    }
}

/// A configuration with room for connections that come before others have gone.
fn with_room(config: &Config, load: &Load, standing: u32) -> Result<Config, BenchError> {
    let mut raw = config.raw().clone();
    let most = load.connections + standing + 2 * PENDING_MAX as u32;
    raw.connections.max = raw.connections.max.max(most.into());
    raw.receive.buffers = "auto".into();
    Config::try_from(raw).map_err(|error| BenchError::Usage(format!("configuration: {error}")))
}

/// Measures.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn measure(args: &Args, session: &Session) -> Result<impl Outcome + use<>, BenchError> {
    let plan = ChurnPlan::new(args)?;
    session.announce(&plan.sentence())?;
    match args.contest.device.provider {
        Over::Fabric => measure_on(&Fabrics::new(&plan.base.config), &plan, session),
        Over::Verbs => {
            measure_on(&Device::open(&args.contest.device, &plan.base.config)?, &plan, session)
        }
    }
}

fn measure_on<S: Site>(
    site: &S,
    plan: &ChurnPlan,
    session: &Session,
) -> Result<ChurnReport, BenchError> {
    let Plan { cores, rounds, quota, config, load, .. } = &plan.base;
    let mut contenders = Vec::new();
    for name in SIDES {
        contenders.push(Rpc::new(name, site.open()?, site.at(), *cores, config, load, false)?);
    }
    let notes = site.notes().into_iter().chain(contenders[0].notes()).collect();
    let progress = session.progress(2 * rounds, plan.time() * 4 * *rounds);
    let before = jitter::probe(*cores, PROBE_TIME)?;
    let first = contenders[0].closed(Quota { end: End::Time(plan.time()), ..*quota })?;
    let capacity = first.rate();
    let mut sides = SIDES.map(SideReport::new);
    let mut dice = Dice::new(plan.seed);
    let mut done = 0;
    for round in 0..*rounds {
        let (offer, seed) = (plan.offer(capacity, dice.roll()), dice.roll());
        for turn in 0..2 {
            if stop::is_wished() {
                break;
            }
            let side = if round % 2 == 0 { turn } else { 1 - turn };
            let churn = Churn { rate: plan.rate, standing: plan.standing as usize, seed };
            let churn = (side == 1).then_some(churn);
            sides[side].take(contenders[side].churned(plan.time(), &offer, churn)?);
            done += 1;
            progress.step(done);
        }
    }
    drop(progress);
    let after = jitter::probe(*cores, PROBE_TIME)?;
    Ok(ChurnReport::new(plan, sides, notes, [before, after]))
}

/// Without churn, and with it.
const SIDES: [&str; 2] = ["still", "churn"];
/// For each side, half of it for the rate and half for latency.
const SECONDS: Duration = Duration::from_secs(4);
const WARM_UP: u64 = 2000;

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench churn                             200 connections a second come and go
  rpcrdma-bench churn --churn 20 --standing 100   few, and they stay for five seconds
  rpcrdma-bench churn -k 64 --load 70% -t 10      beside 64 connections that carry more
  rpcrdma-bench churn --fail-if 'churn/still.ratio.rate<0.95' --fail-if 'connections.failed>0'

Connections are asked for by the client that carries the load and taken by its server: both threads
do it between their calls. The control thread of the engine works beside them; on a machine with
two cores it takes time of theirs, and the table shows it.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan_of;

    fn plan(options: &str) -> Option<Result<ChurnPlan, BenchError>> {
        plan_of(options, ChurnPlan::new)
    }

    #[test]
    fn there_is_room_for_those_that_come_before_others_have_gone() {
        let Some(plan) = plan("-k 5 --standing 100") else { return };
        let plan = plan.expect("the options fit together");
        assert!(plan.base.config.connections().max.value() >= 5 + 100 + 2 * PENDING_MAX as u32);
        assert_eq!(plan.base.load.connections, 5);
        assert!(plan.sentence().contains("over 5 connection(s)"), "{}", plan.sentence());
    }

    #[test]
    fn each_half_of_a_round_has_half_of_its_time() {
        let Some(plan) = plan("-t 2 -r 10 --load 25%") else { return };
        let plan = plan.expect("the options fit together");
        assert_eq!(plan.time(), Duration::from_millis(100));
        let offer = plan.offer(1e6, 3);
        assert_eq!((offer.rate, offer.seed), (250e3, 3));
        assert_eq!(offer.warm_up, Duration::from_millis(8));
    }

    #[test]
    fn a_number_of_calls_is_refused() {
        let Some(refused) = plan("-n 5") else { return };
        assert!(matches!(refused, Err(BenchError::Usage(_))));
    }
}
