//! Errors of setting up, of calls, and why a connection ended.

use std::net::SocketAddr;

use crate::provider::ConnectError;

/// Why something could not be set up. Cold path only.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A sum of the configuration exceeds what the device has.
    #[error("{what}: {needed} needed, {device} has {limit}")]
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
    /// Memory could not be had or registered.
    #[error("memory for {what}: {reason}")]
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
    #[error("core {core}: {reason}")]
    Core {
        /// The core.
        core: usize,
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
}
