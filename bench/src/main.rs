//! `rpcrdma-bench`: latency and throughput of RPC-over-RDMA beside the floor of the machine.
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod args;
mod call;
mod cores;
mod env;
mod error;
mod floor;
mod jitter;
mod latency;
mod meter;
mod pair;
mod plan;
mod progress;
mod raw;
mod report;
mod rounds;
mod run;

fn main() -> ExitCode {
    match run::run(&args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rpcrdma-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
