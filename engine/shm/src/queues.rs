//! The queues of one shard: the transport over links to other processes.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_provider::{Bells, SetupError};
use rpcrdma_transport::Transport;
use rpcrdma_transport::endpoint::Endpoint;
use rpcrdma_transport::numbers::Numbers;
use rpcrdma_transport::port::Ends;
use rpcrdma_transport::queues::SoftQueues;
use rpcrdma_transport::sleep;

use crate::channel::Channel;
use crate::fence;
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

    fn open(&self, channel: &Channel, num: u32) -> Result<Ends<Channel>, SetupError> {
        let Channel(link) = channel;
        self.add(link.end().link, link.socket())?;
        Ok(channel.ends(num, &self.ends))
    }

    fn bells(&self) -> Bells<'_> {
        self.both_bells()
    }

    #[inline]
    fn look(&self, transport: &Transport<Channel>) {
        if self.owes_rings() {
            ring_again(self, transport);
        }
    }

    fn arm(&self, transport: &Transport<Channel>) -> Option<Duration> {
        let links = || transport.carriers().map(|Channel(link)| link);
        let are_rung = !self.owes_rings() || ring_again(self, transport);
        let reaches_all = || fence::everywhere() || links().all(|link| !link.have_fences());
        let barrier = || reaches_all() && are_rung;
        let words = || links().map(|link| link.asleep());
        sleep::fall_asleep(words, barrier, || transport.has_work())
    }

    fn disarm(&self, transport: &Transport<Channel>, is_rung: bool) {
        sleep::wake_up(transport.carriers().map(|Channel(link)| link.asleep()));
        if is_rung {
            let all = || transport.all_carriers().map(|Channel(link)| &**link);
            self.drain(|id| {
                let Some(link) = all().find(|link| link.end().link == id) else { return };
                if !link.read_words() {
                    // It would be readable for ever. The watch reports that the peer is gone.
                    self.remove(link.socket());
                }
            });
        }
    }
}

/// Repeats the rings that have failed: wakes all peers that sleep. False if one fails again.
#[cold]
fn ring_again(port: &Port, transport: &Transport<Channel>) -> bool {
    port.set_owes_rings(false);
    transport.carriers().for_each(|Channel(link)| link.wake_peer());
    !port.owes_rings()
}
