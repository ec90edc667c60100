//! Tests across crates, and the tools to write such tests. The API suite and its `World` are the
//! crate `rpcrdma-suite`.
//!
//! ```text
//!   sim ──▶ production shards under a seeded scheduler, with faults; everything counted each turn
//!   CheckedProvider ── a provider that checks the rules of verbs, and poisons posted memory
//!   checks ── what fuzz targets check, one input at a time
//!   Folder ── a temporary folder
//!   Denied, Fault ── system calls that fail
//!   Failing ── a provider with one failing call, which counts its objects
//!   RawPeer ── a peer that speaks raw transmissions over the provider seam
//! ```

pub mod alloc;
pub mod caller;
pub mod checked_provider;
#[path = "../fuzz/checks/mod.rs"]
pub mod checks;
pub mod device;
pub mod failing;
pub mod folder;
pub mod many;
pub mod nfs;
pub mod nfs41;
pub mod peer;
pub mod raw_peer;
pub mod sim;
pub mod tracked;
pub mod watch;

pub use rpcrdma_suite::{
    api_suite, api_suite_one, done, opener, pair, scenarios as suite, script, service, setup, world,
};
