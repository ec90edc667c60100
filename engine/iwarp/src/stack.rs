//! Where sockets come from: the system, or, in tests, a virtual network.

use std::net::SocketAddr;

use rpcrdma_provider::SetupError;
use rustix::io::Errno;

#[cfg(any(test, feature = "network"))]
use crate::network::Network;
use crate::ready::ReadySet;
use crate::socket::Socket;
use crate::system;

/// Makes sockets, and sets of them.
#[derive(Debug)]
pub(crate) enum Stack {
    System,
    #[cfg(any(test, feature = "network"))]
    Virtual(Network),
}

impl Stack {
    /// A socket for addresses of the family of `address`.
    pub(crate) fn socket(&self, address: &SocketAddr) -> Result<Socket, Errno> {
        match self {
            Stack::System => system::open(address).map(Socket::System),
            #[cfg(any(test, feature = "network"))]
            Stack::Virtual(network) => Ok(Socket::Virtual(network.socket())),
        }
    }

    /// A set of such sockets.
    pub(crate) fn ready_set(&self) -> Result<ReadySet, SetupError> {
        match self {
            Stack::System => ReadySet::of_system(),
            #[cfg(any(test, feature = "network"))]
            Stack::Virtual(network) => network.ready_set().map(ReadySet::Virtual),
        }
    }
}
