//! `load`: latency at given arrival rates or shares of the capacity.
//!
//! ```text
//!   closed loop, many under way ──▶ capacity
//!   every round:  closed loop, 10 %, 20 %, ... 95 %     then 95 %, ... 10 %, closed loop
//!                              └ open loop: arrivals ──▶ Schedule ──▶ drive ──▶ OpenRound
//! ```

use std::time::Duration;

use serde_json::{Value, json};

use crate::args::{SeedArgs, parse};
use crate::contenders::arrivals::Law;
use crate::contenders::open::{Offer, OpenRound};
use crate::contenders::rpc::Rpc;
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::modes::contest::{self, Plan};
use crate::output::{
    At, Axis, Better, Column, Curve, Environment, Figure, Line, Lost, Report, Row, Session, Table,
    Unit, thousands,
};
use crate::stats::{Dice, End, Latency, Round, median};

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
    /// The call, the engine, the cores; its rounds are those of the closed loop.
    base: Plan,
    /// Uncounted calls at the start of each round, if given.
    warm_up: Option<u64>,
}

impl LoadPlan {
    pub fn new(args: &Args) -> Result<LoadPlan, BenchError> {
        let Args { contest, length, .. } = args;
        let base = Plan::of_rate(contest, length, SECONDS, WARM_UP)?;
        let shares = args.more.load.iter().map(|share| Point::Share(*share));
        let rates = args.more.rate.iter().map(|rate| Point::Rate(*rate));
        let mut points: Vec<Point> = shares.chain(rates).collect();
        if points.is_empty() {
            points.extend(SWEEP.map(Point::Share));
        }
        let (law, seed, warm_up) = (args.more.arrivals, args.more.seed.seed, length.warm_up);
        Ok(LoadPlan { points, law, seed, base, warm_up })
    }

    pub fn sentence(&self) -> String {
        let Plan { load, cores, rounds, quota, .. } = &self.base;
        let round = quota.end.text("calls");
        format!(
            "load: {}, {} arrivals at {} rates, at most {} under way, cores {cores}, {rounds} \
             rounds of {round}, seed {}",
            load.what(),
            <&str>::from(self.law),
            self.points.len(),
            load.window,
            self.seed
        )
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
    let mut rpc = Rpc::on(device, "rpc", *cores, config, load, false)?;
    let notes = device.notes().into_iter().chain(rpc.notes()).collect();
    let first = (0..(*rounds).min(FIRST_ROUNDS)).map(|_| rpc.closed(*quota));
    let first = first.collect::<Result<Vec<Round>, BenchError>>()?;
    let capacity = median(first.iter().map(Round::rate));
    let mut dice = Dice::new(plan.seed);
    let each = plan.points.len();
    let seeds: Vec<u64> = (0..each * *rounds as usize).map(|_| dice.roll()).collect();
    let mut closed = Vec::new();
    let mut opened: Vec<OpenedPoint> =
        plan.points.iter().map(|point| OpenedPoint::new(*point)).collect();
    // The closed loop is one more point.
    let environment = plan.base.sweep(each + 1).run(session, notes, |round, turn| {
        let Some(index) = turn.checked_sub(1) else {
            closed.push(rpc.closed(*quota)?);
            return Ok(());
        };
        let rate = plan.points[index].rate(capacity);
        let offer = plan.offer(rate, seeds[round as usize * each + index]);
        opened[index].take(rpc.open(&offer)?);
        Ok(())
    })?;
    opened.retain(|point| !point.rounds.is_empty());
    Ok(report(plan, capacity, &closed, &opened, environment))
}

struct OpenedPoint {
    point: Point,
    /// How late the generator was, of every round.
    lateness: Latency,
    rounds: Vec<OpenRound>,
}

impl OpenedPoint {
    fn new(point: Point) -> OpenedPoint {
        OpenedPoint { point, lateness: Latency::new(), rounds: Vec::new() }
    }

    /// Takes a round in, unless it was ended before it began. The generator's lateness is kept of
    /// all rounds together.
    fn take(&mut self, mut round: OpenRound) {
        if round.offered > 0 {
            self.lateness.merge(&round.lateness);
            round.lateness = Latency::new();
            self.rounds.push(round);
        }
    }

    /// From the intended start, every call of every round.
    fn response(&self) -> Latency {
        Latency::merged(self.rounds.iter().map(|round| &round.response))
    }

    fn figures(&self) -> Vec<Figure> {
        let rounds: Vec<&Latency> = self.rounds.iter().map(|round| &round.response).collect();
        let response = self.response();
        let of = |name: &'static str, unit: Unit, better, one: fn(&OpenRound) -> f64| {
            let rounds: Vec<f64> = self.rounds.iter().map(one).collect();
            let value = match unit {
                Unit::Count => rounds.iter().copied().fold(0.0, f64::max),
                _ => median(rounds.iter().copied()),
            };
            Figure::new("rpc", name, value, unit, response.count()).better(better).rounds(rounds)
        };
        let mut figures = Figure::spread("rpc", "round_trip", &response, &rounds, 1.0);
        let (rate, count) = (Unit::PerSecond, Unit::Count);
        figures.extend([
            of("offered", rate, Better::Neither, OpenRound::offered_rate),
            of("achieved", rate, Better::Higher, OpenRound::achieved_rate),
            of("achieved_share", Unit::Share, Better::Higher, achieved_share),
            of("backlog.max", count, Better::Lower, |round| round.backlog_max as f64),
            of("backlog.end", count, Better::Lower, |round| round.backlog_end as f64),
            of("given_up", count, Better::Lower, |round| round.given_up as f64),
        ]);
        figures.extend(Figure::spread("generator", "late", &self.lateness, &[], 1.0));
        figures.into_iter().map(|figure| figure.at(self.point.at())).collect()
    }

    fn detail(&self) -> Value {
        let At { axis, value, unit } = self.point.at();
        json!({ "axis": axis, "value": value, "unit": unit, "rounds": self.rounds })
    }
}

/// What was achieved of what was offered, 0 to 1.
fn achieved_share(round: &OpenRound) -> f64 {
    let offered = round.offered_rate();
    if offered > 0.0 { round.achieved_rate() / offered } else { 0.0 }
}

fn report(
    plan: &LoadPlan,
    capacity: f64,
    closed: &[Round],
    points: &[OpenedPoint],
    environment: Environment,
) -> Report {
    let open = points.iter().flat_map(|point| &point.rounds);
    let open = Lost::new("rpc", open.map(|one| (one.elapsed_ns, one.preempted)));
    let lost = [Lost::of("closed", closed.iter()), open];
    let environment = environment.lost(&lost);
    let own = json!({ "arrivals": <&str>::from(plan.law), "seed": plan.seed });
    let settings = plan.base.settings("load", own);
    let rates: Vec<f64> = closed.iter().map(Round::rate).collect();
    let (then, samples) =
        (median(rates.iter().copied()), closed.iter().map(|round| round.completed).sum());
    let mut figures = vec![
        Figure::new("closed", "rate", then, Unit::PerSecond, samples).rounds(rates),
        Figure::new("closed", "rate.before", capacity, Unit::PerSecond, samples),
    ];
    figures.extend(Figure::of_each(points, OpenedPoint::figures));
    let row = |point: &OpenedPoint| {
        let (labels, at) = (vec![title(point.point)], Some(point.point.at()));
        Row { labels, of: "rpc".to_owned(), at }
    };
    let rows: Vec<Row> = points.iter().map(row).collect();
    let mut report = Report::new("load", plan.sentence(), settings, environment, figures);
    report.block(format!(
        "closed loop  {} /s before, {} /s between the others (median of {} rounds); shares are of \
         the first",
        thousands(capacity),
        thousands(then),
        closed.len()
    ));
    report.block(Table::of(&["from due, us"], &rows, &RESPONSE, &report.figures));
    report.block(Table::of(&["backlog"], &rows, &BACKLOG, &report.figures));
    for point in points {
        report.samples(format!("rpc@{}", point.point.at()), &point.response());
    }
    report.curves = curves(capacity, points, &report);
    let points: Vec<Value> = points.iter().map(OpenedPoint::detail).collect();
    report.detail(json!({ "capacity": capacity, "points": points }));
    report
}

fn curves(capacity: f64, points: &[OpenedPoint], report: &Report) -> Vec<Curve> {
    let value = |point: &OpenedPoint, name: &str| {
        let figure = report.figure("rpc", Some(&point.point.at()), name);
        figure.map_or(0.0, |figure| figure.value)
    };
    let line = |name: &str, x: &dyn Fn(&OpenedPoint) -> f64, figure: &str| {
        Line::new(name, points.iter().map(|point| (x(point), value(point, figure))))
    };
    // Rates beside shares: as shares of the capacity.
    let share = |point: &OpenedPoint| point.point.rate(capacity) / capacity.max(1.0);
    let quantile = |name: &&str| line(name, &share, &format!("round_trip.{name}"));
    let offered = |point: &OpenedPoint| value(point, "offered");
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
            lines: vec![line("rpc", &offered, "achieved"), line("all of it", &offered, "offered")],
        },
    ]
}

fn title(point: Point) -> String {
    match point {
        Point::Share(share) => format!("{:.4} %", share * 100.0).replace(".0000", ""),
        Point::Rate(rate) => format!("{} /s", thousands(rate)),
    }
}

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
