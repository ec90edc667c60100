//! What a peer sees of this side's pools, and when.

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{
    CmEvent, ConnParam, ConnectionManager, Provider, Queues, SendFlags, WcStatus,
};

use super::device::{IS_SHARED, Options, address, open};
use super::host::*;
use crate::pools::POOLS_MAX;
use crate::{Shm, ShmOptions};

/// Long messages leave the staging area alone: with one that has room for none of them, all arrive.
#[test]
fn a_long_message_is_copied_from_where_it_is() {
    let attr = SMALL;
    let mut pair = Pair::with(Options { staging: 1 << 16, ..Options::default() }, &attr, 7);
    for id in 0..8 {
        pair.b.recv(id, id as usize * 16_384, 16_384);
    }
    for id in 0..8_u64 {
        let from = 131_072 + id as usize * 12_000;
        pair.a.write(from, &vec![id as u8 + 1; 12_000]);
        let sgl = [pair.a.sge(from, 12_000)];
        pair.a.send_from(pair.qa.qp, id, &sgl, SendFlags::SIGNALED).unwrap();
        // Until it is taken it is read where it is: this is what the peer will see.
        pair.a.write(from, &[0xAA]);
    }
    assert_eq!(pair.b.poll_dry().len(), 8);
    for id in 0..8_usize {
        assert_eq!(pair.b.read(id * 16_384, 2), [0xAA, id as u8 + 1]);
    }
    assert_eq!(pair.a.poll_dry().len(), 8);
}

/// Memory without a file is staged beside pools that are mapped.
#[test]
fn memory_that_is_not_shared_is_staged() {
    let mut pair = Pair::new();
    let mut spec = rpcrdma_mempool::RegionSpec::new(4096);
    (spec.pages, spec.lock) = (rpcrdma_mempool::PageSize::Base4K, false);
    let private = rpcrdma_mempool::Region::map(&spec).expect("memory");
    assert!(IS_SHARED && private.memfd().is_none());
    let keys = register(&pair.device, &private, Access::LOCAL_WRITE);
    pair.b.recv(1, 0, 8192);
    let sgl = [
        pair.a.sge(0, 300),
        Sge { addr: private.base().as_ptr() as u64, length: 300, lkey: keys.lkey },
    ];
    pair.a.write(0, &[7; 300]);
    pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
    assert_eq!(pair.b.poll_dry(), [received(1, pair.qb, 600)]);
    assert_eq!(pair.b.read(299, 2), [7, 0]);
    pair.device.registrar().deregister(keys).unwrap();
}

/// A side that does not map pools is served from the staging area.
#[test]
fn both_sides_have_to_want_it() {
    let (mapping, copying) = (open(), Shm::with_options(ShmOptions::default()).expect("a thread"));
    for (asking, asked) in [(&mapping, &copying), (&copying, &mapping), (&mapping, &mapping)] {
        let (mut a, mut b) = (Host::new(asking, &SMALL), Host::new(asked, &SMALL));
        let (mut caller, mut listener) = (asking.open_cm().unwrap(), asked.open_cm().unwrap());
        let (at, param) =
            (listener.listen(address()).unwrap(), ConnParam { private: &[], rnr_retry: 7 });
        caller.connect(at, &a.queues.handle(), &param).unwrap();
        let Some(CmEvent::Request { request, .. }) = next(&mut listener) else { panic!("none") };
        let theirs = listener.accept(request, &b.queues.handle(), &param).unwrap();
        let Some(CmEvent::Connected { endpoint, .. }) = next(&mut caller) else { panic!("none") };
        let qa = a.queues.attach(endpoint).unwrap();
        b.queues.attach(theirs).unwrap();
        b.recv(1, 0, 8192);
        a.write(0, &[9; 5000]);
        let sgl = [a.sge(0, 5000)];
        a.send_from(qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
        a.write(0, &[1; 5000]);
        assert_eq!(b.poll_dry().len(), 1);
        // A staged message was copied when it was posted.
        let are_both = std::ptr::eq(asking, asked);
        assert_eq!(b.read(4999, 1), if are_both { [1] } else { [9] });
    }
}

/// Pools come and go, and one is used all the time; more than a peer keeps are staged.
#[test]
fn more_pools_than_a_peer_keeps_and_those_that_are_gone_do_no_harm() {
    let mut pair = Pair::new();
    pair.b.recv(1, 0, 8192);
    let mut kept = Vec::new();
    for round in 0..3 * POOLS_MAX {
        let region = map(4096);
        let keys = register(&pair.device, &region, Access::LOCAL_WRITE);
        let addr = region.base().as_ptr() as u64;
        let its = Sge { addr, length: 300, lkey: keys.lkey };
        let oldest = pair.a.sge(0, 300);
        pair.a.write(0, &[round as u8; 300]);
        pair.a.send_from(pair.qa.qp, 7, &[its, oldest], SendFlags::SIGNALED).unwrap();
        assert_eq!(pair.b.poll_dry(), [received(1, pair.qb, 600)], "{round}");
        assert_eq!(pair.b.read(0, 301), [&[0; 300][..], &[round as u8]].concat());
        pair.b.recv(1, 0, 8192);
        assert_eq!(brief(&pair.a.poll_dry()), [(7, WcStatus::Success)]);
        // First they go, then they stay.
        if round < POOLS_MAX + 8 {
            pair.device.registrar().deregister(keys).unwrap();
        } else {
            kept.push(region);
        }
    }
    assert!(kept.len() > POOLS_MAX);
}

/// A message that its sender has withdrawn is not delivered with what came later to its memory.
#[test]
fn withdrawn_memory_is_not_delivered() {
    let mut pair = Pair::new();
    let sgl = [pair.a.sge(0, 5000)];
    for id in 0..3 {
        pair.a.send_from(pair.qa.qp, id, &sgl, SendFlags::SIGNALED).unwrap();
    }
    pair.a.queues.disconnect(pair.qa.qp);
    assert!(pair.a.poll_dry().iter().all(|wc| wc.status == WcStatus::Flushed));
    pair.a.write(0, &[0xEE; 5000]);
    pair.b.recv(1, 0, 8192);
    assert_eq!(pair.b.poll_dry(), []);
    assert_eq!(pair.b.read(0, 1), [0]);
}
