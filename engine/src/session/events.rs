//! What a session reports of its connections.

use std::fmt;
use std::time::Duration;

use rpcrdma_provider::{Address, SetupError};

use crate::connection_id::ConnectionId;
use crate::error::CloseReason;

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
    /// A connection was not made, and no later attempt can succeed without a change of the program
    /// or of a configuration: this address is not tried again, unless another attempt, which is
    /// under way, connects to it; one that fails is not reported. A session whose addresses are all
    /// given up ends its calls with [`SessionError::NoConnection`](super::SessionError), and the
    /// reason of the last one.
    GivenUp {
        /// Where to.
        address: Address,
        /// The reason.
        why: SetupError,
    },
}

impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionEvent::Connected { address, peer } => {
                write!(f, "connected to {address} (connection {peer})")
            }
            SessionEvent::Lost { address, why } => {
                write!(f, "connection to {address} lost: {why}")
            }
            SessionEvent::NotConnected { address, why, again_in } => {
                write!(f, "{}; next attempt in {again_in:?}", Reason(*address, why))
            }
            SessionEvent::GivenUp { address, why } => {
                write!(f, "{}; not tried again", Reason(*address, why))
            }
        }
    }
}

/// Why a connection was not made, with its address once.
struct Reason<'a>(Address, &'a SetupError);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            // It names the address.
            error @ SetupError::Connect { .. } => write!(f, "{error}"),
            other => write!(f, "cannot connect to {}: {other}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_provider::ConnectError;

    use super::*;

    #[test]
    fn an_event_reads_as_a_sentence() {
        let address: Address = "10.0.0.1:20049".parse().expect("an address");
        let peer = ConnectionId::first(3);
        let refused = SetupError::connect(address, ConnectError::NoListener);
        let again_in = Duration::from_millis(200);
        let shown = [
            SessionEvent::Connected { address, peer },
            SessionEvent::Lost { address, why: CloseReason::PeerGone },
            SessionEvent::NotConnected { address, why: refused, again_in },
            SessionEvent::NotConnected { address, why: SetupError::Stopped, again_in },
        ]
        .map(|event| event.to_string());
        assert_eq!(shown[0], "connected to 10.0.0.1:20049 (connection 3.0)");
        assert_eq!(format!("{peer:?}"), "ConnectionId(3.0)");
        assert_eq!(shown[1], format!("connection to {address} lost: {}", CloseReason::PeerGone));
        assert!(shown[2].starts_with("cannot connect to 10.0.0.1:20049: no listener"), "{shown:?}");
        assert!(shown[2].ends_with("; next attempt in 200ms"), "{shown:?}");
        assert!(
            shown[3].starts_with("cannot connect to 10.0.0.1:20049: the engine is"),
            "{shown:?}"
        );
    }
}
