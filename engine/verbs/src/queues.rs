//! The queues of one shard: a completion queue, a shared receive queue, and their queue pairs.
#![expect(unsafe_code, reason = "posting is unsafe in the trait that is implemented here")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{
    Attached, CqError, PostError, QueueAttr, QueueEvent, Queues, RecvWr, SendWr, Waker, WcBatch,
    Window, WindowId, WorkCompletion,
};
use rpcrdma_mempool::{Access, RegisterError, Sge};

use crate::port::{Port, VerbsEndpoint, VerbsHandle};
use crate::registrar::RegionCache;
use crate::sys::verbs as sys;

/// The queues of one shard on an RDMA device.
pub struct VerbsQueues {
    port: Arc<Port>,
    pairs: Box<[Slot]>,
    /// Completions that were taken from the device and are to be reported before others.
    ready: VecDeque<WorkCompletion>,
    /// Completions of queue pairs that are not attached yet.
    held: VecDeque<WorkCompletion>,
    regions: RegionCache,
}

/// A queue pair that is attached.
#[derive(Debug, Clone, Copy)]
struct Slot {
    qp: *mut sys::ibv_qp,
    /// 0 for none.
    num: u32,
}

/// Names a queue pair of an RDMA device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerbsQp {
    slot: u32,
    num: u32,
}

// SAFETY: libibverbs may be called by any thread, by one at a time: whoever has the queues.
unsafe impl Send for VerbsQueues {}

impl VerbsQueues {
    pub(crate) fn new(port: Arc<Port>, attr: &QueueAttr) -> Result<VerbsQueues, SetupError> {
        let none = Slot { qp: std::ptr::null_mut(), num: 0 };
        Ok(VerbsQueues {
            port,
            pairs: vec![none; attr.qp_max as usize].into(),
            ready: VecDeque::with_capacity(attr.cq_depth as usize),
            held: VecDeque::new(),
            regions: RegionCache::new(),
        })
    }
}

impl Queues for VerbsQueues {
    type Qp = VerbsQp;
    type Endpoint = VerbsEndpoint;
    type Handle = VerbsHandle;

    fn handle(&self) -> VerbsHandle {
        VerbsHandle { port: Arc::clone(&self.port) }
    }

    fn attach(&mut self, _endpoint: VerbsEndpoint) -> Result<Attached<VerbsQp>, SetupError> {
        Err(SetupError::Stopped)
    }

    fn poll_cq(&mut self, _out: &mut WcBatch) -> Result<(), CqError> {
        Ok(())
    }

    unsafe fn post_srq_recv(&mut self, _wr: &[RecvWr<'_>]) -> Result<(), PostError> {
        Ok(())
    }

    unsafe fn post_send(&mut self, _qp: VerbsQp, _wr: &[SendWr<'_>]) -> Result<(), PostError> {
        Ok(())
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        Err(SetupError::Stopped)
    }

    fn renew_window(&mut self, _id: WindowId) -> Result<Window, SetupError> {
        Err(SetupError::Stopped)
    }

    fn expose(&mut self, _sge: &Sge, _access: Access) -> Result<u32, RegisterError> {
        Ok(0)
    }

    fn conceal(&mut self, _rkey: u32) {}

    fn disconnect(&mut self, _qp: VerbsQp) {}

    fn destroy(&mut self, _qp: VerbsQp) {}

    fn next_event(&mut self) -> Option<QueueEvent> {
        self.port.next_event()
    }

    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        let slept = Waker::sleep([waker, &self.port.bell], timeout);
        slept.map(drop).map_err(|error| CqError::Device(error.raw_os_error().unwrap_or(0)))
    }
}
