//! Two sets of queues on one device, with memory, connected without a connection manager.
#![expect(unsafe_code, reason = "posting is unsafe; queue pairs are connected by hand")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_mempool::{Access, Keys, Region, RegionSpec, RegisterError, Rights, Sge};
use rpcrdma_provider::{
    Attached, Bind, PostError, Provider, QueueAttr, Queues, RecvWr, SendFlags, SendOp, SendWr,
    Taken, WcBatch, WcStatus, Window, WorkCompletion, WrId,
};

use crate::port::VerbsEndpoint;
use crate::sys::verbs as sys;
use crate::{Verbs, VerbsOptions, VerbsQp, VerbsQueues};

pub(super) const SMALL: QueueAttr =
    QueueAttr { srq_depth: 64, cq_depth: 512, qp_max: 8, send_depth: 64, send_sge: 4, recv_sge: 3 };

/// Bytes of the memory of a host.
pub(super) const MEMORY: usize = 1 << 20;

/// The device that the environment names.
pub(super) fn device() -> Verbs {
    let name = std::env::var("RPCRDMA_TEST_DEVICE").expect("RPCRDMA_TEST_DEVICE names a device");
    let options = VerbsOptions { device: Some(name), ..VerbsOptions::default() };
    Verbs::open(&options).expect("the device can be opened")
}

/// A set of queues with memory. In this order they are dropped.
pub(super) struct Host {
    pub queues: VerbsQueues,
    pub keys: Keys,
    /// Receive buffers that are described.
    buffers: u32,
    _registered: Registered,
    region: Region,
}

/// Memory of a host that the device knows.
struct Registered {
    device: Verbs,
    keys: Keys,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.device.registrar().deregister(self.keys).expect("no window is bound");
    }
}

impl Host {
    pub fn new(device: &Verbs, attr: &QueueAttr) -> Host {
        let queues = device.open_queues(attr).expect("queues");
        let region = Region::map(&RegionSpec::new(MEMORY)).expect("memory");
        let rights = Rights::own(Access::LOCAL_WRITE | Access::MW_BIND);
        let keys = device.registrar().register(&region, rights).expect("registered");
        let registered = Registered { device: device.clone(), keys };
        Host { queues, keys, buffers: 0, _registered: registered, region }
    }

    pub fn at(&self, offset: usize) -> u64 {
        self.region.base().as_ptr().expose_provenance() as u64 + offset as u64
    }

    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.at(offset), length, lkey: self.keys.lkey }
    }

    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= MEMORY);
        let place = self.region.base().as_ptr().wrapping_add(offset);
        // SAFETY: within the region, which lives as long as the host; no reference to it exists.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= MEMORY);
        let mut bytes = vec![0; len];
        let place = self.region.base().as_ptr().wrapping_add(offset);
        // SAFETY: as in `write`.
        unsafe { place.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Posts Receives of `len` bytes each, one behind the other.
    pub fn recvs(&mut self, ids: std::ops::Range<u64>, offset: usize, len: u32) {
        for id in ids.clone() {
            let place = offset + (id - ids.start) as usize * len as usize;
            self.recv_at(id, &[self.sge(place, len)]).expect("room for a Receive");
        }
    }

    pub fn recv_at(&mut self, id: u64, sgl: &[Sge]) -> Outcome {
        let buffer = self.buffers;
        self.buffers += 1;
        // SAFETY: the buffer was never posted.
        unsafe { self.queues.describe_recv(buffer, sgl) };
        let wrs = [RecvWr { wr_id: WrId(id), buffer }].into_iter();
        // SAFETY: the region lives as long as the host, and the tests let posted memory be.
        outcome(unsafe { self.queues.post_srq_recv(wrs) }, 1)
    }

    pub fn post_all(&mut self, qp: VerbsQp, wrs: &[SendWr<'_>]) -> Outcome {
        // SAFETY: as above.
        outcome(unsafe { self.queues.post_send(qp, wrs.iter().copied()) }, wrs.len())
    }

    pub fn expose(&mut self, sge: &Sge, access: Access) -> Result<u32, RegisterError> {
        // SAFETY: as above.
        unsafe { self.queues.expose(sge, access) }
    }

    /// Posts anything, signaled.
    pub fn post(&mut self, qp: VerbsQp, id: u64, op: SendOp, sgl: &[Sge]) {
        let wr = SendWr { wr_id: WrId(id), op, sgl, flags: SendFlags::SIGNALED };
        self.post_all(qp, &[wr]).expect("room for a request");
    }

    /// Sends so many bytes from `offset`.
    pub fn send(&mut self, qp: VerbsQp, id: u64, offset: usize, len: u32) {
        let sgl = [self.sge(offset, len)];
        self.post(qp, id, SendOp::Send, &sgl);
    }

    /// What binds a window to bytes of this host, and the key that it gets.
    pub fn binding(
        &self,
        window: &mut Window,
        (offset, len): (usize, u32),
        access: Access,
    ) -> (SendOp, u32) {
        window.rkey = window.next_rkey();
        let (rkey, lkey, addr) = (window.rkey, self.keys.lkey, self.at(offset));
        (SendOp::Bind(Bind { window: window.id, rkey, lkey, addr, len, access }), rkey)
    }

    /// The next completions, as many as are expected.
    pub fn poll(&mut self, count: usize) -> Vec<WorkCompletion> {
        let until = Instant::now() + PATIENCE;
        let mut done = Vec::new();
        while done.len() < count {
            let mut batch = WcBatch::new();
            self.queues.poll_cq(&mut batch).expect("the queue is good");
            done.extend(batch);
            assert!(Instant::now() < until, "{count} completions are expected; there are {done:?}");
            std::thread::yield_now();
        }
        done
    }

    /// Numbers and outcomes of the next completions.
    pub fn outcomes(&mut self, count: usize) -> Vec<(u64, WcStatus)> {
        self.poll(count).iter().map(|done| (done.wr_id.0, done.status)).collect()
    }

    /// What is there without waiting.
    pub fn poll_once(&mut self) -> Vec<WorkCompletion> {
        let mut batch = WcBatch::new();
        self.queues.poll_cq(&mut batch).expect("the queue is good");
        batch.to_vec()
    }
}

/// Two hosts that are connected.
pub(super) struct Pair {
    pub a: Host,
    pub b: Host,
    pub qa: Attached<VerbsQp>,
    pub qb: Attached<VerbsQp>,
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with(&device(), &SMALL, 7)
    }

    pub fn with(device: &Verbs, attr: &QueueAttr, rnr_retry: u8) -> Pair {
        let (mut a, mut b) = (Host::new(device, attr), Host::new(device, attr));
        let [qa, qb] = connect([&mut a, &mut b], rnr_retry);
        Pair { a, b, qa, qb }
    }

    /// One more connection between them.
    pub fn another(&mut self) -> [Attached<VerbsQp>; 2] {
        connect([&mut self.a, &mut self.b], 7)
    }
}

fn connect([a, b]: [&mut Host; 2], rnr_retry: u8) -> [Attached<VerbsQp>; 2] {
    let [ea, eb] = endpoints([a, b], rnr_retry);
    [a.queues.attach(ea).expect("its own"), b.queues.attach(eb).expect("its own")]
}

/// Two queue pairs that are connected and not attached.
pub(super) fn endpoints([a, b]: [&mut Host; 2], rnr_retry: u8) -> [VerbsEndpoint; 2] {
    let made = [a, b].map(|host| {
        let port = Arc::clone(&host.queues.handle().port);
        port.create(None).map_err(|(_, error)| error).expect("a queue pair")
    });
    let [ea, eb] = &made;
    for (own, peer) in [(ea, eb.num()), (eb, ea.num())] {
        move_to_ready(own, peer, rnr_retry);
    }
    made
}

/// Moves a queue pair to where it may send, by hand.
fn move_to_ready(endpoint: &VerbsEndpoint, peer: u32, rnr_retry: u8) {
    let device = Arc::clone(&endpoint.port().device);
    let port = device.port_num;
    // SAFETY: all members are integers, for which zeros are values.
    let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut limits: sys::ibv_port_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open, and the structure is as the header has it.
    let code = unsafe { (device.lib.ibv_query_port)(device.context, port, &raw mut limits) };
    assert_eq!(code, 0);
    let modify = |attr: &mut sys::ibv_qp_attr, mask: i32| {
        let pair = endpoint.pair().expect("it is not attached");
        let code = pair.with(|qp| {
            // SAFETY: the queue pair is alive, and `attr` is as the header has it.
            unsafe { (device.lib.ibv_modify_qp)(qp, attr, mask) }
        });
        assert_eq!(code, Some(0), "ibv_modify_qp with {mask:#x}");
    };
    attr.qp_state = sys::IBV_QPS_INIT;
    attr.port_num = port;
    attr.qp_access_flags =
        sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_READ;
    let init = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT;
    modify(&mut attr, init | sys::IBV_QP_ACCESS_FLAGS);
    attr.qp_state = sys::IBV_QPS_RTR;
    attr.path_mtu = limits.active_mtu;
    attr.dest_qp_num = peer;
    (attr.max_dest_rd_atomic, attr.max_rd_atomic) = (16, 16);
    // 10.24 us.
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = port;
    attr.ah_attr.dlid = limits.lid;
    attr.ah_attr.grh.hop_limit = 64;
    let (index, gid) = own_gid(&device, port, limits.gid_tbl_len);
    attr.ah_attr.grh.sgid_index = index;
    attr.ah_attr.grh.dgid.0 = gid;
    let rtr = sys::IBV_QP_STATE | sys::IBV_QP_AV | sys::IBV_QP_PATH_MTU | sys::IBV_QP_DEST_QPN;
    let rtr = rtr | sys::IBV_QP_RQ_PSN | sys::IBV_QP_MAX_DEST_RD_ATOMIC;
    modify(&mut attr, rtr | sys::IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = sys::IBV_QPS_RTS;
    (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (17, 7, rnr_retry);
    let rts = sys::IBV_QP_STATE | sys::IBV_QP_TIMEOUT | sys::IBV_QP_RETRY_CNT;
    let rts = rts | sys::IBV_QP_RNR_RETRY | sys::IBV_QP_SQ_PSN;
    modify(&mut attr, rts | sys::IBV_QP_MAX_QP_RD_ATOMIC);
}

/// An address of the port that packets to itself can be sent to: one that an interface has.
fn own_gid(device: &crate::device::Device, port: u8, count: i32) -> (u8, sys::ibv_gid) {
    let gids = (0..count).filter_map(|index| {
        let mut gid = [0; 16];
        // SAFETY: the context is open, and a GID has sixteen bytes.
        let code = unsafe { (device.lib.ibv_query_gid)(device.context, port, index, &raw mut gid) };
        (code == 0 && gid != [0; 16]).then_some((index as u8, gid))
    });
    gids.last().expect("the port has an address")
}

/// How long a device may take for anything. Longer is a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Of a post that went wrong: how many requests were taken, and why no more.
pub type Outcome = Result<(), (usize, PostError)>;

/// What became of a post of so many requests.
fn outcome(posted: Taken, requests: usize) -> Outcome {
    match posted.of(requests) {
        (_, None) => Ok(()),
        (taken, Some(why)) => Err((taken, why)),
    }
}
