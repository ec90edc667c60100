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

use crate::subject::{EndpointOf, On, Options, QpOf, Subject};

/// The sizes of queues that most tests need no more than.
pub const SMALL: QueueAttr =
    QueueAttr { srq_depth: 32, cq_depth: 256, qp_max: 8, send_depth: 64, send_sge: 4, recv_sge: 3 };

/// Few slots: rings are full soon.
pub const FEW: Options = Options {
    slots: Some(16),
    first_slot: 0,
    delay_ns: 0,
    rnr_timer_ns: None,
    clock: None,
    windows: None,
    rd_atomic: None,
    key_seed: None,
};

/// A position of slots that no 32 bits can count on from: every test of a pair passes 2^32.
pub const LATE: u64 = (1 << 32) - 3;

/// Bytes of the memory of a host.
pub const MEMORY: usize = 256 << 10;

/// A set of queues with memory.
pub struct Host<Q> {
    /// The queues, dropped before the memory.
    pub queues: Q,
    /// The keys of its memory.
    pub keys: Keys,
    /// Receive buffers that are described.
    buffers: u32,
    region: Region,
}

impl<Q: Queues> Host<Q> {
    /// Opens queues of a device.
    pub fn new<S: Subject + Provider<Queues = Q>>(device: &S, attr: &QueueAttr) -> Host<Q> {
        Host::wrap(device, device.open_queues(attr).unwrap())
    }

    /// Around queues of a device.
    pub fn wrap<S: Subject>(device: &S, queues: Q) -> Host<Q> {
        let region = map::<S>(MEMORY);
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let keys = register(device, &region, access);
        Host { queues, keys, buffers: 0, region }
    }

    /// Registers its memory once more.
    pub fn register(&self, device: &impl Provider, access: Access) -> Keys {
        register(device, &self.region, access)
    }

    /// The address of a byte of its memory.
    pub fn at(&self, offset: usize) -> u64 {
        self.region.base().as_ptr() as u64 + offset as u64
    }

    /// Bytes of its memory.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.at(offset), length, lkey: self.keys.lkey }
    }

    /// Writes to its memory.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
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

    /// Reads its memory.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
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

    /// Posts a Receive of a new buffer.
    pub fn recv_at(&mut self, id: u64, sgl: &[Sge]) -> Outcome {
        self.recv_all(&[(id, sgl)])
    }

    /// Posts Receives, each of a buffer that is described for it.
    pub fn recv_all(&mut self, recvs: &[(u64, &[Sge])]) -> Outcome {
        let wrs: Vec<RecvWr> = recvs.iter().map(|(id, sgl)| self.described(*id, sgl)).collect();
        self.recv_again(&wrs)
    }

    /// Describes a new buffer.
    pub fn described(&mut self, id: u64, sgl: &[Sge]) -> RecvWr {
        let buffer = self.buffers;
        self.buffers += 1;
        self.described_again(RecvWr { wr_id: WrId(id), buffer }, sgl)
    }

    /// Describes the buffer of a Receive that is not posted.
    pub fn described_again(&mut self, recv: RecvWr, sgl: &[Sge]) -> RecvWr {
        // SAFETY: no Receive of the buffer is outstanding.
        unsafe { self.queues.describe_recv(recv.buffer, sgl) };
        recv
    }

    /// Posts Receives of described buffers.
    pub fn recv_again(&mut self, wrs: &[RecvWr]) -> Outcome {
        // SAFETY: the region lives as long as the host, and the tests let posted memory be.
        outcome(unsafe { self.queues.post_srq_recv(wrs.iter().copied()) }, wrs.len())
    }

    /// Posts a Receive of `len` bytes at `offset`.
    pub fn recv(&mut self, id: u64, offset: usize, len: u32) {
        let sgl = [self.sge(offset, len)];
        self.recv_at(id, &sgl).unwrap();
    }

    /// Sends what a list names.
    pub fn send_from(&mut self, qp: Q::Qp, id: u64, sgl: &[Sge], flags: SendFlags) -> Outcome {
        self.send_all(qp, &[SendWr::send(WrId(id), sgl, flags)])
    }

    /// Posts requests.
    pub fn send_all(&mut self, qp: Q::Qp, wr: &[SendWr<'_>]) -> Outcome {
        // SAFETY: the region lives as long as the host, and the tests let posted memory be.
        outcome(unsafe { self.queues.post_send(qp, wr.iter().copied()) }, wr.len())
    }

    /// Gives peers access to bytes.
    pub fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        // SAFETY: as above.
        unsafe { self.queues.expose(sge, access) }
    }

    /// Posts anything, signaled.
    pub fn post(&mut self, qp: Q::Qp, id: u64, op: SendOp, sgl: &[Sge]) {
        self.post_with(qp, id, op, sgl, SendFlags::SIGNALED).unwrap();
    }

    /// Posts anything.
    pub fn post_with(
        &mut self,
        qp: Q::Qp,
        id: u64,
        op: SendOp,
        sgl: &[Sge],
        flags: SendFlags,
    ) -> Outcome {
        self.send_all(qp, &[SendWr { wr_id: WrId(id), op, sgl, flags }])
    }

    /// The request that opens `len` bytes at `offset` by a window, and the key they get.
    pub fn binding(
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
    pub fn bind(&mut self, qp: Q::Qp, range: (usize, u32), access: Access) -> u32 {
        let mut window = self.queues.open_window().unwrap();
        let (op, rkey) = self.binding(&mut window, range, access);
        self.post_with(qp, 0, op, &[], SendFlags::empty()).unwrap();
        rkey
    }

    /// Sends `bytes`, signaled, out of memory that may be overwritten at once.
    pub fn send(&mut self, qp: Q::Qp, id: u64, bytes: &[u8]) -> Outcome {
        self.write(MEMORY - 4096, bytes);
        let sgl = [self.sge(MEMORY - 4096, bytes.len() as u32)];
        self.send_from(qp, id, &sgl, SendFlags::SIGNALED | SendFlags::INLINE)
    }

    /// The completions of one poll.
    pub fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut out = WcBatch::new();
        self.queues.poll_cq(&mut out).unwrap();
        out.to_vec()
    }

    /// Polls until nothing more comes: more often than an ack is withheld.
    pub fn poll_dry(&mut self) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        let mut quiet = 0;
        while quiet < 40 {
            let some = self.poll();
            quiet = if some.is_empty() { quiet + 1 } else { 0 };
            all.extend(some);
        }
        all
    }

    /// The events so far.
    pub fn events(&mut self) -> Vec<QueueEvent> {
        std::iter::from_fn(|| self.queues.next_event()).collect()
    }
}

/// Two hosts with a connection.
pub struct Pair<S: Subject> {
    /// Their device.
    pub device: S,
    /// One host.
    pub a: Host<S::Queues>,
    /// The other.
    pub b: Host<S::Queues>,
    /// The queue pair of `a`.
    pub qa: Attached<QpOf<S>>,
    /// That of `b`.
    pub qb: Attached<QpOf<S>>,
}

impl<S: Subject> Pair<S> {
    /// On a device with few slots, and whose messages wait for a Receive without end.
    pub fn small() -> Pair<S> {
        Pair::with(FEW, &SMALL, 7)
    }

    /// On a device with these options.
    pub fn with(options: Options, attr: &QueueAttr, rnr_retry: u8) -> Pair<S> {
        let device = S::made(&Options { first_slot: LATE, ..options });
        Pair::on(device.expect("allowed"), attr, rnr_retry)
    }

    /// On an open device.
    pub fn on(device: S, attr: &QueueAttr, rnr_retry: u8) -> Pair<S> {
        let mut a = Host::new(&device, attr);
        let mut b = Host::new(&device, attr);
        let (qa, qb) = connect(&device, &mut a, &mut b, rnr_retry);
        Pair { device, a, b, qa, qb }
    }

    /// One more connection.
    pub fn another(&mut self) -> Ends<S> {
        connect(&self.device, &mut self.a, &mut self.b, 7)
    }
}

/// The queue pairs of a connection.
pub type Ends<S> = (Attached<QpOf<S>>, Attached<QpOf<S>>);

/// Connects two hosts.
pub fn connect<S: Subject, A: On<S>, B: On<S>>(
    device: &S,
    a: &mut Host<A>,
    b: &mut Host<B>,
    rnr_retry: u8,
) -> Ends<S> {
    let (ours, theirs) = endpoints(device, a, b, rnr_retry);
    (a.queues.attach(ours).unwrap(), b.queues.attach(theirs).unwrap())
}

/// Connects, and attaches neither end.
pub fn endpoints<S: Subject, A: On<S>, B: On<S>>(
    device: &S,
    a: &Host<A>,
    b: &Host<B>,
    rnr_retry: u8,
) -> (EndpointOf<S>, EndpointOf<S>) {
    let mut cm = device.open_cm().unwrap();
    let at = cm.listen(S::address()).unwrap();
    let param = ConnParam { private: &[], rnr_retry, send_timeout: None };
    cm.connect(at, &a.queues.handle(), &param).unwrap();
    let Some(CmEvent::Request { request, .. }) = next(&mut cm) else { panic!("no request") };
    let theirs = cm.accept(request, &b.queues.handle(), &param).unwrap();
    let Some(CmEvent::Connected { endpoint, .. }) = next(&mut cm) else { panic!("no answer") };
    (endpoint, theirs)
}

/// The next event, which is there already if there is one.
pub fn next<C: ConnectionManager>(cm: &mut C) -> Option<CmEvent<C>> {
    cm.next(&Waker::new().unwrap(), Duration::ZERO)
}

/// Memory as the hosts of a subject have it.
pub fn map<S: Subject>(bytes: usize) -> Region {
    let mut spec = RegionSpec::new(bytes);
    spec.pages = rpcrdma_mempool::PageSize::Base4K;
    spec.lock = false;
    spec.shared = S::IS_SHARED;
    Region::map(&spec).unwrap()
}

/// A virtual time, for a test and for its device.
pub fn virtual_clock() -> (Arc<AtomicU64>, Option<Arc<AtomicU64>>) {
    let now = Arc::new(AtomicU64::new(1_000));
    (Arc::clone(&now), Some(now))
}

/// Lets virtual time pass.
pub fn advance(clock: &AtomicU64, ns: u64) {
    clock.fetch_add(ns, Ordering::Release);
}

/// What tests compare of a completion.
pub fn brief(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|wc| (wc.wr_id.0, wc.status)).collect()
}

/// How a request ends that was sent and not taken as it should be.
pub fn sent_or<S: Subject>(status: WcStatus) -> WcStatus {
    if S::HAS_ACKS { status } else { WcStatus::Success }
}

/// The completion of a Receive.
pub fn received<Qp: Copy>(wr_id: u64, qp: Attached<Qp>, byte_len: u32) -> WorkCompletion {
    let (qp_num, status, opcode) = (qp.qp_num, WcStatus::Success, WcOpcode::Recv);
    WorkCompletion { wr_id: WrId(wr_id), qp_num, status, opcode, byte_len, invalidated: None }
}

/// Of a post that went wrong: how many requests were taken, and why no more.
pub type Outcome = Result<(), (usize, PostError)>;

/// What became of a post of so many requests.
fn outcome(posted: Taken, requests: usize) -> Outcome {
    match posted.of(requests) {
        (_, None) => Ok(()),
        (taken, Some(why)) => Err((taken, why)),
    }
}

/// Registers a region with any rights, also remote ones.
pub fn register(device: &impl Provider, region: &Region, access: Access) -> Keys {
    // SAFETY: regions of tests live as long as the code that can reach them, and there are no
    // references to their bytes.
    let rights = unsafe { Rights::of_peers(access) };
    device.registrar().register(region, rights).unwrap()
}
