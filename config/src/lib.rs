//! A configuration file becomes a checked configuration, once.
//!
//! ```text
//!   file (TOML) ──tree──▶ Raw ──judge──▶ one value at a time ──sums──▶ Config
//!                 │                 │                          │
//!          unknown key,       out of range,            does not add up
//!          wrong kind         wrong unit               with the others
//! ```
//!
//! [`Raw`] mirrors the file and judges nothing. [`Config`] exists only if everything in it is in
//! range and every sum comes out; what depends on the machine is asked for separately, by
//! [`Config::check_cores`] and [`Config::check_device`]. An error names the key path, the value
//! that was given, and what is allowed. Every key is described in `docs/configuration.md`.
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
//! Nothing here is on the fast path: a shard copies the numbers it needs when it starts.

#![forbid(unsafe_code)]

mod bounded;
mod config;
mod error;
mod judge;
mod profile;
pub mod raw;
pub mod section;
mod sums;
mod text;
mod tree;
pub mod units;

pub use bounded::Bounded;
pub use config::Config;
pub use error::ConfigError;
pub use profile::PROFILES;
pub use raw::Raw;
pub use section::{
    Cores, Exposure, IdlePolicy, Lock, Pages, ProviderKind, ReplyChunkUse, RnrTimer, VersionChoice,
};
pub use sums::Limits;
pub use tree::keys;
