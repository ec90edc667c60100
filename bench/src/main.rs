//! `rpcrdma-bench`: latency and throughput of RPC-over-RDMA beside the floor of the machine.
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use rpcrdma_bench::args::{Cli, Mode};
use rpcrdma_bench::error::BenchError;
use rpcrdma_bench::output;
use rpcrdma_bench::session::Session;

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
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rpcrdma-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what is wished, and hands the outcome to the outputs.
fn run(mode: &Mode) -> Result<(), BenchError> {
    let outcome = mode.measure(&Session::new(mode.output()))?;
    output::write(&*outcome, mode.output())
}
