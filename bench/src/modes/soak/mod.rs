//! `soak`: one load for minutes or hours, sampled at intervals: leaks and drift.
//!
//! ```text
//!   interval, interval, ...  each: load, then memory, descriptors, pools, latency, rate
//!        └ a tenth is warm-up ──▶ the trend of each figure over the rest ──▶ leak, drift, or none
//!   until the time is over, and the calls and bytes that are wanted have been carried
//! ```
//! The number of samples is bounded for any duration: a leak detector must not leak.

mod goal;
mod report;
mod sample;
mod trend;

use std::time::{Duration, Instant};

use crate::args::LengthArgs;
use crate::contenders::rpc::Rpc;
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::machine::jitter::{self, PROBE_TIME};
use crate::modes::contest::{ContestArgs, Kind, Plan, PlanArgs};
use crate::output::{Environment, OutputArgs, Report, Session};
use crate::stats::{End, Latency, Quota};
use crate::stop;
use goal::Goal;
use report::Soaked;
use sample::{Sample, Samples};

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub contest: ContestArgs,
    /// Length of the run, as in 90s, 10min, 8h
    #[arg(short, long, value_name = "TIME", default_value = "10min", value_parser = long_time)]
    pub time: Duration,
    /// Go on until this many calls were made, as in 1500000, 200k, 10M or 1G
    #[arg(long, value_name = "N", value_parser = goal::calls)]
    pub calls: Option<u64>,
    /// Go on until this much payload was carried, requests and replies together, as in 64GiB or 1TiB
    #[arg(long, value_name = "BYTES", value_parser = goal::bytes)]
    pub bytes: Option<u64>,
    /// Time between two samples [default: 1/240 of the run, at least 1s]
    #[arg(long, value_name = "TIME", value_parser = long_time)]
    pub interval: Option<Duration>,
    /// Allowed drift of p50, p99 and the rate, in percent over the whole run
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub drift_max: f64,
    /// Exit with 2 on a leak or a drift, and if the run is ended before it has what --calls and
    /// --bytes want
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let interval = interval(args.time, args.interval)?;
    let length = LengthArgs { seconds: None, iterations: None, warm_up: Some(0), rounds: 1 };
    let window = args.contest.window.window.unwrap_or(1);
    let kind = if window > 1 { Kind::Rate } else { Kind::Lat };
    let mut plan = Plan::new(kind, &PlanArgs::new(&args.contest, &length))?;
    plan.load.window = window;
    let goal = Goal { calls: args.calls.unwrap_or(0), bytes: args.bytes.unwrap_or(0) };
    let what = format!(
        "soak: {}, {} s{}, looked at every {} s, cores {}",
        plan.calls(),
        args.time.as_secs_f64(),
        goal.words(),
        interval.as_secs_f64(),
        plan.cores
    );
    session.announce(&what)?;
    let device = &args.contest.device;
    let soaked = on_device!(device, &plan.config, of_both_ends, |device| {
        soak(device, &plan, &Length { time: args.time, interval, goal }, session)
    })?;
    Ok(soaked.report(&plan, args.drift_max, args.check, what))
}

/// How long the run is.
struct Length {
    time: Duration,
    interval: Duration,
    goal: Goal,
}

fn soak<D: Device>(
    device: &D,
    plan: &Plan,
    &Length { time, interval, goal }: &Length,
    session: &Session,
) -> Result<Soaked, BenchError> {
    let Plan { cores, config, load, .. } = plan;
    let timed = load.window == 1;
    let mut rpc = Rpc::on(device, "rpc", *cores, config, load, timed)?;
    let notes = device.notes().into_iter().chain(rpc.notes()).collect();
    let before = jitter::probe(*cores, PROBE_TIME)?;
    let looks = looks(time, interval);
    let progress = session.progress(looks, time);
    // Allocated now: later growth is not of this list.
    let mut samples = Samples::with_room(LOOKS_MAX as usize);
    let (mut latency, mut preempted) = (Latency::new(), 0);
    let mut carried = Goal::default();
    let each = (load.shape.request_data + load.shape.reply_data) as u64;
    let began = Instant::now();
    for look in 1.. {
        let quota = Quota { warm_up: 0, end: End::Time(interval) };
        let round = if timed { rpc.one_by_one(quota)? } else { rpc.closed(quota)? };
        preempted += round.preempted;
        latency.merge(&round.latency);
        samples.push(Sample::new(began.elapsed(), &round, rpc.held()));
        carried.calls += round.completed;
        carried.bytes += round.completed * each;
        progress.step(look.min(looks));
        if stop::is_requested() || (look >= looks && carried.has(goal)) {
            break;
        }
    }
    drop(progress);
    let jitters = [before, jitter::probe(*cores, PROBE_TIME)?];
    let environment = Environment::new(*cores, notes, jitters);
    Ok(Soaked { environment, samples: samples.into_kept(), carried, goal, latency, preempted })
}

/// The time between two looks: as asked for, or so that there are enough and not too many.
fn interval(time: Duration, requested: Option<Duration>) -> Result<Duration, BenchError> {
    let interval = requested.unwrap_or((time / LOOKS).max(SECOND.min(time / LOOKS_LEAST)));
    if looks(time, interval) > LOOKS_MAX {
        let text = format!("--interval: more than {LOOKS_MAX} samples in the run");
        return Err(BenchError::Usage(text));
    }
    Ok(interval)
}

fn looks(time: Duration, interval: Duration) -> u32 {
    let looks = time.as_secs_f64() / interval.as_secs_f64();
    (looks.round() as u32).max(1)
}

fn long_time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("a time as in 90s, 10min, 8h or 2d".into()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "a time as in 90s, 10min or 8h")? * scale;
    if !(0.01..=TIME_MAX_S).contains(&seconds) {
        return Err("10 ms to 30 days".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

const SECOND: Duration = Duration::from_secs(1);
const LOOKS: u32 = 240;
/// As many in a run that is too short for one a second.
const LOOKS_LEAST: u32 = 20;
/// Slopes of all pairs of them are held at the end: half a million numbers.
const LOOKS_MAX: u32 = 1000;
const TIME_MAX_S: f64 = 30.0 * 86_400.0;

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench soak                               ten minutes of echoes of 64 bytes
  rpcrdma-bench soak -t 8h --json night.json       one night
  rpcrdma-bench soak -t 1h --check                 exit code 2 on a leak or a drift
  rpcrdma-bench soak --provider shm -s 1KiB -t 1h --calls 1G --bytes 1TiB --check
                                                   an hour, a thousand million calls and 1 TiB
  rpcrdma-bench soak -w 32 --op write -p send      writes of 4 KiB, 32 in flight
  rpcrdma-bench soak --fail-if 'memory.rise>1MiB'

--calls and --bytes make a run longer than its time, never shorter; the samples of a run that is much
longer are thinned out. Ctrl-C ends the run and prints the result so far. With a window of 1 each call is timed; with more,
calls are counted.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_minutes_hours_or_days() {
        for (text, seconds) in [("90", 90.0), ("1.5s", 1.5), ("10min", 600.0), ("2m", 120.0)] {
            assert_eq!(long_time(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        assert_eq!(long_time("8h"), Ok(Duration::from_secs(8 * 3600)));
        assert_eq!(long_time("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for wrong in ["", "h", "-1s", "31d", "1w", "9ms", "NaN", "1h30"] {
            assert!(long_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn there_are_enough_looks_and_never_too_many() {
        let of = |seconds: f64| {
            let time = Duration::from_secs_f64(seconds);
            looks(time, interval(time, None).expect("a default fits"))
        };
        assert_eq!(of(600.0), LOOKS);
        assert_eq!(of(8.0 * 3600.0), LOOKS);
        assert_eq!(of(60.0), 60);
        assert_eq!(of(1.0), LOOKS_LEAST);
        assert_eq!(of(TIME_MAX_S), LOOKS);
        let hour = Duration::from_secs(3600);
        assert!(interval(hour, Some(SECOND)).is_err());
        assert!(interval(hour, Some(4 * SECOND)).is_ok());
    }
}
