//! The options of `floor`, `raw`, `lat`, `rate` and `bw`.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use strum::{EnumDiscriminants, IntoStaticStr};

use crate::args::{CallArgs, CoreArgs, DeviceArgs, EngineArgs, LengthArgs, WindowArgs, parse};
use crate::output::OutputArgs;

/// A contest with its options; the comment is its line in the list of modes.
#[derive(Debug, Clone, Subcommand, EnumDiscriminants)]
#[strum_discriminants(name(Kind), derive(IntoStaticStr))]
#[strum_discriminants(strum(serialize_all = "lowercase", const_into_str))]
pub enum Contest {
    /// Lower bounds of the machine: cache lines of the RPC's length back and forth, no protocol
    #[command(after_help = FLOOR)]
    Floor(Args<NoMore>),
    /// The provider without RPC: Sends of the same length, beside the serial floor
    #[command(after_help = RAW)]
    Raw(Args<BesideArgs>),
    /// Round trip of an RPC, beside raw and the serial floor
    #[command(after_help = LAT)]
    Lat(Args<LatArgs>),
    /// RPCs per second with many in flight, beside raw and the serial floor
    #[command(after_help = RATE)]
    Rate(Args<BesideArgs>),
    /// Bytes per second of large reads or writes, beside raw and the serial floor
    #[command(after_help = BW)]
    Bw(Args<BesideArgs>),
}

/// The options of a contest or of a sweep, with those that not all of them have.
#[derive(Debug, Clone, clap::Args)]
pub struct Args<More: clap::Args> {
    /// What not all have.
    #[command(flatten)]
    pub more: More,
    #[command(flatten)]
    pub contest: ContestArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is measured, and on what.
#[derive(Debug, Clone, clap::Args)]
pub struct ContestArgs {
    #[command(flatten)]
    pub call: CallArgs,
    /// How many are under way.
    #[command(flatten)]
    pub window: WindowArgs,
    #[command(flatten)]
    pub cores: CoreArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// No options.
#[derive(Debug, Clone, clap::Args)]
pub struct NoMore {}

/// What a contest is measured beside.
#[derive(Debug, Clone, clap::Args)]
pub struct BesideArgs {
    /// Sends per doorbell of `raw`, as in 1,4,16: powers of two up to 32, one contender each
    /// [default: all that are ready]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = parse::per_post)]
    pub sends_per_post: Vec<u32>,
    /// Also measure the prefetched floor, see `floor`
    #[arg(long)]
    pub prefetched_floor: bool,
    /// Also measure the same calls as futures (`lat`, `rate`; with --idle
    /// block)
    #[arg(long)]
    pub futures: bool,
}

/// What `lat` is measured beside.
#[derive(Debug, Clone, clap::Args)]
pub struct LatArgs {
    /// What other contests have, too.
    #[command(flatten)]
    pub beside: BesideArgs,
    /// Also measure fstat(2) of this file: one GETATTR on an NFS mount with `noac`
    #[arg(long, value_name = "FILE")]
    pub stat: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
pub struct PlanArgs<'a> {
    pub contest: &'a ContestArgs,
    pub length: &'a LengthArgs,
    /// How `raw` posts its Sends.
    pub sends_per_post: &'a [u32],
    /// Whether the prefetched floor is measured beside the serial one.
    pub prefetched_floor: bool,
    /// Whether the calls are measured as futures, too.
    pub futures: bool,
    /// A file that is looked at beside the other contenders.
    pub stat: Option<&'a Path>,
}

impl<'a> PlanArgs<'a> {
    /// Without what only some contests have.
    pub fn new(contest: &'a ContestArgs, length: &'a LengthArgs) -> PlanArgs<'a> {
        let (sends_per_post, prefetched_floor, futures) = (&[], false, false);
        PlanArgs { contest, length, sends_per_post, prefetched_floor, futures, stat: None }
    }

    fn beside(self, args: &'a BesideArgs) -> PlanArgs<'a> {
        let BesideArgs { sends_per_post, prefetched_floor, futures } = args;
        let (prefetched_floor, futures) = (*prefetched_floor, *futures);
        PlanArgs { sends_per_post, prefetched_floor, futures, ..self }
    }
}

impl Contest {
    pub fn parse(text: &str) -> Result<Contest, clap::Error> {
        let words = ["rpcrdma-bench"].into_iter().chain(text.split_whitespace());
        Alone::try_parse_from(words).map(|alone| alone.contest)
    }

    pub fn output(&self) -> &OutputArgs {
        match self {
            Contest::Floor(args) => &args.output,
            Contest::Raw(args) | Contest::Rate(args) | Contest::Bw(args) => &args.output,
            Contest::Lat(args) => &args.output,
        }
    }

    pub fn args(&self) -> PlanArgs<'_> {
        match self {
            Contest::Floor(args) => {
                PlanArgs { prefetched_floor: true, ..PlanArgs::new(&args.contest, &args.length) }
            }
            Contest::Raw(args) | Contest::Rate(args) | Contest::Bw(args) => {
                PlanArgs::new(&args.contest, &args.length).beside(&args.more)
            }
            Contest::Lat(args) => PlanArgs {
                stat: args.more.stat.as_deref(),
                ..PlanArgs::new(&args.contest, &args.length).beside(&args.more.beside)
            },
        }
    }
}

/// A contest as a command of its own.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-bench")]
struct Alone {
    #[command(subcommand)]
    contest: Contest,
}

const FLOOR: &str = "\
Examples:
  rpcrdma-bench floor                   cache lines of a 64-byte echo, one at a time
  rpcrdma-bench floor -w 32             32 in flight: the upper bound of the rate
  rpcrdma-bench floor --op read -s 4096 a page in the reply
  rpcrdma-bench floor -c 2,3 -t 10      on cores 2 and 3, for 10 s

Two floors take turns. The serial floor (`floor` in JSON and conditions) asks for the payload lines
when the completion line has come; other modes print ratios to this one. The prefetched floor
(`prefetched_floor`) asks for the first three payload lines with the completion line, as the
software fabric does. Neither copies data in or out, which every device does.";
const RAW: &str = "\
Examples:
  rpcrdma-bench raw                                 Sends of a 64-byte echo, one at a time
  rpcrdma-bench raw -w 32 --sends-per-post 1,4,16   the cost of a doorbell
  rpcrdma-bench raw --provider verbs -d mlx5_0      an RDMA device without a protocol";
const LAT: &str = "\
Examples:
  rpcrdma-bench lat                                round trip of a 64-byte echo
  rpcrdma-bench lat --op read -p send              4 KiB placed into a page of the client
  rpcrdma-bench lat --op write -s 64KiB -p send    64 KiB placed into memory of the server
  rpcrdma-bench lat --idle block                   with threads that sleep when idle
  rpcrdma-bench lat --prefetched-floor             beside the lower floor, too
  rpcrdma-bench lat --idle block --futures         beside the same calls as futures
  rpcrdma-bench lat --provider verbs --stat FILE   beside the kernel's NFS client";
const RATE: &str = "\
Examples:
  rpcrdma-bench rate                     32 calls in flight
  rpcrdma-bench rate -k 1024 -w 1024     one call in flight on each of 1024 connections
  rpcrdma-bench rate --hold 50us         short messages wait to share a doorbell
  rpcrdma-bench rate --sends-per-post 1,4,16";
const BW: &str = "\
Examples:
  rpcrdma-bench bw                          reads of 64 KiB, placed by Sends
  rpcrdma-bench bw --op write -s 1MiB       large writes
  rpcrdma-bench bw -p rdma                  results written by explicit RDMA
  rpcrdma-bench bw -p inline                copied through the payload stream instead";
