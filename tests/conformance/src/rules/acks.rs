//! Acks: a request is done when the peer has taken it, and what is not taken is withdrawn. For
//! devices whose peers say what they have taken ([`S::HAS_ACKS`](super::device::S::HAS_ACKS)).

use rpcrdma_provider::{QueueEvent, Queues, SendFlags, WC_BATCH, WcOpcode, WcStatus};

use crate::host::*;
use crate::subject::Subject;

pub(crate) fn the_first_message_after_an_idle_poll_is_polled_alone<S: Subject>() {
    let mut pair = Pair::<S>::small();
    for id in 0..4 {
        pair.b.recv(id, 0, 64);
        pair.a.send(pair.qa.qp, id, b"x").unwrap();
    }
    assert_eq!([pair.b.poll().len(), pair.b.poll().len(), pair.b.poll().len()], [1, 3, 0]);
}

pub(crate) fn a_signaled_send_completes_once_and_only_after_the_peer_has_taken_it<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 64);
    pair.a.send(pair.qa.qp, 1, b"ping").unwrap();
    assert_eq!(pair.a.poll_dry(), []);
    pair.b.poll_dry();
    let done = pair.a.poll_dry();
    assert_eq!(brief(&done), [(1, WcStatus::Success)]);
    assert_eq!((done[0].opcode, done[0].qp_num), (WcOpcode::Send, pair.qa.qp_num));
    assert_eq!(pair.a.poll_dry(), []);
}

pub(crate) fn disconnect_flushes_what_was_not_taken_after_the_successes_before<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 64);
    for id in 0..4 {
        let sgl = [pair.a.sge(0, 8)];
        let flags = if id == 0 { SendFlags::SIGNALED } else { SendFlags::empty() };
        pair.a.send_from(pair.qa.qp, id, &sgl, flags).unwrap();
    }
    assert_eq!(pair.b.poll_dry().len(), 1);
    pair.a.queues.disconnect(pair.qa.qp);
    pair.a.send(pair.qa.qp, 9, b"x").unwrap();
    assert_eq!(pair.b.poll_dry(), [], "what was withdrawn is not delivered");
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: pair.qb.qp_num }]);
    pair.b.send(pair.qb.qp, 9, b"x").unwrap();
    let flushed = WcStatus::Flushed;
    let expected = [(0, WcStatus::Success), (1, flushed), (2, flushed), (3, flushed), (9, flushed)];
    assert_eq!(brief(&pair.a.poll_dry()), expected);
    assert_eq!(brief(&pair.b.poll_dry()), expected[4..]);
    assert_eq!(pair.a.events(), [], "who disconnects knows");
}

pub(crate) fn a_poll_that_flushes_reports_no_more_than_it_has_room_for<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (_, qb) = pair.another();
    for id in 0..7 {
        pair.a.recv(100 + id, 64 * id as usize, 64);
    }
    for id in 0..30 {
        pair.a.send(pair.qa.qp, id, b"x").unwrap();
    }
    pair.b.send(qb.qp, 1, b"first").unwrap();
    assert_eq!(pair.a.poll().len(), 1);
    // The end of one queue pair, and messages of the other behind it, arrive in one poll.
    pair.b.queues.disconnect(pair.qb.qp);
    for id in 2..8 {
        pair.b.send(qb.qp, id, b"next").unwrap();
    }
    let done = pair.a.poll();
    assert_eq!(done.len(), WC_BATCH);
    assert!(done[..30].iter().all(|wc| wc.status == WcStatus::Flushed));
    assert_eq!(pair.a.poll_dry().len(), 4);
}

pub(crate) fn a_flush_needs_no_help_from_the_peer<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 4096);
    let sgl = [pair.a.sge(0, 1000)];
    for id in 0..30 {
        pair.a.send_from(pair.qa.qp, id, &sgl, SendFlags::empty()).unwrap();
    }
    pair.a.queues.disconnect(pair.qa.qp);
    let expected: Vec<_> = (0..30).map(|id| (id, WcStatus::Flushed)).collect();
    assert_eq!(brief(&pair.a.poll()), expected);
    // The memory is the program's again: what the peer finds later is not read from there.
    pair.a.write(0, &[0xEE; 1000]);
    assert_eq!(pair.b.poll_dry(), []);
    assert_eq!(pair.b.read(0, 1), [0]);
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: pair.qb.qp_num }]);
    assert_eq!(pair.a.poll_dry(), [], "each once");
}

pub(crate) fn requests_that_wait_for_room_are_flushed_last_and_in_order<S: Subject>() {
    let mut pair = Pair::<S>::small();
    for id in 0..30 {
        pair.a.send(pair.qa.qp, id, b"x").unwrap();
    }
    pair.a.queues.disconnect(pair.qa.qp);
    pair.b.poll_dry();
    let mut done = brief(&pair.a.poll_dry());
    pair.b.poll_dry();
    done.extend(brief(&pair.a.poll_dry()));
    let expected: Vec<_> = (0..30).map(|id| (id, WcStatus::Flushed)).collect();
    assert_eq!(done, expected);
    pair.b.poll_dry();
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: pair.qb.qp_num }]);
}

pub(crate) fn destroying_with_requests_outstanding_silences_them<S: Subject>() {
    let mut pair = Pair::<S>::small();
    for id in 0..30 {
        pair.a.send(pair.qa.qp, id, b"x").unwrap();
    }
    pair.a.queues.destroy(pair.qa.qp);
    pair.b.poll_dry();
    assert_eq!(pair.a.poll_dry(), []);
    pair.b.poll_dry();
    assert_eq!(pair.b.events().len(), 1);
}
