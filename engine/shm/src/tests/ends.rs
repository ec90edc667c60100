//! The ends of a link: bytes that are gone when they are to be copied, and outcomes of an earlier
//! lap.

use crate::Shm;
use rpcrdma_conformance::host::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{Provider, Remote, SendFlags, SendOp, WcStatus};

/// A request that waits for a slot is copied when it gets one. Nothing is delivered in place of
/// bytes that cannot be read then.
#[test]
fn memory_that_is_gone_before_its_request_is_published_fails_it() {
    for length in [100, 300] {
        let mut pair = Pair::<Shm>::small();
        let region = map::<Shm>(4096);
        let keys = register(&pair.device, &region, Access::LOCAL_WRITE);
        let addr = region.base().as_ptr() as u64;
        let sgl = [rpcrdma_mempool::Sge { addr, length, lkey: keys.lkey }];
        pair.a.poll();
        for id in 0..17 {
            pair.b.recv(id, id as usize * 512, 512);
        }
        for id in 0..16 {
            pair.a.send(pair.qa.qp, id, b"takes a slot").unwrap();
        }
        pair.a.send_from(pair.qa.qp, 16, &sgl, SendFlags::SIGNALED).unwrap();
        pair.device.registrar().deregister(keys).unwrap();
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            got.extend(brief(&pair.b.poll_dry()));
            sent.extend(brief(&pair.a.poll_dry()));
        }
        let all: Vec<_> = (0..16).map(|id| (id, WcStatus::Success)).collect();
        assert_eq!(got, all, "{length}");
        assert_eq!(sent[..16], all, "{length}");
        assert_eq!(sent[16..], [(16, WcStatus::LocalProtection)], "{length}");
    }
}

/// Each slot is that of a Read, in lap after lap.
#[test]
fn a_read_ends_with_its_own_outcome_and_not_with_that_of_the_lap_before() {
    let mut pair = Pair::<Shm>::small();
    pair.a.poll();
    pair.b.write(0, &[0xBB; 300]);
    let rkey = pair.b.bind(pair.qb.qp, (0, 300), Access::REMOTE_READ);
    let read = SendOp::Read(Remote { addr: pair.b.at(0), rkey });
    pair.b.poll_dry();
    for (at, length) in (0..40).zip([64, 300].into_iter().cycle()) {
        let to = 4096 + at * 512;
        pair.a.write(to, &[0; 300]);
        let sgl = [pair.a.sge(to, length)];
        pair.a.post(pair.qa.qp, 1, read, &sgl);
        // It is taken, but not carried out; a message brings the ack for it.
        pair.b.poll();
        pair.a.recv(2, 32768, 64);
        pair.b.send(pair.qb.qp, 3, b"ack").unwrap();
        let early = [pair.a.poll(), pair.a.poll(), pair.a.poll()].concat();
        assert_eq!(brief(&early), [(2, WcStatus::Success)], "{at}: its data are not there");
        assert_eq!(pair.a.read(to, 1), [0]);
        pair.b.poll_dry();
        assert_eq!(brief(&pair.a.poll_dry()), [(1, WcStatus::Success)]);
        assert_eq!(pair.a.read(to, length as usize), vec![0xBB; length as usize]);
        pair.b.poll_dry();
    }
}
