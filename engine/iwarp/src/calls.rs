//! The calls that this crate makes to a TCP socket.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_transport::failed;
use rustix::io::Errno;
use rustix::net::Shutdown;

/// A call that has failed.
pub(crate) type Failed = failed::Failed<Errno>;

/// A TCP socket that never blocks. Those of a virtual network behave as those of Linux.
pub(crate) trait Calls: Sized {
    /// Binds and listens. Returns the address, whose port the system chooses if it is 0.
    fn listen(&self, at: &SocketAddr) -> Result<SocketAddr, Failed>;

    /// Sets how long the peer may take nothing of what is sent, and answer nothing, until the
    /// connection fails. `None`: as long as the system allows, but a minute if nothing is sent.
    fn set_silence_max(&self, limit: Option<Duration>) -> Result<(), Errno>;

    /// The next connection of a listener, and where it comes from.
    fn accept(&self) -> Result<(Self, SocketAddr), Errno>;

    /// Begins to connect. True if it has connected already; else the socket becomes writable.
    fn connect(&self, to: &SocketAddr) -> Result<bool, Failed>;

    /// Whether a socket that has begun to connect has connected.
    ///
    /// # Errors
    /// Why it cannot. A socket that has connected to itself, as happens when the system gives it the
    /// port that it connects to, has [`Errno::CONNREFUSED`].
    fn is_connected(&self) -> Result<bool, Failed>;

    /// Takes bytes that have come: at least one, or none at the end of the stream.
    fn recv(&self, into: &mut [u8]) -> Result<usize, Errno>;

    /// Gives bytes to be sent, at least one.
    fn send(&self, from: &[u8]) -> Result<usize, Errno>;

    /// As [`Calls::send`], one part after the other.
    fn send_parts(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Ends one direction, or both. Nothing is to be done if that fails: the connection has ended.
    fn shutdown(&self, how: Shutdown);

    /// Whether bytes are there that were not taken.
    fn has_more(&self) -> bool;
}
