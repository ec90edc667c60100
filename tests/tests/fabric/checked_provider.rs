//! The checked provider detects accesses to memory that the device owns or that is open to a peer.
#![expect(unsafe_code, reason = "posting is unsafe; the tests break its contract on purpose")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpcrdma::fabric::{Fabric, FabricCm, FabricQp, FabricQueues};
use rpcrdma::provider::{
    Attached, Bind, CmEvent, ConnParam, ConnectionManager, Provider, QueueAttr, Queues, Remote,
    SendFlags, SendOp, SendWr, Waker, WcBatch, WorkCompletion, WrId,
};
use rpcrdma_mempool::{Access, Keys, PageSize, Region, RegionSpec, Rights, Sge};
use rpcrdma_tests::checked_provider::{CheckedCm, CheckedProvider, CheckedQueues, Watch};

const ATTR: QueueAttr =
    QueueAttr { srq_depth: 8, cq_depth: 64, qp_max: 2, send_depth: 16, send_sge: 2, recv_sge: 2 };

struct Host {
    queues: CheckedQueues<FabricQueues>,
    qp: Option<Attached<FabricQp>>,
    region: Region,
    keys: Keys,
}

impl Host {
    fn new(provider: &CheckedProvider<Fabric>) -> Host {
        let mut spec = RegionSpec::new(8192);
        (spec.pages, spec.lock) = (PageSize::Base4K, false);
        let region = Region::map(&spec).unwrap();
        let rights = Rights::own(Access::LOCAL_WRITE | Access::MW_BIND);
        let keys = provider.registrar().register(&region, rights).unwrap();
        Host { queues: provider.open_queues(&ATTR).unwrap(), qp: None, region, keys }
    }

    fn at(&self, offset: usize) -> u64 {
        self.region.base().as_ptr().wrapping_add(offset).expose_provenance() as u64
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.at(offset), length, lkey: self.keys.lkey }
    }

    fn write(&mut self, offset: usize, byte: u8) {
        // SAFETY: within the region, to which no reference exists.
        unsafe { self.region.base().as_ptr().wrapping_add(offset).write(byte) };
    }

    fn post(&mut self, op: SendOp, sgl: &[Sge]) {
        let wr = SendWr { wr_id: WrId(1), op, sgl, flags: SendFlags::SIGNALED };
        let qp = self.qp.expect("it is connected").qp;
        // SAFETY: the region lives as long as the queues, and only these tests use it.
        let posted = unsafe { self.queues.post_send(qp, [wr].into_iter()) };
        assert_eq!(posted.of(1), (1, None));
    }

    fn bind(&mut self, access: Access) -> u32 {
        let window = self.queues.open_window().unwrap();
        let (rkey, lkey, addr) = (window.next_rkey(), self.keys.lkey, self.at(0));
        self.post(SendOp::Bind(Bind { window: window.id, rkey, lkey, addr, len: 64, access }), &[]);
        rkey
    }

    fn expose(&mut self, sge: &Sge, access: Access) -> u32 {
        // SAFETY: as above.
        unsafe { self.queues.expose(sge, access) }.unwrap()
    }

    fn poll(&mut self, times: usize) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        for _ in 0..times {
            let mut out = WcBatch::new();
            self.queues.poll_cq(&mut out).unwrap();
            all.extend(out);
        }
        all
    }
}

fn pair() -> (Arc<Watch>, Host, Host) {
    let watch = Arc::<Watch>::default();
    let provider = CheckedProvider::new(Fabric::new(), Arc::clone(&watch));
    let (mut a, mut b) = (Host::new(&provider), Host::new(&provider));
    let mut cm: CheckedCm<FabricCm> = provider.open_cm().unwrap();
    let (waker, param) =
        (Waker::new().unwrap(), ConnParam { private: &[], rnr_retry: 7, send_timeout: None });
    let at = cm.listen("[::1]:0".parse().unwrap()).unwrap();
    cm.connect(at, &a.queues.handle(), &param).unwrap();
    let Some(CmEvent::Request { request, .. }) = cm.next(&waker, Duration::ZERO) else {
        panic!("no request")
    };
    let theirs = cm.accept(request, &b.queues.handle(), &param).unwrap();
    let Some(CmEvent::Connected { endpoint, .. }) = cm.next(&waker, Duration::ZERO) else {
        panic!("no answer")
    };
    a.qp = Some(a.queues.attach(endpoint).unwrap());
    b.qp = Some(b.queues.attach(theirs).unwrap());
    a.poll(1);
    b.poll(1);
    (watch, a, b)
}

/// Whether the guard speaks up.
fn is_caught(what: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err()
}

#[test]
fn a_program_that_writes_to_bound_memory_is_caught_until_it_has_invalidated() {
    let (watch, _a, mut b) = pair();
    let rkey = b.bind(Access::REMOTE_WRITE);
    assert_eq!(b.poll(20).len(), 1);
    assert!(watch.guarded.load(Ordering::Relaxed) > 0);
    b.post(SendOp::Invalidate { rkey }, &[]);
    assert_eq!(b.poll(20).len(), 1);
    assert_eq!(watch.open.load(Ordering::Relaxed), 0);
    for at in 0..16 {
        b.write(at, 1);
        b.poll(1);
    }
    b.bind(Access::REMOTE_WRITE);
    let caught = is_caught(|| {
        for at in 0..16 {
            b.write(at, 2);
            b.poll(1);
        }
    });
    assert!(caught);
}

#[test]
fn memory_a_peer_reads_may_be_written_and_writes_of_the_device_are_no_fault() {
    let (watch, mut a, mut b) = pair();
    b.bind(Access::REMOTE_READ);
    for at in 0..16 {
        b.write(at, 1);
        b.poll(1);
    }
    let exposed = b.sge(128, 64);
    let rkey = b.expose(&exposed, Access::REMOTE_WRITE);
    assert_eq!(watch.open.load(Ordering::Relaxed), 1);
    let (sgl, addr) = ([a.sge(0, 64)], b.at(128));
    for byte in 0..16 {
        a.write(0, byte);
        a.post(SendOp::Write(Remote { addr, rkey }), &sgl);
        while a.poll(1).is_empty() {
            b.poll(1);
        }
    }
    b.queues.conceal(rkey).unwrap();
    assert_eq!(watch.open.load(Ordering::Relaxed), 0);
}

#[test]
fn a_program_that_writes_to_the_memory_of_a_read_is_caught() {
    for is_guilty in [false, true] {
        let (_, mut a, mut b) = pair();
        b.write(0, 7);
        let rkey = b.expose(&b.sge(0, 64), Access::REMOTE_READ);
        let (sgl, addr) = ([a.sge(0, 64)], b.at(0));
        a.post(SendOp::Read(Remote { addr, rkey }), &sgl);
        let caught = is_caught(|| {
            if is_guilty {
                a.write(5, 1);
            }
            // Each time the guard looks; then the bytes arrive, and it looks again.
            a.poll(9);
            b.queues.wait(&Waker::new().unwrap(), Duration::ZERO).unwrap();
            b.poll(1);
            b.poll(1);
            a.poll(9);
        });
        assert_eq!(caught, is_guilty);
    }
}
