//! The API suite: scenarios that must pass on every provider, and the tools to write such scenarios.
//!
//! ```text
//!   Scenario ──▶ World ──▶ Engine, Control, Shard, Client      one thread, virtual time or the clock's
//!      │           └ Service: answers calls as their script says
//!      └ script: what is sent and expected, byte for byte
//! ```
//! A provider's tests make a test of each scenario, with [`api_suite!`]; a program that proves a
//! device runs [`Scenario::all`]. A scenario has both ends of its connections on one device, and
//! panics with what was not as it must be.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `scenarios`
//! - `list`, `pair`, `world`
//! - `setup`
//! - `done`, `service`
//! - `opener`, `script`

pub mod done;
mod list;
pub mod opener;
pub mod pair;
pub mod scenarios;
pub mod script;
pub mod service;
pub mod setup;
pub mod world;

pub use list::Scenario;
