//! Connecting and disconnecting: messages before attaching, failure, destruction, sleep.

use std::time::{Duration, Instant};

use rpcrdma_provider::{
    PostError, QueueAttr, QueueEvent, Queues, SendFlags, SendOp, SendWr, Waker, WcStatus, WrId,
};

use super::rig::{Host, Pair, SMALL, device, endpoints};
use crate::port::End;

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn messages_before_a_queue_pair_is_attached_are_kept_for_it_in_order() {
    let mut pair = Pair::new();
    let [ea, eb] = endpoints([&mut pair.a, &mut pair.b], 7);
    let qa2 = pair.a.queues.attach(ea).unwrap();
    pair.b.recvs(0..40, 0, 64);
    for id in 0..20 {
        pair.a.send(qa2.qp, id, 0, 8);
        pair.a.send(pair.qa.qp, id + 100, 0, 8);
    }
    pair.a.poll(40);
    let known = pair.b.poll(20);
    assert!(known.iter().all(|came| came.qp_num == pair.qb.qp_num), "{known:?}");
    assert_eq!(pair.b.poll_once(), [], "the others have no queue pair yet");
    let qb2 = pair.b.queues.attach(eb).unwrap();
    let held = pair.b.poll(20);
    assert!(held.iter().all(|came| came.qp_num == qb2.qp_num), "{held:?}");
    let numbers: Vec<u64> = held.iter().map(|came| came.wr_id.0).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    pair.b.recvs(0..1, 0, 64);
    pair.a.send(qa2.qp, 50, 0, 8);
    assert_eq!(pair.b.poll(1)[0].qp_num, qb2.qp_num);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn receives_of_a_dropped_endpoint_return_flushed() {
    let mut pair = Pair::new();
    let [ea, eb] = endpoints([&mut pair.a, &mut pair.b], 7);
    let qa2 = pair.a.queues.attach(ea).unwrap();
    pair.b.recvs(0..8, 0, 64);
    for id in 0..3 {
        pair.a.send(qa2.qp, id, 0, 8);
    }
    pair.a.poll(3);
    assert_eq!(pair.b.poll_once(), []);
    drop(eb);
    assert!(pair.b.queues.next_event().is_none(), "it was destroyed on the way");
    let returned = pair.b.poll(3);
    let returned: Vec<_> = returned.iter().map(|it| (it.wr_id.0, it.qp_num, it.status)).collect();
    assert_eq!(returned, [0, 1, 2].map(|id| (id, 0, WcStatus::Flushed)));
    // The others remain for the next sender.
    pair.a.send(pair.qa.qp, 9, 0, 8);
    assert_eq!(pair.b.outcomes(1), [(3, WcStatus::Success)]);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn an_endpoint_is_attached_to_its_own_queues_only() {
    let mut pair = Pair::new();
    let [ea, _eb] = endpoints([&mut pair.a, &mut pair.b], 7);
    assert!(pair.b.queues.attach(ea).is_err());
    assert!(pair.a.queues.next_event().is_none(), "and is destroyed there");
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn no_more_queue_pairs_are_made_than_asked_for_and_destroyed_ones_make_room() {
    let device = device();
    let attr = QueueAttr { qp_max: 2, ..SMALL };
    let mut pair = Pair::with(&device, &attr, 7);
    let [qa2, _] = pair.another();
    let port = pair.a.queues.handle().port;
    assert!(port.create(None).is_err());
    pair.a.queues.disconnect(qa2.qp);
    pair.a.queues.destroy(qa2.qp);
    drop(port.create(None).map_err(|(_, error)| error).expect("there is room"));
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_queue_pair_in_error_flushes_present_and_later_requests() {
    let mut pair = Pair::new();
    // Without a Receive they are not gone.
    for id in 0..4 {
        pair.a.send(pair.qa.qp, id, 0, 8);
    }
    pair.a.queues.disconnect(pair.qa.qp);
    let marker = SendWr::send(WrId(9), &[], SendFlags::SIGNALED);
    pair.a.post_all(pair.qa.qp, &[marker]).unwrap();
    let outcomes = pair.a.outcomes(5);
    assert_eq!(outcomes, [0, 1, 2, 3, 9].map(|id| (id, WcStatus::Flushed)));
    pair.a.queues.destroy(pair.qa.qp);
    let gone = pair.a.post_all(pair.qa.qp, &[marker]);
    assert_eq!(gone, Err((0, PostError::QpGone)));
    // A name that is no more does nothing.
    pair.a.queues.disconnect(pair.qa.qp);
    pair.a.queues.destroy(pair.qa.qp);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_dead_queue_pair_returns_its_receives_and_forgets_its_sends() {
    let mut pair = Pair::new();
    let [qa2, qb2] = pair.another();
    pair.b.recvs(0..40, 0, 64);
    pair.a.recvs(0..4, 0, 64);
    for id in 0..10 {
        pair.a.send(pair.qa.qp, id, 0, 8);
        pair.a.send(qa2.qp, id, 0, 8);
        if id < 4 {
            pair.b.send(pair.qb.qp, 70 + id, 0, 8);
        }
    }
    pair.a.poll(24);
    // All of it has arrived, and B has not looked yet.
    pair.b.queues.disconnect(pair.qb.qp);
    pair.b.queues.destroy(pair.qb.qp);
    let done = pair.b.poll(20);
    let flushed = done.iter().filter(|it| it.qp_num == 0 && it.status == WcStatus::Flushed);
    assert_eq!(flushed.count(), 10, "{done:?}");
    let good = done.iter().filter(|it| it.qp_num == qb2.qp_num && it.status == WcStatus::Success);
    assert_eq!(good.count(), 10, "{done:?}");
    let mut numbers: Vec<u64> = done.iter().map(|it| it.wr_id.0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "each buffer once, and no send");
    assert_eq!(pair.b.poll_once(), []);
    pair.a.send(qa2.qp, 1, 0, 8);
    assert_eq!(pair.b.outcomes(1), [(20, WcStatus::Success)]);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn connections_come_and_go_without_losing_a_receive() {
    let mut pair = Pair::new();
    pair.b.recvs(0..32, 0, 64);
    for round in 0..50 {
        let [qa, qb] = pair.another();
        for id in 0..8 {
            pair.a.send(qa.qp, id, 0, 8);
        }
        // Some of it is under way when B has had enough.
        let mut returned = if round % 2 == 0 { pair.b.poll(4) } else { vec![] };
        pair.b.queues.disconnect(qb.qp);
        let marker = SendWr::send(WrId(1 << 63), &[], SendFlags::SIGNALED);
        pair.b.post_all(qb.qp, &[marker]).unwrap();
        while returned.pop_if(|it| it.wr_id.0 == 1 << 63).is_none() {
            returned.extend(pair.b.poll(1));
        }
        pair.b.queues.destroy(qb.qp);
        pair.a.queues.disconnect(qa.qp);
        pair.a.queues.destroy(qa.qp);
        let mut rest = pair.b.poll_once();
        while !rest.is_empty() {
            returned.append(&mut rest);
            rest = pair.b.poll_once();
        }
        for it in returned {
            let id = it.wr_id.0;
            pair.b.recvs(id..id + 1, 0, 64);
        }
    }
    // All 32 are there: as many messages find one.
    for id in 0..32 {
        pair.a.send(pair.qa.qp, id, 0, 8);
    }
    let mut numbers: Vec<u64> = pair.b.poll(32).iter().map(|it| it.wr_id.0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..32).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn queues_are_dropped_with_everything_outstanding() {
    let device = device();
    for _ in 0..5 {
        let mut pair = Pair::with(&device, &SMALL, 7);
        let [_, unattached] = endpoints([&mut pair.a, &mut pair.b], 7);
        pair.b.recvs(0..16, 0, 64);
        for id in 0..24 {
            pair.a.send(pair.qa.qp, id, 0, 8);
        }
        let mut window = pair.b.queues.open_window().unwrap();
        let (bind, _) = pair.b.binding(&mut window, (0, 64), rpcrdma_mempool::Access::REMOTE_READ);
        pair.b.post(pair.qb.qp, 99, bind, &[]);
        let sge = pair.b.sge(0, 64);
        pair.b.expose(&sge, rpcrdma_mempool::Access::REMOTE_READ).unwrap();
        let handle = pair.b.queues.handle();
        drop(pair);
        assert!(handle.port.create(None).is_err(), "their queues are gone");
        drop(unattached);
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn the_end_of_a_connection_is_reported_after_it_is_attached() {
    let mut pair = Pair::new();
    let port = pair.b.queues.handle().port;
    let ended = QueueEvent::Disconnected { qp_num: pair.qb.qp_num };
    port.on_end(pair.b.queues.key(pair.qb.qp), End::Disconnected);
    assert_eq!(pair.b.queues.next_event(), Some(ended));
    assert_eq!(pair.b.queues.next_event(), None);
    pair.b.post(pair.qb.qp, 1, SendOp::Send, &[]);
    assert_eq!(pair.b.outcomes(1), [(1, WcStatus::Flushed)], "it is in the error state");
    let [_ea, eb] = endpoints([&mut pair.a, &mut pair.b], 7);
    let qp_num = eb.num();
    port.on_end(eb.pair().expect("it is not attached").key, End::Disconnected);
    assert_eq!(pair.b.queues.next_event(), None, "it is not attached yet");
    pair.b.queues.attach(eb).unwrap();
    assert_eq!(pair.b.queues.next_event(), Some(QueueEvent::Disconnected { qp_num }));
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn events_of_a_queue_pair_that_is_destroyed_are_dropped() {
    let mut pair = Pair::new();
    let key = pair.b.queues.key(pair.qb.qp);
    pair.b.queues.handle().port.on_end(key, End::Disconnected);
    pair.b.queues.destroy(pair.qb.qp);
    assert_eq!(pair.b.queues.next_event(), None);
}

/// A sleep that only ends early, or the test is late.
const LONG: Duration = Duration::from_secs(600);

fn sleeps(host: &mut Host, waker: &Waker) {
    let began = Instant::now();
    host.queues.wait(waker, LONG).unwrap();
    assert!(began.elapsed() < LONG / 2);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_sleeper_is_woken_by_a_message_by_its_waker_and_by_events() {
    let Pair { mut a, mut b, qa, qb } = Pair::new();
    let waker = Waker::new().unwrap();
    b.recvs(0..64, 0, 64);
    // The message is there already.
    a.send(qa.qp, 1, 0, 8);
    a.poll(1);
    sleeps(&mut b, &waker);
    assert_eq!(b.poll(1).len(), 1);
    // It comes while the other sleeps, many times: the first may find it awake.
    for round in 0..50 {
        std::thread::scope(|scope| {
            scope.spawn(|| a.send(qa.qp, round, 0, 8));
            let mut came = b.poll_once();
            while came.is_empty() {
                sleeps(&mut b, &waker);
                came = b.poll_once();
            }
            assert_eq!(came.len(), 1);
        });
        a.poll(1);
    }
    waker.ring();
    sleeps(&mut b, &waker);
    waker.drain();
    let (port, key) = (b.queues.handle().port, b.queues.key(qb.qp));
    std::thread::scope(|scope| {
        scope.spawn(|| port.on_end(key, End::Disconnected));
        let mut event = b.queues.next_event();
        while event.is_none() {
            sleeps(&mut b, &waker);
            event = b.queues.next_event();
        }
    });
    b.queues.wait(&waker, Duration::from_millis(1)).unwrap();
    assert_eq!(b.poll_once(), []);
}
