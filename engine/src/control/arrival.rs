//! Messages between the control plane and a shard.

use rpcrdma_xdr::private_data::PrivateData;

use crate::provider::{Address, ConnectError, ConnectId, Endpoint, PrivateBytes, Provider};
use crate::quotas::QuotaPermit;

/// A connection request from a shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectOrder {
    pub shard: u32,
    pub to: Address,
    /// The shard's identifier for it.
    pub id: ConnectId,
    /// Whether it repeats an attempt that failed with version two.
    pub again: bool,
}

/// What the connection manager sends to a shard.
pub(crate) enum Arrival<P: Provider> {
    /// A peer requests a connection. The answer refers to `number`.
    Request { number: u64, from: Address, private: PrivateBytes },
    /// A requested connection that will not be established.
    Abandoned { from: Address },
    /// A connection requested by a peer.
    Accepted {
        endpoint: Endpoint<P::Cm>,
        from: Address,
        private: Option<PrivateData>,
        permit: QuotaPermit,
    },
    /// A connection requested by this shard.
    Connected { order: ConnectOrder, endpoint: Endpoint<P::Cm>, private: Option<PrivateData> },
    /// A connection requested by this shard that failed.
    Refused { id: ConnectId, reason: ConnectError },
}
