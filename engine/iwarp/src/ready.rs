//! A set of sockets that reports which of them are ready: epoll, or that of a virtual network.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rpcrdma_provider::SetupError;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

#[cfg(any(test, feature = "network"))]
use crate::network::VirtualSet;
use crate::socket::Socket;

/// A set of sockets of one kind.
#[derive(Debug)]
pub(crate) enum ReadySet {
    System(OwnedFd),
    #[cfg(any(test, feature = "network"))]
    Virtual(VirtualSet),
}

impl ReadySet {
    /// A set of sockets of the system.
    pub(crate) fn of_system() -> Result<ReadySet, SetupError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| SetupError::System {
            call: "epoll_create1",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n)",
        })?;
        Ok(ReadySet::System(epoll))
    }

    /// Takes a socket in, under a number.
    pub(crate) fn add(&self, socket: &Socket, number: u64, on: EventFlags) -> Result<(), Errno> {
        match (self, socket) {
            (ReadySet::System(epoll), Socket::System(socket)) => {
                epoll::add(epoll, socket, EventData::new_u64(number), on)
            }
            #[cfg(any(test, feature = "network"))]
            (ReadySet::Virtual(set), Socket::Virtual(socket)) => set.add(socket, number, on),
            #[cfg(any(test, feature = "network"))]
            _ => Err(Errno::BADF),
        }
    }

    /// Sets what a socket of the set waits for.
    pub(crate) fn modify(&self, socket: &Socket, number: u64, on: EventFlags) -> Result<(), Errno> {
        match (self, socket) {
            (ReadySet::System(epoll), Socket::System(socket)) => {
                epoll::modify(epoll, socket, EventData::new_u64(number), on)
            }
            #[cfg(any(test, feature = "network"))]
            (ReadySet::Virtual(set), Socket::Virtual(socket)) => set.modify(socket, number, on),
            #[cfg(any(test, feature = "network"))]
            _ => Err(Errno::BADF),
        }
    }

    /// Takes a socket out.
    pub(crate) fn remove(&self, socket: &Socket) -> Result<(), Errno> {
        match (self, socket) {
            (ReadySet::System(epoll), Socket::System(socket)) => epoll::delete(epoll, socket),
            #[cfg(any(test, feature = "network"))]
            (ReadySet::Virtual(set), Socket::Virtual(socket)) => set.remove(socket),
            #[cfg(any(test, feature = "network"))]
            _ => Err(Errno::BADF),
        }
    }

    /// Names the sockets that are ready, with what they are ready for, up to [`EVENTS`] of them.
    /// Returns whether there are any.
    #[inline]
    pub(crate) fn look(&self, mut note: impl FnMut(u64, EventFlags)) -> bool {
        match self {
            ReadySet::System(epoll) => {
                let mut events = [const { MaybeUninit::uninit() }; EVENTS];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                let Ok((events, _)) = epoll::wait(epoll, &mut events[..], Some(&now)) else {
                    return false;
                };
                for &mut Event { flags, data } in &mut *events {
                    note(data.u64(), flags);
                }
                !events.is_empty()
            }
            #[cfg(any(test, feature = "network"))]
            ReadySet::Virtual(set) => set.look(EVENTS, note),
        }
    }
}

impl AsFd for ReadySet {
    /// What is readable when a socket has become ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ReadySet::System(epoll) => epoll.as_fd(),
            #[cfg(any(test, feature = "network"))]
            ReadySet::Virtual(set) => set.as_fd(),
        }
    }
}

/// The most sockets that a look names.
pub(crate) const EVENTS: usize = 64;
