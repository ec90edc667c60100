//! `cores`: the rate of one shard, of two, and so on, each with a client and cores of its own.

mod report;

pub use report::{CoresReport, PointReport};

use crate::args::{LengthArgs, OutputArgs, Over};
use crate::contenders::rpc::{Rpc, together};
use crate::device::cores::CorePair;
use crate::device::jitter;
use crate::device::site::{Fabrics, Site};
use crate::device::verbs::Device;
use crate::error::BenchError;
use crate::modes::contest::{ContestArgs, Kind, PROBE_TIME, Plan, PlanArgs};
use crate::output::outcome::Outcome;
use crate::output::session::Session;
use crate::stop;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Numbers of shards, as in 1,2,4; the first is what the others are compared with
    /// [default: 1, 2, 4 and so on, as many as there are pairs of cores]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub shards: Vec<u32>,
    /// What is measured, and on what; --cores is the first pair.
    #[command(flatten)]
    pub contest: ContestArgs,
    /// How long.
    #[command(flatten)]
    pub length: LengthArgs,
    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A run over numbers of shards, completely described.
#[derive(Debug, Clone)]
pub struct CoresPlan {
    base: Plan,
    /// The cores of each number of shards.
    points: Vec<Vec<CorePair>>,
    /// What the machine is too small for.
    limit: Option<String>,
}

impl CoresPlan {
    /// Fills in the defaults.
    ///
    /// # Errors
    /// When options contradict each other, or the machine does not have the cores.
    pub fn new(args: &Args) -> Result<CoresPlan, BenchError> {
        let Args { contest, length, .. } = args;
        if contest.window.connections > 1 {
            let text = "cores has one connection for each shard: --connections means nothing here";
            return Err(BenchError::Usage(text.into()));
        }
        let of = PlanArgs { contest, length, sends_per_post: &[], stat: None };
        let base = Plan::new(Kind::Rate, &of)?;
        let most = CorePair::most();
        let counts = match &args.shards[..] {
            [] => doublings(most),
            given => given.iter().map(|count| *count as usize).collect(),
        };
        let pairs = |count: &usize| CorePair::several(contest.cores.cores, *count);
        let points = counts.iter().map(pairs).collect::<Result<Vec<_>, _>>()?;
        Ok(CoresPlan { base, points, limit: limit(most) })
    }

    fn counts(&self) -> impl Iterator<Item = usize> {
        self.points.iter().map(Vec::len)
    }

    /// What is measured, as a sentence for people.
    pub fn sentence(&self) -> String {
        let Plan { load, rounds, .. } = &self.base;
        let counts = self.counts().map(|count| count.to_string()).collect::<Vec<_>>();
        format!(
            "cores: {}, {} shard(s) with a client each, {} calls under way for each, {rounds} rounds",
            load.what(),
            counts.join(", "),
            load.window
        )
    }
}

/// 1, 2, 4, ... and the most.
fn doublings(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&c| c < most).collect();
    counts.push(most);
    counts
}

/// What cannot be measured with so few pairs of cores.
fn limit(most: usize) -> Option<String> {
    (most == 1).then(|| {
        "cores: one shard and its client take all cores that this program may use. What a second \
         shard adds is not measured here, and nothing below says anything about it"
            .into()
    })
}

/// Measures.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn measure(args: &Args, session: &Session) -> Result<impl Outcome + use<>, BenchError> {
    let plan = CoresPlan::new(args)?;
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
    plan: &CoresPlan,
    session: &Session,
) -> Result<CoresReport, BenchError> {
    let Plan { rounds, quota, config, load, .. } = &plan.base;
    let (mut contenders, mut points, mut notes) = (Vec::new(), Vec::new(), site.notes());
    for pairs in &plan.points {
        contenders.push(Rpc::several("rpc", site.open()?, site.at(), pairs, config, load)?);
        points.push(PointReport::new(pairs));
    }
    let first = contenders.first().and_then(|shards| shards.first());
    notes.extend(first.into_iter().flat_map(Rpc::notes));
    notes.extend(plan.limit.clone());
    let steps = rounds * contenders.len() as u32;
    let progress = session.progress(steps, plan.base.expected(contenders.len() as u32));
    let probe = || jitter::probe(plan.base.cores, PROBE_TIME);
    let before = probe()?;
    let mut done = 0;
    for round in 0..*rounds {
        for turn in 0..contenders.len() {
            if stop::is_wished() {
                break;
            }
            let index = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
            points[index].take(together(&mut contenders[index], *quota)?);
            done += 1;
            progress.step(done);
        }
    }
    drop(progress);
    points.retain(PointReport::has_samples);
    let after = probe()?;
    Ok(CoresReport::new(plan, points, notes, [before, after]))
}

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench cores                             one shard, two, four, as far as the cores go
  rpcrdma-bench cores --shards 1,8                what eight shards make of eight pairs of cores
  rpcrdma-bench cores --op read -p send -w 64     pages read, 64 under way for each shard

One engine has all shards of a number. Each has a thread on a core of its own, and a client on
another. With two cores there is one pair, and nothing is learned about more; the result says so.
Times of many shards depend on which cores share a cache: --cores names the first pair.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan_of;

    fn plan(options: &str) -> Option<Result<CoresPlan, BenchError>> {
        plan_of(options, CoresPlan::new)
    }

    #[test]
    fn numbers_double_up_to_the_most() {
        assert_eq!(doublings(1), [1]);
        assert_eq!(doublings(2), [1, 2]);
        assert_eq!(doublings(6), [1, 2, 4, 6]);
        assert_eq!(doublings(8), [1, 2, 4, 8]);
    }

    #[test]
    fn what_two_cores_cannot_show_is_said() {
        assert!(limit(1).is_some_and(|text| text.contains("not measured")));
        assert_eq!(limit(2), None);
    }

    #[test]
    fn more_shards_than_cores_are_refused() {
        let too_many = CorePair::most() + 1;
        let Some(refused) = plan(&format!("--shards {too_many}")) else { return };
        assert!(matches!(refused, Err(BenchError::Usage(_))));
        let Some(one) = plan("--shards 1") else { return };
        assert_eq!(one.expect("a pair is there").counts().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn many_connections_are_refused() {
        let Some(refused) = plan("-k 2") else { return };
        assert!(matches!(refused, Err(BenchError::Usage(_))));
    }
}
