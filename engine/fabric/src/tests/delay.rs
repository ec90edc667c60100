//! The one-way delay, missing Receives, and sleeping.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Options;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{QueueAttr, QueueEvent, Queues, Remote, SendOp, Waker, WcStatus};

use super::rules::Pair;

fn delayed(delay_ns: u64) -> (Arc<std::sync::atomic::AtomicU64>, Pair) {
    let (now, clock) = virtual_clock();
    let options = Options { delay_ns, clock, ..FEW };
    (now, Pair::with(options, &SMALL, 7))
}

#[test]
fn a_message_arrives_after_the_delay_and_completes_after_twice_the_delay() {
    let (now, mut pair) = delayed(500);
    pair.b.recv(10, 0, 64);
    pair.a.send(pair.qa.qp, 1, b"slow").unwrap();
    advance(&now, 499);
    assert_eq!(pair.b.poll_dry(), []);
    advance(&now, 1);
    assert_eq!(pair.b.poll_dry(), [received(10, pair.qb, 4)]);
    advance(&now, 499);
    assert_eq!(pair.a.poll_dry(), []);
    advance(&now, 1);
    assert_eq!(brief(&pair.a.poll_dry()), [(1, WcStatus::Success)]);
}

#[test]
fn acks_are_due_one_by_one_and_a_reply_carries_no_early_ones() {
    let (now, mut pair) = delayed(500);
    pair.a.recv(20, 0, 64);
    for id in 0..2 {
        pair.b.recv(10 + id, 0, 64);
        pair.a.send(pair.qa.qp, id, b"slow").unwrap();
        advance(&now, 100);
    }
    advance(&now, 300);
    assert_eq!(pair.b.poll().len(), 1);
    advance(&now, 100);
    assert_eq!(pair.b.poll().len(), 1);
    pair.b.send(pair.qb.qp, 5, b"reply").unwrap();
    advance(&now, 400);
    assert_eq!(brief(&pair.a.poll_dry()), [(0, WcStatus::Success)]);
    advance(&now, 100);
    assert_eq!(brief(&pair.a.poll_dry()), [(20, WcStatus::Success), (1, WcStatus::Success)]);
}

#[test]
fn a_refusal_and_a_disconnect_are_delayed_too() {
    let (now, mut pair) = delayed(500);
    pair.b.recv(10, 0, 1);
    pair.a.send(pair.qa.qp, 1, b"too long").unwrap();
    advance(&now, 500);
    assert_eq!(brief(&pair.b.poll_dry()), [(10, WcStatus::LocalLength)]);
    advance(&now, 499);
    assert_eq!((pair.a.poll_dry(), pair.a.events()), (vec![], vec![]));
    advance(&now, 1);
    assert_eq!(brief(&pair.a.poll_dry()), [(1, WcStatus::RemoteInvalidRequest)]);
    assert_eq!(pair.a.events().len(), 1);
    let (qa, qb) = pair.another();
    pair.a.poll();
    pair.b.poll();
    pair.a.queues.disconnect(qa.qp);
    advance(&now, 499);
    pair.b.poll();
    assert_eq!(pair.b.events().len(), 1, "that of the first queue pair");
    advance(&now, 1);
    pair.b.poll();
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
}

#[test]
fn a_message_without_a_receive_waits_and_is_delivered_when_one_is_posted() {
    let mut pair = Pair::small();
    pair.a.send(pair.qa.qp, 1, b"patient").unwrap();
    assert_eq!(pair.b.poll_dry(), []);
    assert_eq!(pair.b.queues.rnr_count(), 1);
    pair.b.recv(10, 0, 64);
    assert_eq!(pair.b.poll(), [received(10, pair.qb, 7)]);
    assert_eq!(pair.b.queues.rnr_count(), 1);
}

#[test]
fn a_send_without_a_receive_fails_after_its_retries_and_not_before() {
    for rnr_retry in [0, 1, 6] {
        let (now, clock) = virtual_clock();
        let options = Options { rnr_timer_ns: Some(100), clock, ..FEW };
        let mut pair = Pair::with(options, &SMALL, rnr_retry);
        let (qa2, _) = pair.another();
        pair.a.send(pair.qa.qp, 1, b"x").unwrap();
        pair.a.send(pair.qa.qp, 2, b"y").unwrap();
        pair.a.send(qa2.qp, 3, b"z").unwrap();
        if rnr_retry > 0 {
            pair.b.poll_dry();
            advance(&now, 100 * u64::from(rnr_retry) - 1);
            pair.b.poll_dry();
            assert_eq!(pair.a.poll_dry(), []);
            advance(&now, 1);
        }
        assert_eq!(pair.b.poll_dry(), []);
        let done = brief(&pair.a.poll_dry());
        assert_eq!(done, [(1, WcStatus::RnrRetryExceeded), (2, WcStatus::Flushed)]);
        assert_eq!(pair.a.events(), [QueueEvent::Disconnected { qp_num: pair.qa.qp_num }]);
        assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: pair.qb.qp_num }]);
        pair.b.recv(10, 0, 64);
        assert_eq!(pair.b.poll_dry().len(), 1, "the other queue pair has more patience");
    }
}

#[test]
fn without_a_receive_acks_that_arrive_behind_are_still_seen() {
    let mut pair = Pair::small();
    // B's reply waits at A for a Receive; what B takes meanwhile is acked behind it.
    pair.b.send(pair.qb.qp, 9, b"waits").unwrap();
    pair.a.poll();
    for id in 0..3 {
        pair.b.recv(id, 0, 64);
        pair.a.send(pair.qa.qp, id, b"call").unwrap();
        assert_eq!(pair.b.poll().len(), 1);
        pair.b.send(pair.qb.qp, 10 + id, b"behind").unwrap();
    }
    let done = brief(&pair.a.poll_dry());
    let expected = [(0, WcStatus::Success), (1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(done, expected);
}

#[test]
fn a_sleeper_returns_at_once_when_there_is_something_to_do() {
    let mut pair = Pair::small();
    let waker = Waker::new().unwrap();
    let long = Duration::from_secs(600);
    pair.b.recv(10, 0, 64);
    pair.a.send(pair.qa.qp, 1, b"x").unwrap();
    pair.b.queues.wait(&waker, long).unwrap();
    assert_eq!(pair.b.poll().len(), 1);
    // Going to sleep acknowledges what was withheld.
    pair.b.queues.wait(&waker, Duration::ZERO).unwrap();
    pair.a.queues.wait(&waker, long).unwrap();
    assert_eq!(brief(&pair.a.poll()).len(), 1);
    pair.a.queues.disconnect(pair.qa.qp);
    pair.b.queues.wait(&waker, long).unwrap();
    pair.b.poll();
    pair.b.queues.wait(&waker, long).unwrap();
    assert_eq!(pair.b.events().len(), 1);
    waker.ring();
    pair.b.queues.wait(&waker, long).unwrap();
}

#[test]
fn a_request_that_fails_locally_wakes_a_sleeper() {
    let mut pair = Pair::small();
    pair.a.poll();
    let unknown = SendOp::Invalidate { rkey: 0x8000_0001 };
    pair.a.post(pair.qa.qp, 1, unknown, &[]);
    pair.a.queues.wait(&Waker::new().unwrap(), Duration::from_secs(600)).unwrap();
    assert_eq!(brief(&pair.a.poll()), [(1, WcStatus::MemoryWindowBind)]);
}

#[test]
fn a_sleeper_wakes_when_a_delayed_read_is_due_and_it_takes_a_round_trip() {
    let delay = Duration::from_millis(5);
    let options = Options { delay_ns: delay.as_nanos() as u64, ..Options::default() };
    let mut pair = Pair::with(options, &QueueAttr { qp_max: 2, ..SMALL }, 7);
    let (waker, long) = (Waker::new().unwrap(), Duration::from_secs(600));
    let rkey = pair.b.bind(pair.qb.qp, (0, 64), Access::REMOTE_READ);
    let (sgl, addr) = ([pair.a.sge(0, 64)], pair.b.at(0));
    let start = Instant::now();
    pair.a.post(pair.qa.qp, 1, SendOp::Read(Remote { addr, rkey }), &sgl);
    let mut done = Vec::new();
    while done.is_empty() {
        pair.b.queues.wait(&waker, long).unwrap();
        pair.b.poll();
        done = pair.a.poll();
    }
    assert_eq!(brief(&done), [(1, WcStatus::Success)]);
    assert!(start.elapsed() >= 2 * delay);
}

#[test]
fn a_sleeper_wakes_when_a_delayed_message_is_due() {
    let delay = Duration::from_millis(20);
    let options = Options { delay_ns: delay.as_nanos() as u64, ..Options::default() };
    let mut pair = Pair::with(options, &QueueAttr { qp_max: 2, ..SMALL }, 7);
    let waker = Waker::new().unwrap();
    pair.b.recv(10, 0, 64);
    let start = Instant::now();
    pair.a.send(pair.qa.qp, 1, b"x").unwrap();
    let mut got = 0;
    while got == 0 {
        pair.b.queues.wait(&waker, Duration::from_secs(600)).unwrap();
        got = pair.b.poll().len();
    }
    assert!(start.elapsed() >= delay);
}
