//! Errors of setting up.

use std::fmt;
use std::net::SocketAddr;

use rpcrdma_config::Config;

use crate::ConnectError;

/// Why something could not be set up. Cold path only.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A sum of the configuration exceeds what the device has.
    #[error("{what}: {needed} needed, {device} has at most {limit}")]
    Limit {
        /// What is short.
        what: &'static str,
        /// What the configuration adds up to.
        needed: u64,
        /// What there is.
        limit: u64,
        /// The device.
        device: String,
    },
    /// The configuration does not fit the device or the machine.
    #[error("configuration: {0}")]
    Config(String),
    /// The device or the system does not do what the configuration asks for.
    #[error("{key} = {given}: {reason}")]
    Unmet {
        /// The key.
        key: &'static str,
        /// Its value.
        given: String,
        /// What is in the way, and what would do.
        reason: String,
    },
    /// A call of the system or of a foreign library failed.
    #[error("{call} failed: {source}; {hint}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
        /// The likely cause.
        hint: &'static str,
    },
    /// A foreign library is not there, or is not what it should be.
    #[error(
        "the RDMA libraries are missing: {library} cannot be used ({reason}); install libibverbs1, \
         librdmacm1 and ibverbs-providers, or use the software fabric (engine.provider)"
    )]
    Library {
        /// The library.
        library: &'static str,
        /// Why not.
        reason: String,
    },
    /// There is no such RDMA device.
    #[error("no RDMA device {wanted}; found: {found}")]
    NoDevice {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// Memory could not be had or registered.
    #[error("cannot obtain memory for {what}: {reason}")]
    Memory {
        /// Which memory.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        reason: &'static str,
    },
    /// The connection could not be had.
    #[error("cannot connect to {to}: {reason}")]
    Connect {
        /// The address.
        to: SocketAddr,
        /// Why not.
        reason: ConnectError,
    },
    /// A thread could not be placed.
    #[error("cannot run a shard on core {core}: {reason}")]
    Core {
        /// The core.
        core: u32,
        /// Why not.
        reason: String,
    },
    /// A value is outside of what is allowed.
    #[error("{what} is {value}; allowed: {allowed}")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// The engine is stopping or stopped.
    #[error("the engine is stopped")]
    Stopped,
    /// The thread that was to do it has panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

impl SetupError {
    /// The device or the system does not do what `key` of the configuration says.
    pub fn unmet(config: &Config, key: &'static str, reason: impl Into<String>) -> SetupError {
        let given = config.value_of(key).unwrap_or_default();
        SetupError::Unmet { key, given, reason: reason.into() }
    }
}

/// A thread of the engine has panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{thread} has panicked: {message}")]
#[non_exhaustive]
pub struct Panicked {
    /// Which thread.
    pub thread: EngineThread,
    /// What it said.
    pub message: String,
}

impl Panicked {
    /// A panic of `thread` with this message.
    pub fn new(thread: EngineThread, message: impl Into<String>) -> Panicked {
        Panicked { thread, message: message.into() }
    }
}

/// A thread of the engine, or what a program polls in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineThread {
    /// The control plane: no connection can be made or accepted any more.
    Control,
    /// The shard with this number.
    Shard(u32),
}

impl fmt::Display for EngineThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineThread::Control => f.write_str("the control plane"),
            EngineThread::Shard(number) => write!(f, "shard {number}"),
        }
    }
}
