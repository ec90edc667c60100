//! The queues of one shard: the transport over rings within the process.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_provider::{Bells, SetupError};
use rpcrdma_transport::Transport;
use rpcrdma_transport::endpoint::Endpoint;
use rpcrdma_transport::numbers::Numbers;
use rpcrdma_transport::port::Ends;
use rpcrdma_transport::queues::SoftQueues;

use crate::port::Port;
use crate::rings::Rings;

/// The queues of one shard on the software fabric.
pub type FabricQueues = SoftQueues<Port>;

/// Identifies a set of queues of the fabric to a connection manager.
pub type FabricHandle = Arc<Port>;

/// A connected queue pair of the fabric that is not attached yet. Dropping it ends the connection.
pub type FabricEndpoint = Endpoint<Port>;

impl rpcrdma_transport::port::Port for Port {
    type Carrier = Rings;

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn open(&self, end: &Rings, _num: u32) -> Result<Ends<Rings>, SetupError> {
        end.take().ok_or_else(|| SetupError::Invalid {
            what: "endpoint",
            value: "one whose peer is gone".to_owned(),
            allowed: "one of a living connection".to_owned(),
        })
    }

    fn bells(&self) -> Bells<'_> {
        [Some(self.sleeper.bell()), None]
    }

    fn arm(&self, transport: &Transport<Rings>) -> Option<Duration> {
        self.sleeper.arm(|| transport.has_work())
    }

    fn disarm(&self, _transport: &Transport<Rings>, is_rung: bool) {
        self.sleeper.disarm(is_rung);
    }
}
