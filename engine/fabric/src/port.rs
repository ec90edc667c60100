//! The port: the part of a set of queues that other threads access.

use rpcrdma_provider::SetupError;
use rpcrdma_transport::numbers::Numbers;

use crate::sleeper::Sleeper;

/// The shared side of a set of queues.
pub struct Port {
    /// Unique in the fabric.
    pub(crate) id: u64,
    /// Where its thread sleeps.
    pub(crate) sleeper: Sleeper,
    /// The numbers of its queue pairs.
    pub(crate) numbers: Numbers,
}

impl Port {
    pub(crate) fn new(id: u64, qp_max: u32) -> Result<Port, SetupError> {
        Ok(Port { id, sleeper: Sleeper::new()?, numbers: Numbers::new(qp_max) })
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("id", &self.id).finish_non_exhaustive()
    }
}
