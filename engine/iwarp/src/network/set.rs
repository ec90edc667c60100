//! A set of sockets of a virtual network that reports which are ready, as epoll does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::socket::VirtualSocket;
use super::world::SharedWorld;

/// A set, by its number. Its bell is readable when a socket has become ready.
#[derive(Debug)]
pub(crate) struct VirtualSet {
    world: SharedWorld,
    number: u64,
    bell: Arc<OwnedFd>,
}

impl VirtualSet {
    pub(super) fn new(world: SharedWorld, number: u64, bell: Arc<OwnedFd>) -> VirtualSet {
        VirtualSet { world, number, bell }
    }

    /// Takes a socket in, under a number.
    pub(crate) fn add(
        &self,
        socket: &VirtualSocket,
        as_number: u64,
        on: EventFlags,
    ) -> Result<(), Errno> {
        self.world.lock().watch(socket.number(), self.number, as_number, on)
    }

    /// Sets what a socket of the set waits for.
    pub(crate) fn modify(
        &self,
        socket: &VirtualSocket,
        as_number: u64,
        on: EventFlags,
    ) -> Result<(), Errno> {
        let mut world = self.world.lock();
        world.unwatch(socket.number(), self.number)?;
        world.watch(socket.number(), self.number, as_number, on)
    }

    /// Takes a socket out.
    pub(crate) fn remove(&self, socket: &VirtualSocket) -> Result<(), Errno> {
        self.world.lock().unwatch(socket.number(), self.number)
    }

    /// Names at most `max` sockets that are ready. Returns whether there are any.
    pub(crate) fn look(&self, max: usize, mut note: impl FnMut(u64, EventFlags)) -> bool {
        let ready = self.world.lock().look(self.number, max);
        for (number, flags) in &ready {
            note(*number, *flags);
        }
        !ready.is_empty()
    }
}

impl Drop for VirtualSet {
    fn drop(&mut self) {
        self.world.lock().close_set(self.number);
    }
}

impl AsFd for VirtualSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
