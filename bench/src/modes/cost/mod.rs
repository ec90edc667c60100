//! `cost`: what an RPC costs each side, in counts instead of times.
//!
//! ```text
//!   this program        a thread for each side: allocations, page faults, doorbells, ...
//!   under strace        the same once more: system calls of each thread
//!   under callgrind     both sides on one thread: instructions, locked ones among them
//! ```
//! What is counted where does not slow down or change what is counted elsewhere, and none of it is
//! a time: a busy machine gives the same figures, but for context switches.

mod calls;
mod locked;
mod report;

use std::hint::black_box;
use std::path::Path;
use std::{env, fs, process};

use rpcrdma::{Provider, ProviderKind};
use rpcrdma_config::{Config, Raw};
use rpcrdma_instructions::callgrind::{self, Where};
use serde::{Deserialize, Serialize};

use report::{Costs, InstructionCount, SIDES, SideCosts};

use crate::args::LengthArgs;
use crate::call::Load;
use crate::contenders::far::{PROGRAM, own_program};
use crate::contenders::rpc::Rpc;
use crate::contenders::tally::Tally;
use crate::device::{Device, on_device};
use crate::error::BenchError;
use crate::machine::CorePair;
use crate::machine::jitter::{self, PROBE_TIME};
use crate::modes::contest::{ContestArgs, Kind, Plan, PlanArgs};
use crate::output::{Environment, OutputArgs, Report, Session};
use crate::stats::{End, Quota};
use calls::Calls;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub contest: ContestArgs,
    /// Number of counted calls
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,
    /// Number of calls before them
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub warm_up: u64,
    /// Count in this process only: no strace, no callgrind
    #[arg(long)]
    pub alone: bool,
    /// The part that runs under another program, as JSON.
    #[arg(long, value_parser = Inside::parse, hide = true)]
    pub inside: Option<Box<Inside>>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The calls of a run under another program, and what that counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inside {
    counter: Counter,
    load: Load,
    config: Raw,
    cores: CorePair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Counter {
    /// System calls.
    Strace,
    /// Instructions.
    Callgrind,
}

impl Inside {
    fn parse(text: &str) -> Result<Box<Inside>, String> {
        let inside = serde_json::from_str(text).and_then(serde_json::from_value);
        inside.map_err(|error| error.to_string())
    }
}

/// What is measured: by the options, or as the program that runs this one under another says.
fn plan(args: &Args) -> Result<Plan, BenchError> {
    let length = LengthArgs {
        seconds: None,
        iterations: Some(args.iterations),
        warm_up: Some(args.warm_up),
        rounds: 1,
    };
    let plan = Plan::new(Kind::Rate, &PlanArgs::new(&args.contest, &length))?;
    let Some(Inside { load, config, cores, .. }) = args.inside.as_deref().cloned() else {
        return Ok(plan);
    };
    Ok(Plan { load, config: Config::try_from(config)?, cores, ..plan })
}

pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    let plan = plan(args)?;
    let what = format!("cost: {}, {} calls counted", plan.calls(), args.iterations);
    session.announce(&what)?;
    let device = &args.contest.device;
    on_device!(device, &plan.config, of_both_ends, |device| measure_on(device, &plan, args, what))
}

fn measure_on<D: Device>(
    device: &D,
    plan: &Plan,
    args: &Args,
    what: String,
) -> Result<Report, BenchError> {
    // The jitter of a run under another program is not shown.
    let probe_time = if args.inside.is_some() { PROBE_TIME / 100 } else { PROBE_TIME };
    let before = jitter::probe(plan.cores, probe_time)?;
    let counter = args.inside.as_ref().map(|inside| inside.counter);
    let Plan { cores, config, load, .. } = plan;
    let mut rpc = match counter {
        Some(Counter::Callgrind) => Rpc::here(device, "rpc", *cores, config, load)?,
        _ => Rpc::on(device, "rpc", *cores, config, load, false)?,
    };
    let sides = match counter {
        Some(Counter::Strace) => under_strace(&mut rpc, args)?,
        Some(Counter::Callgrind) => under_callgrind(&mut rpc, args)?,
        None => here(&mut rpc, args)?,
    };
    let (strace, callgrind) = others(args, plan);
    let after = jitter::probe(plan.cores, probe_time)?;
    let notes = device.notes().into_iter().chain(rpc.notes()).collect();
    let environment = Environment::new(plan.cores, notes, [before, after]);
    let counted = Costs { sides, system_calls: strace, instructions: callgrind };
    Ok(counted.report(plan, what, environment))
}

/// What each side counts itself on its thread.
fn here<P: Provider>(rpc: &mut Rpc<P>, args: &Args) -> Result<[SideCosts; 2], BenchError> {
    rpc.closed(count(args.warm_up))?;
    let (before, made) = (rpc.counters(), rpc.received());
    let counted = rpc.counted(count(args.iterations), Tally::Events)?;
    // Those of the window at the end are among them.
    let (after, calls) = (rpc.counters(), rpc.received() - made);
    let side = |index: usize| SideCosts::new(calls, counted[index], &before[index], &after[index]);
    Ok([side(0), side(1)])
}

/// The same, with marks for strace.
fn under_strace<P: Provider>(rpc: &mut Rpc<P>, args: &Args) -> Result<[SideCosts; 2], BenchError> {
    rpc.closed(count(args.warm_up))?;
    rpc.counted(count(args.iterations), Tally::Marks)?;
    Ok([SideCosts::default(); 2])
}

/// Both sides on one thread, which callgrind runs.
fn under_callgrind<P: Provider>(
    rpc: &mut Rpc<P>,
    args: &Args,
) -> Result<[SideCosts; 2], BenchError> {
    rpc.on_this_thread(args.warm_up)?;
    counting_begins();
    rpc.on_this_thread(args.iterations)?;
    Ok([SideCosts::default(); 2])
}

/// callgrind forgets what it has counted when this is called.
#[inline(never)]
fn counting_begins() {
    black_box(());
}

/// What other programs count, each on a run of its own: system calls, instructions.
type Others = (Result<[Calls; 2], String>, Result<[InstructionCount; 2], String>);

fn others(args: &Args, plan: &Plan) -> Others {
    let skipped = |why: &str| (Err(why.to_owned()), Err(why.to_owned()));
    if args.alone || args.inside.is_some() {
        return skipped("not asked for");
    }
    let program = match own_program() {
        Ok(program) => program,
        Err(why) => return skipped(why),
    };
    let folder = env::temp_dir().join(format!("{PROGRAM}.{}", process::id()));
    if let Err(why) = fs::create_dir_all(&folder) {
        return skipped(&format!("{}: {why}", folder.display()));
    }
    let words = words(args, plan, Counter::Strace, args.warm_up, args.iterations);
    let system_calls = calls::count(&program, &words, SIDES, &folder);
    let counted = (system_calls, instructions(&program, args, plan, &folder));
    // What stays behind is small, and in a place that is emptied.
    let _ = fs::remove_dir_all(&folder);
    counted
}

fn instructions(
    program: &Path,
    args: &Args,
    plan: &Plan,
    folder: &Path,
) -> Result<[InstructionCount; 2], String> {
    if args.contest.device.over() == ProviderKind::Verbs {
        return Err("counted without a device only".into());
    }
    let iterations = instructions_of(plan.load.shape.data_len()).min(args.iterations);
    let warm_up = iterations.min(args.warm_up);
    let words = &words(args, plan, Counter::Callgrind, warm_up, iterations);
    let one = |side: &str| -> Result<InstructionCount, String> {
        let at = Where {
            toggles: vec![format!("*{side}_turn*")],
            begin: "*counting_begins*".into(),
            addresses: true,
            ..Where::default()
        };
        let parts = callgrind::count(program, words, &at, &folder.join(side));
        let parts = parts.map_err(|why| why.to_string())?;
        let part = parts.first().filter(|part| part.count.own > 0);
        let part = part.ok_or("callgrind did not find the functions: is the program stripped?")?;
        let locked = locked::count(program, &part.addresses);
        Ok(InstructionCount { calls: iterations, count: part.count, locked })
    };
    let [client, server] = SIDES.map(one);
    Ok([client?, server?])
}

/// The command line of this program that makes the same calls under another program.
fn words(args: &Args, plan: &Plan, counter: Counter, warm_up: u64, calls: u64) -> Vec<String> {
    let (config, provider) = (plan.config.raw().clone(), args.contest.device.over().as_str());
    let inside = Inside { counter, load: plan.load, config, cores: plan.cores };
    let inside = serde_json::to_string(&inside).expect("plain data with string keys");
    let [warm_up, calls] = [warm_up, calls].map(|count| count.to_string());
    let options = [
        ("--inside", &*inside),
        ("--provider", provider),
        ("--warm-up", &warm_up),
        ("--iterations", &calls),
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name, value]);
    ["cost"].into_iter().chain(options).map(str::to_owned).collect()
}

/// Calls that are enough for a figure: callgrind is slow, and every call the same.
fn instructions_of(data_len: usize) -> u64 {
    if data_len > 4096 { 200 } else { 2000 }
}

fn count(calls: u64) -> Quota {
    Quota { warm_up: 0, end: End::Count(calls) }
}

pub const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench cost                          an echo of 64 bytes, 32 in flight
  rpcrdma-bench cost --op null -w 1           the cheapest call, one at a time
  rpcrdma-bench cost --op write -p send       4 KiB placed
  rpcrdma-bench cost --idle block             system calls of threads that sleep
  rpcrdma-bench cost --fail-if 'server.allocations>0'

strace counts system calls and callgrind counts instructions (packages strace and valgrind), each in
one more run. Without them these figures are missing, and the table says so.";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Mode};
    use crate::testing::parsed;

    #[test]
    fn the_part_under_another_program_makes_the_same_calls() {
        if crate::machine::cores::CorePair::choose(None).is_err() {
            return;
        }
        for options in [
            "",
            "--op write -s 8192 -p send -w 4 -k 2 --touch all",
            "--op echo --size 64 --reply 900 --idle block --hold 50us --profile latency",
            "--op read -s 64KiB --placement send --continuation off --cores 0,1",
        ] {
            let args: Args = parsed(options);
            let plan = self::plan(&args).expect("the options fit together");
            let words = words(&args, &plan, Counter::Strace, 10, 20);
            assert_eq!(words[0], "cost");
            let Mode::Cost(inner) = Cli::parse_from([&["".to_owned()], &words[..]].concat()).mode()
            else {
                panic!("another mode: {words:?}")
            };
            let same = self::plan(&inner).expect("the options fit together");
            assert_eq!(inner.inside.map(|inside| inside.counter), Some(Counter::Strace));
            assert_eq!((inner.warm_up, inner.iterations), (10, 20));
            assert_eq!((same.load, same.config, same.cores), (plan.load, plan.config, plan.cores));
        }
    }
}
