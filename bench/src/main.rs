//! `rpcrdma-bench`: latency and throughput of RPC-over-RDMA beside the floor of the machine.
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use rpcrdma_bench::alloc::Counting;
use rpcrdma_bench::args::{Cli, Mode};
use rpcrdma_bench::error::BenchError;
use rpcrdma_bench::session::Session;
use rpcrdma_bench::verdict::Verdict;
use rpcrdma_bench::{output, verdict};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let mode = match Cli::try_parse() {
        Ok(cli) => cli.mode(),
        Err(shown) => {
            // Help and version are no failures; if the terminal is gone, nobody reads either.
            let _ = shown.print();
            return if shown.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match run(&mode) {
        Ok(verdict) => {
            verdict.lines().iter().for_each(|line| eprintln!("rpcrdma-bench: {line}"));
            verdict.exit_code()
        }
        Err(error) => {
            eprintln!("rpcrdma-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what is wished, hands the outcome to the outputs, and judges it.
fn run(mode: &Mode) -> Result<Verdict, BenchError> {
    output::try_files(mode.output())?;
    let outcome = mode.measure(&Session::new(mode.output()))?;
    output::write(&*outcome, mode.output())?;
    verdict::judge(&*outcome, mode.output())
}
