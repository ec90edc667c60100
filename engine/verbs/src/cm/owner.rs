//! Finds the owner of an event by the key of its librdmacm id.

use std::net::SocketAddr;
use std::sync::Weak;

use rpcrdma_provider::ConnectId;

use crate::cm_id::Id;
use crate::port::{Pair, Port};

/// The owner of an id, which its events go to.
pub(super) enum Owner {
    /// A listener, until it is dropped.
    Listener {
        _id: Id,
        at: SocketAddr,
    },
    Attempt(ConnectId),
    /// A connection, on its queues.
    Link {
        port: Weak<Port>,
        pair: Weak<Pair>,
    },
}

impl Owner {
    /// Whether the owner still exists.
    pub fn is_there(&self) -> bool {
        match self {
            Owner::Listener { .. } | Owner::Attempt(_) => true,
            Owner::Link { pair, .. } => pair.strong_count() > 0,
        }
    }

    /// Whether it listens at this address.
    pub fn listens_at(&self, address: SocketAddr) -> bool {
        matches!(self, Owner::Listener { at, .. } if *at == address)
    }
}
