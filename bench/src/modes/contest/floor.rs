//! `floor`: the machine alone.

use super::{ContestArgs, Kind, Plan, PlanArgs, Report};
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
    Plan::new(Kind::Floor, &PlanArgs { contest, length, sends_per_post: &[], stat: None })
}

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench floor                   lines of a 64 byte echo there and back, one after the other
  rpcrdma-bench floor -w 32             with 32 under way: what this machine can do at best
  rpcrdma-bench floor --op read -s 4096 a page on the way back
  rpcrdma-bench floor -c 2,3 -t 10      on cores 2 and 3, for 10 s";
