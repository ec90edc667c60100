//! The queues of one shard: the transport with the names of its queue pairs and the sleep.
#![expect(unsafe_code, reason = "posting is unsafe in the trait that is implemented here")]

use std::sync::Arc;

use rpcrdma_mempool::{Access, RegisterError, Sge};
use rpcrdma_provider::{
    Armed, Attached, Bells, CqError, QueueEvent, Queues, RecvWr, Requests, SendWr, SetupError,
    Taken, WcBatch, Window, WindowId,
};

use crate::Transport;
use crate::carrier::Carrier;
use crate::endpoint::{Endpoint, QpNumber};
use crate::port::Port;

/// The queues of one shard. A provider adds its [`Port`].
pub struct SoftQueues<P: Port> {
    port: Arc<P>,
    transport: Transport<P::Carrier>,
    /// The numbers of the queue pairs that exist.
    numbers: Vec<QpNumber<P>>,
}

/// Identifies a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SoftQp(u32);

impl<P: Port> SoftQueues<P> {
    /// The queues of a port, which have no queue pair.
    pub(crate) fn new(port: Arc<P>, transport: Transport<P::Carrier>) -> SoftQueues<P> {
        SoftQueues { port, transport, numbers: Vec::new() }
    }

    /// The number of messages so far that found no Receive on arrival.
    pub fn rnr_count(&self) -> u64 {
        self.transport.rnr_count()
    }

    /// The transport, for tests.
    #[doc(hidden)]
    pub fn transport(&mut self) -> &mut Transport<P::Carrier> {
        &mut self.transport
    }
}

impl<P: Port> Queues for SoftQueues<P> {
    type Qp = SoftQp;
    type Endpoint = Endpoint<P>;
    type Handle = Arc<P>;

    fn handle(&self) -> Arc<P> {
        Arc::clone(&self.port)
    }

    fn attach(&mut self, endpoint: Endpoint<P>) -> Result<Attached<SoftQp>, SetupError> {
        let qp = endpoint.made_for(&self.port).ok_or_else(|| SetupError::Invalid {
            what: "endpoint",
            value: "one made for other queues".to_owned(),
            allowed: "one made for these queues".to_owned(),
        })?;
        let (num, end) = (qp.num, endpoint.end());
        self.transport.attach(qp, end.id(), || {
            let (tx, rx) = self.port.open(end, num)?;
            Ok((end.clone(), tx, rx))
        })?;
        self.numbers.extend(endpoint.hand_over());
        Ok(Attached { qp: SoftQp(num), qp_num: num })
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        self.port.look(&self.transport);
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
        SoftQp(num): SoftQp,
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

    fn disconnect(&mut self, SoftQp(num): SoftQp) {
        self.transport.disconnect(num);
    }

    fn destroy(&mut self, SoftQp(num): SoftQp) {
        self.transport.destroy(num);
        self.numbers.retain(|number| number.num() != num);
    }

    #[inline]
    fn next_event(&mut self) -> Option<QueueEvent> {
        self.transport.next_event()
    }

    fn bells(&self) -> Bells<'_> {
        self.port.bells()
    }

    fn arm(&mut self) -> Result<Armed, CqError> {
        let Some(limit) = self.transport.sleep_limit() else { return Ok(Armed::Ready) };
        let most = self.port.arm(&self.transport);
        Ok(most.map_or(Armed::Ready, |most| Armed::AtMost(limit.min(most))))
    }

    fn disarm(&mut self, is_rung: bool) -> Result<(), CqError> {
        self.port.disarm(&self.transport, is_rung);
        Ok(())
    }
}

impl<P: Port> std::fmt::Debug for SoftQueues<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftQueues").field("port", &self.port).finish_non_exhaustive()
    }
}
