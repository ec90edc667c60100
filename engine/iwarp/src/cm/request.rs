//! Requests of peers to connect.

use std::net::SocketAddr;

use rpcrdma_provider::{Address, PrivateBytes, SetupError};
use rpcrdma_transport::endpoint::QpNumber;
use rustix::io::Errno;

use super::listener::Caller;
use super::start::{self, Received};
use crate::calls::Calls;
use crate::port::Port;
use crate::queues::TcpEndpoint;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::terms::{self, Terms};
use crate::wire::start::Start;

/// A pending connection request. Dropping it rejects it.
pub struct TcpRequest {
    from: SocketAddr,
    request: Start,
    /// The reply that accepts it, and what it agrees on.
    reply: Start,
    terms: Terms,
    /// Until it is answered.
    socket: Option<Socket>,
}

impl TcpRequest {
    /// The request of a caller, with its private data. A caller that sends something else is
    /// dropped, and one that wants what this side cannot do is rejected.
    pub(super) fn of(
        caller: Caller,
        received: Received,
        shared: &Shared,
    ) -> Option<(TcpRequest, PrivateBytes)> {
        let (socket, from) = caller.into_parts();
        let Received::Start(request, private) = received else { return None };
        // RFC 5044 7.1: the side that connects sends nothing more before the reply.
        if socket.has_more() {
            return None;
        }
        let Ok((reply, terms)) = terms::answer(&request, &shared.requested()) else {
            reject(&socket, &request, &[]);
            return None;
        };
        Some((TcpRequest { from, request, reply, terms, socket: Some(socket) }, private))
    }

    /// Where it comes from.
    pub(super) fn from(&self) -> Address {
        Address::Ip(self.from)
    }

    /// Its socket, until it is answered.
    pub(super) fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Answers it, and makes this side's queue pair.
    pub(super) fn accept(
        mut self,
        number: QpNumber<Port>,
        private: &PrivateBytes,
        shared: &Shared,
    ) -> Result<TcpEndpoint, SetupError> {
        let Some(socket) = self.socket.take() else { return Err(SetupError::Stopped) };
        match start::send(&socket, &self.reply, private) {
            // A peer that is gone is noticed as every peer that goes.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {
                Ok(shared.endpoint(number, socket, self.terms))
            }
            // The peer would wait for it.
            Err(error) => Err(SetupError::System {
                call: "send",
                source: error.into(),
                hint: "the system may have no memory for the reply to a connection request",
            }),
        }
    }

    /// Answers that it is rejected.
    pub(super) fn reject(mut self, private: &[u8]) {
        if let Some(socket) = self.socket.take() {
            reject(&socket, &self.request, private);
        }
    }
}

impl Drop for TcpRequest {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            reject(&socket, &self.request, &[]);
        }
    }
}

impl std::fmt::Debug for TcpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpRequest").field("from", &self.from).finish_non_exhaustive()
    }
}

/// Reports that a request is not accepted. A peer that does not take the reply notices the end.
fn reject(socket: &Socket, request: &Start, private: &[u8]) {
    let private = PrivateBytes::try_from(private).unwrap_or_default();
    let _ = start::send(socket, &terms::reject(request), &private);
}
