//! Reads a configuration file and checks all of it, once.
//!
//! ```text
//!   file (TOML) ──tree──▶ Raw ──check──▶ one value at a time ──sums──▶ Config
//!                 │                 │                          │
//!          unknown key,       out of range,            contradicts
//!          wrong type         wrong unit               other values
//! ```
//!
//! [`Raw`] has the content of the file, unchecked. [`Config`] exists only if every value is in its
//! range and no values contradict each other. [`Config::check_cores`] and [`Config::check_device`]
//! check what depends on the machine. An error names the key path, the given value, and the allowed
//! values. Every key is described in `docs/configuration.md`.
//!
//! ```
//! use rpcrdma_config::Config;
//! let config = Config::parse("[receive]\ninline = \"8KiB\"")?;
//! assert_eq!(config.recv_structure().leading_len(), 8192);
//!
//! let error = Config::parse("[receive]\ninline = 512").unwrap_err();
//! assert_eq!(error.key(), Some("receive.inline"));
//! # Ok::<(), rpcrdma_config::ConfigError>(())
//! ```
//!
//! Nothing in this crate is on the fast path: a shard copies the numbers that it needs when it
//! starts.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `needs`
//! - `config`
//! - `sums`, `tree`
//! - `raw`
//! - `section`
//! - `check`
//! - `access`, `choice`, `profile`, `text`
//! - `bounded`, `error`, `units`

#![forbid(unsafe_code)]

pub mod access;
mod bounded;
mod check;
mod choice;
mod config;
mod error;
mod needs;
mod profile;
pub mod raw;
pub mod section;
mod sums;
mod text;
mod tree;
pub mod units;

pub use access::{Access, Who};
pub use bounded::Bounded;
pub use choice::{
    Cores, Exposure, IdlePolicy, Lock, Pages, ProviderKind, ReplyChunkUse, RnrTimer, VersionChoice,
};
pub use config::Config;
pub use error::ConfigError;
pub use needs::DeviceLimits;
pub use profile::PROFILES;
pub use raw::Raw;
pub use tree::keys;
