//! The place of a server that is not in the client's process.

use std::net::IpAddr;

use rpcrdma::{Address, ProviderKind};

/// Where a server is that is not in the client's process.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// A `rpcrdma-bench serve` that was started before.
    Host(Address),
    /// A process of this host, started for the purpose, which serves over this provider and listens
    /// at this address.
    Process(ProviderKind, Option<IpAddr>),
}
