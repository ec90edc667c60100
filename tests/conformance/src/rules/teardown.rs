//! Disconnecting, flushing, destroying, and peers that disappear.

use rpcrdma_provider::{PostError, QueueAttr, QueueEvent, Queues, SendFlags, WcStatus};

use crate::host::*;
use crate::subject::{Options, Subject};

pub(crate) fn a_request_to_a_failed_queue_pair_is_flushed_whatever_was_silent_before<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 64);
    let sgl = [pair.a.sge(0, 8)];
    pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::empty()).unwrap();
    assert_eq!(pair.b.poll_dry().len(), 1);
    assert_eq!(pair.a.poll_dry(), [], "an unsignaled Send succeeded silently");
    pair.a.queues.disconnect(pair.qa.qp);
    pair.a.send_from(pair.qa.qp, 2, &[], SendFlags::SIGNALED).unwrap();
    assert_eq!(brief(&pair.a.poll_dry()), [(2, WcStatus::Flushed)]);
    drop(pair.b);
    pair.a.send_from(pair.qa.qp, 3, &[], SendFlags::SIGNALED).unwrap();
    assert_eq!(brief(&pair.a.poll_dry()), [(3, WcStatus::Flushed)], "without a peer, too");
    pair.a.queues.destroy(pair.qa.qp);
    let gone = pair.a.send_from(pair.qa.qp, 4, &[], SendFlags::SIGNALED);
    assert_eq!(gone, Err((0, PostError::QpGone)));
}

pub(crate) fn the_peer_flushes_what_it_has_posted<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.send(pair.qb.qp, 5, b"x").unwrap();
    pair.b.send(pair.qb.qp, 6, b"y").unwrap();
    pair.a.queues.disconnect(pair.qa.qp);
    let lost = sent_or::<S>(WcStatus::Flushed);
    assert_eq!(brief(&pair.b.poll_dry()), [(5, lost), (6, lost)]);
    pair.a.poll_dry();
    assert_eq!(pair.b.poll_dry(), [], "each once");
    assert_eq!(pair.b.events().len(), 1);
}

pub(crate) fn both_sides_may_disconnect_at_once<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.a.send(pair.qa.qp, 1, b"x").unwrap();
    pair.b.send(pair.qb.qp, 2, b"y").unwrap();
    pair.a.queues.disconnect(pair.qa.qp);
    pair.b.queues.disconnect(pair.qb.qp);
    pair.a.queues.disconnect(pair.qa.qp);
    let (mut at_a, mut at_b) = (vec![], vec![]);
    for _ in 0..2 {
        at_a.extend(brief(&pair.a.poll_dry()));
        at_b.extend(brief(&pair.b.poll_dry()));
    }
    let lost = sent_or::<S>(WcStatus::Flushed);
    assert_eq!((at_a, at_b), (vec![(1, lost)], vec![(2, lost)]));
    assert_eq!((pair.a.events(), pair.b.events()), (vec![], vec![]));
}

pub(crate) fn a_late_message_for_a_destroyed_queue_pair_is_dropped_and_frees_its_place<
    S: Subject,
>() {
    let attr = QueueAttr { qp_max: 1, ..SMALL };
    let mut pair = Pair::<S>::with(Options::default(), &attr, 7);
    pair.b.recv(10, 0, 64);
    pair.a.send(pair.qa.qp, 1, b"late").unwrap();
    pair.b.queues.destroy(pair.qb.qp);
    assert_eq!(pair.b.poll_dry(), []);
    assert_eq!(brief(&pair.a.poll_dry()), [(1, sent_or::<S>(WcStatus::Flushed))]);
    assert_eq!(pair.a.events().len(), 1);
    pair.a.queues.destroy(pair.qa.qp);
    // The same place, another number: the old name reaches nothing.
    let (qa, qb) = pair.another();
    assert_ne!((qa.qp_num, qb.qp_num), (pair.qa.qp_num, pair.qb.qp_num));
    assert_eq!(pair.a.send(pair.qa.qp, 2, b"x"), Err((0, PostError::QpGone)));
    pair.a.queues.disconnect(pair.qa.qp);
    pair.a.queues.destroy(pair.qa.qp);
    pair.a.send(qa.qp, 3, b"fresh").unwrap();
    assert_eq!(pair.b.poll(), [received(10, qb, 5)]);
}

pub(crate) fn peers_of_dropped_queues_flush_and_learn_of_it<S: Subject>() {
    let Pair { device, mut a, b, qa, .. } = Pair::<S>::small();
    for id in 0..30 {
        a.send(qa.qp, id, b"x").unwrap();
    }
    drop(b);
    let done = brief(&a.poll_dry());
    let expected: Vec<_> = (0..30).map(|id| (id, sent_or::<S>(WcStatus::Flushed))).collect();
    assert_eq!(done, expected);
    assert_eq!(a.events(), [QueueEvent::Disconnected { qp_num: qa.qp_num }]);
    a.queues.destroy(qa.qp);
    // The place of the dead path is reused.
    let mut c = Host::new(&device, &SMALL);
    let (qa, qc) = connect(&device, &mut a, &mut c, 7);
    c.recv(10, 0, 64);
    a.send(qa.qp, 1, b"again").unwrap();
    assert_eq!(c.poll(), [received(10, qc, 5)]);
}

pub(crate) fn messages_that_arrived_before_the_queues_were_dropped_are_delivered<S: Subject>() {
    let Pair { mut a, mut b, qa, qb, .. } = Pair::<S>::small();
    b.recv(10, 0, 64);
    a.send(qa.qp, 1, b"last words").unwrap();
    drop(a);
    assert_eq!(b.poll_dry(), [received(10, qb, 10)]);
    assert_eq!(b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
}

pub(crate) fn queue_pairs_are_created_and_destroyed_without_limit<S: Subject>() {
    let attr = QueueAttr { qp_max: 2, ..SMALL };
    let mut pair = Pair::<S>::with(Options::default(), &attr, 7);
    for round in 0..700 {
        let (qa, qb) = pair.another();
        pair.b.recv(round, 0, 64);
        pair.a.send(qa.qp, round, b"x").unwrap();
        assert_eq!(pair.b.poll_dry(), [received(round, qb, 1)]);
        pair.a.poll_dry();
        pair.a.queues.disconnect(qa.qp);
        pair.b.poll_dry();
        assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
        pair.a.queues.destroy(qa.qp);
        pair.b.queues.destroy(qb.qp);
    }
}
