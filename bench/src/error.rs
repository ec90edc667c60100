//! Why a benchmark could not be run.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rpcrdma_config::ConfigError;
use rpcrdma_engine::error::SetupError;

/// Why a benchmark could not be run, or why its result is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Two spinning threads need two cores.
    #[error(
        "this program may use {allowed} core; two threads that spin need two. On one core they \
         would take turns of a scheduler tick each, and the table would show the scheduler, not \
         the engine. Run it where `nproc` says 2 or more"
    )]
    OneCore {
        /// How many cores the program may use.
        allowed: usize,
    },
    /// A core that was asked for cannot be had.
    #[error("core {core}: {reason}")]
    Core {
        /// The core.
        core: u32,
        /// Why not.
        reason: String,
    },
    /// The options contradict each other or the mode.
    #[error("{0}")]
    Usage(String),
    /// The engine cannot be set up so.
    #[error("configuration: {0}")]
    Configuration(#[from] ConfigError),
    /// A call could not be made, or was not answered.
    #[error("{who}: call {number} failed: {reason}")]
    CallFailed {
        /// Who was measured.
        who: &'static str,
        /// Which call, counted from 0.
        number: u64,
        /// Why.
        reason: String,
    },
    /// Bytes came back other than they were sent.
    #[error("{who}: message {number} carried wrong bytes: {detail}")]
    WrongBytes {
        /// Who was measured.
        who: &'static str,
        /// Which message, counted from 0.
        number: u64,
        /// What was expected and what came.
        detail: String,
    },
    /// What is measured could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The device, or the memory for it, failed.
    #[error("{who}: {what}")]
    Device {
        /// Who was measured.
        who: &'static str,
        /// What happened.
        what: String,
    },
    /// A contender does not do what its name says.
    #[error("{who}: {what}")]
    NotAsNamed {
        /// Who was measured.
        who: &'static str,
        /// What it does in place of it.
        what: String,
    },
    /// The other thread ended before its work was done.
    #[error("{who}: the other side ended early")]
    PeerGone {
        /// Who was measured.
        who: &'static str,
    },
    /// A saved result could not be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The result could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl BenchError {
    /// The device of a contender, or the memory for it, failed so.
    #[cold]
    pub fn device(who: &'static str, what: impl fmt::Display) -> BenchError {
        BenchError::Device { who, what: what.to_string() }
    }
}
