//! What the tests of hostile peers run on: here TCP.

use rpcrdma::Tcp;

/// The provider.
pub type Net = Tcp;

/// The provider of a test, whose clones reach each other.
pub fn net() -> Net {
    Tcp::new().expect("the default options are allowed")
}

/// Whether a request is done when the peer has taken it, and fails as the peer says. Otherwise it is
/// done when it is sent, and a refusal ends the connection.
pub const HAS_ACKS: bool = false;
