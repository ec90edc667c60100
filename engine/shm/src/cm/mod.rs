//! The connection manager: Unix sockets are the addresses.
//!
//! ```text
//!   connect ─▶ socket, memory, Hello ──▶ listener ─▶ Request ─▶ accept ─▶ Answer, Endpoint here
//!      └ no listener: Refused                             └ reject, drop ─▶ Answer, Refused there
//! ```
//!
//! The side that connects makes the memory of the link; the other side checks it before it maps it.

mod attempt;
mod listener;
mod lock;
mod request;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rpcrdma_provider::{Address, ConnParam, ConnectError, PrivateBytes, SetupError};
use rpcrdma_transport::endpoint::QpNumber;
use rpcrdma_transport::epoll_set::EpollSet;
use rpcrdma_transport::socket_cm::SocketCm;
use rpcrdma_transport::sockets::{Sockets, Source, Step};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use self::attempt::Attempt;
use self::listener::{Caller, Listener, TAKES, name_of};
pub use self::request::ShmRequest;
use crate::queues::{ShmEndpoint, ShmHandle, ShmQueues};
use crate::shared::Shared;
use crate::socket::Received;

/// A connection manager of shared memory.
pub type ShmCm = SocketCm<ShmSockets>;

/// The Unix sockets of a connection manager.
pub struct ShmSockets {
    shared: Arc<Shared>,
    set: EpollSet,
}

/// What a peer has sent.
pub struct Arrived(Received);

impl ShmSockets {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<ShmSockets, SetupError> {
        let set = EpollSet::new()?;
        Ok(ShmSockets { shared, set })
    }

    fn number(&self, on: &ShmHandle) -> Result<QpNumber<crate::port::Port>, SetupError> {
        QpNumber::take(on, self.shared.device_name())
    }
}

impl Sockets for ShmSockets {
    type Queues = ShmQueues;
    type Request = ShmRequest;
    type Listener = Listener;
    type Caller = Caller;
    type Attempt = Attempt;
    type Received = Arrived;
    type Origin = u32;

    fn set(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    fn add(&self, of: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno> {
        self.set.add(socket_of(of), number, on)
    }

    fn modify(&self, of: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno> {
        self.set.modify(socket_of(of), number, on)
    }

    /// An attempt may not be in the set yet. A socket may exist for long after it is dropped
    /// (the closer has it).
    fn remove(&self, of: &Source<Self>) {
        let _ = self.set.remove(socket_of(of));
    }

    fn look(&self, mut note: impl FnMut(u64)) -> bool {
        self.set.look(|number, _| note(number))
    }

    fn listen(&self, at: Address) -> Result<Listener, SetupError> {
        Listener::open(at, self.shared.closer())
    }

    fn address(listener: &Listener) -> Address {
        Address::Shm(listener.name())
    }

    fn accept_caller(&self, listener: &Listener) -> Result<Caller, Errno> {
        listener.accept()
    }

    fn is_full(&self) -> bool {
        self.shared.closer().is_full()
    }

    fn is_rejected(&self, caller: &Caller) -> bool {
        caller.socket().is_behind()
    }

    /// The user of its process.
    fn origin(caller: &Caller) -> u32 {
        caller.user()
    }

    fn receive(caller: &mut Caller) -> Option<Arrived> {
        caller.receive().map(Arrived)
    }

    fn request(
        &self,
        caller: Caller,
        Arrived(received): Arrived,
    ) -> Option<(ShmRequest, Address, PrivateBytes)> {
        let (request, private) = ShmRequest::of(caller, received, self.shared.dimensions())?;
        let from = request.from();
        Some((request, from, private))
    }

    fn accept(
        &self,
        request: ShmRequest,
        on: &ShmHandle,
        param: &ConnParam<'_>,
    ) -> Result<ShmEndpoint, SetupError> {
        let (private, number) = (param.checked()?, self.number(on)?);
        request.accept(number, param.rnr_retry, private, &self.shared)
    }

    fn reject(request: ShmRequest, private: &[u8]) {
        request.reject(private);
    }

    fn attempt(
        &self,
        to: Address,
        on: &ShmHandle,
        param: &ConnParam<'_>,
    ) -> Result<Attempt, SetupError> {
        let wrong = ConnectError::WrongAddress { reason: TAKES };
        let name = name_of(to).ok_or_else(|| SetupError::connect(to, wrong))?;
        if self.shared.closer().is_full() {
            return Err(SetupError::connect(to, FULL));
        }
        let (private, number) = (param.checked()?, self.number(on)?);
        Attempt::new(name, number, param.rnr_retry, private, &self.shared)
    }

    fn go_on(&self, attempt: &mut Attempt) -> Result<Step, ConnectError> {
        attempt.begin(&self.shared)
    }

    fn receive_answer(attempt: &mut Attempt) -> Option<Arrived> {
        attempt.receive().map(Arrived)
    }

    fn finish(
        &self,
        attempt: Attempt,
        Arrived(received): Arrived,
    ) -> Result<(ShmEndpoint, PrivateBytes), ConnectError> {
        attempt.finish(received, &self.shared)
    }
}

fn socket_of(of: &Source<ShmSockets>) -> BorrowedFd<'_> {
    match of {
        Source::Listener { listener, .. } => listener.socket().as_fd(),
        Source::Caller { caller, .. } => caller.socket().as_fd(),
        Source::Attempt { attempt, .. } => attempt.socket().as_fd(),
    }
}

/// Very many descriptors wait to be closed.
const FULL: ConnectError = ConnectError::CallFailed {
    call: "close",
    errno: Errno::MFILE.raw_os_error(),
    hint: "descriptors that peers have sent unasked are still being closed",
};
