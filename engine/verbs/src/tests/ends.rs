//! The end of queue pairs: no thread waits, a shard's thread does not call librdmacm, and refused
//! calls and reused numbers do no harm. On a device of our own.

#![expect(unsafe_code, reason = "posting is unsafe; contexts of queues are changed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rpcrdma_provider::{
    Attached, ConnParam, ConnectionManager, PostError, Provider, QueueEvent, Queues, SendFlags,
    SendWr, Waker, WcBatch, WcStatus, WrId,
};

use super::rig::SMALL;
use crate::fake::Fake;
use crate::port::{Pair, Stage};
use crate::sys::verbs as sys;
use crate::wc::RECEIVE;
use crate::{Verbs, VerbsCm, VerbsQp, VerbsQueues};

/// A set of queues on a device of its own.
struct Rig {
    fake: &'static Fake,
    device: Verbs,
    queues: VerbsQueues,
    cm: VerbsCm,
}

impl Rig {
    /// Whether the device says when it has no Receives of a queue pair any more.
    fn new(reports_last: bool) -> Rig {
        let fake = Fake::new();
        let device = fake.open().expect("a device");
        let mut queues = device.open_queues(&SMALL).expect("queues");
        *queues.reports_last_receive() = reports_last;
        let cm = device.open_cm().expect("a connection manager");
        fake.forget_calls();
        Rig { fake, device, queues, cm }
    }

    fn attach(&mut self) -> Attached<VerbsQp> {
        let endpoint = self.queues.handle().port.create(None);
        let endpoint = endpoint.map_err(|(_, error)| error).expect("a queue pair");
        self.queues.attach(endpoint).expect("its own")
    }

    /// A connection that has an end in librdmacm.
    fn connect(&mut self) -> Attached<VerbsQp> {
        let id = self.cm.new_id();
        let endpoint = self.queues.handle().port.create(Some(id));
        let endpoint = endpoint.map_err(|(_, error)| error).expect("a queue pair");
        self.queues.attach(endpoint).expect("its own")
    }

    /// The device has completed something of a queue pair.
    fn complete(&self, wr_id: u64, qp_num: u32) {
        self.fake.complete(sys::ibv_wc { wr_id, qp_num, ..sys::ibv_wc::EMPTY });
    }

    fn poll(&mut self) -> Vec<(u64, u32, WcStatus)> {
        let mut batch = WcBatch::new();
        self.queues.poll_cq(&mut batch).expect("the queue is good");
        batch.iter().map(|it| (it.wr_id.0, it.qp_num, it.status)).collect()
    }

    /// Has the connection manager read all events.
    fn read_events(&mut self) {
        let waker = Waker::new().expect("a descriptor");
        waker.ring();
        assert!(self.cm.next(&waker, Duration::ZERO).is_none());
    }

    /// The device reports something of a queue pair.
    fn report(&self, pair: &Pair, event: u32) {
        self.fake.report(pair.qp.cast(), event);
    }

    fn pairs_alive(&self) -> i64 {
        self.fake.alive().get("qp").copied().unwrap_or(0)
    }
}

#[test]
fn a_queue_pair_is_destroyed_after_its_receives_returned_without_waiting() {
    let mut rig = Rig::new(true);
    let qp = rig.attach();
    let pair = rig.queues.pair(qp.qp);
    rig.queues.destroy(qp.qp);
    assert_eq!((rig.pairs_alive(), rig.queues.next_event()), (1, None), "it is dying");
    // Its Receives return to their pool, and its sends are not reported.
    rig.complete(3 | RECEIVE, qp.qp_num);
    rig.complete(4, qp.qp_num);
    assert_eq!(rig.poll(), [(3, 0, WcStatus::Flushed)]);
    rig.complete(5 | RECEIVE, qp.qp_num);
    rig.report(&pair, sys::IBV_EVENT_QP_LAST_WQE_REACHED);
    rig.read_events();
    assert_eq!((rig.queues.next_event(), rig.pairs_alive()), (None, 0));
    assert_eq!(rig.poll(), [(5, 0, WcStatus::Flushed)]);
    assert!(*rig.queues.reports_last_receive(), "it has reported one");
}

#[test]
fn a_device_without_the_last_event_is_awaited_once() {
    let mut rig = Rig::new(true);
    let [first, second] = [rig.attach(), rig.attach()];
    rig.queues.destroy(first.qp);
    rig.queues.let_time_pass();
    assert_eq!((rig.queues.next_event(), rig.pairs_alive()), (None, 1));
    rig.queues.destroy(second.qp);
    assert_eq!(rig.pairs_alive(), 0, "at once");
}

#[test]
fn a_device_that_has_reported_the_last_event_once_is_awaited_again() {
    let mut rig = Rig::new(true);
    let [first, second, third] = [rig.attach(), rig.attach(), rig.attach()];
    let pair = rig.queues.pair(first.qp);
    rig.queues.destroy(first.qp);
    rig.report(&pair, sys::IBV_EVENT_QP_LAST_WQE_REACHED);
    rig.read_events();
    assert_eq!((rig.queues.next_event(), rig.pairs_alive()), (None, 2));
    rig.queues.destroy(second.qp);
    rig.queues.let_time_pass();
    assert_eq!((rig.queues.next_event(), rig.pairs_alive()), (None, 1), "it took too long");
    rig.queues.destroy(third.qp);
    assert_eq!(rig.pairs_alive(), 1, "it is dying");
}

#[test]
fn a_sleep_ends_when_a_queue_pair_is_to_be_destroyed() {
    let mut rig = Rig::new(true);
    let qp = rig.attach();
    let pair = rig.queues.pair(qp.qp);
    rig.queues.destroy(qp.qp);
    pair.on_last_receive();
    // It would be that long, or else the time of the test runner.
    let waker = Waker::new().expect("a descriptor");
    rig.queues.wait(&waker, Duration::from_secs(3600)).expect("the queue is good");
    assert_eq!((rig.queues.next_event(), rig.pairs_alive()), (None, 0));
}

#[test]
fn a_dying_queue_pair_does_not_count_against_the_limit() {
    let mut rig = Rig::new(true);
    let all: Vec<_> = (0..SMALL.qp_max).map(|_| rig.attach()).collect();
    let port = rig.queues.handle().port;
    assert!(port.create(None).is_err());
    rig.queues.destroy(all[0].qp);
    rig.attach();
    assert!(port.create(None).is_err());
}

#[test]
fn no_call_of_librdmacm_is_made_by_the_thread_of_a_shard() {
    const CM: [&str; 2] = ["rdma_disconnect", "rdma_destroy_id"];
    let mut rig = Rig::new(false);
    let qp = rig.connect();
    let endpoint = rig.queues.handle().port.create(Some(rig.cm.new_id()));
    drop(endpoint.map_err(|(_, error)| error).expect("a queue pair"));
    let Rig { fake, mut cm, mut queues, device } = rig;
    std::thread::scope(|scope| {
        let shard = scope.spawn(|| {
            queues.disconnect(qp.qp);
            queues.destroy(qp.qp);
            assert!(queues.next_event().is_none());
            drop(queues);
            fake.own_calls(&CM)
        });
        assert_eq!(shard.join().expect("it does not panic"), [""; 0]);
    });
    assert_eq!(fake.alive().get("id"), Some(&2));
    let waker = Waker::new().expect("a descriptor");
    waker.ring();
    assert!(cm.next(&waker, Duration::ZERO).is_none());
    let mut calls = fake.own_calls(&CM);
    calls.sort_unstable();
    assert_eq!(calls, [CM[1], CM[1], CM[0], CM[0]]);
    drop((cm, device));
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
}

/// Its last message of the connection manager was lost, and is sent again.
#[test]
fn a_connection_that_cannot_be_said_to_be_established_goes_on() {
    let mut rig = Rig::new(false);
    let qp = rig.connect();
    let pair = rig.queues.pair(qp.qp);
    for errno in [Some(libc::EINVAL), None] {
        rig.fake.refuse("rdma_notify", errno);
        rig.report(&pair, sys::IBV_EVENT_COMM_EST);
        // The event, and then what it has asked for.
        (0..2).for_each(|_| rig.read_events());
    }
    assert_eq!(rig.fake.own_calls(&["rdma_notify"]).len(), 2);
    assert_eq!((rig.queues.next_event(), rig.device.events().failures), (None, 0));
    assert_eq!(rig.pairs_alive(), 1);
}

#[test]
fn an_id_that_outlives_its_connection_manager_is_destroyed() {
    let mut rig = Rig::new(false);
    let first = rig.connect();
    rig.queues.disconnect(first.qp);
    let second = rig.connect();
    let Rig { fake, cm, mut queues, device } = rig;
    drop(cm);
    queues.destroy(first.qp);
    queues.destroy(second.qp);
    drop((queues, device));
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
    let calls = fake.own_calls(&["rdma_disconnect", "rdma_destroy_id"]);
    assert_eq!(calls.len(), 4, "{calls:?}");
}

#[test]
fn an_event_of_an_ended_queue_pair_does_not_reach_the_next_one_with_its_number() {
    let mut rig = Rig::new(false);
    let first = rig.attach();
    let old = rig.queues.pair(first.qp);
    // What was read and not handed on yet, and what was reported and not asked for yet.
    let name = old.name();
    let port = rig.queues.handle().port;
    port.on_end(old.key, crate::port::End::Failed);
    rig.queues.destroy(first.qp);
    rig.fake.give_number(first.qp_num);
    let second = rig.attach();
    assert_eq!(second.qp_num, first.qp_num);
    assert_eq!(rig.queues.next_event(), None);
    assert!(port.named(name).is_none());
    port.on_end(old.key, crate::port::End::Failed);
    assert_eq!(rig.queues.next_event(), None);
    let marker = SendWr::send(WrId(1), &[], SendFlags::SIGNALED);
    // SAFETY: it names no memory.
    let gone = unsafe { rig.queues.post_send(first.qp, [marker].into_iter()) }.of(1);
    assert_eq!(gone, (0, Some(PostError::QpGone)));
    rig.queues.destroy(first.qp);
    assert_eq!(rig.pairs_alive(), 1, "an old name destroys nothing");
    let new = rig.queues.pair(second.qp);
    rig.report(&new, sys::IBV_EVENT_QP_FATAL);
    rig.read_events();
    let failed = QueueEvent::Failed { qp_num: second.qp_num };
    assert_eq!((rig.queues.next_event(), rig.queues.next_event()), (Some(failed), None));
    assert_eq!(rig.fake.unacknowledged(), 0);
}

#[test]
fn an_event_of_ended_queues_does_not_reach_their_successors() {
    let rig = Rig::new(false);
    let mut other = rig.device.open_queues(&SMALL).expect("queues");
    let port = other.handle().port;
    let cq = port.cq;
    // SAFETY: the queue is alive.
    let context = unsafe { (*cq).cq_context };
    // SAFETY: as above; only this thread looks at it.
    unsafe { (*cq).cq_context = std::ptr::without_provenance_mut(context.addr() + 1000) };
    let mut rig = rig;
    rig.fake.report(cq.cast(), sys::IBV_EVENT_CQ_ERR);
    rig.read_events();
    assert_eq!(other.next_event(), None, "the place is the same, the queue is not");
    // SAFETY: as above.
    unsafe { (*cq).cq_context = context };
    rig.fake.report(cq.cast(), sys::IBV_EVENT_CQ_ERR);
    rig.read_events();
    assert_eq!(other.next_event(), Some(QueueEvent::DeviceLost));
    assert_eq!(rig.queues.next_event(), None);
}

#[test]
fn completions_before_their_queue_pair_is_attached_are_reported_once_with_it() {
    let mut rig = Rig::new(false);
    let port = rig.queues.handle().port;
    let endpoints = [1, 2].map(|id: u64| {
        let endpoint = port.create(None).map_err(|(_, error)| error).expect("a queue pair");
        rig.complete(id | RECEIVE, endpoint.num());
        (id, endpoint)
    });
    assert_eq!(rig.poll(), [], "the program does not know them yet");
    for (id, endpoint) in endpoints {
        let num = rig.queues.attach(endpoint).expect("its own").qp_num;
        assert_eq!(rig.poll(), [(id, num, WcStatus::Success)]);
        assert_eq!(rig.poll(), []);
    }
}

#[test]
fn queues_that_end_destroy_their_queue_pairs_once() {
    let mut rig = Rig::new(false);
    let _pairs = [rig.attach(), rig.attach()];
    rig.fake.forget_calls();
    let Rig { fake, queues, .. } = rig;
    drop(queues);
    let destroyed = fake.calls().iter().filter(|call| **call == "ibv_destroy_qp").count();
    assert_eq!((destroyed, fake.alive().get("qp")), (2, None));
}

#[test]
fn queues_that_end_try_twice_to_destroy_a_queue_pair() {
    let mut rig = Rig::new(false);
    let _pair = rig.attach();
    let Rig { fake, queues, .. } = rig;
    let tries = AtomicU32::new(0);
    fake.on("ibv_destroy_qp", move || {
        if tries.fetch_add(1, Ordering::Relaxed) == 0 {
            fake.fail_at(Some(0));
        }
    });
    drop(queues);
    assert_eq!(fake.alive().get("qp"), None);
}

#[test]
fn a_queue_pair_that_does_not_go_to_the_error_state_is_counted_and_destroyed_at_once() {
    let mut rig = Rig::new(true);
    let qp = rig.attach();
    rig.fake.refuse("ibv_modify_qp to ERR", Some(libc::EIO));
    rig.queues.disconnect(qp.qp);
    let events = rig.device.events();
    assert_eq!(events.failures, 1);
    assert!(events.last_failure.expect("there was one").contains("ibv_modify_qp"));
    rig.queues.destroy(qp.qp);
    assert_eq!(rig.device.events().failures, 2, "it was tried once more");
    assert_eq!(rig.pairs_alive(), 0, "no Receive of it is waited for");
}

#[test]
fn a_queue_pair_that_the_device_keeps_is_tried_again_and_keeps_its_place() {
    let mut rig = Rig::new(false);
    let all: Vec<_> = (0..SMALL.qp_max).map(|_| rig.attach()).collect();
    rig.fake.refuse("ibv_destroy_qp", Some(libc::EBUSY));
    rig.queues.destroy(all[0].qp);
    assert_eq!((rig.device.events().failures, rig.pairs_alive()), (1, SMALL.qp_max.into()));
    let port = rig.queues.handle().port;
    assert!(port.create(None).is_err(), "the device has no room");
    rig.complete(3 | RECEIVE, all[0].qp_num);
    rig.complete(4, all[0].qp_num);
    assert_eq!(rig.poll(), [(3, 0, WcStatus::Flushed)]);
    rig.fake.refuse("ibv_destroy_qp", None);
    assert_eq!(rig.queues.next_event(), None);
    assert_eq!(rig.pairs_alive(), i64::from(SMALL.qp_max), "it is left alone for a while");
    rig.queues.let_time_pass();
    assert_eq!(rig.queues.next_event(), None);
    assert_eq!(rig.pairs_alive(), i64::from(SMALL.qp_max) - 1);
    rig.attach();
}

#[test]
fn a_queue_pair_that_is_made_while_its_queues_end_is_destroyed() {
    let rig = Rig::new(false);
    let Rig { fake, device, queues, cm } = rig;
    let port = queues.handle().port;
    let queues = std::sync::Mutex::new(Some(queues));
    fake.on("ibv_create_qp", move || drop(queues.lock().expect("no thread panics").take()));
    assert!(port.create(None).is_err());
    drop((port, cm, device));
    assert_eq!(fake.alive().get("qp"), None);
}

#[test]
fn a_shard_does_not_wait_while_a_queue_pair_is_made_or_connected() {
    let mut rig = Rig::new(false);
    let qp = rig.attach();
    let port = rig.queues.handle().port;
    let is_free = Arc::new(std::sync::Mutex::new(Vec::new()));
    for function in ["ibv_create_qp", "rdma_init_qp_attr", "ibv_modify_qp", "rdma_accept"] {
        let (port, is_free) = (Arc::clone(&port), Arc::clone(&is_free));
        let key = rig.queues.key(qp.qp);
        rig.fake.on(function, move || {
            // What a shard asks for when it takes a connection over or lets go of one.
            port.note_stage(key, Stage::Attached);
            is_free.lock().expect("no thread panics").push(function);
        });
    }
    let request = rig.cm.new_request();
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    let endpoint = rig.cm.accept(request, &rig.queues.handle(), &param);
    rig.queues.attach(endpoint.expect("nothing fails")).expect("its own");
    let seen = is_free.lock().expect("no thread panics").clone();
    assert_eq!(seen.len(), 8, "{seen:?}");
}
