//! A virtual network, for tests: TCP in memory, which a test moves along step by step.
//!
//! ```text
//!   send ──▶ │ under way │ ── step: pieces of any length, late ──▶ │ has come │ ──▶ recv
//!              bounded          cut at any byte: reset, or ended      bounded
//! ```
//!
//! Bytes keep their order, and move only in a [`Network::step`]. All that is random is drawn from
//! the seed: the same calls give the same run. A socket behaves as one of Linux, as far as this
//! crate depends on it: calls take a part, readiness has edges, bytes for a closed socket reset the
//! sender, and what has come before a reset can be read.

mod random;
mod set;
mod socket;
mod stream;
mod world;

use std::sync::Arc;

use rpcrdma_provider::SetupError;
use rustix::event::EventfdFlags;

pub(crate) use self::set::VirtualSet;
pub(crate) use self::socket::VirtualSocket;
use self::world::SharedWorld;
pub use self::world::{NetworkCounts, NetworkPlan};

/// A virtual network. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Network(SharedWorld);

impl Network {
    /// A network without sockets.
    pub fn new(plan: NetworkPlan) -> Network {
        Network(SharedWorld::new(plan))
    }

    /// Moves what is under way: some of it, or nothing.
    pub fn step(&self) {
        self.0.lock().step();
    }

    /// From now on no connection is cut, and there is much room for what comes.
    pub fn calm(&self) {
        self.0.lock().calm();
    }

    /// What has happened so far.
    pub fn counts(&self) -> NetworkCounts {
        self.0.lock().counts
    }

    pub(crate) fn socket(&self) -> VirtualSocket {
        VirtualSocket::new(self.0.clone(), self.0.lock().open())
    }

    pub(crate) fn ready_set(&self) -> Result<VirtualSet, SetupError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags).map_err(|error| SetupError::System {
            call: "eventfd",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n)",
        })?;
        let bell = Arc::new(bell);
        let number = self.0.lock().open_set(Arc::clone(&bell));
        Ok(VirtualSet::new(self.0.clone(), number, bell))
    }
}

#[cfg(test)]
mod tests;
