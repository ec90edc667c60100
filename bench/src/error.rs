//! Errors of a benchmark.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rpcrdma::error::SetupError;
use rpcrdma_config::ConfigError;

/// Why a benchmark could not be run, or why its result is not to be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    #[error(
        "this program may use {allowed} core; two threads that spin need two. On one core they \
         would take turns of a scheduler tick each, and the table would show the scheduler, not \
         the engine. Run it where `nproc` says 2 or more"
    )]
    OneCore { allowed: usize },
    #[error("core {core}: {reason}")]
    Core { core: u32, reason: String },
    #[error("{0}")]
    Usage(String),
    #[error("configuration: {0}")]
    Configuration(#[from] ConfigError),
    /// A call could not be made, or was not answered.
    #[error("{who}: call {number} failed: {reason}")]
    CallFailed {
        who: &'static str,
        /// Which call, counted from 0.
        number: u64,
        reason: String,
    },
    #[error("{who}: message {number} carried wrong bytes: {detail}")]
    WrongBytes {
        who: &'static str,
        /// Which message, counted from 0.
        number: u64,
        detail: String,
    },
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("{who}: {what}")]
    Device { who: &'static str, what: String },
    /// A contender does not do what its name says.
    #[error("{who}: {what}")]
    NotAsNamed { who: &'static str, what: String },
    /// The other thread ended before its work was done.
    #[error("{who}: the other side ended early")]
    PeerGone { who: &'static str },
    #[error("cannot read {path}: {reason}")]
    Read { path: PathBuf, reason: String },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

impl BenchError {
    /// The device of a contender, or the memory for it, failed so.
    #[cold]
    pub fn device(who: &'static str, what: impl fmt::Display) -> BenchError {
        BenchError::Device { who, what: what.to_string() }
    }
}
