//! The queues of one shard: a completion queue, a shared receive queue, and their queue pairs.
//!
//! ```text
//!   post_send ─▶ chain of linked places ─▶ driver: one doorbell   poll_cq ◀── ready ◀─┬── swept up
//!   post_srq_recv ─▶ chain of described Receives ─▶ driver           ▲                └── held
//!                                                                    └── driver ──▶ held: not attached
//! ```
//! Completions come from the driver in batches. Those of a queue pair that is not attached yet are
//! held until it is: its peer may send before the shard knows of it. Those of a dying queue pair
//! are filtered. Destroying a queue pair empties the completion queue; completions of other queue
//! pairs wait in `ready`.
#![expect(unsafe_code, reason = "posting is unsafe in the trait that is implemented here")]

mod chain;
mod control;
mod poll;
mod post;
mod receives;
mod wait;
mod windows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rpcrdma_mempool::{Access, RegisterError, Sge};
use rpcrdma_provider::{
    Armed, Attached, Bells, CqError, QueueAttr, QueueEvent, Queues, RecvWr, Requests, SendWr,
    SetupError, Taken, WC_BATCH, WcBatch, Window, WindowId, WorkCompletion,
};

use self::chain::Chain;
use self::receives::Receives;
use self::windows::Exposed;
use crate::device::ops::Ops;
use crate::port::{Pair, Pending, Port, VerbsEndpoint, VerbsHandle};
use crate::registrar::RegionCache;
use crate::sys::verbs as sys;

/// The queues of one shard on an RDMA device.
pub struct VerbsQueues {
    port: Arc<Port>,
    ops: Ops,
    cq: *mut sys::ibv_cq,
    srq: *mut sys::ibv_srq,
    limits: Limits,
    /// The completion flags that mean that the peer has invalidated a key.
    invalidated: u32,
    chain: Chain,
    receives: Receives,
    /// The buffer that the driver writes completions to.
    polled: Box<[sys::ibv_wc; WC_BATCH]>,
    pairs: Box<[Slot]>,
    /// The numbers of the queue pairs in `pairs`, in order.
    attached: Vec<u32>,
    /// Completions that were already taken from the device; they are reported first.
    ready: VecDeque<WorkCompletion>,
    /// Completions of queue pairs that are not attached yet.
    held: VecDeque<WorkCompletion>,
    regions: RegionCache,
    exposed: Exposed,
    /// Queue pairs that are not destroyed yet.
    dying: Vec<Dying>,
    /// Whether the device reports the last Receive of a queue pair.
    reports_last_receive: bool,
    /// Whether the device completes requests before they are done: one of two quirks.
    completes_early: bool,
}

/// The limits of a request.
#[derive(Debug, Clone, Copy)]
struct Limits {
    send_sge: usize,
    inline_len: u32,
    cq_depth: u32,
}

/// A slot for an attached queue pair.
#[derive(Default)]
struct Slot {
    /// Null for none.
    qp: *mut sys::ibv_qp,
    /// 0 if nothing may be posted to it.
    key: u64,
    pair: Option<Arc<Pair>>,
}

/// A queue pair that is to be destroyed.
struct Dying {
    pair: Arc<Pair>,
    until: Instant,
    /// The device has refused to destroy it.
    is_stuck: bool,
}

/// Identifies a queue pair of an RDMA device. Names are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerbsQp {
    slot: u32,
    key: u64,
}

// SAFETY: libibverbs may be called by any thread, one at a time: the owner of the queues.
unsafe impl Send for VerbsQueues {}

impl VerbsQueues {
    pub(crate) fn new(port: Arc<Port>, attr: &QueueAttr) -> VerbsQueues {
        let device = &port.device;
        VerbsQueues {
            ops: device.ops,
            cq: port.cq,
            srq: port.srq,
            limits: Limits {
                send_sge: attr.send_sge as usize,
                inline_len: device.caps.inline_len,
                cq_depth: attr.cq_depth,
            },
            invalidated: device.quirks.invalidated,
            chain: Chain::new(),
            receives: Receives::new(attr.recv_sge),
            polled: Box::new([sys::ibv_wc::EMPTY; WC_BATCH]),
            reports_last_receive: device.quirks.reports_last_receive,
            completes_early: device.quirks.fences_reports || device.quirks.lends_unreported,
            pairs: (0..attr.qp_max).map(|_| Slot::default()).collect(),
            attached: Vec::with_capacity(attr.qp_max as usize),
            ready: VecDeque::with_capacity(attr.cq_depth as usize),
            held: VecDeque::with_capacity(attr.srq_depth as usize),
            regions: RegionCache::new(),
            exposed: Exposed::default(),
            dying: Vec::new(),
            port,
        }
    }

    /// The queue pair of a name, if it is attached and the device completes what is posted to it.
    #[inline]
    fn find(&self, qp: VerbsQp) -> Option<*mut sys::ibv_qp> {
        let slot = self.pairs.get(qp.slot as usize)?;
        (slot.key == qp.key).then_some(slot.qp)
    }

    /// The queue pair of a name, if it is attached.
    fn attached_pair(&self, qp: VerbsQp) -> Option<&Arc<Pair>> {
        let pair = self.pairs.get(qp.slot as usize)?.pair.as_ref();
        pair.filter(|pair| pair.key.0 == qp.key)
    }
}

impl Queues for VerbsQueues {
    type Qp = VerbsQp;
    type Endpoint = VerbsEndpoint;
    type Handle = VerbsHandle;

    fn handle(&self) -> VerbsHandle {
        VerbsHandle { port: Arc::clone(&self.port) }
    }

    fn attach(&mut self, endpoint: VerbsEndpoint) -> Result<Attached<VerbsQp>, SetupError> {
        self.take_over(endpoint)
    }

    #[inline]
    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        self.poll(out)
    }

    unsafe fn describe_recv(&mut self, buffer: u32, sgl: &[Sge]) {
        self.receives.describe(buffer, sgl);
    }

    #[inline]
    unsafe fn post_srq_recv(&mut self, wrs: impl Requests<RecvWr>) -> Taken {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.post_receives(wrs) }
    }

    #[inline]
    unsafe fn post_send<'a>(&mut self, qp: VerbsQp, wrs: impl Requests<SendWr<'a>>) -> Taken {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.post_requests(qp, wrs) }
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.exposed.open_window(&self.port.device)
    }

    fn renew_window(&mut self, id: WindowId) -> Result<Option<Window>, SetupError> {
        self.exposed.renew_window(&self.port.device, id)
    }

    unsafe fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.exposed.expose(&self.port.device, sge, access) }
    }

    fn conceal(&mut self, rkey: u32) -> std::io::Result<()> {
        self.exposed.conceal(&self.port.device, rkey)
    }

    fn disconnect(&mut self, qp: VerbsQp) {
        if let Some(pair) = self.attached_pair(qp) {
            pair.fail(&self.port.device);
            if self.port.device.quirks.swallows_posts && pair.is_in_error() {
                self.pairs[qp.slot as usize].key = 0;
            }
        }
    }

    fn destroy(&mut self, qp: VerbsQp) {
        if self.attached_pair(qp).is_some() {
            self.detach(qp);
        }
    }

    #[inline]
    fn next_event(&mut self) -> Option<QueueEvent> {
        let pending = self.port.pending();
        if !pending.intersects(Pending::BURIED | Pending::EVENTS | Pending::DYING) {
            return None;
        }
        self.look_after(pending)
    }

    fn bells(&self) -> Bells<'_> {
        self.both_bells()
    }

    fn arm(&mut self) -> Result<Armed, CqError> {
        self.announce_sleep()
    }

    fn disarm(&mut self, is_rung: bool) -> Result<(), CqError> {
        if is_rung { self.silence() } else { Ok(()) }
    }
}

impl std::fmt::Debug for VerbsQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.port.device.caps.name;
        f.debug_struct("VerbsQueues").field("device", name).finish_non_exhaustive()
    }
}
