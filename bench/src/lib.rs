//! The parts of `rpcrdma-bench`: latency and throughput of RPC-over-RDMA beside the floor.
//!
//! ```text
//!   args ──▶ contest: floor, raw, lat, rate, bw ──▶ rounds (interleaved) ──┬▶ outcome ──▶ output
//!     └────▶ distance: explicit RDMA beside Sends, at several delays ──────┘
//!                         └ pair: two pinned threads; meter: warm-up, samples, enough
//! ```
//! Made for the command and for the criterion benches beside it, and for nobody else.

pub mod alloc;
pub mod args;
pub mod blocks;
pub mod call;
pub mod check;
pub mod churn;
pub mod cmp;
pub mod conns;
pub mod contest;
pub mod cores;
pub mod cost;
pub mod device;
pub mod dice;
pub mod distance;
pub mod env;
pub mod error;
pub mod floor;
pub mod html;
pub mod idle;
pub mod jitter;
pub mod latency;
pub mod load;
pub mod meter;
pub mod outcome;
pub mod output;
pub mod pages;
pub mod pair;
pub mod peers;
pub mod progress;
pub mod raw;
pub mod recipe;
pub mod rounds;
pub mod rpc;
pub mod serve;
pub mod session;
pub mod settings;
pub mod shards;
pub mod site;
pub mod soak;
pub mod starve;
pub mod stat;
pub mod stop;
#[cfg(test)]
mod testing;
pub mod verdict;
pub mod wire;
