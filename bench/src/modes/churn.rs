//! `churn`: the effect of connections that are opened and closed beside a load.
//!
//! ```text
//!   every round:  still: rate, then latency at a load     churn: the same, connections come and go
//! ```

use std::time::Duration;

use rpcrdma_config::Config;
use serde_json::json;

use crate::args::SeedArgs;
use crate::call::Load;
use crate::contenders::arrivals::Law;
use crate::contenders::open::Offer;
use crate::contenders::rpc::{Churn, ChurnRound, Churned, PENDING_MAX, Rpc};
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::modes::contest::{self, Plan};
use crate::modes::experiment::Experiment;
use crate::modes::load::{rate, share};
use crate::output::{
    Column, Figure, Quantity, RATE, Ratio, Records, Report, Row, Session, Table,
};
use crate::stats::{Dice, End, Quota};

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
    on_device!(device, config, of_both_ends, |device| measure_on(device, plan, session))
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
    let own = &plan.own;
    let mut dice = Dice::new(own.seed.seed);
    let offers: Vec<(Offer, u64)> =
        (0..*rounds).map(|_| (plan.offer(first.rate(), dice.roll()), dice.roll())).collect();
    let settings = json!({
        "churn_per_second": own.churn,
        "standing": own.standing,
        "load": own.load,
        "seed": own.seed.seed,
    });
    let experiment = plan.base.experiment("churn", plan.sentence(), settings, 2).noting(notes);
    let experiment = Experiment { expected: plan.time() * 4 * *rounds, ..experiment };
    let (records, report) = experiment.run(session, |round, side, records| {
        let (offer, seed) = &offers[round as usize];
        let churn = Churn { rate: own.churn, standing: own.standing as usize, seed: *seed };
        let churn = (side == 1).then_some(churn);
        take(records, side, &contenders[side].churned(plan.time(), offer, churn)?);
        Ok(())
    })?;
    Ok(summed(&records, report))
}

/// Takes in a round of a side; one that was ended before it had both its halves does not count.
fn take(records: &mut Records, side: usize, round: &ChurnRound) {
    let ChurnRound { filled, open, churned } = round;
    if filled.elapsed_ns == 0 || open.offered == 0 {
        return;
    }
    let elapsed_ns = filled.elapsed_ns + open.elapsed_ns;
    records
        .of(SIDES[side])
        .sampled("round_trip", &open.response)
        .value(RATE, filled.rate(), filled.completed)
        .value(BACKLOG, open.backlog_max as f64, open.response.count())
        // A core that the control thread has taken is a part of what is measured with churn.
        .ran(elapsed_ns, if side == 0 { open.preempted } else { 0 });
    if side == 1 {
        let rate = churned.made as f64 * 1e9 / elapsed_ns as f64;
        let record = records.of("connections").sampled("connect", &churned.connect);
        record.value(RATE, rate, churned.made);
        let Churned { asked, made, failed, skipped, .. } = churned;
        for (quantity, count) in COUNTS.into_iter().zip([asked, made, failed, skipped]) {
            record.value(quantity, *count as f64, *asked);
        }
    }
}

fn summed(records: &Records, mut report: Report) -> Report {
    let side = |name: &str| records.iter().find(|record| record.of == name);
    let names = ["rate", "round_trip.p50", "round_trip.p99", "round_trip.p99.9"];
    let ratio = |name| Ratio::new(side("churn")?, side("still")?, name);
    let ratios: Vec<Ratio> = names.into_iter().filter_map(ratio).collect();
    report.figures.extend(Figure::of_each(&ratios, Ratio::figures));
    report.block(Table::of(&["from due"], &SIDES.map(Row::of), &COLUMNS, &report.figures));
    report.block(Ratio::table(&ratios));
    let connections = [Row::of("connections")];
    report.block(Table::of(&["to connect, us"], &connections, &CONNECTIONS, &report.figures));
    report
}

const BACKLOG: Quantity = Quantity::count("backlog.max").largest().lower();
const COUNTS: [Quantity; 4] = [
    Quantity::count("asked"),
    Quantity::count("made"),
    Quantity::count("failed").lower(),
    Quantity::count("skipped").lower(),
];
const CONNECTIONS: [Column; 8] = [
    Column::scaled("p50", "connect.p50", 1e3, 0),
    Column::scaled("p99", "connect.p99", 1e3, 0),
    Column::scaled("max", "connect.max", 1e3, 0),
    Column::digits("a second", "rate", 0),
    Column::digits("asked for", "asked", 0),
    Column::digits("made", "made", 0),
    Column::digits("failed", "failed", 0),
    Column::digits("skipped", "skipped", 0),
];
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
