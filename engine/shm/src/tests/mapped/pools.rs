//! What a peer sees of this side's pools, and when.
#![expect(unsafe_code, reason = "the memory of a region is written by its address")]

use std::process::Command;

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{
    CmEvent, ConnParam, ConnectionManager, Provider, Queues, SendFlags, WcStatus,
};
use rustix::process::{Resource, Rlimit};

use super::super::rules::Host;
use super::rules::{Mapped, Pair};
use crate::pools::POOLS_MAX;
use crate::{Shm, ShmOptions};

/// Sends a long message, so that the other side maps the memory that `pair.a` sends from.
fn introduce(pair: &mut Pair) {
    pair.b.recv(99, 0, 8192);
    let sgl = [pair.a.sge(0, 5000)];
    pair.a.send_from(pair.qa.qp, 99, &sgl, SendFlags::SIGNALED).unwrap();
    assert_eq!(pair.b.poll_dry(), [received(99, pair.qb, 5000)]);
    assert_eq!(brief(&pair.a.poll_dry()), [(99, WcStatus::Success)]);
}

/// Whether a long message from the memory of `sgl` is read where it is, and not copied when it is
/// posted. It begins with a byte that `first` writes.
fn is_mapped(pair: &mut Pair, sgl: &[Sge], mut first: impl FnMut(&mut Pair, u8)) -> bool {
    pair.b.recv(98, 0, 8192);
    first(pair, 1);
    pair.a.send_from(pair.qa.qp, 98, sgl, SendFlags::SIGNALED).unwrap();
    first(pair, 2);
    assert_eq!(brief(&pair.b.poll_dry()), [(98, WcStatus::Success)]);
    assert_eq!(brief(&pair.a.poll_dry()), [(98, WcStatus::Success)]);
    pair.b.read(0, 1) == [2]
}

/// Long messages leave the staging area alone: with one that has room for none of them, all arrive.
#[test]
fn a_long_message_is_copied_from_where_it_is() {
    let options = ShmOptions { map_pools: true, staging: 1 << 16, ..ShmOptions::default() };
    let mut pair = Pair::on(Mapped(Shm::with_options(options).expect("allowed")), &SMALL, 7);
    introduce(&mut pair);
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
    let mut pair = Pair::small();
    let mut spec = rpcrdma_mempool::RegionSpec::new(4096);
    (spec.pages, spec.lock) = (rpcrdma_mempool::PageSize::Base4K, false);
    let private = rpcrdma_mempool::Region::map(&spec).expect("memory");
    assert!(Mapped::IS_SHARED && private.memfd().is_none());
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
    let (mapping, copying) = (Mapped::plain(), Mapped(Shm::plain()));
    for (asking, asked) in [(&mapping, &copying), (&copying, &mapping), (&mapping, &mapping)] {
        let (mut a, mut b) = (Host::new(asking, &SMALL), Host::new(asked, &SMALL));
        let (mut caller, mut listener) = (asking.open_cm().unwrap(), asked.open_cm().unwrap());
        let (at, param) = (
            listener.listen(Shm::address()).unwrap(),
            ConnParam { private: &[], rnr_retry: 7, send_timeout: None },
        );
        caller.connect(at, &a.queues.handle(), &param).unwrap();
        let Some(CmEvent::Request { request, .. }) = next(&mut listener) else { panic!("none") };
        let theirs = listener.accept(request, &b.queues.handle(), &param).unwrap();
        let Some(CmEvent::Connected { endpoint, .. }) = next(&mut caller) else { panic!("none") };
        let qa = a.queues.attach(endpoint).unwrap();
        b.queues.attach(theirs).unwrap();
        // The first one is staged in any case.
        for is_first in [true, false] {
            b.recv(1, 0, 8192);
            a.write(0, &[9; 5000]);
            let sgl = [a.sge(0, 5000)];
            a.send_from(qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
            a.write(0, &[1; 5000]);
            assert_eq!(b.poll_dry().len(), 1);
            // A staged message was copied when it was posted.
            let are_both = std::ptr::eq(asking, asked) && !is_first;
            assert_eq!(b.read(4999, 1), if are_both { [1] } else { [9] });
        }
    }
}

/// The kernel states who a listener was when it began to listen.
#[test]
fn nothing_is_exposed_if_the_listener_was_another_user_when_it_began() {
    let device = Mapped::plain();
    let (mut a, mut b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let (mut caller, mut listener) = (device.open_cm().unwrap(), device.open_cm().unwrap());
    // Of this thread only.
    let become_user = |uid| {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(None, uid, None)
    };
    let before = rustix::process::geteuid();
    if become_user(1000).is_err() {
        return;
    }
    let at = listener.listen(Shm::address()).unwrap();
    become_user(before.as_raw()).expect("who it was");
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    caller.connect(at, &a.queues.handle(), &param).unwrap();
    let Some(CmEvent::Request { request, .. }) = next(&mut listener) else { panic!("none") };
    let theirs = listener.accept(request, &b.queues.handle(), &param).unwrap();
    let Some(CmEvent::Connected { endpoint, .. }) = next(&mut caller) else { panic!("none") };
    a.queues.attach(endpoint).unwrap();
    let qb = b.queues.attach(theirs).unwrap();
    for _ in 0..2 {
        a.recv(1, 0, 8192);
        b.write(0, &[9; 5000]);
        let sgl = [b.sge(0, 5000)];
        b.send_from(qb.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
        b.write(0, &[1; 5000]);
        assert_eq!(a.poll_dry().len(), 1);
        assert_eq!(a.read(4999, 1), [9]);
        let waker = rpcrdma_provider::Waker::new().unwrap();
        a.queues.wait(&waker, std::time::Duration::from_millis(1)).unwrap();
    }
    a.poll_dry();
    assert_eq!(a.events(), []);
}

/// Pools come and go, and one is used all the time; more than a peer keeps are staged.
#[test]
fn more_pools_than_a_peer_keeps_and_those_that_are_gone_do_no_harm() {
    let mut pair = Pair::small();
    pair.b.recv(1, 0, 8192);
    let mut kept = Vec::new();
    for round in 0..3 * POOLS_MAX {
        let region = map::<Mapped>(4096);
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
    let mut pair = Pair::small();
    introduce(&mut pair);
    pair.b.write(0, &[0]);
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

/// A receiver without a free descriptor cannot map what is exposed to it: it is served from the
/// staging area, and what is exposed later is mapped.
#[test]
fn a_pool_that_cannot_be_mapped_is_staged() {
    const ROLE: &str = "RPCRDMA_TEST_DESCRIPTORS";
    let own = "tests::mapped::pools::a_pool_that_cannot_be_mapped_is_staged";
    if std::env::var(ROLE).is_err() {
        // The limit is one of a process.
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args([own, "--exact", "--nocapture"]).env(ROLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    let mut pair = Pair::small();
    let region = map::<Mapped>(8192);
    let keys = register(&pair.device, &region, Access::LOCAL_WRITE);
    let later = [Sge { addr: region.base().as_ptr() as u64, length: 5000, lkey: keys.lkey }];
    let before = rustix::process::getrlimit(Resource::Nofile);
    let free = std::fs::File::open("/dev/null").unwrap();
    let lowest = std::os::fd::AsRawFd::as_raw_fd(&free) as u64;
    drop(free);
    let none = Rlimit { current: Some(lowest), maximum: before.maximum };
    rustix::process::setrlimit(Resource::Nofile, none).unwrap();
    std::fs::File::open("/dev/null").expect_err("none is free");
    let first = [pair.a.sge(0, 5000)];
    for _ in 0..3 {
        assert!(!is_mapped(&mut pair, &first, |pair, byte| pair.a.write(0, &[byte])));
    }
    rustix::process::setrlimit(Resource::Nofile, before).unwrap();
    for is_exposed in [false, true] {
        let write = |_: &mut Pair, byte| {
            // SAFETY: the region lives as long as the pair uses it; no reference to it exists.
            unsafe { region.base().as_ptr().write(byte) };
        };
        assert_eq!(is_mapped(&mut pair, &later, write), is_exposed);
    }
    assert!(pair.a.events().is_empty() && pair.b.events().is_empty());
}
