//! A virtual network, for tests: TCP in memory, which a test moves along step by step.
//!
//! ```text
//!   send ──▶ │ under way │ ── step: pieces of any length, late ──▶ │ has come │ ──▶ recv
//!              bounded          cut at any byte: reset, or ended      bounded
//! ```
//!
//! Bytes keep their order. Nothing moves but in a [`Network::step`], and all that is random is drawn
//! from the seed: the same calls give the same run. A socket means what one of Linux does, as far as
//! this crate asks: short calls, edges of readiness, a reset when bytes come to a closed socket, what
//! has come before a reset can be read.

mod random;
mod set;
mod socket;
mod stream;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_provider::SetupError;
use rustix::event::EventfdFlags;

pub(crate) use self::set::VirtualSet;
pub(crate) use self::socket::VirtualSocket;
use self::world::World;
pub use self::world::{NetworkCounts, NetworkPlan};

/// A virtual network. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Network(Arc<Mutex<World>>);

impl Network {
    /// A network without sockets.
    pub fn new(plan: NetworkPlan) -> Network {
        Network(Arc::new(Mutex::new(World::new(plan))))
    }

    /// Moves what is under way: some of it, or nothing.
    pub fn step(&self) {
        self.world().step();
    }

    /// From now on no connection is cut, and there is much room for what comes.
    pub fn calm(&self) {
        self.world().calm();
    }

    /// What has happened so far.
    pub fn counts(&self) -> NetworkCounts {
        self.world().counts
    }

    pub(crate) fn socket(&self) -> VirtualSocket {
        VirtualSocket::new(Arc::clone(&self.0), self.world().open())
    }

    pub(crate) fn ready_set(&self) -> Result<VirtualSet, SetupError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags).map_err(|error| SetupError::System {
            call: "eventfd",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n)",
        })?;
        let bell = Arc::new(bell);
        let number = self.world().open_set(Arc::clone(&bell));
        Ok(VirtualSet::new(Arc::clone(&self.0), number, bell))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
