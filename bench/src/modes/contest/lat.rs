//! `lat`: the round trip of an RPC, beside raw and the floor.

use std::path::PathBuf;

use super::{ContestArgs, Kind, Plan, PlanArgs, PostingArgs, Report};
use crate::args::{LengthArgs, OutputArgs};
use crate::error::BenchError;
use crate::output::session::Session;

/// The options of the mode.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What is measured, and on what.
    #[command(flatten)]
    pub contest: ContestArgs,
    /// How `raw` posts.
    #[command(flatten)]
    pub posting: PostingArgs,
    /// Beside the others, fstat(2) of a file: one GETATTR each on an NFS mount with `noac`
    #[arg(long, value_name = "FILE")]
    pub stat: Option<PathBuf>,
    /// How long.
    #[command(flatten)]
    pub length: LengthArgs,
    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Measures.
///
/// # Errors
/// Whatever keeps the run from a result that can be believed.
pub fn measure(args: &Args, session: &Session) -> Result<Report, BenchError> {
    super::measure(&plan(args)?, &args.contest.device, session)
}

/// The options with every default filled in.
///
/// # Errors
/// When options contradict each other.
pub fn plan(args: &Args) -> Result<Plan, BenchError> {
    let Args { contest, length, .. } = args;
    Plan::new(
        Kind::Lat,
        &PlanArgs {
            contest,
            length,
            sends_per_post: &args.posting.sends_per_post,
            stat: args.stat.as_deref(),
        },
    )
}

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench lat                                round trip of a 64 byte echo
  rpcrdma-bench lat --op read -p send              4 KiB placed into a page of the client
  rpcrdma-bench lat --op write -s 64KiB -p send    64 KiB placed into memory of the server
  rpcrdma-bench lat --idle block                   with threads that sleep when there is nothing to do
  rpcrdma-bench lat --provider verbs --stat FILE   beside the kernel's NFS client";
