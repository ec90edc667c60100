//! The content of a configuration file, before values are checked.
//!
//! [`Raw::default`] is the profile `laptop`; a key that a file leaves out keeps that value. To
//! change a configuration in a program, change its `Raw` and check it again:
//!
//! ```
//! use rpcrdma_config::{Config, Raw};
//! let mut raw = Raw::default();
//! raw.receive.inline = "8KiB".into();
//! raw.connections.max = 2;
//! let config = Config::try_from(raw)?;
//! assert_eq!(config.receive().inline_len.value(), 8192);
//! # Ok::<(), rpcrdma_config::ConfigError>(())
//! ```

use serde::{Deserialize, Serialize};

pub use crate::section::{
    RawApp, RawBulk, RawConnections, RawEngine, RawExplicit, RawFabric, RawFeatures, RawIdle,
    RawInterop, RawMemory, RawPlacement, RawProtocol, RawReceive, RawSend, RawShm, RawStats,
    RawTcp, RawVerbs,
};
pub use crate::text::RawText;

/// The content of a file. Every key is described in `docs/configuration.md`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    /// Threads and the device they poll.
    pub engine: RawEngine,
    /// How memory is allocated.
    pub memory: RawMemory,
    /// Receive buffers.
    pub receive: RawReceive,
    /// Send slots.
    pub send: RawSend,
    /// Limits of and per connection.
    pub connections: RawConnections,
    /// Parts of the protocol that can be switched off.
    pub features: RawFeatures,
    /// The version of the protocol.
    pub protocol: RawProtocol,
    /// Explicit RDMA: data moved by RDMA Read and Write.
    pub explicit: RawExplicit,
    /// Limits of other implementations.
    pub interop: RawInterop,
    /// The software fabric.
    pub fabric: RawFabric,
    /// Shared memory.
    pub shm: RawShm,
    /// iWARP in user space, over TCP.
    pub tcp: RawTcp,
    /// RDMA devices.
    pub verbs: RawVerbs,
    /// Memory for the program that embeds the engine.
    pub app: RawApp,
    /// What is measured.
    pub stats: RawStats,
}
