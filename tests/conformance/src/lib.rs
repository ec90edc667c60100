//! The rules of a device, once: tests that every provider passes, whatever carries its messages.
//!
//! ```text
//!   Subject ──▶ Device ──▶ Pair of Hosts ── post, poll ──▶ what a rule says
//! ```
//! A provider's tests name it as a [`Subject`](subject::Subject) and make a test of each rule with
//! [`rules!`], or of some of them. What is special to a provider (its wire, its files, its delays) is
//! tested in its own crate, with the same hosts.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `list`
//! - `rules`
//! - `open`
//! - `host`
//! - `subject`

pub mod host;
mod list;
pub mod open;
mod rules;
pub mod subject;

#[doc(hidden)]
pub use list::listed;
#[doc(hidden)]
pub use rpcrdma_config::Config;
#[doc(hidden)]
pub use rpcrdma_mempool::Registrar;
#[doc(hidden)]
pub use rpcrdma_provider::{DeviceCaps, Provider, QueueAttr, SetupError};
