//! Wrapping counters: old information about an object does not apply to a later one with the same
//! number.

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{Queues, Remote, SendFlags, SendOp, WcStatus};
use rpcrdma_transport::carrier::{Incoming, Outgoing};

use super::rules::Pair;
use crate::FabricQueues;

/// As many slots as 32 bits can count, and as 40 bits can.
const WRAPS: [u64; 2] = [1 << 32, 1 << 40];

#[test]
fn a_withdrawal_applies_to_one_slot_and_to_no_later_one() {
    for slots in WRAPS {
        let mut pair = Pair::small();
        let (healthy, _) = pair.another();
        for host in [&mut pair.a, &mut pair.b] {
            host.poll();
        }
        let sgl = [pair.a.sge(0, 1000)];
        pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
        pair.a.queues.disconnect(pair.qa.qp);
        for _ in 0..2 {
            pair.b.poll_dry();
            pair.a.poll_dry();
        }
        // Back to the lap of the slot that was withdrawn, but for the slots used since.
        skip([&mut pair.a.queues, &mut pair.b.queues], slots - 16);
        for id in 0..32 {
            pair.b.recv(100 + id, 8192, 2000);
            pair.a.send_from(healthy.qp, 200 + id, &sgl, SendFlags::SIGNALED).unwrap();
            assert_eq!(brief(&pair.b.poll_dry()), [(100 + id, WcStatus::Success)], "message {id}");
            assert_eq!(brief(&pair.a.poll_dry()), [(200 + id, WcStatus::Success)]);
        }
    }
}

#[test]
fn the_outcome_of_a_read_is_not_reported_for_another() {
    for slots in WRAPS {
        let mut pair = Pair::small();
        pair.a.poll();
        pair.b.write(0, &[0xBB; 64]);
        let rkey = pair.b.bind(pair.qb.qp, (0, 64), Access::REMOTE_READ);
        let read = SendOp::Read(Remote { addr: pair.b.at(0), rkey });
        pair.b.poll_dry();
        for at in 0..32 {
            if at == 16 {
                // Every slot was that of a Read; the next ones are those of the same Reads.
                skip([&mut pair.a.queues, &mut pair.b.queues], slots - 16);
            }
            pair.a.write(4096 + at * 64, &[0; 64]);
            let sgl = [pair.a.sge(4096 + at * 64, 64)];
            pair.a.post(pair.qa.qp, 1, read, &sgl);
            // It is taken, but not carried out; a message brings the ack for it.
            pair.b.poll();
            pair.a.recv(2, 16384, 64);
            pair.b.send(pair.qb.qp, 3, b"ack").unwrap();
            let early = [pair.a.poll(), pair.a.poll(), pair.a.poll()].concat();
            assert_eq!(brief(&early), [(2, WcStatus::Success)], "its data are not there");
            assert_eq!(pair.a.read(4096 + at * 64, 1), [0]);
            pair.b.poll_dry();
            assert_eq!(brief(&pair.a.poll_dry()), [(1, WcStatus::Success)]);
            assert_eq!(pair.a.read(4096 + at * 64, 64), [0xBB; 64]);
            pair.b.poll_dry();
        }
    }
}

#[test]
fn a_refusal_applies_to_one_slot() {
    for slots in WRAPS {
        let mut pair = Pair::small();
        let (healthy, doomed) = (pair.another().0, pair.another().0);
        pair.a.poll();
        let refused = next_slot(&mut pair.a.queues);
        pair.b.recv(1, 0, 10);
        pair.a.send(pair.qa.qp, 2, &[7; 100]).unwrap();
        assert_eq!(brief(&pair.b.poll_dry()), [(1, WcStatus::LocalLength)]);
        assert_eq!(brief(&pair.a.poll_dry()), [(2, WcStatus::RemoteInvalidRequest)]);
        pair.b.poll_dry();
        skip([&mut pair.a.queues, &mut pair.b.queues], slots - 16);
        while next_slot(&mut pair.a.queues) != refused + slots {
            pair.b.recv(3, 8192, 2000);
            pair.a.send(healthy.qp, 4, &[7; 100]).unwrap();
            assert_eq!(brief(&pair.b.poll_dry()), [(3, WcStatus::Success)]);
            assert_eq!(brief(&pair.a.poll_dry()), [(4, WcStatus::Success)]);
        }
        // Each slot of these two is looked at, and the second alone was refused.
        pair.b.recv(5, 8192, 2000);
        pair.b.recv(6, 0, 10);
        pair.a.send(healthy.qp, 7, &[7; 100]).unwrap();
        pair.a.send(doomed.qp, 8, &[7; 100]).unwrap();
        assert_eq!(brief(&pair.b.poll_dry()), [(5, WcStatus::Success), (6, WcStatus::LocalLength)]);
        assert_eq!(
            brief(&pair.a.poll_dry()),
            [(7, WcStatus::Success), (8, WcStatus::RemoteInvalidRequest)]
        );
    }
}

/// Skips `slots` slots between two sets of queues that have one path each.
fn skip([a, b]: [&mut FabricQueues; 2], slots: u64) {
    let [(tx_a, rx_a), (tx_b, rx_b)] =
        [&mut *a, &mut *b].map(|queues| queues.transport().ends().unwrap());
    for (tx, rx) in [(tx_a, rx_b), (tx_b, rx_a)] {
        assert_eq!(tx.freed(), rx.next(), "between messages");
        tx.skip(slots);
        rx.skip(slots);
    }
    a.transport().has_skipped();
    b.transport().has_skipped();
}

/// The position of the next slot that queues with one path publish.
fn next_slot(queues: &mut FabricQueues) -> u64 {
    queues.transport().ends().unwrap().0.head()
}
