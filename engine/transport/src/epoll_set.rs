//! A set of sockets of the system, which reports which of them are ready: epoll.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rpcrdma_provider::SetupError;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// A set of sockets, each under a number.
#[derive(Debug)]
pub struct EpollSet(OwnedFd);

impl EpollSet {
    /// An empty set.
    ///
    /// # Errors
    /// [`SetupError::System`], if the process may have no more descriptors.
    pub fn new() -> Result<EpollSet, SetupError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| SetupError::System {
            call: "epoll_create1",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n)",
        })?;
        Ok(EpollSet(epoll))
    }

    /// Takes a socket in, under a number.
    ///
    /// # Errors
    /// That of the system.
    pub fn add(&self, socket: impl AsFd, number: u64, on: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.0, socket, EventData::new_u64(number), on)
    }

    /// Sets what a socket of the set waits for.
    ///
    /// # Errors
    /// That of the system.
    pub fn modify(&self, socket: impl AsFd, number: u64, on: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.0, socket, EventData::new_u64(number), on)
    }

    /// Takes a socket out.
    ///
    /// # Errors
    /// That of the system.
    pub fn remove(&self, socket: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.0, socket)
    }

    /// Names the sockets that are ready, with what they are ready for, up to [`EVENTS`] of them.
    /// Returns whether there are any.
    #[inline]
    pub fn look(&self, mut note: impl FnMut(u64, EventFlags)) -> bool {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.0, &mut events[..], Some(&now)) else {
            return false;
        };
        for &mut Event { flags, data } in &mut *events {
            note(data.u64(), flags);
        }
        !events.is_empty()
    }
}

impl AsFd for EpollSet {
    /// What is readable when a socket has become ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The most sockets that a look names.
pub const EVENTS: usize = 64;
