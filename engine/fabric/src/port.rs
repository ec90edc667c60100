//! The port: the part of a set of queues that other threads access.

use std::io;

use rpcrdma_transport::numbers::Numbers;

use crate::doze::Doze;

/// The shared side of a set of queues.
pub(crate) struct Port {
    /// Unique in the fabric.
    pub id: u64,
    /// Where its thread sleeps.
    pub doze: Doze,
    /// The numbers of its queue pairs.
    pub numbers: Numbers,
}

impl Port {
    pub(crate) fn new(id: u64, qp_max: u32) -> io::Result<Port> {
        Ok(Port { id, doze: Doze::new()?, numbers: Numbers::new(qp_max) })
    }
}
