//! `rpcrdma-bench`: latency and throughput of RPC-over-RDMA beside the floor of the machine.
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use rpcrdma_bench::args::Args;
use rpcrdma_bench::run;

fn main() -> ExitCode {
    match run::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rpcrdma-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
