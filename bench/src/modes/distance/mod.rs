//! `distance`: the number of round trips of a call, and their cost over a delay.
//!
//! ```text
//!   for every operation and size
//!     each way ──▶ virtual time: round trips counted, once
//!     for every delay
//!       one, two, ..., sends ──▶ interleaved rounds: times, and what both shards counted
//! ```
//!
//! The extension for round-trip reduction says that explicit RDMA costs round trips which placement
//! by Send and continuation do not (\[RTR\] 2, 4). Here both carry the same calls over the fabric,
//! with its delay in place of the distance.

mod report;
mod way;

use std::time::Duration;

use rpcrdma::Fabric;
use serde_json::json;

use crate::args::{CoreArgs, LengthArgs, parse};
use crate::call::Shape;
use crate::contenders::rpc::{self, PerCall, Rpc};
use crate::device::Devices;
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::modes::experiment::Experiment;
use crate::output::{OutputArgs, Records, Report, Session};
use crate::stats::{Contender, End, Quota};
use crate::values::{Idle, Op, Touch};
use report::{Case, list};
use way::Way;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Operation of a call: read or write [default: both]
    #[arg(long, value_enum)]
    pub op: Option<Op>,
    /// Payload bytes of a call: 4KiB, 1MiB [default: 4, 16, 64 and 256 KiB]
    #[arg(short, long, value_name = "BYTES", value_parser = parse::length)]
    pub size: Option<usize>,
    /// One-way delays, as in 5us,50us [default: 0us,5us,50us,500us]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = parse::delay)]
    pub delay: Vec<Duration>,
    /// What the receiver reads of the payload; one message in 1024 is always compared
    #[arg(long, value_enum, default_value = "lines")]
    pub touch: Touch,
    /// Idle policy of the engine's threads
    #[arg(long, value_enum, default_value = "spin")]
    pub idle: Idle,
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Clone)]
pub struct Plan {
    ops: Vec<Op>,
    sizes: Vec<usize>,
    delays: Vec<Duration>,
    cores: CorePair,
    quota: Quota,
    args: Args,
}

impl Plan {
    pub fn new(args: &Args) -> Result<Plan, BenchError> {
        if matches!(args.op, Some(Op::Null | Op::Echo)) || args.size == Some(0) {
            let text = "distance carries reads and writes: calls whose data go one way";
            return Err(BenchError::Usage(text.into()));
        }
        Ok(Plan {
            ops: args.op.map_or_else(|| vec![Op::Write, Op::Read], |op| vec![op]),
            sizes: args.size.map_or_else(|| SIZES.to_vec(), |size| vec![size]),
            delays: match &args.delay[..] {
                [] => DELAYS_US.map(Duration::from_micros).to_vec(),
                given => given.to_vec(),
            },
            cores: CorePair::choose(args.cores.cores)?,
            quota: args.length.quota(SECONDS, WARM_UP),
            args: args.clone(),
        })
    }

    pub fn sentence(&self) -> String {
        let ops = self.ops.iter().map(|op| op.into_str()).collect::<Vec<_>>().join(" and ");
        let sizes = list(self.sizes.iter());
        let delays = list(self.delays.iter().map(Duration::as_micros));
        let round = self.quota.end.text("calls");
        let (cores, rounds) = (self.cores, self.args.length.rounds);
        format!(
            "distance: {ops} of {sizes} bytes, {delays} us one way, one call after the other, \
             cores {cores}, {rounds} rounds of {round}"
        )
    }

    fn shapes(&self) -> Vec<Shape> {
        let each = |op: &Op| self.sizes.iter().map(|size| Shape::new(*op, *size, 0)).collect();
        self.ops.iter().flat_map::<Vec<Shape>, _>(each).collect()
    }

    fn farthest(&self) -> Duration {
        self.delays.iter().copied().max().unwrap_or_default()
    }

    fn expected(&self, runs: u32) -> Duration {
        let round = match self.quota.end {
            End::Time(time) => time,
            End::Count(count) => self.farthest() * 4 * u32::try_from(count).unwrap_or(u32::MAX),
        };
        round.saturating_mul(self.args.length.rounds.saturating_mul(runs))
    }
}

/// Measures every way, and counts the round trips of each.
pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let plan = &Plan::new(args)?;
    session.announce(&plan.sentence())?;
    let (cores, rounds, warm_up) = (plan.cores, plan.args.length.rounds, plan.quota.warm_up);
    let shapes = plan.shapes();
    let parts = plan.delays.iter().flat_map(|_| 0..Way::ALL.len());
    let runs = (shapes.len() * parts.count()) as u32;
    let experiment = Experiment {
        mode: "distance",
        what: plan.sentence(),
        settings: json!({ "cores": cores, "rounds": rounds, "warm_up": warm_up }),
        cores,
        rounds,
        turns: Way::ALL.len(),
        expected: plan.expected(runs),
        notes: Vec::new(),
    };
    // One block for each call over each delay: the engines of one block are there at a time.
    let (mut cases, mut notes) = (Vec::new(), Vec::new());
    let delays = plan.delays.len();
    let (records, mut report) = experiment.run_blocks(session, shapes.len() * delays, |block| {
        let (shape, delay) = (shapes[block / delays], plan.delays[block % delays]);
        if block.is_multiple_of(delays) {
            for way in Way::ALL {
                cases.push(count(plan, shape, way)?);
            }
        }
        let counted = cases[cases.len() - Way::ALL.len()..].to_vec();
        let mut contenders = Way::ALL
            .map(|way| contender(plan, shape, delay, way))
            .into_iter()
            .collect::<Result<Vec<Rpc<Fabric>>, BenchError>>()?;
        notes = contenders.iter().filter_map(|rpc| rpc.notes().into_iter().next()).collect();
        let quota = plan.quota;
        Ok(move |_, turn: usize, records: &mut Records| {
            let round = contenders[turn].round(quota)?;
            is_as_named(Way::ALL[turn], shape, contenders[turn].per_call())?;
            counted[turn].take(records, delay, &round);
            Ok(())
        })
    })?;
    report.environment.notes = notes;
    Ok(report::summed(&cases, &records, report))
}

fn count(plan: &Plan, shape: Shape, way: Way) -> Result<Case, BenchError> {
    // Any delay gives the same count; none gives none.
    let delay = plan.farthest().max(Duration::from_micros(1));
    let config = way.config(shape.data_len(), delay, plan.args.idle)?;
    let counted = rpc::count(&config, &way.load(shape, Touch::All), CALLS_COUNTED)?;
    is_as_named(way, shape, counted.per_call)?;
    Ok(Case { shape, way, counted })
}

fn contender(
    plan: &Plan,
    shape: Shape,
    delay: Duration,
    way: Way,
) -> Result<Rpc<Fabric>, BenchError> {
    let config = way.config(shape.data_len(), delay, plan.args.idle)?;
    let (device, load) = (Devices::fabrics(&config)?, way.load(shape, plan.args.touch));
    Rpc::on(&device, way.into_str(), plan.cores, &config, &load, true)
}

/// The data went the way that the name says: what was meant to be compared was compared.
fn is_as_named(way: Way, shape: Shape, per_call: PerCall) -> Result<(), BenchError> {
    let expected = match (way.is_explicit(), shape.op) {
        (true, Op::Write) => [true, false],
        (true, _) => [false, true],
        (false, _) => [false, false],
    };
    let PerCall { version, reads, writes, .. } = per_call;
    if version == way.version() && [reads > 0.0, writes > 0.0] == expected {
        return Ok(());
    }
    let what = format!(
        "{} of {} bytes went in version {version} with {reads} RDMA Reads and {writes} Writes",
        shape.op.into_str(),
        shape.data_len(),
    );
    Err(BenchError::NotAsNamed { who: way.into_str(), what })
}

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench distance                             reads and writes, four sizes, four delays
  rpcrdma-bench distance --op write --delay 5us,50us writes over 1 km and over 10 km
  rpcrdma-bench distance -s 1MiB --delay 500us       large data over 100 km

Round trips are counted in virtual time and by the counters of both sides, and checked against the
time of the calls. The distance is a delay of the software fabric.";
const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
const DELAYS_US: [u64; 4] = [0, 5, 50, 500];
const SECONDS: Duration = Duration::from_millis(300);
/// Enough to have the caches as they will be; each takes up to four delays.
const WARM_UP: u64 = 10;
const CALLS_COUNTED: u32 = 8;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;
    use crate::testing::{good_plan, is_refused};

    fn plan(options: &str) -> Option<Plan> {
        good_plan(options, Plan::new)
    }

    fn counted(op: Op, size: usize, way: Way, delay_us: u64) -> rpc::Counted {
        let (shape, delay) = (Shape::new(op, size, 0), Duration::from_micros(delay_us));
        let config = way.config(size, delay, Idle::Spin).expect("the sizes fit");
        let counted = rpc::count(&config, &way.load(shape, Touch::All), 5);
        let counted = counted.unwrap_or_else(|error| panic!("{op:?} {size} {way:?}: {error}"));
        is_as_named(way, shape, counted.per_call).expect("the data go as they should");
        counted
    }

    /// The times of five calls of every size by every way, in one-way delays, all exactly these.
    fn takes_one_way_trips(op: Op, trips_of: impl Fn(Way) -> u64) {
        for size in SIZES {
            for way in Way::ALL {
                for delay_us in [1, 500] {
                    let counted = counted(op, size, way, delay_us);
                    let call_ns = trips_of(way) * delay_us * 1000;
                    assert_eq!(counted.calls_ns, [call_ns; 5], "{op:?} {size} {way:?}");
                    assert_eq!(counted.round_trips(), Some(trips_of(way) / 2));
                    assert_eq!(Some(counted.per_call.round_trips()), counted.round_trips());
                }
            }
        }
    }

    #[test]
    fn a_write_takes_two_round_trips_by_explicit_rdma_and_one_by_sends() {
        takes_one_way_trips(Op::Write, |way| if way.is_explicit() { 4 } else { 2 });
    }

    #[test]
    fn a_read_takes_one_round_trip_either_way() {
        takes_one_way_trips(Op::Read, |_| 2);
    }

    #[test]
    fn both_sides_do_what_the_way_is_made_of_and_nothing_else() {
        for way in Way::ALL {
            let (write, read) =
                (counted(Op::Write, 65_536, way, 5), counted(Op::Read, 65_536, way, 5));
            let both = [write.per_call, read.per_call];
            let is_local = f64::from(u8::from(way == Way::OneLocal));
            let (sends, explicit) = if way.is_explicit() { (1.0, 1.0) } else { (2.0, 0.0) };
            assert_eq!(both.map(|call| call.invalidations), [is_local; 2], "{way:?}");
            assert_eq!(both.map(|call| call.exposed), [explicit; 2], "{way:?}");
            assert_eq!(both.map(|call| call.reads), [explicit, 0.0], "{way:?}");
            assert_eq!(both.map(|call| call.writes), [0.0, explicit], "{way:?}");
            assert_eq!(both.map(|call| call.sends_there), [sends, 1.0], "{way:?}");
            assert_eq!(both.map(|call| call.sends_back), [1.0, sends], "{way:?}");
        }
    }

    #[test]
    fn a_column_that_is_not_what_it_says_is_an_error() {
        let shape = Shape::new(Op::Write, 4096, 0);
        let by_sends = counted(Op::Write, 4096, Way::Sends, 5).per_call;
        let wrong = is_as_named(Way::One, shape, by_sends);
        assert!(matches!(wrong, Err(BenchError::NotAsNamed { who: "one", .. })), "{wrong:?}");
        let in_two = counted(Op::Write, 4096, Way::Two, 5).per_call;
        assert!(is_as_named(Way::One, shape, in_two).is_err(), "another version");
        assert!(is_as_named(Way::Two, shape, in_two).is_ok());
    }

    #[test]
    fn everything_has_a_default_and_can_be_narrowed() {
        let Some(usual) = plan("") else { return };
        assert_eq!((usual.shapes().len(), usual.delays.len()), (8, 4));
        assert!(usual.expected(128) < Duration::from_secs(45), "about a minute in all");
        let sentence = usual.sentence();
        let start = "distance: write and read of 4096, 16384, 65536 and 262144 bytes, \
                     0, 5, 50 and 500 us one way";
        assert!(sentence.starts_with(start), "{sentence}");
        let one = plan("--op read -s 4KiB --delay 7us").expect("the machine is the same");
        assert_eq!(
            (one.shapes(), one.farthest()),
            (vec![Shape::new(Op::Read, 4096, 0)], Duration::from_micros(7))
        );
    }

    /// A server in version one, whose client is silent until its turn comes, has one place: it
    /// closed that client after `connections.connect_timeout`.
    #[test]
    fn a_way_that_waits_for_its_turn_keeps_its_connection() {
        for way in Way::ALL {
            let config = way.config(65_536, Duration::from_micros(5), Idle::Spin).expect("valid");
            let limits = config.connections();
            assert_eq!((limits.send_timeout, limits.idle_timeout), (None, None));
            assert!(limits.connect_timeout >= Duration::from_secs(3600));
        }
    }

    #[test]
    fn calls_whose_data_go_both_ways_or_none_are_refused() {
        for option in ["--op echo", "--op null", "-s 0"] {
            assert!(is_refused(option, Plan::new), "{option}");
        }
    }

    #[test]
    fn options_of_other_modes_are_refused() {
        for option in [
            "--reply 5",
            "-p send",
            "-w 2",
            "-k 2",
            "--profile latency",
            "--config x",
            "--provider verbs",
        ] {
            let options = format!("rpcrdma-bench distance {option}");
            assert!(Cli::try_parse_from(options.split_whitespace()).is_err(), "{option}");
        }
    }
}
