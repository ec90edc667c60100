//! The queues of one shard: the transport over links to other processes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_provider::{SetupError, Waker};
use rpcrdma_transport::Transport;
use rpcrdma_transport::doze;
use rpcrdma_transport::endpoint::Endpoint;
use rpcrdma_transport::numbers::Numbers;
use rpcrdma_transport::port::Ends;
use rpcrdma_transport::queues::SoftQueues;

use crate::fence;
use crate::link::Channel;
use crate::port::Port;

/// The queues of one shard.
pub type ShmQueues = SoftQueues<Port>;

/// Identifies a set of queues to a connection manager.
pub type ShmHandle = Arc<Port>;

/// A connected queue pair that is not attached yet. Dropping it ends the connection.
pub type ShmEndpoint = Endpoint<Port>;

impl rpcrdma_transport::port::Port for Port {
    type Carrier = Channel;

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn open(&self, Channel(link): &Channel, num: u32) -> Result<Ends<Channel>, SetupError> {
        self.add_link(link)?;
        Ok(link.ends(num, &self.ends))
    }

    fn sleep(
        &self,
        transport: &Transport<Channel>,
        other: &Waker,
        timeout: Duration,
    ) -> io::Result<()> {
        let links = || transport.carriers().map(|Channel(link)| link);
        let barrier = || fence::everywhere() || links().all(|link| !link.have_fences());
        let words = || links().map(|link| link.asleep());
        let is_ready = || transport.has_work();
        let slept = doze::sleep(words, barrier, is_ready, timeout, |it| self.wait(other, it));
        let all = || transport.all_carriers().map(|Channel(link)| &**link);
        self.drain(|id| all().find(|link| link.end().link == id));
        slept.unwrap_or(Ok(()))
    }
}
