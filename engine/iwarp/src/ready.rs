//! A set of sockets that reports which of them are ready: epoll, or that of a virtual network.

use std::os::fd::{AsFd, BorrowedFd};

use rpcrdma_provider::SetupError;
#[cfg(any(test, feature = "network"))]
use rpcrdma_transport::epoll_set::EVENTS;
use rpcrdma_transport::epoll_set::EpollSet;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

#[cfg(any(test, feature = "network"))]
use crate::network::VirtualSet;
use crate::socket::Socket;

/// A set of sockets of one kind.
#[derive(Debug)]
pub(crate) enum ReadySet {
    System(EpollSet),
    #[cfg(any(test, feature = "network"))]
    Virtual(VirtualSet),
}

impl ReadySet {
    /// A set of sockets of the system.
    pub(crate) fn of_system() -> Result<ReadySet, SetupError> {
        EpollSet::new().map(ReadySet::System)
    }

    /// Takes a socket in, under a number.
    pub(crate) fn add(&self, socket: &Socket, number: u64, on: EventFlags) -> Result<(), Errno> {
        match (self, socket) {
            (ReadySet::System(set), Socket::System(socket)) => set.add(socket, number, on),
            #[cfg(any(test, feature = "network"))]
            (ReadySet::Virtual(set), Socket::Virtual(socket)) => set.add(socket, number, on),
            #[cfg(any(test, feature = "network"))]
            _ => Err(Errno::BADF),
        }
    }

    /// Sets what a socket of the set waits for.
    pub(crate) fn modify(&self, socket: &Socket, number: u64, on: EventFlags) -> Result<(), Errno> {
        match (self, socket) {
            (ReadySet::System(set), Socket::System(socket)) => set.modify(socket, number, on),
            #[cfg(any(test, feature = "network"))]
            (ReadySet::Virtual(set), Socket::Virtual(socket)) => set.modify(socket, number, on),
            #[cfg(any(test, feature = "network"))]
            _ => Err(Errno::BADF),
        }
    }

    /// Takes a socket out.
    pub(crate) fn remove(&self, socket: &Socket) -> Result<(), Errno> {
        match (self, socket) {
            (ReadySet::System(set), Socket::System(socket)) => set.remove(socket),
            #[cfg(any(test, feature = "network"))]
            (ReadySet::Virtual(set), Socket::Virtual(socket)) => set.remove(socket),
            #[cfg(any(test, feature = "network"))]
            _ => Err(Errno::BADF),
        }
    }

    /// Names the sockets that are ready, with what they are ready for, up to [`EVENTS`] of them.
    /// Returns whether there are any.
    #[inline]
    pub(crate) fn look(&self, note: impl FnMut(u64, EventFlags)) -> bool {
        match self {
            ReadySet::System(set) => set.look(note),
            #[cfg(any(test, feature = "network"))]
            ReadySet::Virtual(set) => set.look(EVENTS, note),
        }
    }
}

impl AsFd for ReadySet {
    /// What is readable when a socket has become ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ReadySet::System(set) => set.as_fd(),
            #[cfg(any(test, feature = "network"))]
            ReadySet::Virtual(set) => set.as_fd(),
        }
    }
}
