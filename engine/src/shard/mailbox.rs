//! The mailbox: messages of other threads to a shard. Bounded; costs the shard one plain load per
//! turn.
//!
//! ```text
//!   another thread                         the shard, once a turn
//!   push ─▶ pending.store(true) ─▶ asleep? ─▶ ring     pending.load? ─▶ clear ─▶ pop until empty
//! ```
//! The sender pushes, marks and checks `asleep`; the shard announces sleep and checks `pending`.
//! Both orders are sequentially consistent: a message is either seen before the sleep or ends it.
//! Likewise, either the shard sees a message, or its sender sees the end of the shard.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::provider::Waker;

/// A bounded queue of messages to one shard, and its wakeup.
pub(crate) struct Mailbox<T> {
    queue: ArrayQueue<T>,
    wakeup: std::sync::Arc<Wakeup>,
}

/// Signals that one of the shard's mailboxes has a message.
pub(crate) struct Wakeup {
    pending: AtomicBool,
    asleep: AtomicBool,
    /// Ends the shard's sleep.
    pub(crate) waker: Waker,
    stop: AtomicBool,
    /// Whether the shard has ended, and how: an [`End`], or 0.
    end: AtomicU8,
    /// Connections that the shard has, or that are being made for it.
    connections: AtomicUsize,
}

/// How a shard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum End {
    /// It was dropped.
    Dropped = 1,
    /// A panic left it inconsistent.
    Panicked = 2,
}

impl Wakeup {
    pub(crate) fn new(waker: Waker) -> Wakeup {
        Wakeup {
            pending: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            waker,
            stop: AtomicBool::new(false),
            end: AtomicU8::new(0),
            connections: AtomicUsize::new(0),
        }
    }

    /// Signals that a message was pushed. Wakes only a sleeping shard.
    pub(crate) fn ring(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.waker.ring();
        }
    }

    /// Whether messages may have arrived since the last call. One load if none.
    #[inline]
    pub(crate) fn answer(&self) -> bool {
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::SeqCst)
    }

    /// Tells the shard to stop.
    pub(crate) fn want_stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether the shard was told to stop.
    pub(crate) fn is_stop_wanted(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Records that the shard has ended, once; it has no connections any more.
    pub(crate) fn end(&self, end: End) {
        let _ = self.end.compare_exchange(0, end as u8, Ordering::SeqCst, Ordering::SeqCst);
        self.connections.store(0, Ordering::Release);
        self.ring();
    }

    /// How the shard ended, if it has.
    pub(crate) fn ended(&self) -> Option<End> {
        match self.end.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(End::Dropped),
            _ => Some(End::Panicked),
        }
    }

    /// Reserves one of `max` connections; false if all are reserved.
    pub(crate) fn reserve(&self, max: usize) -> bool {
        let more = |count: usize| (count < max).then_some(count + 1);
        self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Releases a reserved connection.
    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Reserved connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Announces sleep; false if there is a message to read first.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.pending.load(Ordering::SeqCst) {
            self.wake_up();
            return false;
        }
        true
    }

    /// Withdraws the announcement.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn new(capacity: usize, wakeup: std::sync::Arc<Wakeup>) -> Mailbox<T> {
        Mailbox { queue: ArrayQueue::new(capacity), wakeup }
    }

    /// Queues a message; returns it if the queue is full.
    pub(crate) fn send(&self, message: T) -> Result<(), T> {
        self.queue.push(message)?;
        self.wakeup.ring();
        Ok(())
    }

    /// Queued messages.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The oldest message.
    pub(crate) fn pop(&self) -> Option<T> {
        self.queue.pop()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_message_is_announced_once_and_read_in_order() {
        let wakeup = Arc::new(Wakeup::new(Waker::new().expect("an eventfd")));
        let mailbox = Mailbox::new(2, wakeup.clone());
        assert!(!wakeup.answer());
        mailbox.send(1).expect("room for the first");
        mailbox.send(2).expect("room for the second");
        assert_eq!(mailbox.send(3), Err(3), "the mailbox is bounded");
        assert!(wakeup.answer());
        assert!(!wakeup.answer());
        assert_eq!((mailbox.pop(), mailbox.pop(), mailbox.pop()), (Some(1), Some(2), None));
    }

    #[test]
    fn a_shard_with_a_message_does_not_fall_asleep() {
        let wakeup = Arc::new(Wakeup::new(Waker::new().expect("an eventfd")));
        assert!(wakeup.fall_asleep());
        wakeup.wake_up();
        wakeup.ring();
        assert!(!wakeup.fall_asleep());
        assert!(wakeup.answer());
        assert!(wakeup.fall_asleep());
    }
}
