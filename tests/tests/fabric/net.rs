//! What the tests of hostile peers run on: here the software fabric.

use rpcrdma::Fabric;

/// The provider.
pub type Net = Fabric;

/// The provider of a test, whose clones reach each other.
pub fn net() -> Net {
    Fabric::new()
}

/// Whether a request is done when the peer has taken it, and fails as the peer says. Otherwise it is
/// done when it is sent, and a refusal ends the connection.
pub const HAS_ACKS: bool = true;
