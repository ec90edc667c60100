//! `load`: latency at given arrival rates or shares of the capacity.
//!
//! ```text
//!   closed loop, many under way ──▶ capacity
//!   every round:  closed loop, 10 %, 20 %, ... 95 %     then 95 %, ... 10 %, closed loop
//!                              └ open loop: arrivals ──▶ Schedule ──▶ drive ──▶ OpenRound
//! ```

use std::time::Duration;

use serde_json::json;

use crate::args::{SeedArgs, parse};
use crate::contenders::arrivals::Law;
use crate::contenders::open::{Offer, OpenRound};
use crate::contenders::rpc::Rpc;
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::modes::contest::{self, Plan};
use crate::output::{
    At, Axis, Column, Curve, Figure, Line, Quantity, Record, Records, Report, Row, Session, Table,
    Unit, thousands,
};
use crate::stats::{Dice, End, Round, median};

/// The options of the mode.
pub type Args = contest::Args<Own>;

/// Those of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct Own {
    /// Loads as shares of the capacity, as in 70% or 0.5,0.9 [default: a sweep from 10% to 95%]
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = share)]
    pub load: Vec<f64>,
    /// Loads in calls per second, as in 200k,1.5M
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    pub rate: Vec<f64>,
    /// Client threads that share each rate, each with its own connections (-k) and window (-w)
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// Distribution of the arrivals
    #[arg(long, value_enum, default_value = "poisson")]
    pub arrivals: Law,
    #[command(flatten)]
    pub seed: SeedArgs,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Point {
    /// A share of what the closed loop does.
    Share(f64),
    Rate(f64),
}

impl Point {
    /// Calls per second, where the closed loop does so many.
    pub fn rate(self, capacity: f64) -> f64 {
        match self {
            Point::Share(share) => share * capacity,
            Point::Rate(rate) => rate,
        }
    }

    pub fn at(self) -> At {
        match self {
            Point::Share(share) => At::new("load", share, Unit::Share),
            Point::Rate(rate) => At::new("rate", rate, Unit::PerSecond),
        }
    }
}

#[derive(Debug, Clone)]
pub struct LoadPlan {
    points: Vec<Point>,
    law: Law,
    seed: u64,
    /// The core of each client thread.
    clients: Vec<u32>,
    /// The call, the engine, the cores; its rounds are those of the closed loop. Window and
    /// connections are those of one client.
    base: Plan,
    /// Uncounted calls at the start of each round, if given.
    warm_up: Option<u64>,
}

impl LoadPlan {
    pub fn new(args: &Args) -> Result<LoadPlan, BenchError> {
        let Args { contest, length, more, .. } = args;
        let count = more.clients;
        // The engine has room for the calls of all clients.
        let mut all = contest.clone();
        all.window.connections *= count;
        all.window.window = Some(all.window.window.unwrap_or(WINDOW) * count);
        let mut base = Plan::of_rate(&all, length, SECONDS, WARM_UP)?;
        let load = &mut base.load;
        for of_all in [&mut load.window, &mut load.connections, &mut load.sinks] {
            *of_all /= count;
        }
        let shares = more.load.iter().map(|share| Point::Share(*share));
        let rates = more.rate.iter().map(|rate| Point::Rate(*rate));
        let mut points: Vec<Point> = shares.chain(rates).collect();
        if points.is_empty() {
            points.extend(SWEEP.map(Point::Share));
        }
        let (law, seed, warm_up) = (more.arrivals, more.seed.seed, length.warm_up);
        let clients = base.cores.clients(count as usize);
        Ok(LoadPlan { points, law, seed, clients, base, warm_up })
    }

    pub fn sentence(&self) -> String {
        let Plan { load, cores, rounds, quota, .. } = &self.base;
        let round = quota.end.text("calls");
        let clients = match self.clients.len() {
            1 => String::new(),
            count => format!(" for each of {count} clients"),
        };
        format!(
            "load: {}, {} arrivals at {} rates, at most {} under way{clients}, cores {cores}, \
             {rounds} rounds of {round}, seed {}",
            load.what(),
            <&str>::from(self.law),
            self.points.len(),
            load.window,
            self.seed
        )
    }

    /// What threads that share a core say of the times.
    fn note(&self) -> Option<String> {
        let (clients, mut cores) = (self.clients.len(), self.clients.clone());
        cores.sort_unstable();
        cores.dedup();
        (clients > cores.len()).then(|| {
            let cores = cores.len();
            format!("{clients} client threads share {cores} core(s): their turns are in the times")
        })
    }

    fn offer(&self, rate: f64, seed: u64) -> Offer {
        let given = self.warm_up.map(|count| Duration::from_secs_f64(count as f64 / rate));
        let usual = Duration::from_secs_f64(WARM_UP as f64 / rate);
        let (warm_up, time, count_max) = match self.base.quota.end {
            End::Time(time) => (given.unwrap_or(usual.min(time / 10)), time, u64::MAX),
            End::Count(count) => {
                let warm_up = given.unwrap_or(usual.min(WARM_UP_MAX));
                let before = (warm_up.as_secs_f64() * rate).ceil() as u64;
                (warm_up, LONGEST, count + before)
            }
        };
        Offer { law: self.law, rate, seed, warm_up, time, count_max }
    }
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let plan = &LoadPlan::new(args)?;
    session.announce(&plan.sentence())?;
    let (device, config) = (&args.contest.device, &plan.base.config);
    on_device!(device, config, towards, |device| measure_on(device, plan, session))
}

fn measure_on<D: Device>(
    device: &D,
    plan: &LoadPlan,
    session: &Session,
) -> Result<Report, BenchError> {
    let Plan { cores, rounds, quota, config, load, .. } = &plan.base;
    let mut rpc = Rpc::of_clients(device, "rpc", *cores, &plan.clients[1..], config, load)?;
    let notes = device.notes().into_iter().chain(rpc.notes()).chain(plan.note()).collect();
    let first = (0..(*rounds).min(FIRST_ROUNDS)).map(|_| rpc.closed(*quota));
    let first = first.collect::<Result<Vec<Round>, BenchError>>()?;
    let capacity = median(first.iter().map(Round::rate));
    let mut dice = Dice::new(plan.seed);
    let each = plan.points.len();
    let seeds: Vec<u64> = (0..each * *rounds as usize).map(|_| dice.roll()).collect();
    let own = json!({
        "arrivals": <&str>::from(plan.law), "seed": plan.seed, "clients": plan.clients.len(),
    });
    // The closed loop is one more turn.
    let experiment = plan.base.experiment("load", plan.sentence(), own, each + 1).noting(notes);
    let (records, report) = experiment.run(session, |round, turn, records| {
        let Some(index) = turn.checked_sub(1) else {
            records.of("closed").round(&rpc.closed(*quota)?);
            return Ok(());
        };
        let point = plan.points[index];
        let offer = plan.offer(point.rate(capacity), seeds[round as usize * each + index]);
        take(records, point, &rpc.open(&offer)?);
        Ok(())
    })?;
    Ok(summed(&records, capacity, report))
}

/// Takes a round in, unless it was ended before it began.
fn take(records: &mut Records, point: Point, round: &OpenRound) {
    if round.offered == 0 {
        return;
    }
    let (response, offered) = (&round.response, round.offered_rate());
    let share = if offered > 0.0 { round.achieved_rate() / offered } else { 0.0 };
    let record = records.at("rpc", point.at()).sampled("round_trip", response);
    for (quantity, value) in [
        (OFFERED, offered),
        (ACHIEVED, round.achieved_rate()),
        (ACHIEVED_SHARE, share),
        (BACKLOG_MAX, round.backlog_max as f64),
        (BACKLOG_END, round.backlog_end as f64),
        (GIVEN_UP, round.given_up as f64),
    ] {
        record.value(quantity, value, response.count());
    }
    record.ran(round.elapsed_ns, round.preempted);
    records.at("generator", point.at()).times("late", &round.lateness);
}

fn summed(records: &Records, capacity: f64, mut report: Report) -> Report {
    let closed = report.figure("closed", None, "rate");
    let (then, rounds, samples) =
        closed.map_or((0.0, 0, 0), |rate| (rate.value, rate.rounds.len(), rate.samples));
    let before = Figure::new("closed", "rate.before", capacity, Unit::PerSecond, samples);
    report.figures.push(before);
    let rows = Row::swept(&report.figures, "rpc", |at| vec![title(at)]);
    report.block(format!(
        "closed loop  {} /s before, {} /s between the others (median of {rounds} rounds); shares \
         are of the first",
        thousands(capacity),
        thousands(then),
    ));
    report.block(Table::of(&["from due, us"], &rows, &RESPONSE, &report.figures));
    report.block(Table::of(&["backlog"], &rows, &BACKLOG, &report.figures));
    let overloads: Vec<String> =
        records.iter().filter(|one| one.of == "rpc").filter_map(overload).collect();
    report.block(overloads.join("\n"));
    report.curves = curves(capacity, records);
    report.detail(json!({ "capacity": capacity, "overloads": overloads }));
    report
}

/// That a point asked for more than was done, in words.
fn overload(record: &Record) -> Option<String> {
    let value = |quantity: Quantity| record.figure(quantity.name).map_or(0.0, |one| one.value);
    let (share, given_up) = (value(ACHIEVED_SHARE), value(GIVEN_UP));
    if share >= KEPT_UP && given_up == 0.0 {
        return None;
    }
    let at = record.at.as_ref().map(title).unwrap_or_default();
    Some(format!(
        "OVERLOAD at {at}: {} calls a second were due and {} were answered ({:.1} %). Up to {} \
         calls waited, {} at the end of a round, and {given_up} were given up: the times are \
         longer the longer a round is.",
        thousands(value(OFFERED)),
        thousands(value(ACHIEVED)),
        share * 100.0,
        value(BACKLOG_MAX),
        value(BACKLOG_END),
    ))
}

fn curves(capacity: f64, records: &Records) -> Vec<Curve> {
    let points: Vec<(&At, Vec<Figure>)> = records
        .iter()
        .filter(|record| record.of == "rpc")
        .filter_map(|record| Some((record.at.as_ref()?, record.figures())))
        .collect();
    let value = |figures: &[Figure], name: &str| {
        figures.iter().find(|one| one.name == name).map_or(0.0, |one| one.value)
    };
    // Rates beside shares: as shares of the capacity.
    let share = |at: &At| if at.unit == Unit::Share { at.value } else { at.value / capacity.max(1.0) };
    let quantile = |name: &&str| {
        let figure = format!("round_trip.{name}");
        Line::new(*name, points.iter().map(|(at, figures)| (share(at), value(figures, &figure))))
    };
    let rates = |name: &str, figure: &str| {
        let point = |(_, figures): &(&At, Vec<Figure>)| {
            (value(figures, OFFERED.name), value(figures, figure))
        };
        Line::new(name, points.iter().map(point))
    };
    vec![
        Curve {
            title: "Latency from the intended start, by load".into(),
            x: Axis::new("load", Unit::Share),
            y: Axis::log("latency", Unit::Ns),
            lines: ["p50", "p99", "p99.9", "p99.99"].iter().map(quantile).collect(),
        },
        Curve {
            title: "What was achieved of what was offered".into(),
            x: Axis::new("offered", Unit::PerSecond),
            y: Axis::new("achieved", Unit::PerSecond),
            lines: vec![rates("rpc", ACHIEVED.name), rates("all of it", OFFERED.name)],
        },
    ]
}

fn title(at: &At) -> String {
    match at.unit {
        Unit::Share => format!("{:.4} %", at.value * 100.0).replace(".0000", ""),
        _ => format!("{} /s", thousands(at.value)),
    }
}

const OFFERED: Quantity = Quantity::new("offered", Unit::PerSecond).neutral();
const ACHIEVED: Quantity = Quantity::new("achieved", Unit::PerSecond);
const ACHIEVED_SHARE: Quantity = Quantity::new("achieved_share", Unit::Share).higher();
const BACKLOG_MAX: Quantity = Quantity::count("backlog.max").largest().lower();
const BACKLOG_END: Quantity = Quantity::count("backlog.end").largest().lower();
const GIVEN_UP: Quantity = Quantity::count("given_up").largest().lower();
/// The share of what was due above which the calls kept up.
const KEPT_UP: f64 = 0.99;
const RESPONSE: [Column; 10] = [
    Column::thousands("offered/s", "offered"),
    Column::thousands("achieved", "achieved"),
    Column::digits("share", "achieved_share", 4),
    Column::scaled("p50", "round_trip.p50", 1e3, 2),
    Column::scaled("p90", "round_trip.p90", 1e3, 2),
    Column::scaled("p99", "round_trip.p99", 1e3, 2),
    Column::scaled("p99.9", "round_trip.p99.9", 1e3, 2),
    Column::scaled("p99.99", "round_trip.p99.99", 1e3, 2),
    Column::scaled("max", "round_trip.max", 1e3, 1),
    Column::samples("samples", "round_trip.p50"),
];
const BACKLOG: [Column; 7] = [
    Column::digits("backlog max", "backlog.max", 0),
    Column::digits("at the end", "backlog.end", 0),
    Column::digits("given up", "given_up", 0),
    Column::scaled("late p50", "late.p50", 1e3, 2).of("generator"),
    Column::scaled("p99", "late.p99", 1e3, 2).of("generator"),
    Column::scaled("p99.9", "late.p99.9", 1e3, 2).of("generator"),
    Column::scaled("max, us", "late.max", 1e3, 1).of("generator"),
];

/// A share of the capacity: `70%` or `0.7`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    parse::share(text, 0.001..=10.0)
        .ok_or_else(|| "a share of the capacity, as in 70% or 0.7; 0.1% to 1000%".into())
}

/// Calls per second: `1500`, `200k` or `1.5M`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number * unit);
    let rate = rate.filter(|rate| (1.0..=1e9).contains(rate));
    rate.ok_or_else(|| "calls per second, as in 1500, 200k or 1.5M; 1 to 1000M".into())
}

/// Shares of the capacity where nothing else is said.
const SWEEP: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
const SECONDS: Duration = Duration::from_secs(1);
/// Calls under way of a client, at most.
const WINDOW: u32 = 32;
const WARM_UP: u64 = 2000;
/// A low rate does not warm up longer.
const WARM_UP_MAX: Duration = Duration::from_millis(20);
/// A round of a number of calls ends after them, not after a time.
const LONGEST: Duration = Duration::from_secs(3600);
/// Rounds of the closed loop whose median is the capacity.
const FIRST_ROUNDS: u32 = 5;

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench load                              latency from 10 % to 95 % of the capacity
  rpcrdma-bench load --load 70%                   at one load; the goal is a p99.9 below 5 us
  rpcrdma-bench load --rate 200k --arrivals constant
                                                  one call every 5 us
  rpcrdma-bench load --load 50%,110% --op read -p send
                                                  reads of pages, and an overload
  rpcrdma-bench load --rate 200k --clients 8      eight client threads share the rate
  rpcrdma-bench load --load 70% --fail-if 'rpc@load=0.7.round_trip.p99.9>5us'

The loop is open: a call is sent when it is due, not when another has returned, and its latency
counts from the due time. Calls that are due while the window is full wait in a backlog. The
generator shares its thread with the client's engine; its own lateness, without a backlog, is a
separate figure.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::good_plan;

    fn plan(options: &str) -> Option<LoadPlan> {
        good_plan(options, LoadPlan::new)
    }

    #[test]
    fn without_options_it_is_a_sweep_to_95_percent() {
        let Some(usual) = plan("") else { return };
        assert_eq!(usual.points, SWEEP.map(Point::Share));
        assert_eq!((usual.law, usual.base.load.window), (Law::Poisson, 32));
        let sentence = usual.sentence();
        assert!(sentence.starts_with("load: echo of 64 bytes, poisson arrivals"), "{sentence}");
        assert!(sentence.contains("seed 1"), "{sentence}");
    }

    #[test]
    fn shares_and_rates_are_points() {
        let Some(plan) = plan("--load 70%,1.2 --rate 200k") else { return };
        let points = plan.points;
        assert_eq!(points, [Point::Share(0.7), Point::Share(1.2), Point::Rate(200e3)]);
        let rates: Vec<f64> = points.iter().map(|point| point.rate(1e6)).collect();
        assert_eq!(rates, [0.7e6, 1.2e6, 0.2e6]);
        assert_eq!(points[0].at().to_string(), "load=0.7");
        assert_eq!(points[2].at().to_string(), "rate=200000");
    }

    #[test]
    fn shares_have_bounds() {
        assert_eq!(share("70%"), Ok(0.7));
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("10"), Ok(10.0));
        for wrong in ["", "%", "0", "0.09%", "-1", "x", "NaN", "1001%", "inf"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_have_units_and_bounds() {
        assert_eq!([rate("1500"), rate("200k"), rate("1.5M")], [Ok(1500.0), Ok(2e5), Ok(1.5e6)]);
        for wrong in ["", "k", "0", "0.9", "-1k", "x", "NaN", "1001M", "2K"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_warm_up_is_a_number_of_calls_and_no_more_than_a_tenth_unless_requested() {
        let Some(usual) = plan("-t 1 -r 10") else { return };
        assert_eq!(usual.offer(1e6, 0).warm_up, Duration::from_millis(2));
        assert_eq!(usual.offer(1e3, 0).warm_up, Duration::from_millis(10));
        assert_eq!(usual.offer(1e3, 0).time, Duration::from_millis(100));
        let requested = plan("-t 1 -r 10 --warm-up 500").expect("the machine is the same");
        assert_eq!(requested.offer(1e3, 0).warm_up, Duration::from_millis(500));
    }

    #[test]
    fn a_number_of_calls_is_without_its_warm_up() {
        let Some(counted) = plan("-n 100 -r 2 --warm-up 10") else { return };
        assert_eq!(counted.offer(1e3, 0).count_max, 60);
        assert_eq!(counted.offer(1e3, 0).time, LONGEST);
    }
}
