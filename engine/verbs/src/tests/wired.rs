//! A connection from request to message, over a fake device that is wired to itself.

use std::slice;
use std::time::Duration;

use rpcrdma_mempool::Access;
use rpcrdma_provider::{
    Attached, CmEvent, ConnParam, ConnectError, ConnectionManager, PostError, Provider, Queues,
    Rejection, SendFlags, SendOp, SendWr, Waker, WcOpcode, WcStatus, Window, WrId,
};

use super::rig::{Host, Pair, SMALL};
use crate::fake::Fake;
use crate::{VerbsCm, VerbsQp};

/// The next event, which is there.
fn next(cm: &mut VerbsCm) -> CmEvent<VerbsCm> {
    let waker = Waker::new().expect("a descriptor");
    cm.next(&waker, Duration::ZERO).expect("the other end has sent it")
}

/// Two hosts that their connection managers have connected.
fn connected() -> Pair {
    connected_over(Fake::wired())
}

/// Makes a fake device of either kind, which is then that of the thread.
const FAKES: [fn() -> &'static Fake; 2] = [Fake::wired_iwarp, Fake::wired];

fn connected_over(fake: &Fake) -> Pair {
    let device = fake.open().expect("a device");
    let (mut a, mut b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let [mut there, mut here] = [(); 2].map(|()| device.open_cm().expect("a connection manager"));
    let param = |private| ConnParam { private, rnr_retry: 7, send_timeout: None };
    let at = here.listen("192.0.2.1:20049".parse().expect("an address")).expect("a listener");
    let name = there.connect(at, &a.queues.handle(), &param(b"question")).expect("an attempt");
    let waker = Waker::new().expect("a descriptor");
    assert!(there.next(&waker, Duration::ZERO).is_none(), "the peer has not answered");
    let CmEvent::Request { request, private, .. } = next(&mut here) else { panic!("a request") };
    assert_eq!(private[..], *b"question");
    let accepted = here.accept(request, &b.queues.handle(), &param(b"answer")).expect("its own");
    let CmEvent::Connected { id, endpoint, private } = next(&mut there) else {
        panic!("an answer")
    };
    assert_eq!((id, &private[..]), (name, &b"answer"[..]));
    let qa = a.queues.attach(endpoint).expect("its own");
    let qb = b.queues.attach(accepted).expect("its own");
    assert!(here.next(&waker, Duration::ZERO).is_none(), "nothing failed");
    Pair { a, b, qa, qb }
}

#[test]
fn a_rejection_arrives_with_its_reason_or_without_one() {
    FAKES.into_iter().for_each(|fake| rejects(fake()));
}

fn rejects(fake: &Fake) {
    let device = fake.open().expect("a device");
    let host = Host::new(&device, &SMALL);
    let [mut there, mut here] = [(); 2].map(|()| device.open_cm().expect("a connection manager"));
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    let at = here.listen("192.0.2.1:20049".parse().expect("an address")).expect("a listener");
    let waker = Waker::new().expect("a descriptor");
    let refused = Rejection::Refused { code: 7 };
    for (private, why) in [
        (refused.encode().to_vec(), refused),
        (Rejection::Full.encode().to_vec(), Rejection::Full),
        (Vec::new(), Rejection::Unstated),
        (b"no".to_vec(), Rejection::Unstated),
        (refused.encode()[..5].to_vec(), Rejection::Unstated),
        // Longer than a rejection can carry: it is cut off.
        (vec![0xff; 300], Rejection::Unstated),
    ] {
        let name = there.connect(at, &host.queues.handle(), &param).expect("an attempt");
        assert!(there.next(&waker, Duration::ZERO).is_none(), "the peer has not answered");
        let CmEvent::Request { request, .. } = next(&mut here) else { panic!("a request") };
        here.reject(request, &private);
        let CmEvent::Refused { id, reason } = next(&mut there) else { panic!("an answer") };
        assert_eq!((id, reason), (name, ConnectError::Rejected(why)));
        assert!(there.next(&waker, Duration::ZERO).is_none(), "it is not tried again");
    }
}

#[test]
fn what_one_end_sends_the_other_receives() {
    for fake in FAKES {
        let Pair { mut a, mut b, qa, qb } = connected_over(fake());
        carries(&mut a, qa, &mut b, qb);
        carries(&mut b, qb, &mut a, qa);
    }
}

#[test]
fn an_end_that_left_before_the_connection_was_established_is_disconnected_then() {
    for leaves in [false, true] {
        let fake = Fake::wired();
        let device = fake.open().expect("a device");
        let (a, mut b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
        let [mut there, mut here] = [(); 2].map(|()| device.open_cm().expect("a manager"));
        let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
        let at = here.listen("192.0.2.1:20049".parse().expect("an address")).expect("a listener");
        there.connect(at, &a.queues.handle(), &param).expect("an attempt");
        let waker = Waker::new().expect("a descriptor");
        assert!(there.next(&waker, Duration::ZERO).is_none(), "the peer has not answered");
        let CmEvent::Request { request, .. } = next(&mut here) else { panic!("a request") };
        let accepted = here.accept(request, &b.queues.handle(), &param).expect("its own");
        let qb = b.queues.attach(accepted).expect("its own");
        if leaves {
            b.queues.disconnect(qb.qp);
        }
        assert!(here.next(&waker, Duration::ZERO).is_none());
        let CmEvent::Connected { .. } = next(&mut there) else { panic!("an answer") };
        fake.forget_calls();
        assert!(here.next(&waker, Duration::ZERO).is_none());
        let calls = fake.own_calls(&["rdma_disconnect"]).len();
        assert_eq!(calls, usize::from(leaves), "once more where it leaves: {leaves}");
    }
}

#[test]
fn an_iwarp_device_is_not_asked_for_what_it_has_not() {
    let fake = Fake::wired_iwarp();
    let device = fake.open().expect("a device");
    let caps = device.caps();
    assert_eq!((caps.send_sge, caps.read_sge, caps.recv_sge), (6, 1, 6));
    assert_eq!((caps.windows, caps.inline_len), (0, 0));
    assert!(caps.reads_expose);
    let mut queues = device.open_queues(&SMALL).expect("queues");
    let error = queues.open_window().expect_err("it has none").to_string();
    assert!(error.contains("ibv_alloc_mw"), "{error}");
    // Neither timers nor states: `ibv_modify_qp` to the later states is a panic there.
    fake.forget_calls();
    drop(connected_over(fake));
    let moves = fake.calls().iter().filter(|it| **it == "ibv_modify_qp").count();
    assert_eq!(moves, 2, "to INIT, once for each end");
    assert!(!fake.calls().contains(&"rdma_establish"), "the kernel has confirmed");
    assert!(!Fake::wired().open().expect("a device").caps().reads_expose);
}

#[test]
fn long_requests_of_an_iwarp_device_report_their_completion() {
    let Pair { mut a, mut b, qa, .. } = connected_over(Fake::wired_iwarp());
    b.recvs(0..3, 0, 8192);
    for (id, lens) in [(1, [4095, 0]), (2, [4096, 0]), (3, [1000, 3096])] {
        let sgl = [a.sge(0, lens[0]), a.sge(4096, lens[1])];
        let wr = SendWr::send(WrId(id), &sgl, SendFlags::empty());
        a.post_all(qa.qp, &[wr]).expect("room for a request");
    }
    assert_eq!(b.poll(3).len(), 3);
    // A page and more would be read while the memory is used for something else.
    assert_eq!(a.outcomes(2), [(2, WcStatus::Success), (3, WcStatus::Success)]);
}

#[test]
fn no_queue_of_an_iwarp_device_gets_the_mmap_key_that_its_library_takes_for_an_invalid_one() {
    let fake = Fake::wired_iwarp();
    let [first, device] = [(); 2].map(|()| fake.open().expect("a device"));
    // The openings of a device share its context, and the keys of it.
    drop(first);
    let queues: Vec<_> = (0..60)
        .map(|count| {
            let queues = device.open_queues(&SMALL);
            queues.unwrap_or_else(|error| panic!("the {count}th queues: {error}"))
        })
        .collect();
    drop((queues, device));
    assert!(fake.alive().is_empty(), "{:?}", fake.alive());
}

fn carries(from: &mut Host, sender: Attached<VerbsQp>, to: &mut Host, receiver: Attached<VerbsQp>) {
    to.recvs(5..7, 1024, 16);
    from.write(0, b"patience");
    from.send(sender.qp, 3, 0, 8);
    let came = to.poll(1)[0];
    assert_eq!((came.wr_id, came.byte_len, came.qp_num), (WrId(5), 8, receiver.qp_num));
    assert_eq!((came.opcode, came.status), (WcOpcode::Recv, WcStatus::Success));
    assert_eq!(to.read(1024, 9), b"patience\0");
    assert_eq!(from.outcomes(1), [(3, WcStatus::Success)]);
    assert_eq!((from.poll_once(), to.poll_once()), (vec![], vec![]));
}

#[test]
fn chains_of_every_length_arrive_whole_and_in_order() {
    let Pair { mut a, mut b, qa, .. } = connected();
    let (mut posted, mut came) = (0, 0);
    // Up to more than two doorbells, with shorter chains behind longer ones.
    for len in (1..=3).chain([32, 1, 33, 31, 66, 2, 64]) {
        let sges: Vec<_> = (0..len).map(|at| a.sge(at, 1)).collect();
        let wrs: Vec<_> = (posted..)
            .zip(&sges)
            .map(|(id, sge)| SendWr::send(WrId(id), slice::from_ref(sge), SendFlags::INLINE))
            .collect();
        b.recvs(posted..posted + len as u64, 0, 4096);
        assert_eq!(a.post_all(qa.qp, &wrs), Ok(()));
        posted += len as u64;
        while came < posted {
            for done in b.poll_once() {
                assert_eq!((done.wr_id, done.byte_len), (WrId(came), 1));
                came += 1;
            }
        }
    }
}

#[test]
fn a_plain_message_behind_one_that_invalidates_does_not() {
    let Pair { mut a, mut b, qa, .. } = connected();
    let sge = [a.sge(0, 8)];
    let ops =
        [SendOp::SendInvalidate { rkey: 7 }, SendOp::Send, SendOp::SendInvalidate { rkey: 9 }];
    for (of, expected) in [(&ops[..], [Some(7), None, Some(9)]), (&ops[1..], [None, Some(9), None])]
    {
        b.recvs(0..of.len() as u64, 0, 64);
        let wr =
            |op: &SendOp| SendWr { op: *op, ..SendWr::send(WrId(1), &sge, SendFlags::empty()) };
        let wrs: Vec<_> = of.iter().map(wr).collect();
        assert_eq!(a.post_all(qa.qp, &wrs), Ok(()));
        let keys: Vec<_> = b.poll(of.len()).iter().map(|done| done.invalidated).collect();
        assert_eq!(keys, expected[..of.len()]);
    }
}

#[test]
fn requests_behind_one_that_breaks_a_limit_are_not_posted() {
    let Pair { mut a, mut b, qa, .. } = connected();
    let (short, long) = ([a.sge(0, 8)], [a.sge(0, 1 << 20)]);
    b.recvs(0..4, 0, 64);
    for good in [1, 2] {
        let mut wrs = vec![SendWr::send(WrId(1), &short, SendFlags::INLINE); 4];
        wrs[good] = SendWr::send(WrId(2), &long, SendFlags::INLINE);
        assert_eq!(a.post_all(qa.qp, &wrs), Err((good, PostError::Invalid)));
        assert_eq!(b.poll_once().len(), good);
    }
}

#[test]
fn a_window_that_is_bound_twice_in_a_post_gets_its_key_from_the_first_binding() {
    let fake = Fake::wired();
    let Pair { mut a, qa, .. } = connected_over(fake);
    let [mut one, mut other] = [(); 2].map(|()| a.queues.open_window().expect("a window"));
    let bind = |window: &mut Window| a.binding(window, (0, 64), Access::REMOTE_READ);
    let [(first, dead), (second, _), (again, _)] =
        [bind(&mut one), bind(&mut other), bind(&mut one)];
    let ops = [first, SendOp::Invalidate { rkey: dead }, second, again];
    let wrs = ops.map(|op| SendWr { op, ..SendWr::send(WrId(1), &[], SendFlags::SIGNALED) });
    fake.forget_calls();
    assert_eq!(a.post_all(qa.qp, &wrs), Ok(()));
    assert_eq!(fake.own_calls(&["ibv_post_send"]).len(), 2, "all before it, and it");
    assert_eq!(a.outcomes(4), [(1, WcStatus::Success); 4]);
    // A later post knows the keys of all.
    let wrs = [
        a.binding(&mut other, (0, 64), Access::REMOTE_READ),
        a.binding(&mut one, (0, 64), Access::REMOTE_READ),
    ]
    .map(|(op, _)| SendWr { op, ..SendWr::send(WrId(2), &[], SendFlags::SIGNALED) });
    assert_eq!(a.post_all(qa.qp, &wrs), Ok(()));
    assert_eq!(a.outcomes(2), [(2, WcStatus::Success); 2]);
}

/// siw takes them and never completes them: docs/devices.md.
#[test]
fn what_is_posted_to_a_queue_pair_in_error_is_flushed_behind_what_was_posted_before() {
    for fake in FAKES {
        let Pair { mut a, mut b, qa, .. } = connected_over(fake());
        b.recvs(5..6, 0, 64);
        a.send(qa.qp, 1, 0, 8);
        a.queues.disconnect(qa.qp);
        a.queues.disconnect(qa.qp);
        let marker = |id| SendWr::send(WrId(id), &[], SendFlags::SIGNALED);
        assert_eq!(a.post_all(qa.qp, &[marker(8), marker(9)]), Ok(()));
        let done = a.poll_once();
        let done: Vec<_> = done.iter().map(|it| (it.wr_id.0, it.qp_num, it.status)).collect();
        let flushed = |id| (id, qa.qp_num, WcStatus::Flushed);
        assert_eq!(done, [(1, qa.qp_num, WcStatus::Success), flushed(8), flushed(9)]);
        // Another connection has a place of its own, also while the first is not destroyed.
        let port = a.queues.handle().port;
        let endpoint = port.create(None).map_err(|(_, error)| error).expect("a queue pair");
        let other = a.queues.attach(endpoint).expect("its own");
        assert_eq!(a.post_all(qa.qp, &[marker(10)]), Ok(()));
        assert_eq!(a.outcomes(1), [(10, WcStatus::Flushed)]);
        a.queues.destroy(qa.qp);
        assert_eq!(a.post_all(qa.qp, &[marker(11)]), Err((0, PostError::QpGone)));
        assert_eq!(a.poll_once(), []);
        a.queues.destroy(other.qp);
    }
}

/// A queue pair that stays out of the error state completes what is posted to it.
#[test]
fn a_queue_pair_that_cannot_be_failed_is_posted_to() {
    for fake in FAKES {
        let fake = fake();
        let Pair { mut a, mut b, qa, .. } = connected_over(fake);
        fake.refuse("ibv_modify_qp to ERR", Some(libc::EIO));
        a.queues.disconnect(qa.qp);
        b.recvs(5..6, 0, 64);
        a.send(qa.qp, 1, 0, 8);
        assert_eq!(a.outcomes(1), [(1, WcStatus::Success)]);
    }
}

#[test]
fn a_message_without_a_receive_or_a_peer_fails() {
    let Pair { mut a, mut b, qa, qb } = connected();
    a.send(qa.qp, 1, 0, 8);
    assert_eq!(a.outcomes(1), [(1, WcStatus::RnrRetryExceeded)]);
    b.recvs(5..6, 0, 64);
    b.queues.destroy(qb.qp);
    b.queues.let_time_pass();
    b.queues.next_event();
    a.send(qa.qp, 2, 0, 8);
    assert_eq!(a.outcomes(1), [(2, WcStatus::RetryExceeded)]);
}
