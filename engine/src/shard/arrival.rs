//! Messages between the control plane and a shard.

use std::net::SocketAddr;

use rpcrdma_xdr::private_data::PrivateData;

use crate::provider::{ConnectError, ConnectId, Endpoint, PrivateBytes, Provider};

/// A connection that a shard wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectOrder {
    pub shard: u32,
    pub to: SocketAddr,
    /// The shard's name for it.
    pub id: ConnectId,
    /// Whether it stands for one on which version two was tried in vain.
    pub again: bool,
}

/// What the connection manager brings to a shard.
pub(crate) enum Arrival<P: Provider> {
    /// A peer asks for a connection: is it wanted? The answer says the number.
    Request { number: u64, from: SocketAddr, private: PrivateBytes },
    /// Nothing comes of a connection that was wanted.
    Abandoned { from: SocketAddr },
    /// A connection that a peer asked for.
    Accepted { endpoint: Endpoint<P::Cm>, from: SocketAddr, private: Option<PrivateData> },
    /// A connection that this shard asked for.
    Connected { order: ConnectOrder, endpoint: Endpoint<P::Cm>, private: Option<PrivateData> },
    /// A connection that this shard asked for and cannot have.
    Refused { id: ConnectId, reason: ConnectError },
}
