//! The queues of one shard: the transport over links to other processes.
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
use crate::fence;
use crate::link::{Channel, Link};
use crate::pools::Files;
use crate::port::Port;

/// The queues of one shard.
pub struct ShmQueues {
    port: Arc<Port>,
    transport: Transport<Channel>,
    files: Arc<Files>,
    /// Reads at one time, and the position of the first slot of a ring.
    limits: (u32, u64),
}

/// Identifies a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShmQp(u32);

/// Identifies a set of queues to a connection manager.
#[derive(Clone)]
pub struct ShmHandle {
    pub(crate) port: Arc<Port>,
}

impl ShmQueues {
    pub(crate) fn new(
        port: Arc<Port>,
        transport: Transport<Channel>,
        files: Arc<Files>,
        limits: (u32, u64),
    ) -> ShmQueues {
        ShmQueues { port, transport, files, limits }
    }

    /// The number of messages so far that found no Receive on arrival.
    pub fn rnr_count(&self) -> u64 {
        self.transport.rnr_count()
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        self.transport.carriers().map(|Channel(link)| &**link)
    }
}

impl Queues for ShmQueues {
    type Qp = ShmQp;
    type Endpoint = Endpoint;
    type Handle = ShmHandle;

    fn handle(&self) -> ShmHandle {
        ShmHandle { port: Arc::clone(&self.port) }
    }

    fn attach(&mut self, mut endpoint: Endpoint) -> Result<Attached<ShmQp>, SetupError> {
        let link = Arc::clone(endpoint.link());
        if !Arc::ptr_eq(link.port(), &self.port) {
            return Err(SetupError::Invalid {
                what: "endpoint",
                value: "one made for other queues".to_owned(),
                allowed: "one made for these queues".to_owned(),
            });
        }
        self.port.hear(&link).map_err(|source| SetupError::System {
            call: "epoll_ctl",
            source,
            hint: "check fs.epoll.max_user_watches",
        })?;
        let num = endpoint.num;
        let qp = Connected {
            num,
            peer: endpoint.peer_num,
            peer_rnr_retry: endpoint.peer_rnr_retry,
            side: link.end().side as u8,
            conn: Arc::clone(endpoint.conn()),
        };
        let (files, limits) = (&self.files, self.limits);
        self.transport.attach(qp, link.end(), || {
            let (tx, rx) = link.ends(num, files, limits);
            Some((Channel(Arc::clone(&link)), tx, rx))
        })?;
        endpoint.take_over();
        Ok(Attached { qp: ShmQp(num), qp_num: num })
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
    unsafe fn post_send<'a>(&mut self, ShmQp(num): ShmQp, wrs: impl Requests<SendWr<'a>>) -> Taken {
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

    fn disconnect(&mut self, ShmQp(num): ShmQp) {
        self.transport.disconnect(num);
    }

    fn destroy(&mut self, ShmQp(num): ShmQp) {
        if self.transport.destroy(num) {
            self.port.numbers.give_back(num);
        }
    }

    #[inline]
    fn next_event(&mut self) -> Option<QueueEvent> {
        self.transport.next_event()
    }

    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        let Some(mut nap) = self.transport.nap(timeout) else { return Ok(()) };
        let mut all_fence = true;
        for link in self.links() {
            link.fall_asleep();
            all_fence &= link.peer_has_fences();
        }
        if !fence::everywhere() || !all_fence {
            nap = nap.min(NAP);
        }
        let slept = if self.transport.has_work() { Ok(()) } else { self.port.sleep(waker, nap) };
        self.links().for_each(Link::wake_up);
        let all = || self.transport.all_carriers().map(|Channel(link)| &**link);
        self.port.drain(|id| all().find(|link| link.end().link == id));
        slept.map_err(|error| CqError::Device(error.raw_os_error().unwrap_or(0)))
    }
}

impl std::fmt::Debug for ShmQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmQueues").field("port", &self.port).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ShmHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShmHandle").field("port", &self.port).finish()
    }
}

/// The longest sleep when a wake-up may be missed.
const NAP: Duration = Duration::from_micros(200);
