//! `cores`: the rate of one shard, of two, and so on, each with its own client and cores.

use serde_json::json;

use crate::contenders::rpc::{Rpc, together};
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::modes::contest::{self, Plan, SECONDS, WARM_UP};
use crate::output::{
    At, Axis, Better, Column, Figure, Line, Quantity, RATE, Ratio, Records, Report, Row, Session,
    Table, Unit,
};
use crate::stats::Round;

/// The options of the mode.
pub type Args = contest::Args<Own>;

/// Those of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct Own {
    /// Numbers of shards, as in 1,2,4; the first is the reference
    /// [default: 1, 2, 4 and so on, up to the number of core pairs]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub shards: Vec<u32>,
}

#[derive(Debug, Clone)]
pub struct CoresPlan {
    base: Plan,
    points: Vec<Vec<CorePair>>,
    limit: Option<String>,
}

impl CoresPlan {
    pub fn new(args: &Args) -> Result<CoresPlan, BenchError> {
        let Args { contest, length, .. } = args;
        if contest.window.connections > 1 {
            let text = "cores has one connection per shard: --connections does not apply";
            return Err(BenchError::Usage(text.into()));
        }
        let base = Plan::of_rate(contest, length, SECONDS, WARM_UP)?;
        let most = CorePair::most();
        let counts = match &args.more.shards[..] {
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

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let plan = &CoresPlan::new(args)?;
    session.announce(&plan.sentence())?;
    let (device, config) = (&args.contest.device, &plan.base.config);
    on_device!(device, config, of_both_ends, |device| measure_on(device, plan, session))
}

fn measure_on<D: Device>(
    device: &D,
    plan: &CoresPlan,
    session: &Session,
) -> Result<Report, BenchError> {
    let Plan { quota, config, load, .. } = &plan.base;
    let (mut contenders, mut notes) = (Vec::new(), device.notes());
    for pairs in &plan.points {
        contenders.push(Rpc::several("rpc", device.open()?, device.at(), pairs, config, load)?);
    }
    let first = contenders.first().and_then(|shards| shards.first());
    notes.extend(first.into_iter().flat_map(Rpc::notes));
    notes.extend(plan.limit.clone());
    let own = json!({ "shards": plan.counts().collect::<Vec<usize>>() });
    let turns = contenders.len();
    let experiment = plan.base.experiment("cores", plan.sentence(), own, turns).noting(notes);
    let (records, report) = experiment.run(session, |_, index, records| {
        let rounds = together(&mut contenders[index], *quota)?;
        take(records, plan.points[index].len(), &rounds);
        Ok(())
    })?;
    Ok(summed(plan, &records, report))
}

/// Takes in a round of so many shards: their calls per second together.
fn take(records: &mut Records, shards: usize, rounds: &[Round]) {
    let rate = rounds.iter().map(Round::rate).sum::<f64>();
    let calls = rounds.iter().map(|round| round.completed).sum();
    let record = records.at("rpc", At::new("shards", shards as f64, Unit::Count));
    record.value(RATE, rate, calls).value(PER_CORE, rate / shards as f64, calls);
    rounds.iter().for_each(|round| {
        record.ran(round.elapsed_ns, round.preempted);
    });
}

/// Every number to the first, and its efficiency: the share of what as many times the first would
/// be, 1 if nothing is lost.
fn ratios(records: &Records) -> Vec<Figure> {
    let shards = |at: Option<&At>| at.map_or(1.0, |at| at.value);
    let first = records.iter().next().map_or(1.0, |first| shards(first.at.as_ref()));
    let mut figures = Figure::of_each(&Ratio::to_first(records, "rate"), Ratio::figures);
    let rates = figures.iter().filter(|figure| figure.name == "ratio.rate");
    let efficiency = |rate: &Figure| {
        let share = rate.value * first / shards(rate.at.as_ref());
        let share = Figure::new(&rate.of, "efficiency", share, Unit::Share, rate.samples);
        Figure { at: rate.at.clone(), ..share }.better(Better::Higher)
    };
    let efficiencies: Vec<Figure> = rates.map(efficiency).collect();
    figures.extend(efficiencies);
    figures
}

fn summed(plan: &CoresPlan, records: &Records, mut report: Report) -> Report {
    report.figures.extend(ratios(records));
    let rows = Row::swept(&report.figures, "rpc", |at| vec![at.value.to_string()]);
    report.block(Table::of(&["shards"], &rows, &COLUMNS, &report.figures));
    let (x, y) = (Axis::new("shards", Unit::Count), Axis::new("rate", Unit::PerSecond));
    report.curve("Rate by shards", x, y, &[("rpc", "rpc", "rate")]);
    let points = &report.curves[0].lines[0].points;
    let each = points.first().map_or(0.0, |(shards, rate)| rate / shards);
    let even = points.iter().map(|(shards, _)| (*shards, each * shards)).collect::<Vec<_>>();
    report.curves[0].lines.push(Line::new("as many times one", even.into_iter()));
    report.detail(json!({ "pairs": plan.points }));
    report
}

const PER_CORE: Quantity = Quantity::new("rate.per_core", Unit::PerSecond);
const COLUMNS: [Column; 7] = [
    Column::thousands("rate/s", "rate"),
    Column::lowest("lowest", "rate"),
    Column::highest("highest", "rate"),
    Column::thousands("per core of it", "rate.per_core"),
    Column::digits("to first", "ratio.rate", 3).of("rpc/first").or("1.000"),
    Column::digits("efficiency", "efficiency", 3).of("rpc/first").or("1.000"),
    Column::samples("calls", "rate"),
];

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench cores                             one shard, two, four, as the cores allow
  rpcrdma-bench cores --shards 1,8                eight shards on eight pairs of cores
  rpcrdma-bench cores --op read -p send -w 64     reads of pages, 64 in flight per shard
  rpcrdma-bench cores --cores 0,8                 pairs of hardware threads, if 0 and 8 are of one core

One engine has all shards of a number. Each shard has a core, and its client has another. Two cores
form one pair; the result then says that it shows nothing about more. Times of many shards depend on
which cores share a cache: --cores names the first pair. If that is two hardware threads of one core,
so are the others.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{good_plan, is_refused, round};

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
        assert!(is_refused(&format!("--shards {too_many}"), CoresPlan::new));
        let Some(one) = good_plan("--shards 1", CoresPlan::new) else { return };
        assert_eq!(one.counts().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn many_connections_are_refused() {
        assert!(is_refused("-k 2", CoresPlan::new));
    }

    #[test]
    fn rates_of_shards_are_added_and_compared_with_as_many_times_one() {
        let mut records = Records::default();
        for rates in [&[100][..], &[120], &[100], &[90, 90], &[100, 100], &[80, 100]] {
            let rounds: Vec<Round> = rates.iter().map(|rate| round(*rate, &[])).collect();
            take(&mut records, rates.len(), &rounds);
        }
        let all = records.figures();
        let figures = [&all[..], &ratios(&records)].concat();
        let of = |id: &str| figures.iter().find(|figure| figure.id() == id).expect("it is there");
        assert_eq!(of("rpc@shards=1.rate").value, 100.0);
        assert_eq!((of("rpc@shards=2.rate").value, of("rpc@shards=2.rate").samples), (180.0, 560));
        assert_eq!(of("rpc@shards=2.rate.per_core").value, 90.0);
        assert_eq!(of("rpc/first@shards=2.ratio.rate").value, 1.8);
        assert_eq!(of("rpc/first@shards=2.efficiency").value, 0.9);
        assert!(!figures.iter().any(|it| it.id().starts_with("rpc/first@shards=1.")));
    }
}
