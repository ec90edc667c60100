//! The queues of one shard: the transport over TCP connections.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_provider::{Bells, SetupError};
use rpcrdma_transport::Transport;
use rpcrdma_transport::endpoint::Endpoint;
use rpcrdma_transport::numbers::Numbers;
use rpcrdma_transport::port::Ends;
use rpcrdma_transport::queues::SoftQueues;

use crate::end::TcpEnd;
use crate::port::Port;

/// The queues of one shard.
pub type TcpQueues = SoftQueues<Port>;

/// Identifies a set of queues to a connection manager.
pub type TcpHandle = Arc<Port>;

/// A connected queue pair that is not attached yet. Dropping it ends the connection.
pub type TcpEndpoint = Endpoint<Port>;

impl rpcrdma_transport::port::Port for Port {
    type Carrier = TcpEnd;

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn open(&self, end: &TcpEnd, num: u32) -> Result<Ends<TcpEnd>, SetupError> {
        let TcpEnd(link) = end;
        self.add(&link.socket, num)?;
        link.flush();
        end.ends()
    }

    #[inline]
    fn look(&self, _transport: &Transport<TcpEnd>) {
        Port::look(self);
    }

    fn bells(&self) -> Bells<'_> {
        Port::bells(self)
    }

    /// An edge that a look has noted does not ring any more.
    fn arm(&self, transport: &Transport<TcpEnd>) -> Option<Duration> {
        self.look_now();
        let has_work = transport.carriers().any(|TcpEnd(link)| link.has_work());
        (!has_work && !transport.has_work()).then_some(Duration::MAX)
    }

    /// The next look silences the bell.
    fn disarm(&self, _transport: &Transport<TcpEnd>, is_rung: bool) {
        if is_rung {
            self.look_now();
        }
    }
}
