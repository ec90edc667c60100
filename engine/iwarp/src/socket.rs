//! A TCP socket: one of the system, or, in tests, one of a virtual network.
//!
//! Without the feature `network` there is one kind, and the choice costs nothing.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_provider::CloseOnFork;
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::calls::{Calls, Failed};
#[cfg(any(test, feature = "network"))]
use crate::network::VirtualSocket;

/// A TCP socket.
#[derive(Debug)]
pub(crate) enum Socket {
    System(CloseOnFork),
    #[cfg(any(test, feature = "network"))]
    Virtual(VirtualSocket),
}

/// Makes a call to a socket of either kind.
macro_rules! on {
    ($socket:expr, $it:ident => $call:expr) => {
        match $socket {
            Socket::System($it) => $call,
            #[cfg(any(test, feature = "network"))]
            Socket::Virtual($it) => $call,
        }
    };
}

impl Socket {
    /// Reads what has come and drops it, up to a limit.
    #[cold]
    pub(crate) fn discard(&self) {
        let mut bytes = [0; 4096];
        for _ in 0..DISCARDED_MAX {
            if !matches!(self.recv(&mut bytes), Ok(1..)) {
                return;
            }
        }
    }

    /// A socket of the system.
    #[cfg(test)]
    pub(crate) fn of(file: impl Into<std::os::fd::OwnedFd>) -> Socket {
        let file = CloseOnFork::open(|| Ok::<_, Errno>(file.into()));
        Socket::System(file.expect("it is open"))
    }

    /// The descriptor of a socket of the system.
    #[cfg(test)]
    pub(crate) fn fd(&self) -> &CloseOnFork {
        match self {
            Socket::System(fd) => fd,
            Socket::Virtual(_) => panic!("a socket of a virtual network has no descriptor"),
        }
    }
}

impl Calls for Socket {
    fn listen(&self, at: &SocketAddr) -> Result<SocketAddr, Failed> {
        on!(self, it => it.listen(at))
    }

    fn accept(&self) -> Result<(Socket, SocketAddr), Errno> {
        match self {
            Socket::System(it) => it.accept().map(|(it, from)| (Socket::System(it), from)),
            #[cfg(any(test, feature = "network"))]
            Socket::Virtual(it) => it.accept().map(|(it, from)| (Socket::Virtual(it), from)),
        }
    }

    fn set_silence_max(&self, limit: Option<Duration>) -> Result<(), Errno> {
        on!(self, it => it.set_silence_max(limit))
    }

    fn connect(&self, to: &SocketAddr) -> Result<bool, Failed> {
        on!(self, it => it.connect(to))
    }

    fn is_connected(&self) -> Result<bool, Failed> {
        on!(self, it => it.is_connected())
    }

    #[inline]
    fn recv(&self, into: &mut [u8]) -> Result<usize, Errno> {
        on!(self, it => it.recv(into))
    }

    #[inline]
    fn send(&self, from: &[u8]) -> Result<usize, Errno> {
        on!(self, it => it.send(from))
    }

    #[inline]
    fn send_parts(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        on!(self, it => it.send_parts(from))
    }

    fn shutdown(&self, how: Shutdown) {
        on!(self, it => it.shutdown(how));
    }

    fn has_more(&self) -> bool {
        on!(self, it => it.has_more())
    }
}

/// System calls that a socket is worth which is being closed.
const DISCARDED_MAX: usize = 64;
