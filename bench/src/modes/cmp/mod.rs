//! `cmp`: two or more sides in turns, and confidence intervals of their ratios.
//!
//! ```text
//!   words ──▶ sides: a mode, a file, a tool, sockets ──▶ entrants ──▶ probe, rounds in turns, probe
//!                                     figures of each round ◀──┘
//!   the first with every other: figures that both have ──▶ ratio, interval by bootstrap ──▶ report
//! ```
//! Only figures of sides are compared: it makes no difference here whether they come from every
//! sample, a tool's output, or a file, except that the rounds of a file were not run in turns with
//! the others.

use std::time::Duration;

use serde_json::json;

use crate::args::{CoreArgs, LengthArgs, SeedArgs, parse};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::modes::contest::{Kind, Plan};
use crate::modes::experiment::Experiment;
use crate::output::{Environment, Lost, Modes, OutputArgs, Report, Session};
use crate::stats::{End, Quota};
use crate::stop;

mod bootstrap;
mod compare;
mod entrant;
mod report;
mod side;

use compare::{Comparison, FigureOrder};
use entrant::{Entrant, MeasuredSide, Runner};
use report::Compared;
use side::{Ours, Side, What};

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Sides to compare: the first with each of the others
    /// [default: lat with every installed peer]
    ///
    /// A side is a mode with its options in one word (lat, rate, bw, raw and floor run in turns with
    /// the other sides, any other mode as a whole), a saved result
    /// (FILE.json or saved:FILE, with #NAME for one of its contenders), or a peer: unix, tcp,
    /// unix-block, tcp-block and tcp-stream are sockets; ucx, fi_pingpong, iceoryx2 and ib_send_lat
    /// are tools, run on the same cores. Peers do what the first side of this program does, as far
    /// as they can. A single side is compared with every installed peer.
    #[arg(value_name = "SIDE")]
    pub sides: Vec<String>,
    /// Exit with 2 if the whole interval of a first ratio is worse by more than this: 5%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub regression: Option<f64>,
    /// Where the threads and the processes run.
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    /// Where the draws of the bootstrap come from.
    #[command(flatten)]
    pub seed: SeedArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let LineUp { sides, absent } = LineUp::new(&args.sides, session.modes)?;
    let labels = side::labels(&sides);
    let named = labels.iter().zip(sides.iter().map(|side| &side.asked)).collect::<Vec<_>>();
    let seed = args.seed.seed;
    let (resamples, confidence) = (bootstrap::RESAMPLES, bootstrap::CONFIDENCE);
    let mut settings = json!({
        "sides": named, "seed": seed, "resamples": resamples, "confidence": confidence,
    });
    let (what, measured, environment) = if sides.iter().all(|side| side.what.is_result()) {
        results(&sides, &labels, session)?
    } else {
        let (cores, rounds) = (CorePair::choose(args.cores.cores)?, args.length.rounds);
        settings["cores"] = json!(cores);
        settings["rounds"] = json!(rounds);
        in_turns(args, &sides, &labels, cores, session)?
    };
    let order = if is_bandwidth(&sides) { FigureOrder::DataFirst } else { FigureOrder::RateFirst };
    let comparisons = compare(&measured, order, seed)?;
    let compared = Compared { measured, comparisons, absent, allowed: args.regression };
    Ok(compared.report(what, settings, environment))
}

/// Sides of which one at least is run now, in turns with the others.
fn in_turns(
    args: &Args,
    sides: &[Side],
    labels: &[String],
    cores: CorePair,
    session: &Session,
) -> Result<(String, Vec<MeasuredSide>, Environment), BenchError> {
    let example = example(sides)?;
    let seconds = if args.sides.len() < 2 { SECONDS_OF_MANY } else { SECONDS };
    let (quota, rounds) = (args.length.quota(seconds, WARM_UP), args.length.rounds);
    let what = sentence(labels, &example, cores, rounds, quota);
    session.announce(&what)?;
    let mut entrants = Vec::new();
    for (side, label) in sides.iter().zip(labels) {
        entrants.push(side.enter(label.clone(), cores, &example, session.modes)?);
    }
    let notes = entrants.iter().flat_map(|entrant| entrant.notes.clone()).collect();
    let (measured, environment) = run(entrants, notes, cores, rounds, quota, session)?;
    Ok((what, measured, environment))
}

/// Whole results, saved or of modes that are run one after the other: their noise and their machine
/// are what they were when they were measured.
fn results(
    sides: &[Side],
    labels: &[String],
    session: &Session,
) -> Result<(String, Vec<MeasuredSide>, Environment), BenchError> {
    let (first, others) = labels.split_first().expect("there is always one");
    let what = format!("cmp: {first} beside {}, point by point", others.join(", "));
    session.announce(&what)?;
    let (mut measured, mut notes) = (Vec::new(), Vec::new());
    for (side, label) in sides.iter().zip(labels) {
        let entrant = side.enter_whole(label.clone(), session.modes)?;
        notes.extend(entrant.notes.iter().cloned());
        measured.push(entrant.sum_up(true));
    }
    let environments =
        || measured.iter().filter_map(|side| Some((&side.label, &side.result.as_ref()?.environment)));
    let noise = environments().flat_map(|(label, environment)| {
        environment.noise.iter().map(move |reason| format!("{label}: {reason}"))
    });
    let noise = noise.collect();
    let interrupted = environments().any(|(_, environment)| environment.interrupted);
    let (_, of_first) = environments().next().expect("all are results");
    let environment = Environment { notes, noise, interrupted, ..of_first.clone() };
    Ok((what, measured, environment))
}

/// Why a side cannot be run here, and what can be done about it; `None` if it can.
pub(crate) fn absence(asked: &str) -> Option<String> {
    match Side::parse(asked, Modes::NONE) {
        Ok(side) => side.absence(),
        Err(error) => Some(error.to_string()),
    }
}

/// What the sides of a result are called, in their order: see the settings in [`measure`].
pub(crate) fn labels_of(settings: &serde_json::Value) -> Vec<String> {
    let sides = settings["sides"].as_array().map_or(&[][..], Vec::as_slice);
    sides.iter().filter_map(|side| Some(side[0].as_str()?.to_owned())).collect()
}

struct LineUp {
    sides: Vec<Side>,
    absent: Vec<String>,
}

impl LineUp {
    /// Those that were asked for. If there is only one or none, every peer that is installed comes
    /// with it; who was not asked for may be missing.
    fn new(asked: &[String], modes: Modes) -> Result<LineUp, BenchError> {
        let mut sides = Vec::new();
        for asked in asked {
            sides.push(Side::parse(asked, modes)?);
        }
        if sides.is_empty() {
            sides.push(Side::parse("lat", modes)?);
        }
        let whole = sides.iter().find(|side| matches!(side.what, What::Mode(_)));
        if let Some(whole) = whole
            && (sides.len() < 2 || !sides.iter().all(|side| side.what.is_result()))
        {
            let text = "is compared point by point, with another such mode or a saved result";
            return Err(BenchError::Usage(format!("`{}` {text}", whole.asked)));
        }
        let mut absent = Vec::new();
        if asked.len() < 2 {
            let timed = sides.iter().all(|side| side.plan().is_none_or(Plan::is_timed));
            let streams = is_bandwidth(&sides);
            let can = |peer: &Side| match timed {
                true => peer.has_round_trips(),
                false => peer.has_windows() && (streams || !peer.is_one_way()),
            };
            for peer in Side::every_peer().into_iter().filter(can) {
                match peer.absence() {
                    Some(absence) => absent.push(absence),
                    None => sides.push(peer),
                }
            }
        }
        Ok(LineUp { sides, absent })
    }
}

/// Our side that peers imitate: the first one, or a round trip if there is none.
fn example(sides: &[Side]) -> Result<Ours, BenchError> {
    let ours = sides.iter().find_map(|side| match &side.what {
        What::Ours(ours) => Some((**ours).clone()),
        _ => None,
    });
    ours.map_or_else(Ours::usual, Ok)
}

fn is_bandwidth(sides: &[Side]) -> bool {
    sides.iter().filter_map(Side::plan).any(|plan| plan.kind == Kind::Bw)
}

fn sentence(
    labels: &[String],
    example: &Ours,
    cores: CorePair,
    rounds: u32,
    quota: Quota,
) -> String {
    let (first, others) = labels.split_first().expect("there is always one");
    let round = quota.end.text("round trips");
    let data = example.plan.calls();
    format!(
        "cmp: {first} beside {}: {data}, cores {cores}, {rounds} rounds of {round}",
        others.join(", ")
    )
}

/// Runs all sides in turns, between two probes of the machine.
fn run(
    mut entrants: Vec<Entrant>,
    notes: Vec<String>,
    cores: CorePair,
    rounds: u32,
    quota: Quota,
    session: &Session,
) -> Result<(Vec<MeasuredSide>, Environment), BenchError> {
    let live: Vec<usize> = (0..entrants.len()).filter(|at| entrants[*at].is_live()).collect();
    let experiment = Experiment {
        mode: "cmp",
        what: String::new(),
        settings: json!({}),
        cores,
        rounds,
        turns: live.len(),
        expected: expected(&entrants, rounds, quota),
        notes,
    };
    let (_, report) =
        experiment.run(session, |_, index, _| match entrants[live[index]].round(quota) {
            // Ctrl-C reaches the processes of a tool, too.
            Err(_) if stop::is_requested() => Ok(()),
            result => result,
        })?;
    let measured: Vec<MeasuredSide> = entrants.into_iter().map(|one| one.sum_up(false)).collect();
    let lost: Vec<Lost> = measured.iter().filter_map(|one| one.lost.clone()).collect();
    Ok((measured, report.environment.lost(&lost)))
}

fn expected(entrants: &[Entrant], rounds: u32, quota: Quota) -> Duration {
    let round = match quota.end {
        End::Time(time) => time,
        End::Count(_) => Duration::ZERO,
    };
    let each = entrants.iter().map(|entrant| match entrant.runner {
        Runner::Ours { .. } => round,
        Runner::Tool { .. } => round + START_OF_A_TOOL,
        Runner::Whole { .. } => Duration::ZERO,
    });
    each.sum::<Duration>() * rounds
}

/// The first with every other.
fn compare(
    measured: &[MeasuredSide],
    order: FigureOrder,
    seed: u64,
) -> Result<Vec<Vec<Comparison>>, BenchError> {
    let (first, others) = measured.split_first().expect("there is always one");
    let of_results = measured.iter().all(|side| side.result.is_some());
    let mut comparisons = Vec::new();
    for other in others {
        let pair = match of_results {
            true => Comparison::points(first, other, seed),
            false => Comparison::all(first, other, order, seed),
        };
        if pair.is_empty() && !stop::is_requested() {
            let (of, to) = (&first.label, &other.label);
            let text = match of_results {
                true => {
                    let points = |side: &MeasuredSide| Vec::from_iter(side.points()).join(", ");
                    let (of_first, of_other) = (points(first), points(other));
                    format!("{of} and {to} share no point: {of_first}; {of_other}")
                }
                false => format!("{of} and {to} have no common figure of every round"),
            };
            return Err(BenchError::Usage(text));
        }
        comparisons.push(pair);
    }
    Ok(comparisons)
}

/// A share: `5%` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    parse::share(text, 0.0..=10.0).ok_or("a share, as in 5%".into())
}

const SECONDS: Duration = Duration::from_secs(2);
/// With every peer that is there.
const SECONDS_OF_MANY: Duration = Duration::from_secs(1);
const WARM_UP: u64 = 2000;
/// Until both processes of a tool have found each other.
const START_OF_A_TOOL: Duration = Duration::from_millis(500);

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench cmp                                   lat beside every installed peer
  rpcrdma-bench cmp 'lat -s 4KiB'                     the same with other data
  rpcrdma-bench cmp lat 'lat --idle block'            two settings of the engine
  rpcrdma-bench cmp rate 'rate -k 1024'               one connection and many
  rpcrdma-bench cmp bw 'ucx am'                       bandwidth beside active messages of UCX
  rpcrdma-bench cmp bw tcp-stream                     and beside what a TCP socket carries
  rpcrdma-bench cmp lat saved:yesterday.json --regression 5%
  rpcrdma-bench cmp 'lat --provider verbs' ib_send_lat
  rpcrdma-bench cmp today.json yesterday.json         two results of any mode, point by point
  rpcrdma-bench cmp 'load --rate 200k' yesterday.json a mode that is run now, and a result

Ratios are of the first side to another: a ratio of round trips below 1 means that the first is
faster. The 95 % interval is a bootstrap over the rounds. In --fail-if, `ratio` is the first ratio of
the only pair, and `ratio.low` and `ratio.high` are the ends of its interval.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_a_number() {
        for (text, value) in [("5%", 0.05), ("0.05", 0.05), ("0%", 0.0), ("12.5 %", 0.125)] {
            assert_eq!(share(text), Ok(value), "{text}");
        }
        for wrong in ["", "%", "-5%", "x", "2000%", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_side_alone_meets_every_peer_that_is_there() {
        let line_up = match LineUp::new(&["unix".into()], Modes::NONE) {
            Err(BenchError::OneCore { .. }) => return,
            line_up => line_up.expect("sockets are everywhere"),
        };
        assert!(line_up.sides.len() >= 5, "sockets need nothing");
        // All but `ib_send_bw` and `tcp-stream`, which time no round trips; and the side itself.
        assert_eq!(line_up.sides.len() + line_up.absent.len(), Side::every_peer().len() - 2 + 1);
        let two = LineUp::new(&["unix".into(), "tcp".into()], Modes::NONE).expect("two peers");
        assert_eq!((two.sides.len(), two.absent.len()), (2, 0));
    }

    #[test]
    fn peers_of_a_side_with_many_calls_under_way_have_windows() {
        let line_up = match LineUp::new(&["rate".into()], Modes::NONE) {
            Err(BenchError::OneCore { .. }) => return,
            line_up => line_up.expect("a mode"),
        };
        let names: Vec<String> = line_up.sides.iter().map(|side| side.what.name()).collect();
        assert!(names.starts_with(&["rate".into(), "unix".into(), "tcp".into()]), "{names:?}");
        let without = ["unix-block", "tcp-stream", "fi_pingpong"];
        assert!(!names.iter().any(|name| without.contains(&&**name)), "{names:?}");
    }
}
