//! `churn`: the effect of connections that are opened and closed beside a load.
//!
//! ```text
//!   every round:  still: rate, then latency at a load     churn: the same, connections come and go
//! ```

use std::time::Duration;

use rpcrdma_config::Config;
use serde_json::{Value, json};

use crate::args::SeedArgs;
use crate::call::Load;
use crate::contenders::arrivals::Law;
use crate::contenders::open::Offer;
use crate::contenders::rpc::{Churn, ChurnRound, Churned, PENDING_MAX, Rpc};
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::modes::contest::{self, Plan};
use crate::modes::load::{rate, share};
use crate::modes::sweep::Sweep;
use crate::output::{Better, Column, Environment, Figure, Lost, Report, Row, Session, Table, Unit};
use crate::stats::{Dice, End, Latency, Quota, median};

/// The options of the mode.
pub type Args = contest::Args<Own>;

/// Those of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct Own {
    /// Connections opened, and closed, per second
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "200")]
    pub churn: f64,
    /// Number of these that are open at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=STANDING_MAX))]
    pub standing: u32,
    /// Load for the latency measurement, as a share of the rate without churn
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "50%")]
    pub load: f64,
    #[command(flatten)]
    pub seed: SeedArgs,
}

#[derive(Debug, Clone)]
pub struct ChurnPlan {
    base: Plan,
    own: Own,
}

impl ChurnPlan {
    pub fn new(args: &Args) -> Result<ChurnPlan, BenchError> {
        let Args { contest, length, .. } = args;
        if length.iterations.is_some() {
            let text = "churn runs for a time: use --seconds instead of --iterations";
            return Err(BenchError::Usage(text.into()));
        }
        let base = Plan::of_rate(contest, length, SECONDS, WARM_UP)?;
        let config = with_room(&base.config, &base.load, args.more.standing)?;
        Ok(ChurnPlan { base: Plan { config, ..base }, own: args.more.clone() })
    }

    pub fn sentence(&self) -> String {
        let Plan { load, cores, rounds, .. } = &self.base;
        format!(
            "churn: {}, {} calls under way over {} connection(s), then poisson arrivals at {} % of \
             the rate, without and with {} connections a second that come and go, cores {cores}, \
             {rounds} rounds of {:.3} s and {:.3} s, seed {}",
            load.what(),
            load.window,
            load.connections,
            self.own.load * 100.0,
            self.own.churn,
            self.time().as_secs_f64(),
            self.time().as_secs_f64(),
            self.own.seed.seed
        )
    }

    fn time(&self) -> Duration {
        match self.base.quota.end {
            End::Time(time) => time / 2,
            End::Count(_) => Duration::ZERO,
        }
    }

    fn offer(&self, capacity: f64, seed: u64) -> Offer {
        let rate = (self.own.load * capacity).max(1.0);
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
    // Without memory for all credits of very many: one for each beside those of the load.
    let most = config.receive().buffers.value() + most;
    let full = Config::try_from(raw.clone()).ok();
    if full.is_none_or(|full| full.receive().buffers.value() > FULL_MAX.max(most)) {
        raw.receive.buffers = most.into();
    }
    Ok(Config::try_from(raw)?)
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let plan = &ChurnPlan::new(args)?;
    session.announce(&plan.sentence())?;
    let (device, config) = (&args.contest.device, &plan.base.config);
    on_device!(device, config, open, |device| measure_on(device, plan, session))
}

fn measure_on<D: Device>(
    device: &D,
    plan: &ChurnPlan,
    session: &Session,
) -> Result<Report, BenchError> {
    let Plan { cores, rounds, quota, config, load, .. } = &plan.base;
    let mut contenders = Vec::new();
    for name in SIDES {
        contenders.push(Rpc::on(device, name, *cores, config, load, false)?);
    }
    let notes = device.notes().into_iter().chain(contenders[0].notes()).collect();
    let first = contenders[0].closed(Quota { end: End::Time(plan.time()), ..*quota })?;
    let mut dice = Dice::new(plan.own.seed.seed);
    let offers: Vec<(Offer, u64)> =
        (0..*rounds).map(|_| (plan.offer(first.rate(), dice.roll()), dice.roll())).collect();
    let mut sides = SIDES.map(|name| ChurnSide { name, rounds: Vec::new() });
    let sweep = Sweep { expected: plan.time() * 4 * *rounds, ..plan.base.sweep(2) };
    let environment = sweep.run(session, notes, |round, side| {
        let (offer, seed) = &offers[round as usize];
        let churn =
            Churn { rate: plan.own.churn, standing: plan.own.standing as usize, seed: *seed };
        let churn = (side == 1).then_some(churn);
        let round = contenders[side].churned(plan.time(), offer, churn)?;
        // One that was ended before it had both its halves does not count.
        if round.filled.elapsed_ns > 0 && round.open.offered > 0 {
            sides[side].rounds.push(round);
        }
        Ok(())
    })?;
    Ok(report(plan, &sides, environment))
}

struct ChurnSide {
    name: &'static str,
    rounds: Vec<ChurnRound>,
}

impl ChurnSide {
    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.filled.rate()).collect()
    }

    fn quantiles(&self, quantile: f64) -> Vec<f64> {
        let of = |round: &ChurnRound| round.open.response.quantile_ns(quantile) as f64;
        self.rounds.iter().map(of).collect()
    }

    fn latency(&self) -> Latency {
        Latency::merged(self.rounds.iter().map(|round| &round.open.response))
    }

    fn figures(&self) -> Vec<Figure> {
        let rounds: Vec<&Latency> = self.rounds.iter().map(|one| &one.open.response).collect();
        let calls = self.rounds.iter().map(|round| round.filled.completed).sum();
        let (latency, rates) = (self.latency(), self.rates());
        let rate = median(rates.iter().copied());
        let rate = Figure::new(self.name, "rate", rate, Unit::PerSecond, calls).rounds(rates);
        let backlog = self.rounds.iter().map(|round| round.open.backlog_max).max();
        let backlog = backlog.unwrap_or_default() as f64;
        let samples = latency.count();
        let backlog = Figure::new(self.name, "backlog.max", backlog, Unit::Count, samples);
        let mut figures = vec![rate, backlog.better(Better::Lower)];
        figures.extend(Figure::spread(self.name, "round_trip", &latency, &rounds, 1.0));
        figures
    }

    fn detail(&self) -> Value {
        let round = |round: &ChurnRound| {
            json!({
                "rate": round.filled.rate(),
                "offered": round.open.offered,
                "completed": round.open.completed,
                "backlog_max": round.open.backlog_max,
                "connections_made": round.churned.made,
                "connections_failed": round.churned.failed,
                "preempted": round.open.preempted,
            })
        };
        self.rounds.iter().map(round).collect()
    }
}

/// With churn over without it: the ratios of the medians, and those of the rounds.
fn ratios(still: &ChurnSide, churn: &ChurnSide) -> Vec<Figure> {
    let ratio = |name, [of, to]: [Vec<f64>; 2], better| {
        let value = median(of.iter().copied()) / median(to.iter().copied());
        let rounds = of.iter().zip(&to).map(|(of, to)| of / to).collect();
        let samples = churn.rounds.len() as u64;
        let ratio = Figure::new("churn/still", name, value, Unit::Ratio, samples);
        ratio.rounds(rounds).better(better)
    };
    let mut ratios = vec![ratio("ratio.rate", [churn.rates(), still.rates()], Better::Higher)];
    for (name, quantile) in [("ratio.p50", 0.5), ("ratio.p99", 0.99), ("ratio.p99.9", 0.999)] {
        let both = [churn, still].map(|side| side.quantiles(quantile));
        ratios.push(ratio(name, both, Better::Lower));
    }
    ratios
}

/// Connections made per second of the rounds with churn.
fn arrivals(churn: &ChurnSide) -> Option<Figure> {
    let of = |round: &ChurnRound| {
        let elapsed_ns = round.filled.elapsed_ns + round.open.elapsed_ns;
        round.churned.made as f64 * 1e9 / elapsed_ns.max(1) as f64
    };
    let rates: Vec<f64> = churn.rounds.iter().map(of).collect();
    let made = churn.rounds.iter().map(|round| round.churned.made).sum();
    let value = (!rates.is_empty()).then(|| median(rates.iter().copied()))?;
    Some(Figure::new("connections", "rate", value, Unit::PerSecond, made).rounds(rates))
}

fn connections(churned: &Churned, rate: Option<Figure>) -> Vec<Figure> {
    let Churned { connect, asked, made, failed, skipped } = churned;
    let count = |name: &'static str, value: u64, better| {
        Figure::new("connections", name, value as f64, Unit::Count, *asked).better(better)
    };
    let mut figures = Figure::spread("connections", "connect", connect, &[], 1.0);
    figures.extend(rate);
    figures.extend([
        count("asked", *asked, Better::Neither),
        count("made", *made, Better::Neither),
        count("failed", *failed, Better::Lower),
        count("skipped", *skipped, Better::Lower),
    ]);
    figures
}

fn report(plan: &ChurnPlan, sides: &[ChurnSide; 2], environment: Environment) -> Report {
    let [still, churn] = sides;
    let mut churned = Churned::default();
    churn.rounds.iter().for_each(|round| churned.merge(&round.churned));
    // A core that the control thread has taken is a part of what is measured with churn.
    let lost = still
        .rounds
        .iter()
        .map(|round| (round.filled.elapsed_ns + round.open.elapsed_ns, round.open.preempted));
    let environment = environment.lost(&[Lost::new("still", lost)]);
    let own = json!({
        "churn_per_second": plan.own.churn,
        "standing": plan.own.standing,
        "load": plan.own.load,
        "seed": plan.own.seed.seed,
    });
    let settings = plan.base.settings("churn", own);
    let ratios = ratios(still, churn);
    let mut figures = Figure::of_each(sides, ChurnSide::figures);
    figures.extend(ratios.iter().cloned());
    let rate = arrivals(churn);
    let made_per_second = rate.as_ref().map_or(0.0, |rate| rate.value);
    figures.extend(connections(&churned, rate));
    let mut report = Report::new("churn", plan.sentence(), settings, environment, figures);
    report.block(Table::of(&["from due"], &SIDES.map(Row::of), &COLUMNS, &report.figures));
    let line = |ratio: &Figure| {
        let part = ratio.name.strip_prefix("ratio.").unwrap_or(&ratio.name);
        format!("churn / still, {part:<8}{:>8.3}\n", ratio.value)
    };
    report.block(ratios.iter().map(line).collect::<String>());
    let Churned { connect, asked, made, failed, skipped } = &churned;
    let [p50, p99, max] =
        [connect.quantile_ns(0.5), connect.quantile_ns(0.99), connect.max_ns()].map(|ns| ns as f64);
    report.block(format!(
        "connections: {asked} asked for, {made} made, {made_per_second:.0} a second, {failed} failed, {skipped} not asked for \
         since others were under way; to connect, us: p50 {:.0}, p99 {:.0}, max {:.0}",
        p50 / 1e3,
        p99 / 1e3,
        max / 1e3
    ));
    sides.iter().for_each(|side| report.samples(side.name, &side.latency()));
    report.samples("connections", connect);
    report.detail(json!({ "still": still.detail(), "churn": churn.detail() }));
    report
}

const COLUMNS: [Column; 7] = [
    Column::thousands("rate/s, full", "rate"),
    Column::scaled("p50, us", "round_trip.p50", 1e3, 2),
    Column::scaled("p99", "round_trip.p99", 1e3, 2),
    Column::scaled("p99.9", "round_trip.p99.9", 1e3, 2),
    Column::scaled("max", "round_trip.max", 1e3, 1),
    Column::samples("samples", "round_trip.p50"),
    Column::digits("backlog max", "backlog.max", 0),
];
const SIDES: [&str; 2] = ["still", "churn"];
/// For each side, half of it for the rate and half for latency.
const SECONDS: Duration = Duration::from_secs(4);
const WARM_UP: u64 = 2000;
const STANDING_MAX: i64 = 16_000;
/// Receives that a shard has for all credits of all connections, at most.
const FULL_MAX: u32 = 8192;

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench churn                             200 connections opened and closed per second
  rpcrdma-bench churn --churn 20 --standing 100   few, open for five seconds
  rpcrdma-bench churn --churn 5000 --standing 1000 -k 64
                                                  a rush of clients beside 64 at work
  rpcrdma-bench churn -k 64 --load 70% -t 10      beside 64 connections with a higher load
  rpcrdma-bench churn --fail-if 'churn/still.ratio.rate<0.95' --fail-if 'connections.failed>0'

The client that carries the load opens the connections and its server accepts them, between their
calls. The control thread of the engine runs beside them; on a machine with two cores it takes time
of both, and the table shows it.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{good_plan, is_refused};

    fn plan(options: &str) -> Option<ChurnPlan> {
        good_plan(options, ChurnPlan::new)
    }

    #[test]
    fn there_is_room_for_those_that_come_before_others_have_gone() {
        let Some(plan) = plan("-k 5 --standing 100") else { return };
        assert!(plan.base.config.connections().max.value() >= 5 + 100 + 2 * PENDING_MAX as u32);
        assert_eq!(plan.base.load.connections, 5);
        assert!(plan.sentence().contains("over 5 connection(s)"), "{}", plan.sentence());
    }

    #[test]
    fn each_half_of_a_round_has_half_of_its_time() {
        let Some(plan) = plan("-t 2 -r 10 --load 25%") else { return };
        assert_eq!(plan.time(), Duration::from_millis(100));
        let offer = plan.offer(1e6, 3);
        assert_eq!((offer.rate, offer.seed), (250e3, 3));
        assert_eq!(offer.warm_up, Duration::from_millis(8));
    }

    #[test]
    fn a_number_of_calls_is_refused() {
        assert!(is_refused("-n 5", ChurnPlan::new));
    }
}
