//! The connection manager: TCP sockets, and MPA's start over them.
//!
//! ```text
//!   connect ─▶ TCP connects ─▶ request ──▶ listener ─▶ Request ─▶ accept ─▶ reply, Endpoint here
//!      └ no listener: Refused                             └ reject, drop ─▶ reply, Refused there
//! ```

mod attempt;
mod listener;
mod request;
mod start;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rpcrdma_provider::{Address, ConnParam, ConnectError, Origin, PrivateBytes, SetupError};
use rpcrdma_transport::endpoint::QpNumber;
use rpcrdma_transport::socket_cm::SocketCm;
use rpcrdma_transport::sockets::{Sockets, Source, Step};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use self::attempt::Attempt;
use self::listener::{Caller, Listener, TAKES};
pub use self::request::TcpRequest;
use self::start::Received;
use crate::calls::Calls;
use crate::port::Port;
use crate::queues::{TcpEndpoint, TcpHandle, TcpQueues};
use crate::ready::ReadySet;
use crate::shared::Shared;
use crate::socket::Socket;

/// A connection manager over TCP.
pub type TcpCm = SocketCm<TcpSockets>;

/// The sockets of a connection manager.
pub struct TcpSockets {
    shared: Arc<Shared>,
    set: ReadySet,
}

impl TcpSockets {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<TcpSockets, SetupError> {
        let set = shared.stack.ready_set()?;
        Ok(TcpSockets { shared, set })
    }

    fn number(&self, on: &TcpHandle) -> Result<QpNumber<Port>, SetupError> {
        QpNumber::take(on, self.shared.device_name())
    }
}

impl Sockets for TcpSockets {
    type Queues = TcpQueues;
    type Request = TcpRequest;
    type Listener = Listener;
    type Caller = Caller;
    type Attempt = Attempt;
    type Received = Received;
    type Origin = Origin;

    fn set(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    fn add(&self, of: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno> {
        self.set.add(socket_of(of), number, on)
    }

    fn modify(&self, of: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno> {
        self.set.modify(socket_of(of), number, on)
    }

    fn remove(&self, of: &Source<Self>) {
        let _ = self.set.remove(socket_of(of));
    }

    fn look(&self, mut note: impl FnMut(u64)) -> bool {
        self.set.look(|number, _| note(number))
    }

    fn listen(&self, at: Address) -> Result<Listener, SetupError> {
        Listener::open(at, &self.shared.stack)
    }

    fn address(listener: &Listener) -> Address {
        listener.address()
    }

    fn accept_caller(&self, listener: &Listener) -> Result<Caller, Errno> {
        listener.accept()
    }

    /// Its host, or the IPv6 network of it.
    fn origin(caller: &Caller) -> Origin {
        caller.origin()
    }

    fn receive(caller: &mut Caller) -> Option<Received> {
        caller.receive()
    }

    fn request(
        &self,
        caller: Caller,
        received: Received,
    ) -> Option<(TcpRequest, Address, PrivateBytes)> {
        let (request, private) = TcpRequest::of(caller, received, &self.shared)?;
        let from = request.from();
        Some((request, from, private))
    }

    fn accept(
        &self,
        request: TcpRequest,
        on: &TcpHandle,
        param: &ConnParam<'_>,
    ) -> Result<TcpEndpoint, SetupError> {
        let (private, number) = (param.checked()?, self.number(on)?);
        if let Some(socket) = request.socket() {
            limit_silence(socket, param)?;
        }
        request.accept(number, &private, &self.shared)
    }

    fn reject(request: TcpRequest, private: &[u8]) {
        request.reject(private);
    }

    fn attempt(
        &self,
        to: Address,
        on: &TcpHandle,
        param: &ConnParam<'_>,
    ) -> Result<Attempt, SetupError> {
        let wrong = ConnectError::WrongAddress { reason: TAKES };
        let address = to.as_ip().ok_or_else(|| SetupError::connect(to, wrong))?;
        let (private, number) = (param.checked()?, self.number(on)?);
        let attempt = Attempt::new(address, number, private, &self.shared.stack)?;
        limit_silence(attempt.socket(), param)?;
        Ok(attempt)
    }

    fn go_on(&self, attempt: &mut Attempt) -> Result<Step, ConnectError> {
        attempt.go_on(&self.shared)
    }

    fn receive_answer(attempt: &mut Attempt) -> Option<Received> {
        attempt.receive()
    }

    fn finish(
        &self,
        attempt: Attempt,
        received: Received,
    ) -> Result<(TcpEndpoint, PrivateBytes), ConnectError> {
        attempt.finish(received, &self.shared)
    }
}

fn socket_of(of: &Source<TcpSockets>) -> &Socket {
    match of {
        Source::Listener { listener, .. } => listener.socket(),
        Source::Caller { caller, .. } => caller.socket(),
        Source::Attempt { attempt, .. } => attempt.socket(),
    }
}

fn limit_silence(socket: &Socket, param: &ConnParam<'_>) -> Result<(), SetupError> {
    socket.set_silence_max(param.send_timeout).map_err(|error| SetupError::System {
        call: "setsockopt",
        source: error.into(),
        hint: "the system must support TCP_USER_TIMEOUT and the options of keepalive",
    })
}
