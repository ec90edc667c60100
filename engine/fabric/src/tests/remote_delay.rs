//! RDMA Write and Read on a fabric with a delay.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::open::BOTH;
use rpcrdma_conformance::subject::Options;
use rpcrdma_provider::{Queues, Remote, SendFlags, SendOp, WcStatus};

use super::rules::Open;

fn delayed(delay_ns: u64) -> (Arc<AtomicU64>, Open) {
    let (now, clock) = virtual_clock();
    (now, Open::with(Options { delay_ns, clock, ..FEW }))
}

#[test]
fn more_reads_than_the_device_allows_are_queued() {
    let (now, clock) = virtual_clock();
    let options = Options { delay_ns: 500, clock, rd_atomic: Some(2), ..FEW };
    let mut open = Open::with(options);
    open.pair.a.poll();
    for id in 0..5 {
        open.pair.b.write(id, &[id as u8 + 1]);
        let sgl = [open.pair.a.sge(id, 1)];
        open.read(id as u64, id, &sgl);
    }
    let mut seen = Vec::new();
    for _ in 0..6 {
        advance(&now, 500);
        seen.push(open.poll_until_idle().len());
    }
    assert_eq!(seen, [0, 2, 0, 2, 0, 1], "two in every round trip");
    assert_eq!(open.pair.a.read(0, 5), [1, 2, 3, 4, 5]);
}

#[test]
fn a_read_takes_a_round_trip_and_its_bytes_arrive_no_earlier() {
    let (now, mut open) = delayed(500);
    open.pair.b.write(0, b"far away");
    open.pair.a.write(0, b"........");
    let sgl = [open.pair.a.sge(0, 8)];
    open.read(1, 0, &sgl);
    for (ns, is_there) in [(499, false), (1, false), (499, false), (1, true)] {
        advance(&now, ns);
        open.pair.b.poll_dry();
        let done = brief(&open.pair.a.poll_dry());
        let expected: &[u8] = if is_there { b"far away" } else { b"........" };
        assert_eq!(open.pair.a.read(0, 8), expected);
        assert_eq!(done.len(), usize::from(is_there));
    }
}

#[test]
fn a_write_takes_one_way_and_its_completion_another() {
    let (now, mut open) = delayed(500);
    open.pair.a.write(0, b"far away");
    let sgl = [open.pair.a.sge(0, 8)];
    open.write(1, 0, &sgl);
    for (ns, is_there, is_done) in
        [(499, false, false), (1, true, false), (499, true, false), (1, true, true)]
    {
        advance(&now, ns);
        open.pair.b.poll_dry();
        assert_eq!(open.pair.b.read(0, 8) == b"far away", is_there);
        assert_eq!(open.pair.a.poll_dry().len(), usize::from(is_done));
    }
}

#[test]
fn local_operations_have_no_delay() {
    let (now, mut open) = delayed(500);
    let rkey = open.pair.a.bind(open.pair.qa.qp, (0, 64), BOTH);
    open.post(1, SendOp::Invalidate { rkey }, &[], SendFlags::SIGNALED);
    assert_eq!(brief(&open.pair.a.poll()), [(1, WcStatus::Success)]);
    // Behind a Send it waits for the Send.
    open.pair.b.recv(10, 100_000, 64);
    let mut window = open.pair.a.queues.open_window().unwrap();
    let (bind, _) = open.pair.a.binding(&mut window, (0, 64), BOTH);
    open.pair.a.send(open.pair.qa.qp, 2, b"x").unwrap();
    open.post(3, bind, &[], SendFlags::SIGNALED);
    advance(&now, 500);
    open.pair.b.poll_dry();
    advance(&now, 499);
    assert_eq!(open.pair.a.poll_dry(), []);
    advance(&now, 1);
    assert_eq!(brief(&open.pair.a.poll_dry()), [(2, WcStatus::Success), (3, WcStatus::Success)]);
}

#[test]
fn a_refused_read_or_write_completes_after_a_round_trip() {
    for is_read in [false, true] {
        let (now, mut open) = delayed(500);
        open.rkey ^= 0x100;
        let sgl = [open.pair.a.sge(0, 8)];
        if is_read {
            open.read(1, 0, &sgl)
        } else {
            open.write(1, 0, &sgl)
        }
        advance(&now, 500);
        open.pair.b.poll_dry();
        assert_eq!(open.pair.b.events().len(), 1);
        advance(&now, 499);
        assert_eq!(open.pair.a.poll_dry(), []);
        advance(&now, 1);
        assert_eq!(brief(&open.pair.a.poll_dry()), [(1, WcStatus::RemoteAccess)]);
        assert_eq!(open.pair.a.events().len(), 1);
    }
}

#[test]
fn a_read_of_a_requester_that_left_is_not_executed() {
    for ending in 0..3 {
        let (now, mut open) = delayed(500);
        open.pair.b.write(0, b"secret");
        open.pair.a.write(0, b"......");
        let sgl = [open.pair.a.sge(0, 6)];
        open.read(1, 0, &sgl);
        advance(&now, 500);
        open.pair.b.poll_dry();
        match ending {
            0 => open.pair.a.queues.disconnect(open.pair.qa.qp),
            1 => open.pair.a.queues.destroy(open.pair.qa.qp),
            _ => open.pair.b.queues.destroy(open.pair.qb.qp),
        }
        advance(&now, 500);
        open.pair.b.poll_dry();
        assert_eq!(open.pair.a.read(0, 6), b"......");
        let status = brief(&open.poll_until_idle());
        let expected: &[_] = if ending == 1 { &[] } else { &[(1, WcStatus::Flushed)] };
        assert_eq!(status, expected);
        // The slots come back.
        let (qa, qb) = open.pair.another();
        for id in 0..40 {
            open.pair.b.recv(id, 100_000, 64);
            open.pair.a.send(qa.qp, id, b"x").unwrap();
            advance(&now, 500);
            assert_eq!(open.pair.b.poll_dry(), [received(id, qb, 1)]);
            advance(&now, 500);
            assert_eq!(open.pair.a.poll_dry().len(), 1);
        }
    }
}

#[test]
fn a_read_that_was_taken_ends_when_its_requester_vanishes() {
    let (now, Open { pair, rkey }) = delayed(500);
    let Pair { mut a, mut b, qa, .. } = pair;
    let (sgl, addr) = ([a.sge(0, 6)], b.at(0));
    a.post(qa.qp, 1, SendOp::Read(Remote { addr, rkey }), &sgl);
    advance(&now, 500);
    b.poll_dry();
    drop(a);
    advance(&now, 500);
    b.poll_dry();
    assert_eq!(b.events().len(), 1);
}
