//! `cores`: the rate of one shard, of two, and so on, each with its own client and cores.

use serde_json::{Value, json};

use crate::contenders::rpc::{Rpc, together};
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::modes::contest::{self, Plan, SECONDS, WARM_UP};
use crate::output::{
    At, Axis, Better, Column, Environment, Figure, Line, Lost, Report, Row, Session, Table, Unit,
};
use crate::stats::{Round, median};

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
    on_device!(device, config, open, |device| measure_on(device, plan, session))
}

fn measure_on<D: Device>(
    device: &D,
    plan: &CoresPlan,
    session: &Session,
) -> Result<Report, BenchError> {
    let Plan { quota, config, load, .. } = &plan.base;
    let (mut contenders, mut points, mut notes) = (Vec::new(), Vec::new(), device.notes());
    for pairs in &plan.points {
        contenders.push(Rpc::several("rpc", device.open()?, device.at(), pairs, config, load)?);
        points.push(Point { pairs: pairs.clone(), rounds: Vec::new() });
    }
    let first = contenders.first().and_then(|shards| shards.first());
    notes.extend(first.into_iter().flat_map(Rpc::notes));
    notes.extend(plan.limit.clone());
    let environment = plan.base.sweep(contenders.len()).run(session, notes, |_, index| {
        points[index].rounds.push(together(&mut contenders[index], *quota)?);
        Ok(())
    })?;
    Ok(report(plan, &points, environment))
}

struct Point {
    pairs: Vec<CorePair>,
    /// For every round, that of each shard.
    rounds: Vec<Vec<Round>>,
}

impl Point {
    fn shards(&self) -> f64 {
        self.pairs.len() as f64
    }

    /// Calls per second of all shards together, in every round.
    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.iter().map(Round::rate).sum()).collect()
    }

    fn rate(&self) -> f64 {
        median(self.rates().into_iter())
    }

    /// The share of what as many times the first number would be, 1 if nothing is lost.
    fn efficiency(&self, first: &Point) -> f64 {
        self.rate() / first.rate() * first.shards() / self.shards()
    }

    fn figures(&self, first: &Point) -> Vec<Figure> {
        let at = At::new("shards", self.shards(), Unit::Count);
        let calls = self.rounds.iter().flatten().map(|round| round.completed).sum();
        let rates = self.rates();
        let each: Vec<f64> = rates.iter().map(|rate| rate / self.shards()).collect();
        let rate = |name: &'static str, rounds: Vec<f64>| {
            let value = median(rounds.iter().copied());
            Figure::new("rpc", name, value, Unit::PerSecond, calls).rounds(rounds)
        };
        let mut figures = vec![rate("rate", rates), rate("rate.per_core", each)];
        if self.pairs.len() != first.pairs.len() {
            let samples = self.rounds.len() as u64;
            let ratios = self.rates().into_iter().zip(first.rates()).map(|(of, to)| of / to);
            let ratio = self.rate() / first.rate();
            let ratio = Figure::new("rpc/first", "ratio.rate", ratio, Unit::Ratio, samples);
            figures.push(ratio.rounds(ratios.collect()).better(Better::Higher));
            let share = self.efficiency(first);
            let share = Figure::new("rpc/first", "efficiency", share, Unit::Share, samples);
            figures.push(share.better(Better::Higher));
        }
        figures.into_iter().map(|figure| figure.at(at.clone())).collect()
    }
}

fn report(plan: &CoresPlan, points: &[Point], environment: Environment) -> Report {
    let lost = Lost::of("rpc", points.iter().flat_map(|point| point.rounds.iter().flatten()));
    let environment = environment.lost(&[lost]);
    let own = json!({ "shards": plan.counts().collect::<Vec<usize>>() });
    let settings = plan.base.settings("cores", own);
    let first = &points[0];
    let figures = Figure::of_each(points, |point| point.figures(first));
    let rows = Row::swept(&figures, "rpc", |at| vec![at.value.to_string()]);
    let table = Table::of(&["shards"], &rows, &COLUMNS, &figures);
    let mut report = Report::new("cores", plan.sentence(), settings, environment, figures);
    let rate = Axis::new("rate", Unit::PerSecond);
    report.curve(
        "Rate by shards",
        Axis::new("shards", Unit::Count),
        rate,
        &[("rpc", "rpc", "rate")],
    );
    let each = first.rate() / first.shards();
    let even = points.iter().map(|point| (point.shards(), each * point.shards()));
    report.curves[0].lines.push(Line::new("as many times one", even));
    report.block(table);
    let cores = |point: &Point| json!(point.pairs);
    report.detail(json!({ "pairs": points.iter().map(cores).collect::<Vec<Value>>() }));
    report
}

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

    fn point(shards: u32, rates: &[&[u64]]) -> Point {
        let pair = |index| CorePair { client: 2 * index, server: 2 * index + 1 };
        let round = |rate: &u64| round(*rate, &[]);
        let rounds = rates.iter().map(|rates| rates.iter().map(round).collect()).collect();
        Point { pairs: (0..shards).map(pair).collect(), rounds }
    }

    #[test]
    fn rates_of_shards_are_added_and_compared_with_as_many_times_one() {
        let one = point(1, &[&[100], &[120], &[100]]);
        let two = point(2, &[&[90, 90], &[100, 100], &[80, 100]]);
        assert_eq!((one.rate(), two.rate()), (100.0, 180.0));
        assert_eq!(two.efficiency(&one), 0.9);
        let figures = two.figures(&one);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).expect("it is");
        assert_eq!(of("ratio.rate").value, 1.8);
        assert_eq!(of("rate.per_core").value, 90.0);
        assert_eq!(of("rate").id(), "rpc@shards=2.rate");
        assert_eq!(of("rate").samples, 560);
        assert_eq!(one.figures(&one).len(), 2, "nothing is compared with itself");
    }
}
