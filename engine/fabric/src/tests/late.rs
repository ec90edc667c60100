//! The fabric reads the memory of a long message when its receiver polls: memory that is gone then
//! fails the request. A carrier that copies when a request is posted does not notice.

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{Provider, QueueEvent, SendFlags, WcStatus};

use super::rules::{Open, Pair};
use crate::Fabric;

#[test]
fn memory_deregistered_under_a_send_fails_it_at_the_sender() {
    let mut pair = Pair::small();
    let region = map::<Fabric>(4096);
    let keys = register(&pair.device, &region, Access::LOCAL_WRITE);
    let addr = region.base().as_ptr() as u64;
    let sgl = [Sge { addr, length: 300, lkey: keys.lkey }];
    pair.b.recv(10, 0, 4096);
    pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
    pair.device.registrar().deregister(keys).unwrap();
    assert_eq!(pair.b.poll_dry(), []);
    assert_eq!(brief(&pair.a.poll_dry()), [(1, WcStatus::LocalProtection)]);
    // The Receive was not touched and takes the next message.
    let (qa, qb) = pair.another();
    pair.a.send(qa.qp, 2, b"next").unwrap();
    assert_eq!(pair.b.poll(), [received(10, qb, 4)]);
}

#[test]
fn memory_deregistered_under_a_write_fails_it_at_its_owner() {
    let mut open = Open::small();
    let region = map::<Fabric>(4096);
    let keys = register(&open.pair.device, &region, Access::LOCAL_WRITE);
    let sgl = [Sge { addr: region.base().as_ptr() as u64, length: 300, lkey: keys.lkey }];
    open.write(1, 0, &sgl);
    open.pair.device.registrar().deregister(keys).unwrap();
    drop(region);
    assert_eq!(brief(&open.poll_until_idle()), [(1, WcStatus::LocalProtection)]);
}

#[test]
fn memory_of_queues_that_vanished_is_not_read() {
    let Pair { mut a, mut b, qa, qb, .. } = Pair::small();
    b.recv(10, 0, 4096);
    b.recv(11, 0, 4096);
    a.send(qa.qp, 1, b"in the slot").unwrap();
    let sgl = [a.sge(0, 1000)];
    a.send_from(qa.qp, 2, &sgl, SendFlags::empty()).unwrap();
    drop(a);
    assert_eq!(b.poll_dry(), [received(10, qb, 11)]);
    assert_eq!(b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
}
