//! `conns`: what many connections on one shared receive queue cost.
//!
//! ```text
//!   1, 4, 16, ... connections ──▶ every round: the rate with many under way, then one by one
//!        └ resident memory before and after they connect
//! ```

mod report;

use std::time::Duration;

pub use report::{ConnsReport, PointReport};

use crate::args::{LengthArgs, OutputArgs, Over};
use crate::contenders::rpc::Rpc;
use crate::device::jitter;
use crate::device::site::{Fabrics, Site};
use crate::device::verbs::Device;
use crate::error::BenchError;
use crate::modes::contest::{ContestArgs, Kind, Load, PROBE_TIME, Plan, PlanArgs};
use crate::output::outcome::Outcome;
use crate::output::session::Session;
use crate::stop;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Numbers of connections, as in 1,32,1024; the first is what the others are compared with
    /// [default: 1,4,16,64,256,1024,4096; verbs: 1,4,16,64]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub counts: Vec<u32>,
    /// What is measured, and on what.
    #[command(flatten)]
    pub contest: ContestArgs,
    /// How long.
    #[command(flatten)]
    pub length: LengthArgs,
    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A run over numbers of connections, completely described.
#[derive(Debug, Clone)]
pub struct ConnsPlan {
    /// One for each number, with an engine made for so many.
    plans: Vec<Plan>,
}

impl ConnsPlan {
    /// Fills in the defaults.
    ///
    /// # Errors
    /// When options contradict each other, or the machine does not have the cores.
    pub fn new(args: &Args) -> Result<ConnsPlan, BenchError> {
        if args.contest.window.connections > 1 {
            let text = "conns has a list of its own: --counts in place of --connections";
            return Err(BenchError::Usage(text.into()));
        }
        let usual: &[u32] = match args.contest.device.provider {
            Over::Fabric => &COUNTS,
            Over::Verbs => &COUNTS_VERBS,
        };
        let counts = if args.counts.is_empty() { usual } else { &args.counts };
        let plan = |count: &u32| {
            let mut contest = args.contest.clone();
            contest.window.connections = *count;
            let (contest, length) = (&contest, &args.length);
            let of = PlanArgs { contest, length, sends_per_post: &[], stat: None };
            let plan = Plan::new(Kind::Rate, &of)?;
            Ok(Plan { quota: length.quota(SECONDS, WARM_UP), ..plan })
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

    /// What is measured, as a sentence for people.
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

/// Measures.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn measure(args: &Args, session: &Session) -> Result<impl Outcome + use<>, BenchError> {
    let plan = ConnsPlan::new(args)?;
    session.announce(&plan.sentence())?;
    match args.contest.device.provider {
        Over::Fabric => measure_on(&Fabrics::new(&plan.first().config), &plan, session),
        Over::Verbs => {
            measure_on(&Device::open(&args.contest.device, &plan.first().config)?, &plan, session)
        }
    }
}

fn measure_on<S: Site>(
    site: &S,
    plan: &ConnsPlan,
    session: &Session,
) -> Result<ConnsReport, BenchError> {
    let first = plan.first();
    let (mut contenders, mut points, mut notes) = (Vec::new(), Vec::new(), site.notes());
    for Plan { cores, config, load, .. } in &plan.plans {
        let Load { connections, .. } = *load;
        let rpc = Rpc::new("rpc", site.open()?, site.at(), *cores, config, load, false)?;
        notes.extend(rpc.notes().into_iter().next());
        points.push(PointReport::new(connections, rpc.grown()));
        contenders.push(rpc);
    }
    let expected = first.expected(2 * contenders.len() as u32);
    let progress = session.progress(first.rounds * contenders.len() as u32, expected);
    let before = jitter::probe(first.cores, PROBE_TIME)?;
    let mut done = 0;
    for round in 0..first.rounds {
        for turn in 0..contenders.len() {
            if stop::is_wished() {
                break;
            }
            let index = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
            let rpc = &mut contenders[index];
            points[index].take(rpc.closed(first.quota)?, rpc.one_by_one(first.quota)?);
            done += 1;
            progress.step(done);
        }
    }
    drop(progress);
    points.retain(PointReport::has_samples);
    let after = jitter::probe(first.cores, PROBE_TIME)?;
    Ok(ConnsReport::new(plan, points, notes, [before, after]))
}

const COUNTS: [u32; 7] = [1, 4, 16, 64, 256, 1024, 4096];
/// Queue pairs of a device are not so many, and take milliseconds each.
const COUNTS_VERBS: [u32; 4] = [1, 4, 16, 64];
/// For each number, once with many under way and once one by one.
const SECONDS: Duration = Duration::from_secs(1);
/// Twice as many as the most connections: each has carried something.
const WARM_UP: u64 = 8192;

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench conns                             from 1 to 4096 connections
  rpcrdma-bench conns --counts 1,1024             the goal: 0.85 of the rate of one
  rpcrdma-bench conns --counts 1,64 --op read -p send -w 64
                                                  pages read, 64 under way
  rpcrdma-bench conns --counts 1,1024 --fail-if 'rpc/first@connections=1024.ratio.rate<0.85'

Each number has an engine of its own, set up for as many connections. Calls go to the connections in
turn. Memory is only what the process has grown by when they connected, for each connection and end.
Pools, and the tables that an engine makes for as many before, are not in it.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan_of;

    fn plan(options: &str) -> Option<Result<ConnsPlan, BenchError>> {
        plan_of(options, ConnsPlan::new)
    }

    #[test]
    fn the_usual_counts_go_up_to_what_the_provider_has() {
        let Some(usual) = plan("") else { return };
        assert_eq!(usual.expect("they fit").counts().collect::<Vec<_>>(), COUNTS);
        let verbs = plan("--provider verbs").expect("the machine is the same");
        assert_eq!(verbs.expect("they fit").counts().collect::<Vec<_>>(), COUNTS_VERBS);
    }

    #[test]
    fn every_count_has_an_engine_for_as_many() {
        let Some(two) = plan("--counts 3,700 -w 5") else { return };
        let two = two.expect("they fit together");
        for plan in &two.plans {
            assert!(plan.config.connections().max.value() >= plan.load.connections);
        }
        assert_eq!(two.first().load.window, 5);
        assert!(two.sentence().contains("3, 700 connections, 5 calls"), "{}", two.sentence());
    }

    #[test]
    fn the_option_of_other_modes_is_refused() {
        let Some(refused) = plan("-k 5") else { return };
        assert!(matches!(refused, Err(BenchError::Usage(_))));
    }
}
