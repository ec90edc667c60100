//! All interleavings of the ring and of the sleep protocol, by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p rpcrdma-fabric --lib interleavings`
#![expect(unsafe_code, reason = "loom watches memory that two threads share")]

use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Notify};
use loom::thread;

use rpcrdma_transport::body::{Acks, INLINE_LEN, Refusal};
use rpcrdma_transport::carrier::{Incoming, Outgoing, Vacant};
use rpcrdma_transport::keys::KeyCache;
use rpcrdma_transport::{barrier, sleep};

use crate::rings::{Consumer, Producer, ring};

/// The first slot of every ring: the second has a position that no 32 bits can hold.
const FIRST: u64 = u32::MAX as u64;

fn publish(tx: &mut Producer, byte: u8, acks: Acks) {
    let mut slot = loop {
        if tx.has_room() {
            break tx.claim(1).unwrap();
        }
        let acks = tx.acks();
        tx.free(acks, acks.taken());
        thread::yield_now();
    };
    let body = slot.body();
    body.header.byte_len = INLINE_LEN as u32;
    (body.bytes[0], body.bytes[INLINE_LEN - 1]) = (byte, byte);
    slot.publish(acks, &KeyCache::of(std::sync::Arc::default()));
}

fn take(rx: &mut Consumer) -> (u8, Acks) {
    loop {
        if let Some(front) = rx.front() {
            // SAFETY: the slot has these bytes, and the producer has published it.
            let [first, last] = [0, INLINE_LEN - 1].map(|at| unsafe { rx.bytes().add(at).read() });
            assert_eq!(first, last);
            rx.release();
            return (first, front.acks);
        }
        thread::yield_now();
    }
}

#[test]
fn a_slot_is_used_again_only_after_its_ack() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        let consumer = thread::spawn(move || {
            for byte in 0..3 {
                assert_eq!(take(&mut rx).0, byte);
                rx.announce();
            }
        });
        for byte in 0..3 {
            publish(&mut tx, byte, Acks::default());
        }
        consumer.join().unwrap();
    });
}

#[test]
fn an_ack_in_a_slot_of_the_other_ring_frees_as_well() {
    loom::model(|| {
        let (mut tx, mut there) = ring(2, false, FIRST);
        let (mut back, mut rx) = ring(2, false, FIRST);
        let peer = thread::spawn(move || {
            assert_eq!(take(&mut there).0, 1);
            publish(&mut back, 10, there.acks());
            assert_eq!(take(&mut there).0, 2);
            assert_eq!(take(&mut there).0, 3);
        });
        publish(&mut tx, 1, Acks::default());
        publish(&mut tx, 2, Acks::default());
        let (reply, acks) = take(&mut rx);
        assert_eq!((reply, acks.taken(), tx.refused()), (10, FIRST + 1, 0));
        tx.free(acks, acks.taken());
        assert!(tx.has_room());
        publish(&mut tx, 3, Acks::default());
        peer.join().unwrap();
    });
}

#[test]
fn a_refusal_is_seen_with_the_ack_that_counts_it() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        let consumer = thread::spawn(move || {
            while rx.front().is_none() {
                thread::yield_now();
            }
            rx.refuse(Refusal::NotReady);
            rx.announce();
        });
        publish(&mut tx, 1, Acks::default());
        while tx.acks().taken() == FIRST {
            thread::yield_now();
        }
        assert_eq!((tx.acks().taken(), tx.refused()), (FIRST + 1, 1));
        assert_eq!(tx.refusal(FIRST), Some(Refusal::NotReady));
        consumer.join().unwrap();
    });
}

#[test]
fn after_one_side_vanishes_the_other_knows_every_outcome() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        let producer = thread::spawn(move || publish(&mut tx, 7, Acks::default()));
        while !rx.is_closed() {
            thread::yield_now();
        }
        assert_eq!(take(&mut rx).0, 7);
        producer.join().unwrap();
    });
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        publish(&mut tx, 7, Acks::default());
        let consumer = thread::spawn(move || assert_eq!(take(&mut rx).0, 7));
        while !tx.is_abandoned() {
            thread::yield_now();
        }
        let acks = tx.reclaim(tx.acks());
        assert_eq!((acks.taken(), tx.freed()), (FIRST + 1, FIRST + 1));
        // The slots have no reader left: both can be written.
        publish(&mut tx, 8, Acks::default());
        publish(&mut tx, 9, Acks::default());
        consumer.join().unwrap();
    });
}

/// Memory that a slot refers to: loom sees it when both touch it at once.
struct Memory(loom::cell::UnsafeCell<u8>);
// SAFETY: what the tests are about; loom checks every access.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

#[test]
fn withdrawn_memory_is_not_read_after_quiescing() {
    loom::model(|| {
        let (mut tx, rx) = ring(2, false, FIRST);
        let memory = Arc::new(Memory(loom::cell::UnsafeCell::new(1)));
        let theirs = Arc::clone(&memory);
        publish(&mut tx, 1, Acks::default());
        let consumer = thread::spawn(move || {
            rx.fetch(FIRST, || theirs.0.with(|_| ()));
        });
        tx.withdraw(FIRST);
        tx.quiesce();
        memory.0.with_mut(|_| ());
        consumer.join().unwrap();
    });
}

#[test]
fn withdrawn_memory_is_not_read_after_settling_while_other_memory_is() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        let memory = Arc::new(Memory(loom::cell::UnsafeCell::new(1)));
        let theirs = Arc::clone(&memory);
        publish(&mut tx, 1, Acks::default());
        publish(&mut tx, 2, Acks::default());
        let consumer = thread::spawn(move || {
            rx.fetch(FIRST, || theirs.0.with(|_| ()));
            rx.release();
            rx.fetch(FIRST + 1, || ());
        });
        tx.withdraw(FIRST);
        tx.quiesce();
        memory.0.with_mut(|_| ());
        consumer.join().unwrap();
    });
}

#[test]
fn the_memory_of_a_dropped_side_is_not_read() {
    loom::model(|| {
        let (mut tx, rx) = ring(2, false, FIRST);
        let memory = Arc::new(Memory(loom::cell::UnsafeCell::new(1)));
        let theirs = Arc::clone(&memory);
        publish(&mut tx, 1, Acks::default());
        let consumer = thread::spawn(move || {
            rx.fetch(FIRST, || theirs.0.with(|_| ()));
        });
        drop(tx);
        memory.0.with_mut(|_| ());
        consumer.join().unwrap();
    });
}

#[test]
fn the_bytes_of_a_read_are_visible_with_its_completion() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        let memory = Arc::new(Memory(loom::cell::UnsafeCell::new(1)));
        let theirs = Arc::clone(&memory);
        let consumer = thread::spawn(move || {
            assert_eq!(take(&mut rx).0, 1);
            rx.announce();
            let copied = rx.fetch(FIRST, || theirs.0.with_mut(|_| ()));
            rx.finish(FIRST, copied.ok_or(Refusal::Gone));
        });
        publish(&mut tx, 1, Acks::default());
        let outcome = loop {
            if let Some(outcome) = tx.outcome(FIRST) {
                break outcome;
            }
            thread::yield_now();
        };
        assert_eq!(outcome, Ok(()));
        memory.0.with(|_| ());
        consumer.join().unwrap();
    });
}

#[test]
fn the_memory_of_a_withdrawn_read_is_not_written_after_quiescing() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        let memory = Arc::new(Memory(loom::cell::UnsafeCell::new(1)));
        let theirs = Arc::clone(&memory);
        publish(&mut tx, 1, Acks::default());
        let consumer = thread::spawn(move || {
            assert_eq!(take(&mut rx).0, 1);
            let copied = rx.fetch(FIRST, || theirs.0.with_mut(|_| ()));
            rx.finish(FIRST, copied.ok_or(Refusal::Gone));
        });
        tx.withdraw(FIRST);
        tx.quiesce();
        memory.0.with_mut(|_| ());
        consumer.join().unwrap();
        assert!(matches!(tx.outcome(FIRST), Some(Ok(()) | Err(Refusal::Gone))));
    });
}

#[test]
fn a_message_always_wakes_its_sleeping_receiver() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2, false, FIRST);
        let sleeper_state = Arc::new((AtomicU32::new(0), Notify::new()));
        let other = Arc::clone(&sleeper_state);
        let sleeper = thread::spawn(move || {
            let (asleep, alarm) = &*other;
            for byte in 0..2 {
                while rx.front().is_none() {
                    let barrier = || {
                        barrier::heavy();
                        true
                    };
                    let ready = || rx.front().is_some();
                    let words = || [asleep].into_iter();
                    if sleep::fall_asleep(words, barrier, ready).is_some() {
                        alarm.wait();
                        sleep::wake_up(words());
                    }
                }
                assert_eq!(take(&mut rx).0, byte);
            }
        });
        let (asleep, alarm) = &*sleeper_state;
        for byte in 0..2 {
            publish(&mut tx, byte, Acks::default());
            sleep::notify(asleep, barrier::compiler, || {
                alarm.notify();
                true
            });
        }
        sleeper.join().unwrap();
    });
}
