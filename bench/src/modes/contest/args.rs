//! The options of `floor`, `raw`, `lat`, `rate` and `bw`.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use strum::{EnumDiscriminants, IntoStaticStr};

use crate::args::{
    CallArgs, CoreArgs, DeviceArgs, EngineArgs, LengthArgs, OutputArgs, WindowArgs, parse,
};

/// A contest with its options; the comment is its line in the list of modes.
#[derive(Debug, Clone, Subcommand, EnumDiscriminants)]
#[strum_discriminants(name(Kind), derive(IntoStaticStr))]
#[strum_discriminants(strum(serialize_all = "lowercase", const_into_str))]
pub enum Contest {
    /// Lower bound of the machine: cache lines of the RPC's length back and forth, no protocol
    #[command(after_help = FLOOR)]
    Floor(Args<NoMore>),
    /// The provider without RPC: Sends of the same length, beside the floor
    #[command(after_help = RAW)]
    Raw(Args<PostingArgs>),
    /// Round trip of an RPC, beside raw and the floor
    #[command(after_help = LAT)]
    Lat(Args<LatArgs>),
    /// RPCs per second with many in flight, beside raw and the floor
    #[command(after_help = RATE)]
    Rate(Args<PostingArgs>),
    /// Bytes per second of large reads or writes, beside raw and the floor
    #[command(after_help = BW)]
    Bw(Args<PostingArgs>),
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

/// How `raw` posts its Sends.
#[derive(Debug, Clone, clap::Args)]
pub struct PostingArgs {
    /// Sends per doorbell of `raw`, as in 1,4,16: powers of two up to 32, one contender each
    /// [default: all that are ready]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = parse::per_post)]
    pub sends_per_post: Vec<u32>,
}

/// The options that only `lat` has, and how `raw` posts.
#[derive(Debug, Clone, clap::Args)]
pub struct LatArgs {
    /// How `raw` posts.
    #[command(flatten)]
    pub posting: PostingArgs,
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
    /// A file that is looked at beside the other contenders.
    pub stat: Option<&'a Path>,
}

impl<'a> PlanArgs<'a> {
    /// Without what only some contests have.
    pub fn new(contest: &'a ContestArgs, length: &'a LengthArgs) -> PlanArgs<'a> {
        PlanArgs { contest, length, sends_per_post: &[], stat: None }
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
            Contest::Floor(args) => PlanArgs::new(&args.contest, &args.length),
            Contest::Raw(args) | Contest::Rate(args) | Contest::Bw(args) => PlanArgs {
                sends_per_post: &args.more.sends_per_post,
                ..PlanArgs::new(&args.contest, &args.length)
            },
            Contest::Lat(args) => PlanArgs {
                sends_per_post: &args.more.posting.sends_per_post,
                stat: args.more.stat.as_deref(),
                ..PlanArgs::new(&args.contest, &args.length)
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
  rpcrdma-bench floor -c 2,3 -t 10      on cores 2 and 3, for 10 s";
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
  rpcrdma-bench bw -p inline                copied through the payload stream instead";
