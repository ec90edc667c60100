//! The queues of one shard: the transport over rings within the process.
#![expect(unsafe_code, reason = "posting is unsafe in the trait that is implemented here")]

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_mempool::{Access, RegisterError, Sge};
use rpcrdma_provider::{
    Attached, CqError, QueueEvent, Queues, RecvWr, Requests, SendWr, SetupError, Taken, Waker,
    WcBatch, Window, WindowId,
};
use rpcrdma_transport::Transport;
use rpcrdma_transport::qp::Connected;

use crate::endpoint::Endpoint;
use crate::port::Port;
use crate::rings::Rings;

/// The queues of one shard on the software fabric.
pub struct FabricQueues {
    port: Arc<Port>,
    transport: Transport<Rings>,
}

/// Identifies a queue pair of the software fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FabricQp(u32);

/// Identifies a set of queues of the fabric to a connection manager.
#[derive(Clone)]
pub struct FabricHandle {
    pub(crate) port: Arc<Port>,
}

impl FabricQueues {
    pub(crate) fn new(port: Arc<Port>, transport: Transport<Rings>) -> FabricQueues {
        FabricQueues { port, transport }
    }

    /// The number of messages so far that found no Receive on arrival.
    pub fn rnr_count(&self) -> u64 {
        self.transport.rnr_count()
    }
}

impl Queues for FabricQueues {
    type Qp = FabricQp;
    type Endpoint = Endpoint;
    type Handle = FabricHandle;

    fn handle(&self) -> FabricHandle {
        FabricHandle { port: Arc::clone(&self.port) }
    }

    fn attach(&mut self, mut endpoint: Endpoint) -> Result<Attached<FabricQp>, SetupError> {
        if !Arc::ptr_eq(endpoint.port(), &self.port) {
            return Err(SetupError::Invalid {
                what: "endpoint",
                value: "one made for other queues".to_owned(),
                allowed: "one made for these queues".to_owned(),
            });
        }
        let num = endpoint.num;
        let qp = Connected {
            num,
            peer: endpoint.peer_num,
            peer_rnr_retry: endpoint.peer_rnr_retry,
            side: endpoint.side as u8,
            conn: Arc::clone(&endpoint.conn),
        };
        self.transport.attach(qp, endpoint.end(), || endpoint.take_rings())?;
        endpoint.take_over();
        Ok(Attached { qp: FabricQp(num), qp_num: num })
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        self.transport.poll_cq(out)
    }

    unsafe fn describe_recv(&mut self, buffer: u32, sgl: &[Sge]) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.transport.describe_recv(buffer, sgl) };
    }

    #[inline]
    unsafe fn post_srq_recv(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.transport.post_srq_recv(wrs) }
    }

    #[inline]
    unsafe fn post_send<'a>(
        &mut self,
        FabricQp(num): FabricQp,
        wrs: impl Requests<SendWr<'a>>,
    ) -> Taken {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.transport.post_send(num, wrs) }
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.transport.open_window()
    }

    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.transport.renew_window(id)
    }

    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        self.transport.expose(sge, access)
    }

    fn conceal(&mut self, rkey: u32) -> std::io::Result<()> {
        self.transport.conceal(rkey);
        Ok(())
    }

    fn disconnect(&mut self, FabricQp(num): FabricQp) {
        self.transport.disconnect(num);
    }

    fn destroy(&mut self, FabricQp(num): FabricQp) {
        if self.transport.destroy(num) {
            self.port.numbers.give_back(num);
        }
    }

    #[inline]
    fn next_event(&mut self) -> Option<QueueEvent> {
        self.transport.next_event()
    }

    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        let Some(nap) = self.transport.nap(timeout) else { return Ok(()) };
        let slept = self.port.doze.sleep(waker, nap, || self.transport.has_work());
        slept.map_err(|error| CqError::Device(error.raw_os_error().unwrap_or(0)))
    }
}

impl std::fmt::Debug for FabricQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FabricQueues").field("port", &self.port.id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FabricHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FabricHandle").field("port", &self.port.id).finish()
    }
}

/// Skips `slots` slots between two sets of queues that have one path each.
#[cfg(all(test, not(loom)))]
pub(crate) fn skip([a, b]: [&mut FabricQueues; 2], slots: u64) {
    let [(tx_a, rx_a), (tx_b, rx_b)] =
        [&mut *a, &mut *b].map(|queues| queues.transport.ends().unwrap());
    crate::rings::ring::skip(tx_a, rx_b, slots);
    crate::rings::ring::skip(tx_b, rx_a, slots);
    a.transport.has_skipped();
    b.transport.has_skipped();
}

/// The position of the next slot that queues with one path publish.
#[cfg(all(test, not(loom)))]
pub(crate) fn next_slot(queues: &mut FabricQueues) -> u64 {
    use rpcrdma_transport::carrier::Outgoing as _;
    queues.transport.ends().unwrap().0.head()
}
