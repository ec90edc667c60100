//! A socket of a virtual network.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::Shutdown;

use super::world::SharedWorld;
use crate::calls::{Calls, Failed};

/// A socket, by its number. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct VirtualSocket {
    world: SharedWorld,
    number: u64,
}

impl VirtualSocket {
    pub(super) fn new(world: SharedWorld, number: u64) -> VirtualSocket {
        VirtualSocket { world, number }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for VirtualSocket {
    fn drop(&mut self) {
        self.world.lock().close(self.number);
    }
}

impl Calls for VirtualSocket {
    fn listen(&self, at: &SocketAddr) -> Result<SocketAddr, Failed> {
        self.world.lock().listen(self.number, *at).map_err(Failed::of("bind"))
    }

    fn accept(&self) -> Result<(VirtualSocket, SocketAddr), Errno> {
        let (number, from) = self.world.lock().accept(self.number)?;
        Ok((VirtualSocket::new(self.world.clone(), number), from))
    }

    /// Nothing is silent here for longer than a step.
    fn set_silence_max(&self, _limit: Option<Duration>) -> Result<(), Errno> {
        Ok(())
    }

    fn connect(&self, to: &SocketAddr) -> Result<bool, Failed> {
        self.world.lock().connect(self.number, *to).map_err(Failed::of("connect"))
    }

    fn is_connected(&self) -> Result<bool, Failed> {
        self.world.lock().is_connected(self.number).map_err(Failed::of("connect"))
    }

    fn recv(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let mut world = self.world.lock();
        world.stream(self.number)?.recv(into)
    }

    fn send(&self, from: &[u8]) -> Result<usize, Errno> {
        self.send_parts(&[IoSlice::new(from)])
    }

    fn send_parts(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut world = self.world.lock();
        let sent = world.stream(self.number)?.send(from);
        let given: usize = from.iter().map(|part| part.len()).sum();
        let is_full = sent.map_or_else(|error| error == Errno::AGAIN, |len| len < given);
        world.counts.full += u64::from(is_full);
        sent
    }

    fn shutdown(&self, how: Shutdown) {
        let mut world = self.world.lock();
        if let Ok(stream) = world.stream(self.number) {
            stream.shutdown(how);
        }
    }

    fn has_more(&self) -> bool {
        self.world.lock().stream(self.number).is_ok_and(|stream| stream.has_more())
    }
}
