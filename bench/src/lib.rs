//! The parts of `rpcrdma-bench`: latency and throughput of RPC-over-RDMA beside the floor.
//!
//! ```text
//!   cli ──▶ modes ──▶ contenders (floor, raw verbs, RPC, …), peers, check
//!             │           └ pair: two pinned threads; meter: warm-up, samples, enough
//!             ├──▶ stats: rounds in turns, histograms, bootstrap
//!             └──▶ output: one report ──▶ text, JSON, CSV, HTML, conditions
//! ```
//! The library serves the command and the criterion benches beside it only.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `cli`: the modes as subcommands
//! - `modes`
//! - `check`, `peers`
//! - `settings`: the configuration that options make
//! - `contenders`
//! - `device`: what carries their messages
//! - `args`: options that modes share
//! - `output`
//! - `call`, `machine`, `recipe`, `stats`
//! - `alloc`, `error`, `pages`, `stop`, `values`
#![expect(missing_docs, reason = "an internal library: a comment says what a name does not")]

pub mod alloc;
mod args;
pub mod call;
pub mod check;
pub mod cli;
pub mod contenders;
pub mod device;
pub mod error;
pub mod machine;
pub mod modes;
pub mod output;
pub mod pages;
mod peers;
pub mod recipe;
mod settings;
pub mod stats;
pub mod stop;
#[cfg(test)]
mod testing;
mod values;
