//! A set of queues with memory, which a test polls itself.
#![expect(unsafe_code, reason = "posting is unsafe; the memory lives as long as the queues")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma_mempool::{Access, Keys, Region, RegionSpec, RegisterError, Rights, Sge};
use rpcrdma_provider::{
    Attached, Bind, CmEvent, ConnParam, ConnectionManager, PostError, Provider, QueueAttr,
    QueueEvent, Queues, RecvWr, SendFlags, SendOp, SendWr, Taken, Waker, WcBatch, WcOpcode,
    WcStatus, Window, WorkCompletion, WrId,
};

use super::device::{
    self, Clock, Device, DeviceCm, DeviceEndpoint, DeviceHandle, DeviceQp, DeviceQueues, Options,
    open_at,
};

pub(super) type Qp = DeviceQp;

pub(super) const SMALL: QueueAttr =
    QueueAttr { srq_depth: 32, cq_depth: 256, qp_max: 8, send_depth: 64, send_sge: 4, recv_sge: 3 };

/// A position of slots that no 32 bits can count on from: every test of a pair passes 2^32.
pub(super) const LATE: u64 = (1 << 32) - 3;

/// Bytes of the memory of a host.
pub(super) const MEMORY: usize = 256 << 10;

pub(super) struct Host<Q = DeviceQueues> {
    pub queues: Q,
    pub keys: Keys,
    /// Receive buffers that are described.
    buffers: u32,
    region: Region,
}

impl Host {
    pub(super) fn new(device: &Device, attr: &QueueAttr) -> Host {
        Host::wrap(device, device.open_queues(attr).unwrap())
    }
}

impl<Q: Queues<Qp = Qp>> Host<Q> {
    pub(super) fn wrap(device: &Device, queues: Q) -> Host<Q> {
        let region = map(MEMORY);
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let keys = register(device, &region, access);
        Host { queues, keys, buffers: 0, region }
    }

    /// Registers its memory once more.
    pub(super) fn register(&self, device: &Device, access: Access) -> Keys {
        register(device, &self.region, access)
    }

    pub(super) fn at(&self, offset: usize) -> u64 {
        self.region.base().as_ptr() as u64 + offset as u64
    }

    pub(super) fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.at(offset), length, lkey: self.keys.lkey }
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= MEMORY);
        // SAFETY: within the region, which lives as long as the host; no reference to it exists.
        unsafe {
            self.region
                .base()
                .as_ptr()
                .wrapping_add(offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        }
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= MEMORY);
        let mut bytes = vec![0; len];
        // SAFETY: as in `write`.
        unsafe {
            self.region
                .base()
                .as_ptr()
                .wrapping_add(offset)
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), len)
        }
        bytes
    }

    pub(super) fn recv_at(&mut self, id: u64, sgl: &[Sge]) -> Outcome {
        self.recv_all(&[(id, sgl)])
    }

    /// Posts Receives, each of a buffer that is described for it.
    pub(super) fn recv_all(&mut self, recvs: &[(u64, &[Sge])]) -> Outcome {
        let wrs: Vec<RecvWr> = recvs.iter().map(|(id, sgl)| self.described(*id, sgl)).collect();
        self.recv_again(&wrs)
    }

    /// Describes a new buffer.
    pub(super) fn described(&mut self, id: u64, sgl: &[Sge]) -> RecvWr {
        let buffer = self.buffers;
        self.buffers += 1;
        self.described_again(RecvWr { wr_id: WrId(id), buffer }, sgl)
    }

    /// Describes the buffer of a Receive that is not posted.
    pub(super) fn described_again(&mut self, recv: RecvWr, sgl: &[Sge]) -> RecvWr {
        // SAFETY: no Receive of the buffer is outstanding.
        unsafe { self.queues.describe_recv(recv.buffer, sgl) };
        recv
    }

    /// Posts Receives of described buffers.
    pub(super) fn recv_again(&mut self, wrs: &[RecvWr]) -> Outcome {
        // SAFETY: the region lives as long as the host, and the tests let posted memory be.
        outcome(unsafe { self.queues.post_srq_recv(wrs.iter().copied()) }, wrs.len())
    }

    /// Posts a Receive of `len` bytes at `offset`.
    pub(super) fn recv(&mut self, id: u64, offset: usize, len: u32) {
        let sgl = [self.sge(offset, len)];
        self.recv_at(id, &sgl).unwrap();
    }

    pub(super) fn send_from(&mut self, qp: Qp, id: u64, sgl: &[Sge], flags: SendFlags) -> Outcome {
        self.send_all(qp, &[SendWr::send(WrId(id), sgl, flags)])
    }

    pub(super) fn send_all(&mut self, qp: Qp, wr: &[SendWr<'_>]) -> Outcome {
        // SAFETY: the region lives as long as the host, and the tests let posted memory be.
        outcome(unsafe { self.queues.post_send(qp, wr.iter().copied()) }, wr.len())
    }

    pub(super) fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        // SAFETY: as above.
        unsafe { self.queues.expose(sge, access) }
    }

    /// Posts anything, signaled.
    pub(super) fn post(&mut self, qp: Qp, id: u64, op: SendOp, sgl: &[Sge]) {
        self.post_with(qp, id, op, sgl, SendFlags::SIGNALED).unwrap();
    }

    pub(super) fn post_with(
        &mut self,
        qp: Qp,
        id: u64,
        op: SendOp,
        sgl: &[Sge],
        flags: SendFlags,
    ) -> Outcome {
        self.send_all(qp, &[SendWr { wr_id: WrId(id), op, sgl, flags }])
    }

    /// The request that opens `len` bytes at `offset` by a window, and the key they get.
    pub(super) fn binding(
        &self,
        window: &mut Window,
        (offset, len): (usize, u32),
        access: Access,
    ) -> (SendOp, u32) {
        window.rkey = window.next_rkey();
        let (addr, lkey, rkey) = (self.at(offset), self.keys.lkey, window.rkey);
        (SendOp::Bind(Bind { window: window.id, rkey, lkey, addr, len, access }), rkey)
    }

    /// Opens `len` bytes at `offset` by a new window, and returns their key.
    pub(super) fn bind(&mut self, qp: Qp, range: (usize, u32), access: Access) -> u32 {
        let mut window = self.queues.open_window().unwrap();
        let (op, rkey) = self.binding(&mut window, range, access);
        self.post_with(qp, 0, op, &[], SendFlags::empty()).unwrap();
        rkey
    }

    /// Sends `bytes`, signaled, out of memory that may be overwritten at once.
    pub(super) fn send(&mut self, qp: Qp, id: u64, bytes: &[u8]) -> Outcome {
        self.write(MEMORY - 4096, bytes);
        let sgl = [self.sge(MEMORY - 4096, bytes.len() as u32)];
        self.send_from(qp, id, &sgl, SendFlags::SIGNALED | SendFlags::INLINE)
    }

    pub(super) fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut out = WcBatch::new();
        self.queues.poll_cq(&mut out).unwrap();
        out.to_vec()
    }

    /// Polls until nothing more comes: more often than an ack is withheld.
    pub(super) fn poll_dry(&mut self) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        let mut quiet = 0;
        while quiet < 40 {
            let some = self.poll();
            quiet = if some.is_empty() { quiet + 1 } else { 0 };
            all.extend(some);
        }
        all
    }

    pub(super) fn events(&mut self) -> Vec<QueueEvent> {
        std::iter::from_fn(|| self.queues.next_event()).collect()
    }
}

/// The fabric's queues, or something around them.
pub(super) trait OnDevice:
    Queues<Qp = Qp, Handle = DeviceHandle, Endpoint = DeviceEndpoint>
{
}
impl<Q: Queues<Qp = Qp, Handle = DeviceHandle, Endpoint = DeviceEndpoint>> OnDevice for Q {}

/// Two hosts with a connection.
pub(super) struct Pair {
    pub device: Device,
    pub a: Host,
    pub b: Host,
    /// The queue pair of `a` and that of `b`.
    pub qa: Attached<Qp>,
    pub qb: Attached<Qp>,
}

impl Pair {
    pub(super) fn new() -> Pair {
        Pair::with(Options { slots: 16, ..Options::default() }, &SMALL, 7)
    }

    pub(super) fn with(options: Options, attr: &QueueAttr, rnr_retry: u8) -> Pair {
        let device = open_at(options, LATE);
        let mut a = Host::new(&device, attr);
        let mut b = Host::new(&device, attr);
        let (qa, qb) = connect(&device, &mut a, &mut b, rnr_retry);
        Pair { device, a, b, qa, qb }
    }

    pub(super) fn another(&mut self) -> (Attached<Qp>, Attached<Qp>) {
        connect(&self.device, &mut self.a, &mut self.b, 7)
    }
}

pub(super) fn connect<A: OnDevice, B: OnDevice>(
    device: &Device,
    a: &mut Host<A>,
    b: &mut Host<B>,
    rnr_retry: u8,
) -> (Attached<Qp>, Attached<Qp>) {
    let (ours, theirs) = endpoints(device, a, b, rnr_retry);
    (a.queues.attach(ours).unwrap(), b.queues.attach(theirs).unwrap())
}

/// Connects, and attaches neither end.
pub(super) fn endpoints<A: OnDevice, B: OnDevice>(
    device: &Device,
    a: &Host<A>,
    b: &Host<B>,
    rnr_retry: u8,
) -> (DeviceEndpoint, DeviceEndpoint) {
    let mut cm = device.open_cm().unwrap();
    let at = cm.listen(device::address()).unwrap();
    let param = ConnParam { private: &[], rnr_retry, send_timeout: None };
    cm.connect(at, &a.queues.handle(), &param).unwrap();
    let Some(CmEvent::Request { request, .. }) = next(&mut cm) else { panic!("no request") };
    let theirs = cm.accept(request, &b.queues.handle(), &param).unwrap();
    let Some(CmEvent::Connected { endpoint, .. }) = next(&mut cm) else { panic!("no answer") };
    (endpoint, theirs)
}

/// The next event, which is there already if there is one.
pub(super) fn next(cm: &mut DeviceCm) -> Option<CmEvent<DeviceCm>> {
    cm.next(&Waker::new().unwrap(), Duration::ZERO)
}

pub(super) fn map(bytes: usize) -> Region {
    let mut spec = RegionSpec::new(bytes);
    spec.pages = rpcrdma_mempool::PageSize::Base4K;
    spec.lock = false;
    spec.shared = device::IS_SHARED;
    Region::map(&spec).unwrap()
}

pub(super) fn virtual_clock() -> (Arc<AtomicU64>, Clock) {
    let now = Arc::new(AtomicU64::new(1_000));
    (Arc::clone(&now), Clock::Virtual(now))
}

pub(super) fn advance(clock: &AtomicU64, ns: u64) {
    clock.fetch_add(ns, Ordering::Release);
}

/// What tests compare of a completion.
pub(super) fn brief(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|wc| (wc.wr_id.0, wc.status)).collect()
}

/// How a request ends that was sent and not taken as it should be.
pub(super) fn sent_or(status: WcStatus) -> WcStatus {
    if device::HAS_ACKS { status } else { WcStatus::Success }
}

pub(super) fn received(wr_id: u64, qp: Attached<Qp>, byte_len: u32) -> WorkCompletion {
    let (qp_num, status, opcode) = (qp.qp_num, WcStatus::Success, WcOpcode::Recv);
    WorkCompletion { wr_id: WrId(wr_id), qp_num, status, opcode, byte_len, invalidated: None }
}

/// Of a post that went wrong: how many requests were taken, and why no more.
pub(super) type Outcome = Result<(), (usize, PostError)>;

/// What became of a post of so many requests.
fn outcome(posted: Taken, requests: usize) -> Outcome {
    match posted.of(requests) {
        (_, None) => Ok(()),
        (taken, Some(why)) => Err((taken, why)),
    }
}

/// Registers a region with any rights, also remote ones.
pub(super) fn register(device: &Device, region: &Region, access: Access) -> Keys {
    // SAFETY: regions of tests live as long as the code that can reach them, and there are no
    // references to their bytes.
    let rights = unsafe { Rights::of_peers(access) };
    device.registrar().register(region, rights).unwrap()
}
