//! The handler: the program's callbacks on a shard.

use rpcrdma_proto::{PeerLimits, PropertyOutcome};
use rpcrdma_xdr::BackwardSupport;

use super::call::Call;
use super::completion::Completion;
use super::reply::{Answer, Reply};
use super::turn::Turn;
use crate::connection_id::ConnectionId;
use crate::error::CloseReason;
use crate::provider::{Address, ConnectError, ConnectId};

/// A program on a shard. All methods run on the shard's thread, one at a time, and must not block.
///
/// ```
/// use rpcrdma::{Answer, Call, Handler, Reply};
///
/// /// Counts the calls of its shard.
/// #[derive(Default)]
/// struct Counter {
///     calls: u64,
/// }
///
/// impl Handler for Counter {
///     fn on_call<'a>(&mut self, _call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
///         self.calls += 1;
///         reply.payload().put_u64(self.calls);
///         reply.send()
///     }
/// }
/// ```
pub trait Handler {
    /// A call has arrived. Answer it at once ([`Reply::send`]), later ([`Reply::defer`]) or reject
    /// it ([`Reply::refuse`]): only these three create the required [`Answer`]. A stopping shard
    /// delivers no calls.
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a>;

    /// A call of this shard has ended: with its reply, or without one.
    fn on_reply(&mut self, done: Completion<'_>) {
        let _ = done;
    }

    /// Called once a turn, after the queues: poll a disk or a timer here, and finish tickets.
    ///
    /// A shard that sleeps takes a turn at least every 10 ms while a call is to be answered, every
    /// 100 ms while none is, and every second without connections;
    /// [`ShardHandle::wake`](crate::ShardHandle::wake) wakes it sooner.
    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        let _ = turn;
    }

    /// A peer requests a connection. The return value accepts or rejects it. The attempt of a
    /// rejected peer fails with the reason ([`ConnectError::Rejected`]), and it can try again. A
    /// request that is not answered within `connections.connect_timeout`, because the shard is not
    /// polled, is rejected. The handler is not asked about peers that `connections.allow`,
    /// `connections.deny` or `connections.max_per_peer` rejects.
    fn admit(&mut self, request: &ConnectRequest<'_>) -> Admission {
        let _ = request;
        Admission::Accept
    }

    /// A connection is up: the peers know each other's properties. If this side requested it,
    /// `attempt` is the value that [`Shard::connect`](crate::Shard::connect) returned. Decisions by
    /// address belong in [`Handler::admit`]: here the peer is already connected, and rejecting it
    /// closes the connection. [`Turn::address`] returns its address later.
    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        limits: &PeerLimits,
    ) -> Admission {
        let _ = (peer, attempt, limits);
        Admission::Accept
    }

    /// The calls from servers that this shard accepts on connections that it requested (`PROP_BRS`
    /// of \[XCHAR\] 3.3). Asked once, before the first connection. A server that calls a peer with
    /// [`BackwardSupport::None`] gets [`SendError::NoBackward`](crate::SendError::NoBackward).
    fn backward(&self) -> BackwardSupport {
        BackwardSupport::Inline
    }

    /// A connection that this shard requested was not established.
    fn on_refused(&mut self, id: ConnectId, why: ConnectError) {
        let _ = (id, why);
    }

    /// The outcome of [`Turn::request_properties`](crate::Turn::request_properties): the peer's
    /// answer, or a timeout.
    fn on_properties(&mut self, peer: ConnectionId, outcome: &PropertyOutcome) {
        let _ = (peer, outcome);
    }

    /// A connection has ended. Its calls have already completed; its tickets are void.
    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        let _ = (peer, why);
    }
}

/// A connection request from a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectRequest<'a> {
    /// The address of the peer, from the connection manager. On a network, answers must reach it.
    /// A process of this host is stated by the kernel, with its user.
    pub from: Address,
    /// The peer's private data (RFC 8797), with padding.
    pub private: &'a [u8],
    /// Connections of the same peer ([`Address::origin`]) that this shard has or has admitted.
    pub connections: usize,
}

/// The answer to a connection request.
///
/// ```
/// use rpcrdma::{Address, Admission, ConnectRequest};
///
/// /// For `Handler::admit`: two connections of each peer, and over shared memory those of root.
/// fn admit(request: &ConnectRequest<'_>) -> Admission {
///     match request.from {
///         Address::Process(process) if process.uid != 0 => Admission::Refuse,
///         _ if request.connections >= 2 => Admission::RefuseWith(1),
///         _ => Admission::Accept,
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Accepts it.
    Accept,
    /// Rejects it.
    Refuse,
    /// Rejects it with a code of the program, which the peer's attempt to connect returns
    /// ([`Rejection::Refused`](crate::Rejection::Refused)). From [`Handler::on_connect`] it is as
    /// [`Admission::Refuse`]: the peer loses its connection, and does not learn the code.
    RefuseWith(u16),
}

/// Rejects every call: the handler of a shard that only sends calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct RefuseCalls;

impl Handler for RefuseCalls {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.refuse()
    }

    fn backward(&self) -> BackwardSupport {
        BackwardSupport::None
    }
}

/// A handler whose type is known, or not, as one whose type is not known.
pub(crate) trait AsHandler: Handler {
    /// Itself.
    fn as_handler(&mut self) -> &mut dyn Handler;
}

impl<H: Handler> AsHandler for H {
    fn as_handler(&mut self) -> &mut dyn Handler {
        self
    }
}

impl AsHandler for dyn Handler + '_ {
    fn as_handler(&mut self) -> &mut dyn Handler {
        self
    }
}
