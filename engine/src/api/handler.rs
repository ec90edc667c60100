//! The handler: the program's callbacks on a shard.

use std::net::SocketAddr;

use rpcrdma_proto::{PeerLimits, PropertyOutcome};
use rpcrdma_xdr::BackwardSupport;

use super::call::Call;
use super::completion::Completion;
use super::reply::{Answer, Reply};
use super::turn::Turn;
use crate::error::CloseReason;
use crate::provider::{ConnectError, ConnectId};
use crate::shard::peers::ConnectionId;

/// A program on a shard. All methods run on the shard's thread, one at a time, and must not block.
pub trait Handler {
    /// A call has arrived. It is answered at once ([`Reply::send`]), later ([`Reply::defer`]) or
    /// not at all ([`Reply::refuse`]): only these three make the [`Answer`] that is to be returned.
    /// None comes once the shard stops.
    fn on_call<'a>(&mut self, call: Call<'a>, reply: Reply<'a>) -> Answer<'a>;

    /// A call of this shard is over: its reply has arrived, or never will.
    fn on_reply(&mut self, done: Completion<'_>) {
        let _ = done;
    }

    /// Once a turn, after the queues: the place to poll a disk or a timer and to finish tickets.
    fn on_turn(&mut self, turn: &mut Turn<'_>) {
        let _ = turn;
    }

    /// A peer asks for a connection. It is accepted or rejected as this says; a peer that is rejected
    /// is told so, its attempt fails ([`ConnectError::Rejected`]), and it can try again later. A
    /// request that is not answered within `connections.connect_timeout`, because the shard is not
    /// polled, is rejected.
    fn admit(&mut self, request: &ConnectRequest<'_>) -> Admission {
        let _ = request;
        Admission::Accept
    }

    /// A connection is up: the peers know each other's properties. `attempt` is what
    /// [`Shard::connect`](crate::Shard::connect) returned, if this side asked for it. What can be
    /// decided by where the peer is, is better decided by [`Handler::admit`]: here the peer is
    /// connected already, and if it is refused it is seen off.
    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        limits: &PeerLimits,
    ) -> Admission {
        let _ = (peer, attempt, limits);
        Admission::Accept
    }

    /// Which calls of servers this shard takes on connections that it has asked for (`PROP_BRS` of
    /// \[XCHAR\] 3.3). It is asked once, before the first connection. A server that calls where it is
    /// told [`BackwardSupport::None`] gets [`SendError::NoBackward`](crate::SendError::NoBackward).
    fn backward(&self) -> BackwardSupport {
        BackwardSupport::Inline
    }

    /// A connection that this shard asked for could not be had.
    fn on_refused(&mut self, id: ConnectId, why: ConnectError) {
        let _ = (id, why);
    }

    /// A peer has answered, or not in time, what
    /// [`Turn::request_properties`](crate::Turn::request_properties) asked of it.
    fn on_properties(&mut self, peer: ConnectionId, outcome: &PropertyOutcome) {
        let _ = (peer, outcome);
    }

    /// A connection has ended. Its calls have been completed before; its tickets are void.
    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        let _ = (peer, why);
    }
}

/// A peer asks for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectRequest<'a> {
    /// Where it is. On a network the answer has to find its way there.
    pub from: SocketAddr,
    /// What it sent along (RFC 8797), with padding behind it.
    pub private: &'a [u8],
    /// Connections that this shard has with the same host, or has admitted.
    pub connections: usize,
}

/// Whether a connection is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It stays.
    Accept,
    /// It is closed.
    Refuse,
}

/// Refuses every call: the handler of a shard that only calls others.
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
