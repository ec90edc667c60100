//! `rate`: RPCs per second with many under way, beside raw and the floor.

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
        Kind::Rate,
        &PlanArgs { contest, length, sends_per_post: &args.posting.sends_per_post, stat: None },
    )
}

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench rate                     32 calls under way
  rpcrdma-bench rate -k 1024 -w 1024     one call under way on each of 1024 connections
  rpcrdma-bench rate --hold 50us         short messages wait for others to share a doorbell
  rpcrdma-bench rate --sends-per-post 1,4,16";
