//! The parts of `rpcrdma-bench`: latency and throughput of RPC-over-RDMA beside the floor.
//!
//! ```text
//!   args ──▶ plan ──▶ contenders: floor, raw, ... ──▶ rounds (interleaved) ──▶ report
//!     └──▶ distance: explicit RDMA beside Sends, at several delays ──▶ rounds
//!                         └ pair: two pinned threads; meter: warm-up, samples, enough
//! ```
//! Made for the command and for the criterion benches beside it, and for nobody else.
#![deny(unsafe_code)]

pub mod args;
pub mod blocks;
pub mod call;
pub mod check;
pub mod cmp;
pub mod cores;
pub mod device;
pub mod dice;
pub mod distance;
pub mod env;
pub mod error;
pub mod floor;
pub mod jitter;
pub mod latency;
pub mod load;
pub mod meter;
pub mod pair;
pub mod peers;
pub mod plan;
pub mod progress;
pub mod raw;
pub mod report;
pub mod rounds;
pub mod rpc;
pub mod run;
pub mod settings;
pub mod site;
pub mod stat;
pub mod wire;
