//! Hostile peers: nothing is acknowledged, delivered, kept or written that was not sent, and its
//! queue pair fails.

use std::rc::Rc;

use rpcrdma_mempool::Access;
use rpcrdma_provider::{QueueEvent, Remote, SendOp, WcStatus, WorkCompletion};

use super::staging::*;
use crate::body::{
    Acks, Body, Header, INLINE_LEN, OP_READ, OP_SEND, OP_SEND_INVALIDATE, OP_WRITE, Refusal,
};
use crate::carrier::Outgoing;
use crate::conn::{Conn, Progress};

/// Queues with a connection, and the other end of it in the hands of the test.
struct Victim {
    side: Side,
    /// From the queues to the hostile peer.
    there: Rc<Way>,
    /// From the hostile peer.
    back: Rc<Way>,
    /// Slots that the hostile peer has published.
    published: u64,
}

impl Victim {
    fn new() -> Victim {
        let (there, back, conn) = (Way::new(), Way::new(), Conn::new());
        let mut side = Side::new(0, NUM, &ATTR);
        side.attach((1, 0), Some([&there, &back]), &conn, [NUM, 0x200]);
        conn.set(1, Progress::Attached);
        Victim { side, there, back, published: 0 }
    }

    fn publish(&mut self, slot: Slot) {
        self.back.publish(self.published, slot);
        self.published += 1;
    }

    fn poll(&mut self) -> Vec<WorkCompletion> {
        (0..40).flat_map(|_| self.side.poll()).collect()
    }

    fn is_disconnected(&mut self) -> bool {
        self.side.events() == [QueueEvent::Disconnected { qp_num: NUM }]
    }

    fn outcome(&self, position: u64) -> Option<Result<(), Refusal>> {
        self.back.slot(position).outcome.get()
    }

    /// The slot of a Read of 8 bytes.
    fn read(&mut self) -> Slot {
        let from = self.side.sge(0, 8);
        let rkey = self.side.transport.expose(&from, Access::REMOTE_READ).unwrap();
        let header = Header { op: OP_READ, pieces: 1, byte_len: 8, rkey, ..SEND };
        Slot { target: from.addr, ..slot(header, 0) }
    }

    /// The slot of a Write of so many bytes to [`TARGET`].
    fn write(&mut self, byte_len: u32, pieces: u8, staged: usize) -> Slot {
        let to = self.side.sge(TARGET, byte_len);
        let rkey = self.side.transport.expose(&to, Access::REMOTE_WRITE).unwrap();
        Slot {
            target: to.addr,
            ..slot(Header { op: OP_WRITE, pieces, byte_len, rkey, ..SEND }, staged)
        }
    }

    /// Whether no byte of the memory was written.
    fn is_untouched(&mut self) -> bool {
        self.side.bytes(0, MEMORY).iter().all(|byte| *byte == 0)
    }
}

/// The number of the queue pair.
const NUM: u32 = 0x100;
/// Where Writes go.
const TARGET: usize = 16 << 10;
/// An empty message.
const SEND: Header = Header { dst: NUM, op: OP_SEND, ..Header::empty() };
/// A byte of every message.
const BYTE: u8 = 0xAB;

/// A slot with so many bytes that it refers to.
fn slot(header: Header, staged: usize) -> Slot {
    Slot::new(Body { header, bytes: [BYTE; INLINE_LEN] }, vec![BYTE; staged])
}

#[test]
fn acks_of_what_was_not_published_are_ignored() {
    let mut it = Victim::new();
    for id in 0..2 {
        let from = it.side.sge(0, 8);
        it.side.post(id, SendOp::Send, &[from]);
    }
    for acks in [3, 1 << 40, u64::MAX] {
        it.there.acked.set(acks);
        assert!(it.poll().is_empty(), "{acks} in the line");
        it.publish(slot(Header { acks: Acks::up_to(acks), byte_len: 8, ..SEND }, 0));
        let to = it.side.sge(0, 8);
        it.side.recv(100, &[to]);
        assert_eq!(brief(&it.poll()), [(100, WcStatus::Success)], "{acks} in a slot");
        assert!(!it.side.transport.has_work(), "{acks} keeps the thread awake");
        assert!(it.side.transport.sleep_limit().is_some());
    }
    it.there.acked.set(1);
    assert_eq!(brief(&it.poll()), [(0, WcStatus::Success)]);
    it.there.acked.set(0);
    assert!(it.poll().is_empty());
    it.there.acked.set(2);
    assert_eq!(brief(&it.poll()), [(1, WcStatus::Success)], "as many as were published");
    let from = it.side.sge(0, 8);
    it.side.post(2, SendOp::Send, &[from]);
    assert!(it.poll().is_empty());
}

#[test]
fn acks_that_wait_behind_a_message_are_no_more_believed() {
    let mut it = Victim::new();
    let from = it.side.sge(0, 8);
    it.side.post(1, SendOp::Send, &[from]);
    // The first one finds no Receive.
    it.publish(slot(Header { byte_len: 8, ..SEND }, 0));
    it.publish(slot(Header { acks: Acks::up_to(9), byte_len: 8, ..SEND }, 0));
    assert!(it.poll().is_empty());
    it.publish(slot(Header { acks: Acks::up_to(1), byte_len: 8, ..SEND }, 0));
    assert_eq!(brief(&it.poll()), [(1, WcStatus::Success)]);
}

#[test]
fn a_peer_that_has_left_sends_no_more_than_a_lap() {
    let mut it = Victim::new();
    it.there.is_abandoned.set(true);
    it.back.is_closed.set(true);
    (0..SLOTS + 2).for_each(|_| it.publish(slot(Header { byte_len: 8, ..SEND }, 0)));
    assert!(it.poll().is_empty(), "there is no Receive");
    for id in 0..SLOTS {
        assert_eq!(it.side.events(), []);
        let to = it.side.sge(0, 8);
        it.side.recv(id, &[to]);
        assert_eq!(brief(&it.poll()), [(id, WcStatus::Success)]);
    }
    assert!(it.is_disconnected());
    let to = it.side.sge(0, 8);
    it.side.recv(100, &[to]);
    assert!(it.poll().is_empty(), "the next one has come too late");
}

#[test]
fn a_length_without_bytes_is_refused() {
    for (byte_len, op) in
        [OP_SEND, OP_WRITE].into_iter().flat_map(|op| [224, 225, 8000].map(|len| (len, op)))
    {
        let mut it = Victim::new();
        let to = it.side.sge(0, 8192);
        it.side.recv(7, &[to]);
        let slot = match op {
            OP_SEND => slot(Header { byte_len, ..SEND }, 0),
            _ => it.write(byte_len, 0, 0),
        };
        it.publish(slot);
        let got = it.poll();
        if byte_len as usize <= INLINE_LEN {
            let at = if op == OP_SEND { 0 } else { TARGET };
            assert_eq!(got.len(), usize::from(op == OP_SEND));
            assert_eq!(it.side.bytes(at, INLINE_LEN), [BYTE; INLINE_LEN]);
            assert_eq!(it.side.events(), []);
            continue;
        }
        assert_eq!((got, it.outcome(0)), (vec![], Some(Err(Refusal::Unreadable))));
        assert!(it.is_untouched() && it.is_disconnected());
    }
}

#[test]
fn an_invalidating_message_without_its_bytes_invalidates_nothing_and_is_refused() {
    let mut it = Victim::new();
    let to = it.side.sge(0, 8192);
    it.side.recv(7, &[to]);
    it.publish(slot(Header { op: OP_SEND_INVALIDATE, byte_len: 5000, rkey: 9, ..SEND }, 0));
    assert!(it.poll().is_empty());
    assert_eq!(it.outcome(0), Some(Err(Refusal::Access)));
    assert!(it.is_untouched() && it.is_disconnected());
}

#[test]
fn bytes_that_are_fewer_or_more_than_the_length_are_refused() {
    for op in [OP_SEND, OP_WRITE] {
        for staged in [0, 1, 299, 300, 301, 400, 5000] {
            let mut it = Victim::new();
            let to = it.side.sge(0, 400);
            it.side.recv(7, &[to]);
            let slot = match op {
                OP_SEND => slot(Header { byte_len: 300, pieces: 1, ..SEND }, staged),
                _ => it.write(300, 1, staged),
            };
            it.publish(slot);
            let got = it.poll();
            // A Receive may be written whole, by whatever message.
            let (at, room) = if op == OP_SEND { (0, 400) } else { (TARGET, 300) };
            if staged == 300 {
                assert_eq!(got.len(), usize::from(op == OP_SEND));
                assert_eq!(it.side.bytes(at, 300), [BYTE; 300]);
            } else {
                assert_eq!(got, [], "{staged} of 300");
                assert_eq!(it.outcome(0), Some(Err(Refusal::Unreadable)));
                assert!(it.is_disconnected());
            }
            assert!(*it.side.bytes(at + room, 5000) == [0; 5000], "beyond the end");
        }
    }
}

#[test]
fn a_receive_whose_message_was_a_lie_takes_the_next_message() {
    let (mut it, conn) = (Victim::new(), Conn::new());
    let (there, back) = (Way::new(), Way::new());
    it.side.attach((2, 0), Some([&there, &back]), &conn, [NUM + 1, 0x201]);
    conn.set(1, Progress::Attached);
    let to = it.side.sge(0, 8192);
    it.side.recv(7, &[to]);
    it.publish(slot(Header { byte_len: 300, pieces: 1, ..SEND }, 100));
    assert!(it.poll().is_empty());
    back.publish(0, slot(Header { dst: NUM + 1, byte_len: 300, pieces: 1, ..SEND }, 300));
    assert_eq!(brief(&it.poll()), [(7, WcStatus::Success)]);
    assert_eq!(it.side.bytes(0, 301)[299..], [BYTE, 0]);
}

#[test]
fn one_read_more_than_there_are_slots_is_refused_after_those_before_it() {
    for count in [SLOTS, SLOTS + 1, SLOTS + 2] {
        let mut it = Victim::new();
        // All but the first are taken by one poll, and a Read is executed by none that takes it.
        for _ in 0..count {
            let read = it.read();
            it.publish(read);
        }
        assert!(it.poll().is_empty());
        for position in 0..count {
            let outcome = match position {
                SLOTS => Err(Refusal::Access),
                position if position > SLOTS => Err(Refusal::Gone),
                _ => Ok(()),
            };
            assert_eq!(it.outcome(position), Some(outcome), "{position} of {count}");
        }
        assert_eq!(it.is_disconnected(), count > SLOTS);
    }
}

#[test]
fn the_data_of_a_read_that_was_withdrawn_are_not_placed() {
    for is_withdrawn in [false, true] {
        let mut it = Victim::new();
        let to = it.side.sge(0, 8);
        it.side.post(1, SendOp::Read(Remote { addr: 0, rkey: 0 }), &[to]);
        if is_withdrawn {
            it.side.transport.disconnect(NUM);
        }
        it.there.slot(0).answer.replace(vec![BYTE; 8]);
        it.there.slot(0).outcome.set(Some(Ok(())));
        it.there.acked.set(1);
        let status = if is_withdrawn { WcStatus::Flushed } else { WcStatus::Success };
        assert_eq!(brief(&it.poll()), [(1, status)]);
        assert_eq!(it.is_untouched(), is_withdrawn);
        assert_eq!(it.side.transport.ends().unwrap().0.freed(), 1);
    }
}

#[test]
fn a_header_that_changes_between_two_looks_is_checked_as_it_is_used() {
    for (one, other) in (0..KINDS).flat_map(|one| (0..KINDS).map(move |other| (one, other))) {
        for first in 0..2 {
            let mut it = Victim::new();
            let to = it.side.sge(0, 8192);
            it.side.recv(7, &[to]);
            let slots = [one, other].map(|kind| changing(&mut it, kind));
            let [Slot { body, .. }, Slot { body: Body { header, .. }, .. }] = slots;
            let target = it.side.sge(TARGET, 0).addr;
            it.back.looks.set(first);
            it.publish(Slot { target, other: Some(header), ..Slot::new(body, vec![BYTE; 300]) });
            let got = it.poll();
            let is_allowed = |wc: &WorkCompletion| match wc.status {
                WcStatus::Success => [8, 300].contains(&wc.byte_len),
                status => status == WcStatus::LocalLength,
            };
            assert!(got.iter().all(is_allowed), "{one} and {other}: {got:?}");
            for (at, len) in [(0, 8192), (TARGET, 8192)] {
                let written = it.side.bytes(at, len).iter().filter(|byte| **byte == BYTE).count();
                assert!([0, 8, 224, 300].contains(&written), "{one} and {other}: {written}");
            }
            assert_eq!(it.side.bytes(8192, TARGET - 8192), vec![0; TARGET - 8192]);
            assert!(it.back.looks.get() > first, "it was looked at");
        }
    }
}

/// The headers that [`changing`] makes.
const KINDS: u32 = 8;

/// A slot with a header of this kind, of which some state what is not so, and all go to [`TARGET`].
fn changing(it: &mut Victim, kind: u32) -> Slot {
    match kind {
        0 => slot(Header { byte_len: 8, ..SEND }, 0),
        1 => slot(Header { byte_len: 5000, ..SEND }, 0),
        2 => slot(Header { byte_len: 300, pieces: 1, ..SEND }, 0),
        3 => slot(Header { byte_len: 5000, pieces: 1, ..SEND }, 0),
        4 => it.write(8, 0, 0),
        5 => it.write(300, 1, 0),
        6 => it.write(5000, 0, 0),
        _ => it.read(),
    }
}
