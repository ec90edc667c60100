//! `raw`: the provider without RPC, beside the floor.

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
        Kind::Raw,
        &PlanArgs { contest, length, sends_per_post: &args.posting.sends_per_post, stat: None },
    )
}

const EXAMPLES: &str = "\
Examples:
  rpcrdma-bench raw                                 Sends of a 64 byte echo, one after the other
  rpcrdma-bench raw -w 32 --sends-per-post 1,4,16   what a doorbell costs
  rpcrdma-bench raw --provider verbs -d mlx5_0      an RDMA device without a protocol";
