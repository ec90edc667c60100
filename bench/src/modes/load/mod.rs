//! `load`: latency of calls that come when they come, at shares of what the system can do.
//!
//! ```text
//!   closed loop, many under way ──▶ capacity
//!   every round:  closed loop, 10 %, 20 %, ... 95 %     then 95 %, ... 10 %, closed loop
//!                              └ open loop: arrivals ──▶ Schedule ──▶ drive ──▶ OpenRound
//! ```

mod report;

use std::time::Duration;

use rpcrdma_engine::Provider;

use crate::contenders::arrivals::Law;
use crate::contenders::open::{Offer, OpenRound};
pub use report::{LoadReport, PointReport};

use crate::args::{LengthArgs, OutputArgs, Over, SeedArgs};
use crate::contenders::rpc::{Distant, Rpc};
use crate::device::jitter;
use crate::device::site::{Fabrics, Site};
use crate::device::verbs::Device;
use crate::error::BenchError;
use crate::modes::contest::{ContestArgs, Kind, PROBE_TIME, Plan, PlanArgs};
use crate::output::outcome::{At, Outcome, Unit};
use crate::output::session::Session;
use crate::stats::dice::Dice;
use crate::stats::meter::{End, Quota, Round};
use crate::stats::rounds::median;
use crate::stop;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Shares of the capacity to offer, as in 70% or 0.5,0.9 [default: a sweep from 10% to 95%]
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = share)]
    pub load: Vec<f64>,
    /// Rates to offer, in calls per second, as in 200k,1.5M
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    pub rate: Vec<f64>,
    /// How arrivals are spread over the time
    #[arg(long, value_enum, default_value = "poisson")]
    pub arrivals: Law,
    /// What is measured, and on what.
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

/// A rate to be offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Point {
    /// A share of what the closed loop does.
    Share(f64),
    /// Calls per second.
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

    /// As figures name it.
    pub fn at(self) -> At {
        match self {
            Point::Share(share) => At::new("load", share, Unit::Share),
            Point::Rate(rate) => At::new("rate", rate, Unit::PerSecond),
        }
    }
}

/// A run at several rates, completely described.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    points: Vec<Point>,
    law: Law,
    seed: u64,
    /// The call, the engine, the cores; its rounds are those of the closed loop.
    base: Plan,
    /// Uncounted calls at the start of each round, if somebody has said how many.
    warm_up: Option<u64>,
}

impl LoadPlan {
    /// Fills in the defaults.
    ///
    /// # Errors
    /// When options contradict each other, or the machine does not have the cores.
    pub fn new(args: &Args) -> Result<LoadPlan, BenchError> {
        let Args { contest, length, .. } = args;
        let of = PlanArgs { contest, length, sends_per_post: &[], stat: None };
        let base = Plan::new(Kind::Rate, &of)?;
        let base = Plan { quota: length.quota(SECONDS, WARM_UP), ..base };
        let shares = args.load.iter().map(|share| Point::Share(*share));
        let rates = args.rate.iter().map(|rate| Point::Rate(*rate));
        let mut points: Vec<Point> = shares.chain(rates).collect();
        if points.is_empty() {
            points.extend(SWEEP.map(Point::Share));
        }
        let (law, seed, warm_up) = (args.arrivals, args.seed.seed, length.warm_up);
        Ok(LoadPlan { points, law, seed, base, warm_up })
    }

    /// What is measured, as a sentence for people.
    pub fn sentence(&self) -> String {
        let Plan { load, cores, rounds, quota, .. } = &self.base;
        let round = match quota.end {
            End::Time(time) => format!("{:.3} s", time.as_secs_f64()),
            End::Count(count) => format!("{count} calls"),
        };
        format!(
            "load: {}, {} arrivals at {} rates, at most {} under way, cores {cores}, {rounds} \
             rounds of {round}, seed {}",
            load.what(),
            self.law.name(),
            self.points.len(),
            load.window,
            self.seed
        )
    }

    /// What is offered in a round.
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

    /// About how long the measuring takes.
    fn expected(&self) -> Duration {
        self.base.expected(self.points.len() as u32 + 1)
    }
}

/// Measures.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn measure(args: &Args, session: &Session) -> Result<impl Outcome + use<>, BenchError> {
    let plan = LoadPlan::new(args)?;
    session.announce(&plan.sentence())?;
    match args.contest.device.provider {
        Over::Fabric => measure_on(&Fabrics::new(&plan.base.config), &plan, session),
        Over::Verbs => {
            measure_on(&Device::towards(&args.contest.device, &plan.base.config)?, &plan, session)
        }
    }
}

fn measure_on<S: Site>(
    site: &S,
    plan: &LoadPlan,
    session: &Session,
) -> Result<LoadReport, BenchError> {
    let Plan { cores, rounds, quota, config, load, .. } = &plan.base;
    let mut rpc: Box<dyn Loaded> = match site.far() {
        Some(server) => Box::new(Distant::new(site.open()?, server, *cores, config, load, false)?),
        None => Box::new(Rpc::new("rpc", site.open()?, site.at(), *cores, config, load, false)?),
    };
    let notes = site.notes().into_iter().chain(rpc.notes()).collect();
    let progress = session.progress(rounds * (plan.points.len() as u32 + 1), plan.expected());
    let before = jitter::probe(*cores, PROBE_TIME)?;
    let first = (0..(*rounds).min(FIRST_ROUNDS)).map(|_| rpc.closed(*quota));
    let first = first.collect::<Result<Vec<Round>, BenchError>>()?;
    let capacity = median(first.iter().map(Round::rate));
    let mut measured = Measured::new(plan);
    let mut dice = Dice::new(plan.seed);
    let mut done = 0;
    for round in 0..*rounds {
        let seeds: Vec<u64> = plan.points.iter().map(|_| dice.roll()).collect();
        for turn in turns(plan.points.len() + 1, round) {
            if stop::is_wished() {
                break;
            }
            match turn.checked_sub(1) {
                None => measured.closed.push(rpc.closed(*quota)?),
                Some(index) => {
                    let rate = plan.points[index].rate(capacity);
                    let offer = plan.offer(rate, seeds[index]);
                    measured.points[index].take(rpc.open(&offer)?);
                }
            }
            done += 1;
            progress.step(done);
        }
    }
    drop(progress);
    measured.points.retain(PointReport::has_samples);
    let after = jitter::probe(*cores, PROBE_TIME)?;
    Ok(LoadReport::new(plan, capacity, measured, notes, [before, after]))
}

/// A client with its server, wherever that is.
trait Loaded {
    /// A round of the closed loop.
    fn closed(&mut self, quota: Quota) -> Result<Round, BenchError>;

    /// A round of the open loop.
    fn open(&mut self, offer: &Offer) -> Result<OpenRound, BenchError>;

    /// What it uses.
    fn notes(&self) -> Vec<String>;
}

impl<P: Provider> Loaded for Rpc<P> {
    fn closed(&mut self, quota: Quota) -> Result<Round, BenchError> {
        Rpc::closed(self, quota)
    }

    fn open(&mut self, offer: &Offer) -> Result<OpenRound, BenchError> {
        Rpc::open(self, offer)
    }

    fn notes(&self) -> Vec<String> {
        Rpc::notes(self)
    }
}

impl<P: Provider> Loaded for Distant<P> {
    fn closed(&mut self, quota: Quota) -> Result<Round, BenchError> {
        Distant::closed(self, quota)
    }

    fn open(&mut self, offer: &Offer) -> Result<OpenRound, BenchError> {
        Distant::open(self, offer)
    }

    fn notes(&self) -> Vec<String> {
        Distant::notes(self)
    }
}

/// The order of a round: forwards, then backwards.
fn turns(count: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| if round.is_multiple_of(2) { turn } else { count - 1 - turn })
}

/// What the rounds came to.
struct Measured {
    closed: Vec<Round>,
    points: Vec<PointReport>,
}

impl Measured {
    fn new(plan: &LoadPlan) -> Measured {
        let points = plan.points.iter().map(|point| PointReport::new(*point)).collect();
        Measured { closed: Vec::new(), points }
    }
}

/// A share of the capacity: `70%` or `0.7`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    let share = share.ok().filter(|share| (0.001..=10.0).contains(share));
    share.ok_or_else(|| "a share of the capacity, as in 70% or 0.7; 0.1% to 1000%".into())
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
/// For each point.
const SECONDS: Duration = Duration::from_secs(1);
const WARM_UP: u64 = 2000;
/// A low rate does not warm up longer.
const WARM_UP_MAX: Duration = Duration::from_millis(20);
/// A round of a number of calls ends after them, not after a time.
const LONGEST: Duration = Duration::from_secs(3600);
/// Rounds of the closed loop whose median is the capacity.
const FIRST_ROUNDS: u32 = 5;

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench load                              latency from 10 % to 95 % of the capacity
  rpcrdma-bench load --load 70%                   at one load; the goal is a p99.9 below 5 us
  rpcrdma-bench load --rate 200k --arrivals constant
                                                  one call every 5 us, evenly
  rpcrdma-bench load --load 50%,110% --op read -p send
                                                  pages read, and what an overload does
  rpcrdma-bench load --load 70% --fail-if 'rpc@load=0.7.round_trip.p99.9>5us'

The loop is open: a call leaves when it is due, not when another has come back, and its latency
counts from when it was due. Calls that cannot be sent yet, since as many as the window allows are
under way, wait in a backlog. The generator shares its thread with the client's engine; how late
it was while no backlog existed is shown, so that one can be told from the other.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan_of;

    fn plan(options: &str) -> Option<Result<LoadPlan, BenchError>> {
        plan_of(options, LoadPlan::new)
    }

    #[test]
    fn without_options_it_is_a_sweep_to_95_percent() {
        let Some(usual) = plan("") else { return };
        let usual = usual.expect("the defaults fit together");
        assert_eq!(usual.points, SWEEP.map(Point::Share));
        assert_eq!((usual.law, usual.base.load.window), (Law::Poisson, 32));
        let sentence = usual.sentence();
        assert!(sentence.starts_with("load: echo of 64 bytes, poisson arrivals"), "{sentence}");
        assert!(sentence.contains("seed 1"), "{sentence}");
    }

    #[test]
    fn shares_and_rates_are_points() {
        let Some(plan) = plan("--load 70%,1.2 --rate 200k") else { return };
        let points = plan.expect("they fit together").points;
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
    fn a_warm_up_is_a_number_of_calls_and_no_more_than_a_tenth_unless_told() {
        let Some(usual) = plan("-t 1 -r 10") else { return };
        let usual = usual.expect("they fit together");
        assert_eq!(usual.offer(1e6, 0).warm_up, Duration::from_millis(2));
        assert_eq!(usual.offer(1e3, 0).warm_up, Duration::from_millis(10));
        assert_eq!(usual.offer(1e3, 0).time, Duration::from_millis(100));
        let told = plan("-t 1 -r 10 --warm-up 500").expect("the machine is the same");
        let told = told.expect("they fit together");
        assert_eq!(told.offer(1e3, 0).warm_up, Duration::from_millis(500));
    }

    #[test]
    fn a_number_of_calls_is_without_its_warm_up() {
        let Some(counted) = plan("-n 100 -r 2 --warm-up 10") else { return };
        let counted = counted.expect("they fit together");
        assert_eq!(counted.offer(1e3, 0).count_max, 60);
        assert_eq!(counted.offer(1e3, 0).time, LONGEST);
    }

    #[test]
    fn every_other_round_is_in_the_opposite_order() {
        assert_eq!(turns(3, 0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(turns(3, 1).collect::<Vec<_>>(), [2, 1, 0]);
    }
}
