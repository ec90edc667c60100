//! The state that the clones of a provider share, and the connection managers with them.

use std::sync::Arc;

use rpcrdma_transport::carrier::EndId;
use rpcrdma_transport::conn::{Conn, Progress};
use rpcrdma_transport::device::Device;
use rpcrdma_transport::endpoint::{Peer, QpNumber};

use crate::end::TcpEnd;
use crate::link::{Link, LinkSpec, SLOTS};
use crate::options::TcpOptions;
use crate::port::Port;
use crate::queues::TcpEndpoint;
use crate::socket::Socket;
use crate::stack::Stack;
use crate::terms::{First, Requested, Terms};

/// What all clones share. Control plane only.
pub(crate) struct Shared {
    pub options: TcpOptions,
    pub device: Device,
    pub stack: Stack,
}

impl Shared {
    pub(crate) fn device_name(&self) -> &str {
        &self.device.caps().name
    }

    /// The parameters that this side requests for its connections.
    pub(crate) fn requested(&self) -> Requested {
        let TcpOptions { crc, rd_atomic, .. } = self.options;
        // A path holds as many Reads of a peer as it has slots.
        let reads = rd_atomic.min(SLOTS as u32);
        Requested { crc, ird: reads, ord: reads }
    }

    /// Makes this side's link over a socket whose start is done, and the queue pair of `number` on
    /// it.
    pub(crate) fn endpoint(
        &self,
        number: QpNumber<Port>,
        socket: Socket,
        terms: Terms,
    ) -> TcpEndpoint {
        let conn = Conn::new();
        let side = match terms.first {
            // The accepting side has answered, so it receives. It may not send first.
            First::Ours { .. } => {
                conn.set(1, Progress::Attached);
                0
            }
            // The link sets the progress of the connecting side when its first FPDU has come.
            First::Theirs => 1,
        };
        let link = Link::new(LinkSpec {
            end: EndId { link: self.device.number(), side },
            socket,
            terms,
            port: Arc::clone(number.port()),
            qp_num: number.num(),
            conn: Arc::clone(&conn),
            message_len: self.options.message_len,
        });
        TcpEndpoint::new(number, TcpEnd(link), conn, PEER)
    }
}

/// What is known of a peer's queue pair. It retries without limit: a message waits in TCP's
/// buffers.
const PEER: Peer = Peer { num: 0, rnr_retry: rpcrdma_provider::RNR_RETRY_FOREVER };
