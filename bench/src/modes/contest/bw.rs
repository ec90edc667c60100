//! `bw`: bytes per second of large reads or writes, beside raw and the floor.

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
        Kind::Bw,
        &PlanArgs { contest, length, sends_per_post: &args.posting.sends_per_post, stat: None },
    )
}

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench bw                          reads of 64 KiB, placed by Sends
  rpcrdma-bench bw --op write -s 1MiB       large writes
  rpcrdma-bench bw -p inline                the same copied through the payload stream";
