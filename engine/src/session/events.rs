//! What a session tells of its connections.

use std::time::Duration;

use rpcrdma_provider::{Address, SetupError};

use crate::error::CloseReason;
use crate::shard::peers::ConnectionId;

/// What happened to the connections of a session.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A connection is up.
    Connected {
        /// Where to.
        address: Address,
        /// Its name, to look at its limits.
        peer: ConnectionId,
    },
    /// A connection was lost.
    Lost {
        /// Where it led to.
        address: Address,
        /// The reason.
        why: CloseReason,
    },
    /// A connection was not made.
    NotConnected {
        /// Where to.
        address: Address,
        /// The reason.
        why: SetupError,
        /// When the next address is tried, from then on.
        again_in: Duration,
    },
}
