//! Tests across crates: the API suite, generic over the provider, and the tools to write such
//! tests.
//!
//! ```text
//!   suite ──▶ World ──▶ Engine, Control, Shard, Client      one thread, virtual time or the clock's
//!     │         └ Service: answers calls as their script says
//!     └ script: what is sent and expected, byte for byte
//!   sim ──▶ production shards under a seeded scheduler, with faults; everything counted each turn
//!   CheckedProvider ── a provider that checks the rules of verbs, and poisons posted memory
//!   checks ── what fuzz targets check, one input at a time
//!   Folder ── a temporary folder
//!   Failing ── a provider with one failing call, which counts its objects
//!   RawPeer ── a peer that speaks raw transmissions over the provider seam
//! ```

pub mod alloc;
pub mod caller;
pub mod checked_provider;
#[path = "../fuzz/checks/mod.rs"]
pub mod checks;
pub mod children;
pub mod device;
pub mod done;
pub mod failing;
pub mod folder;
pub mod nfs;
pub mod opener;
pub mod pair;
pub mod raw_peer;
pub mod script;
pub mod service;
pub mod setup;
pub mod sim;
pub mod suite;
pub mod watch;
pub mod world;
