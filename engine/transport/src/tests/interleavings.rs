//! All interleavings of using a key and invalidating it, and of falling asleep and being woken by
//! several processes, by loom.
#![expect(unsafe_code, reason = "loom watches memory that two threads share")]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use rpcrdma_mempool::{Access, Keys, Registrar};

use crate::keys::{KeyCache, KeyTable};
use crate::{barrier, sleep};

/// Memory that a key names: loom sees it when two threads touch it at once.
struct Memory(loom::cell::UnsafeCell<u8>);
// SAFETY: what the test is about; loom checks every access.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

#[test]
fn memory_is_not_accessed_after_its_key_was_invalidated() {
    loom::model(|| {
        let table = std::sync::Arc::new(KeyTable::default());
        let rkey = table.insert(0x1000, 1, Access::REMOTE_WRITE).unwrap();
        let (mut keys, reader) = KeyCache::new(std::sync::Arc::clone(&table));
        let memory = Arc::new(Memory(loom::cell::UnsafeCell::new(1)));
        let theirs = Arc::clone(&memory);
        let poller = thread::spawn(move || {
            for _ in 0..2 {
                reader.begin(&mut keys);
                if keys.locate(rkey, 0, 1).is_some() {
                    theirs.0.with_mut(|_| ());
                }
                reader.end();
            }
        });
        table.deregister(Keys { lkey: rkey, rkey }).unwrap();
        memory.0.with_mut(|_| ());
        poller.join().unwrap();
    });
}

/// What one sender shares with the sleeper: a link between two processes.
#[derive(Default)]
struct Line {
    asleep: AtomicU32,
    /// Messages that are published.
    published: AtomicU32,
}

/// What all senders ring: sockets in one epoll. It stays readable until it is read.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.ring.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.ring.wait(is_rung).unwrap();
        }
    }

    fn drain(&self) {
        *self.is_rung.lock().unwrap() = false;
    }
}

/// Each of `SENDERS` publishes so many messages; one thread takes all, and sleeps whenever it has
/// found none. A ring that is missed is a deadlock, which loom reports.
fn all_messages_are_taken<const SENDERS: usize>(messages: u32) {
    let mut model = loom::model::Builder::new();
    // A wake-up is missed by one switch of threads between two steps of each; more take hours.
    model.preemption_bound = Some(3);
    model.check(move || {
        let lines: Arc<[Line; SENDERS]> = Arc::new(std::array::from_fn(|_| Line::default()));
        let bell = Arc::new(Bell::default());
        let senders: Vec<_> = (0..SENDERS)
            .map(|at| {
                let (lines, bell) = (Arc::clone(&lines), Arc::clone(&bell));
                thread::spawn(move || {
                    for message in 1..=messages {
                        lines[at].published.store(message, Ordering::Release);
                        sleep::notify(&lines[at].asleep, barrier::compiler, || {
                            bell.ring();
                            true
                        });
                    }
                })
            })
            .collect();
        let came = || lines.iter().map(|line| line.published.load(Ordering::Acquire)).sum::<u32>();
        let (mut taken, all) = (0, messages * SENDERS as u32);
        while taken < all {
            let found = came();
            if found == taken {
                let barrier = || {
                    barrier::heavy();
                    true
                };
                let words = || lines.iter().map(|line| &line.asleep);
                let is_ready = || came() > taken;
                if sleep::fall_asleep(words, barrier, is_ready).is_some() {
                    bell.wait();
                    sleep::wake_up(words());
                }
                bell.drain();
            }
            taken = found;
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn a_sender_wakes_a_sleeper_again_and_again() {
    all_messages_are_taken::<1>(2);
}

#[test]
fn each_of_two_senders_wakes_one_sleeper() {
    all_messages_are_taken::<2>(1);
}
