//! Connections: listening, connecting, accepting.

use std::net::SocketAddr;
use std::time::Duration;

use arrayvec::ArrayVec;

use crate::{Queues, SetupError, Waker};

/// Establishes connections. Control plane.
pub trait ConnectionManager: Send {
    /// The queues that its queue pairs are placed on.
    type Queues: Queues;
    /// A connection request that was neither accepted nor rejected yet.
    type Request: Send;

    /// Starts to listen; port 0 takes a free one. Returns the address taken.
    fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, SetupError>;
    /// Stops to listen at an address that [`ConnectionManager::listen`] returned. Requests that are
    /// on their way may still come; later ones find nobody who listens.
    fn unlisten(&mut self, at: SocketAddr);
    /// Starts to connect. The outcome comes from [`ConnectionManager::next`].
    fn connect(
        &mut self,
        to: SocketAddr,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError>;
    /// Accepts a request and places its queue pair. The peer may send from now on.
    fn accept(
        &mut self,
        request: Self::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError>;
    /// Gives an attempt up: nobody waits for it any more. An outcome that is on its way may still
    /// come; whoever takes it then drops it. Returns why it has not come about yet, if that is known.
    fn cancel(&mut self, id: ConnectId) -> Option<ConnectError>;
    /// Turns a request down.
    fn reject(&mut self, request: Self::Request, private: &[u8]);
    /// The next event, waiting for it at most `timeout`. Returns early when `waker` is rung.
    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>>;
}

/// The handle type of a connection manager's queues.
pub type Handle<C> = <<C as ConnectionManager>::Queues as Queues>::Handle;
/// The endpoint type of a connection manager's queues.
pub type Endpoint<C> = <<C as ConnectionManager>::Queues as Queues>::Endpoint;

/// What a connection manager reports.
pub enum CmEvent<C: ConnectionManager + ?Sized> {
    /// A peer asks for a connection.
    Request {
        /// To be accepted or rejected.
        request: C::Request,
        /// Where it comes from.
        from: SocketAddr,
        /// What it sent along (RFC 8797); a prefix is meant, trailing bytes are padding.
        private: PrivateBytes,
    },
    /// A connection that this side asked for is up.
    Connected {
        /// As [`ConnectionManager::connect`] returned it.
        id: ConnectId,
        /// To be attached to the queues that it was made for.
        endpoint: Endpoint<C>,
        /// What the peer sent along.
        private: PrivateBytes,
    },
    /// A connection that this side asked for is not to be had.
    Refused {
        /// As [`ConnectionManager::connect`] returned it.
        id: ConnectId,
        /// Why.
        reason: ConnectError,
    },
}

/// Connection private data, as large as a connection request carries.
pub type PrivateBytes = ArrayVec<u8, 56>;

/// Names a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectId(pub u64);

/// What a connection is made with.
#[derive(Debug, Clone, Copy)]
pub struct ConnParam<'a> {
    /// Connection private data (RFC 8797), at most 56 bytes.
    pub private: &'a [u8],
    /// How often a Send is retried when the peer has no Receive posted; 7 is without end.
    pub rnr_retry: u8,
}

/// Why a connection could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there.
    #[error("no listener at this address (connection refused)")]
    Unreachable,
    /// The peer turned the request down.
    #[error("the peer rejected the connection")]
    Rejected,
    /// No answer in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The network has no way from this device to that address: none at all, or one that leaves by
    /// another device.
    #[error("no route to this address from this device (verbs.device, verbs.address)")]
    NoRoute,
    /// This side could not make its end of the connection.
    #[error("a call of this host failed while it set the connection up")]
    Failed,
    /// This side has as many connections as it was configured for.
    #[error("this shard has as many connections as its configuration allows (connections.max)")]
    NoRoom,
    /// The connection was lost before it could be used.
    #[error("the connection was lost before it could be used")]
    Lost,
    /// The peer speaks no version of the protocol that this side speaks.
    #[error("the peer supports only versions {low} to {high} of RPC-over-RDMA (protocol.version)")]
    Version {
        /// Its lowest version.
        low: u32,
        /// Its highest version.
        high: u32,
    },
}
