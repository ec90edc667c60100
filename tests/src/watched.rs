//! A provider under guard: whoever posts breaks no rule of verbs, and memory in the device's hands
//! is in no others.
//!
//! ```text
//!   post Receive ─▶ its memory is poisoned ─▶ completed: behind the message there is still poison
//!   post send    ─▶ its bytes are summed   ─▶ completed: their sum is the same
//! ```
//! Depths, gather lists and inline lengths are compared with what was asked for. Everything is
//! counted in a [`Watch`], so that a test sees what has not come home.
#![expect(unsafe_code, reason = "posting is unsafe; posted memory is written to and read")]

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{
    Attached, CmEvent, ConnParam, ConnectId, ConnectionManager, CqError, DeviceCaps, Endpoint,
    Handle, PostError, Provider, QueueAttr, QueueEvent, Queues, RecvWr, SendFlags, SendOp, SendWr,
    Waker, WcBatch, WcOpcode, WcStatus, Window, WorkCompletion, WrId,
};
use rpcrdma_mempool::{Access, Keys, Region, RegisterError, Registrar, Sge};

use crate::script::POISON;

/// Any provider, watched.
pub struct Watched<P> {
    inner: P,
    watch: Arc<Watch>,
}

/// What a watched provider has in its hands.
#[derive(Debug, Default)]
pub struct Watch {
    /// Regions that are registered.
    pub regions: AtomicI64,
    /// Receives that were posted and have not completed, of queues that are still there.
    pub receives: AtomicI64,
    /// Messages that arrived.
    pub arrived: AtomicU64,
    /// Sends whose memory was compared.
    pub compared: AtomicU64,
}

impl<P: Provider> Watched<P> {
    /// Wraps a provider.
    pub fn new(inner: P, watch: Arc<Watch>) -> Watched<P> {
        Watched { inner, watch }
    }
}

impl<P: Provider> Provider for Watched<P> {
    type Queues = WatchedQueues<P::Queues>;
    type Cm = WatchedCm<P::Cm>;

    fn caps(&self) -> &DeviceCaps {
        self.inner.caps()
    }

    fn registrar(&self) -> &dyn Registrar {
        self
    }

    fn open_queues(&self, attr: &QueueAttr) -> Result<Self::Queues, SetupError> {
        Ok(WatchedQueues {
            inner: self.inner.open_queues(attr)?,
            attr: attr.clone(),
            inline_len: self.inner.caps().inline_len,
            receives: HashMap::new(),
            sends: HashMap::new(),
            watch: Arc::clone(&self.watch),
        })
    }

    fn open_cm(&self) -> Result<Self::Cm, SetupError> {
        Ok(WatchedCm(self.inner.open_cm()?))
    }
}

impl<P: Provider> Registrar for Watched<P> {
    fn register(&self, region: &Region, access: Access) -> Result<Keys, RegisterError> {
        assert!(
            !access.contains(Access::REMOTE_WRITE),
            "no peer ever writes to the engine's memory"
        );
        let keys = self.inner.registrar().register(region, access)?;
        self.watch.regions.fetch_add(1, Ordering::Relaxed);
        Ok(keys)
    }

    fn deregister(&self, keys: Keys) {
        self.inner.registrar().deregister(keys);
        self.watch.regions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Queues, watched.
pub struct WatchedQueues<Q: Queues> {
    inner: Q,
    attr: QueueAttr,
    inline_len: u32,
    /// The scatter lists of the Receives that the device has.
    receives: HashMap<WrId, Vec<Sge>>,
    /// By queue pair number: its name, and the sends that the device has, in order.
    sends: HashMap<u32, (Q::Qp, VecDeque<Sent>)>,
    watch: Arc<Watch>,
}

/// A send in the device's hands.
struct Sent {
    wr_id: WrId,
    /// None of it for one that was copied while posting.
    sgl: Vec<Sge>,
    sum: u64,
    is_signaled: bool,
}

impl<Q: Queues> WatchedQueues<Q> {
    fn check_recv(&self, wr: &[RecvWr<'_>]) {
        let posted = self.receives.len() + wr.len();
        assert!(posted <= self.attr.srq_depth as usize, "{posted} Receives are posted");
        for wr in wr {
            assert!(wr.sgl.len() <= self.attr.recv_sge as usize, "a scatter list that is too long");
            assert!(!self.receives.contains_key(&wr.wr_id), "two Receives of one name");
        }
    }

    fn check_send(&self, qp: Q::Qp, wr: &[SendWr<'_>]) {
        for wr in wr {
            let len: u64 = wr.sgl.iter().map(|sge| u64::from(sge.length)).sum();
            let pieces = wr.sgl.len();
            assert!(pieces <= self.attr.send_sge as usize, "{pieces} gather entries");
            let is_inline = wr.flags.contains(SendFlags::INLINE);
            assert!(!is_inline || len <= u64::from(self.inline_len), "{len} bytes inline");
        }
        let outstanding: usize = self.sends.values().map(|(_, sends)| sends.len()).sum();
        let own = self.sends.values().find(|(name, _)| *name == qp);
        let own = own.map_or(0, |(_, sends)| sends.len()) + wr.len();
        assert!(own <= self.attr.send_depth as usize, "{own} sends on one queue pair");
        let all = outstanding + wr.len() + self.receives.len();
        assert!(all <= self.attr.cq_depth as usize, "{all} completions may be outstanding");
    }

    fn completed(&mut self, wc: &WorkCompletion) {
        if wc.status == WcStatus::Success && wc.opcode == WcOpcode::Recv {
            self.received(wc);
        } else if self.receives.contains_key(&wc.wr_id) && wc.status != WcStatus::Success {
            self.receives.remove(&wc.wr_id);
            self.watch.receives.fetch_sub(1, Ordering::Relaxed);
        } else if let Some((_, sends)) = self.sends.get_mut(&wc.qp_num) {
            let done = sends.iter().position(|sent| sent.wr_id == wc.wr_id);
            let done = done.expect("a send is completed once, and after it was posted");
            for sent in sends.drain(..=done) {
                let is_silent = sent.wr_id != wc.wr_id;
                assert!(!(is_silent && sent.is_signaled), "completions come in order");
                assert_eq!(sum(&sent.sgl), sent.sum, "posted memory was written to");
                self.watch.compared.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn received(&mut self, wc: &WorkCompletion) {
        let sgl = self.receives.remove(&wc.wr_id).expect("a Receive is completed once");
        self.watch.receives.fetch_sub(1, Ordering::Relaxed);
        self.watch.arrived.fetch_add(1, Ordering::Relaxed);
        let mut skip = wc.byte_len as usize;
        for sge in &sgl {
            let bytes = bytes(sge);
            let behind = &bytes[skip.min(bytes.len())..];
            skip = skip.saturating_sub(bytes.len());
            let poison = [POISON; 4096];
            let is_untouched = behind.chunks(4096).all(|part| part == &poison[..part.len()]);
            assert!(is_untouched, "somebody wrote behind a received message");
        }
    }
}

impl<Q: Queues> Queues for WatchedQueues<Q> {
    type Qp = Q::Qp;
    type Endpoint = Q::Endpoint;
    type Handle = Q::Handle;

    fn handle(&self) -> Q::Handle {
        self.inner.handle()
    }

    fn attach(&mut self, endpoint: Q::Endpoint) -> Result<Attached<Q::Qp>, SetupError> {
        let attached = self.inner.attach(endpoint)?;
        let old = self.sends.insert(attached.qp_num, (attached.qp, VecDeque::new()));
        assert!(old.is_none(), "two queue pairs of one number");
        Ok(attached)
    }

    fn poll_cq(&mut self, out: &mut WcBatch) -> Result<(), CqError> {
        let before = out.len();
        let result = self.inner.poll_cq(out);
        for wc in &out[before..] {
            self.completed(wc);
        }
        result
    }

    unsafe fn post_srq_recv(&mut self, wr: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.check_recv(wr);
        for sge in wr.iter().flat_map(|wr| wr.sgl) {
            fill(sge);
        }
        // SAFETY: the caller keeps the promises of `post_srq_recv`.
        let result = unsafe { self.inner.post_srq_recv(wr) };
        let taken = result.as_ref().map_or_else(PostError::taken, |()| wr.len());
        for wr in &wr[..taken] {
            self.receives.insert(wr.wr_id, wr.sgl.to_vec());
        }
        self.watch.receives.fetch_add(taken as i64, Ordering::Relaxed);
        result
    }

    unsafe fn post_send(&mut self, qp: Q::Qp, wr: &[SendWr<'_>]) -> Result<(), PostError> {
        self.check_send(qp, wr);
        // SAFETY: the caller keeps the promises of `post_send`.
        let result = unsafe { self.inner.post_send(qp, wr) };
        let taken = result.as_ref().map_or_else(PostError::taken, |()| wr.len());
        assert!(!matches!(result, Err(PostError::Invalid { .. })), "{result:?}");
        if let Some((_, sends)) = self.sends.values_mut().find(|(name, _)| *name == qp) {
            sends.extend(wr[..taken].iter().map(|wr| {
                let is_inline = wr.flags.contains(SendFlags::INLINE);
                let sgl = if is_inline { Vec::new() } else { wr.sgl.to_vec() };
                let is_signaled = wr.flags.contains(SendFlags::SIGNALED);
                // What a Read brings is written until it has completed.
                let sgl = if matches!(wr.op, SendOp::Read(_)) { Vec::new() } else { sgl };
                Sent { wr_id: wr.wr_id, sum: sum(&sgl), sgl, is_signaled }
            }));
        }
        result
    }

    fn open_window(&mut self) -> Result<Window, SetupError> {
        self.inner.open_window()
    }

    fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        self.inner.expose(sge, access)
    }

    fn conceal(&mut self, rkey: u32) {
        self.inner.conceal(rkey);
    }

    fn disconnect(&mut self, qp: Q::Qp) {
        self.inner.disconnect(qp);
    }

    fn destroy(&mut self, qp: Q::Qp) {
        self.sends.retain(|_, (name, _)| *name != qp);
        self.inner.destroy(qp);
    }

    fn next_event(&mut self) -> Option<QueueEvent> {
        self.inner.next_event()
    }

    fn wait(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        self.inner.wait(waker, timeout)
    }
}

impl<Q: Queues> Drop for WatchedQueues<Q> {
    fn drop(&mut self) {
        self.watch.receives.fetch_sub(self.receives.len() as i64, Ordering::Relaxed);
    }
}

/// A connection manager for watched queues.
pub struct WatchedCm<C>(C);

impl<C: ConnectionManager> ConnectionManager for WatchedCm<C> {
    type Queues = WatchedQueues<C::Queues>;
    type Request = C::Request;

    fn listen(&mut self, at: SocketAddr) -> Result<SocketAddr, SetupError> {
        self.0.listen(at)
    }

    fn connect(
        &mut self,
        to: SocketAddr,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<ConnectId, SetupError> {
        self.0.connect(to, on, param)
    }

    fn accept(
        &mut self,
        request: C::Request,
        on: &Handle<Self>,
        param: &ConnParam<'_>,
    ) -> Result<Endpoint<Self>, SetupError> {
        self.0.accept(request, on, param)
    }

    fn reject(&mut self, request: C::Request, private: &[u8]) {
        self.0.reject(request, private);
    }

    fn next(&mut self, waker: &Waker, timeout: Duration) -> Option<CmEvent<Self>> {
        Some(match self.0.next(waker, timeout)? {
            CmEvent::Request { request, from, private } => {
                CmEvent::Request { request, from, private }
            }
            CmEvent::Connected { id, endpoint, private } => {
                CmEvent::Connected { id, endpoint, private }
            }
            CmEvent::Refused { id, reason } => CmEvent::Refused { id, reason },
        })
    }
}

/// Poisons memory that is about to be given to the device.
fn fill(sge: &Sge) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
    // SAFETY: the caller of `post_srq_recv` gives the device this memory to write to, and does
    // not look at it before the completion has been polled; nobody else has it.
    unsafe { start.write_bytes(POISON, sge.length as usize) };
}

/// Memory that was given to the device and not handed back yet.
fn bytes(sge: &Sge) -> &[u8] {
    let start = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
    // SAFETY: until the completion has been polled, which ends after this is looked at, the memory
    // is valid and the program does not write to it; the device is done with it or only reads.
    unsafe { std::slice::from_raw_parts(start, sge.length as usize) }
}

/// A sum over the bytes of a gather list, in which their order counts.
fn sum(sgl: &[Sge]) -> u64 {
    sgl.iter().flat_map(|sge| bytes(sge).chunks(8)).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
    })
}
