//! A peer withdraws memory, or goes, while it is copied out of its pool.

use std::cell::Cell;

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_mempool::Sge;
use rpcrdma_provider::Queues;
use rpcrdma_transport::body::{Acks, Header, OP_SEND};
use rpcrdma_transport::carrier::{Incoming, Outgoing, Vacant};
use rpcrdma_transport::keys::KeyCache;

use super::super::rules::Host;
use super::rules::Mapped;
use crate::producer::Producer;

/// What the peer does after the bytes were copied, and before that is known to be so.
fn is_delivered_although(act: impl FnOnce(Producer) -> Option<Producer>) -> bool {
    let device = Mapped::plain();
    let (a, b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let (ours, theirs) = endpoints(&device, &a, &b, 7);
    let (here, there) = (ours.end(), theirs.end());
    let (mut tx, _back) = here.ends(1, &a.queues.handle().ends);
    let (_forth, mut rx) = there.ends(2, &b.queues.handle().ends);
    let keys = device.0.keys();
    // The first, which is staged, exposes the pool to the peer.
    publish(&mut tx, a.sge(0, 5000), &keys);
    let front = rx.front().expect("published");
    assert_eq!(rx.pull(&front, &keys, |_, _| Ok(())), Some(Ok(())));
    rx.release();
    publish(&mut tx, a.sge(0, 5000), &keys);
    let front = rx.front().expect("published");
    let (act, tx) = (Cell::new(Some(act)), Cell::new(Some(tx)));
    let outcome = rx.pull(&front, &keys, |_, len| {
        assert_eq!(len, 5000);
        let (act, it) = (act.take().expect("one run"), tx.take().expect("one run"));
        tx.set(act(it));
        Ok(())
    });
    outcome.is_some_and(|outcome| outcome.is_ok())
}

fn publish(tx: &mut Producer, sge: Sge, keys: &KeyCache) {
    let mut slot = tx.claim(sge.length).expect("room");
    let body = slot.body();
    body.header = Header { op: OP_SEND, byte_len: sge.length, ..Header::empty() };
    body.refer(&[sge], |_| 0);
    slot.publish(Acks::default(), keys);
}

#[test]
fn what_was_withdrawn_while_it_was_copied_is_not_delivered() {
    assert!(is_delivered_although(Some));
    let withdrawn = |tx: Producer| {
        tx.withdraw(1);
        Some(tx)
    };
    assert!(!is_delivered_although(withdrawn));
}

#[test]
fn what_a_peer_left_while_it_was_copied_is_not_delivered() {
    assert!(!is_delivered_although(|tx| {
        drop(tx);
        None
    }));
}
