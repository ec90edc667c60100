//! What a provider says of its sockets, for the connection manager of sockets.

use std::hash::Hash;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rpcrdma_provider::{Address, ConnParam, ConnectError, PrivateBytes, Queues, SetupError};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

/// The sockets of a provider, the set that they are watched in, and what is sent through them.
pub trait Sockets: Sized + Send {
    /// The provider's.
    type Queues: Queues;
    /// A request of a peer. Dropping it rejects it.
    type Request: Send;
    /// A socket that listens. Dropping it ends that.
    type Listener: Send;
    /// A socket that has connected and has not sent its whole request yet.
    type Caller: Send;
    /// An attempt of this side to connect.
    type Attempt: Send;
    /// What a caller or the peer of an attempt has sent.
    type Received;
    /// What callers are counted by.
    type Origin: Eq + Hash;

    /// What is readable when a socket of the set is ready.
    fn set(&self) -> BorrowedFd<'_>;
    /// Takes a socket into the set.
    ///
    /// # Errors
    /// That of the system.
    fn add(&self, of: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno>;
    /// Sets what a socket of the set waits for.
    ///
    /// # Errors
    /// That of the system.
    fn modify(&self, of: &Source<Self>, number: u64, on: EventFlags) -> Result<(), Errno>;
    /// Takes a socket out of the set, if it is in it.
    fn remove(&self, of: &Source<Self>);
    /// The numbers of sockets that are ready, some of them. Whether there are any.
    fn look(&self, note: impl FnMut(u64)) -> bool;

    /// Listens.
    ///
    /// # Errors
    /// [`SetupError::Listen`], naming the reason.
    fn listen(&self, at: Address) -> Result<Self::Listener, SetupError>;
    /// Its actual address.
    fn address(listener: &Self::Listener) -> Address;
    /// The next socket that has connected to a listener.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is none.
    fn accept_caller(&self, listener: &Self::Listener) -> Result<Self::Caller, Errno>;
    /// Whether no caller can be taken now, however many there are.
    fn is_full(&self) -> bool {
        false
    }
    /// Whether a caller that was taken is dropped at once.
    fn is_rejected(&self, _caller: &Self::Caller) -> bool {
        false
    }
    /// What it is counted by.
    fn origin(caller: &Self::Caller) -> Self::Origin;
    /// What it has sent; none if that is not all yet.
    fn receive(caller: &mut Self::Caller) -> Option<Self::Received>;
    /// Its request, from where it comes, and its private data. None if it sent something else.
    fn request(
        &self,
        caller: Self::Caller,
        received: Self::Received,
    ) -> Option<(Self::Request, Address, PrivateBytes)>;
    /// Accepts a request.
    ///
    /// # Errors
    /// If a parameter is not in its range, or the queues or the system have no room.
    fn accept(
        &self,
        request: Self::Request,
        on: &<Self::Queues as Queues>::Handle,
        param: &ConnParam<'_>,
    ) -> Result<<Self::Queues as Queues>::Endpoint, SetupError>;
    /// Rejects a request.
    fn reject(request: Self::Request, private: &[u8]);

    /// A new attempt, which has not begun.
    ///
    /// # Errors
    /// As [`Sockets::accept`], and [`SetupError::Connect`] for an address of another provider.
    fn attempt(
        &self,
        to: Address,
        on: &<Self::Queues as Queues>::Handle,
        param: &ConnParam<'_>,
    ) -> Result<Self::Attempt, SetupError>;
    /// Begins an attempt, or goes on with it.
    ///
    /// # Errors
    /// Why there will be no connection.
    fn go_on(&self, attempt: &mut Self::Attempt) -> Result<Step, ConnectError>;
    /// What the peer of an attempt has answered; none if that is not all yet.
    fn receive_answer(attempt: &mut Self::Attempt) -> Option<Self::Received>;
    /// The endpoint, if the peer has accepted, and its private data.
    ///
    /// # Errors
    /// Why there is none.
    fn finish(
        &self,
        attempt: Self::Attempt,
        received: Self::Received,
    ) -> Result<(<Self::Queues as Queues>::Endpoint, PrivateBytes), ConnectError>;
}

/// How far an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The listener has no room: the attempt goes on at the next look at the clock, after [`RETRY`](crate::socket_cm::RETRY) at
    /// the latest.
    Later,
    /// The attempt goes on when its socket is writable.
    Connecting,
    /// The request is sent: the answer comes.
    Sent,
}

/// What a socket is that it waits for.
pub enum Source<S: Sockets> {
    /// It listens.
    Listener {
        /// The socket.
        listener: S::Listener,
        /// No connection is taken before this time.
        paused_until: Option<Instant>,
    },
    /// It has connected and has not sent its whole request yet.
    Caller {
        /// The socket.
        caller: Box<S::Caller>,
        /// When it connected.
        since: Instant,
    },
    /// It connects.
    Attempt {
        /// The socket.
        attempt: Box<S::Attempt>,
        /// What it waits for; none before it has begun.
        step: Option<Step>,
    },
}
