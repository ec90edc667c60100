//! The mailbox: messages of other threads to a shard. Bounded; costs the shard one plain load per
//! turn.
//!
//! ```text
//!   another thread                                    the shard, once a turn
//!   push ─▶ mark.store(MESSAGES) ─▶ asleep? ─▶ ring     mark.load? ─▶ clear ─▶ pop until empty
//! ```
//! The sender pushes, marks and checks `asleep`; the shard announces sleep and checks `mark`.
//! Both orders are sequentially consistent: a message is either seen before the sleep or ends it.
//! Likewise, either the shard sees a message, or its sender sees the end of the shard. A shard that
//! falls asleep leaves a mark of its own, so that its next turn notices that it is awake.

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
    /// [`NOTHING`], [`ASLEEP`] or [`MESSAGES`].
    mark: AtomicU8,
    asleep: AtomicBool,
    /// Ends the shard's sleep.
    pub(crate) waker: Waker,
    stop: AtomicBool,
    /// Whether the shard has ended, and how: an [`ShardEnd`], or 0.
    end: AtomicU8,
    /// Connections that the shard has, or that are being made for it.
    connections: AtomicUsize,
}

/// How a shard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ShardEnd {
    /// It was dropped.
    Dropped = 1,
    /// A panic left it inconsistent.
    Panicked = 2,
}

impl Wakeup {
    pub(crate) fn new(waker: Waker) -> Wakeup {
        Wakeup {
            mark: AtomicU8::new(NOTHING),
            asleep: AtomicBool::new(false),
            waker,
            stop: AtomicBool::new(false),
            end: AtomicU8::new(0),
            connections: AtomicUsize::new(0),
        }
    }

    /// Signals that a message was pushed. Wakes only a sleeping shard.
    pub(crate) fn ring(&self) {
        self.mark.store(MESSAGES, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.waker.ring();
        }
    }

    /// Whether there may be messages, or the shard has slept. One load.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.mark.load(Ordering::Relaxed) != NOTHING
    }

    /// Whether messages may have arrived since the last call.
    pub(crate) fn answer(&self) -> bool {
        self.mark.swap(NOTHING, Ordering::SeqCst) == MESSAGES
    }

    /// Asks the shard to stop.
    pub(crate) fn want_stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether the shard was asked to stop.
    pub(crate) fn is_stop_wanted(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Records that the shard has ended, once; it has no connections any more.
    pub(crate) fn end(&self, end: ShardEnd) {
        let _ = self.end.compare_exchange(0, end as u8, Ordering::SeqCst, Ordering::SeqCst);
        self.connections.store(0, Ordering::Release);
        self.ring();
    }

    /// How the shard ended, if it has.
    pub(crate) fn ended(&self) -> Option<ShardEnd> {
        match self.end.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(ShardEnd::Dropped),
            _ => Some(ShardEnd::Panicked),
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
        let (from, to, order) = (NOTHING, ASLEEP, Ordering::SeqCst);
        let is_silent = self.mark.compare_exchange(from, to, order, order).is_ok();
        if !is_silent {
            self.wake_up();
        }
        is_silent
    }

    /// Withdraws the announcement.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        // The mark of a message stays.
        let (from, to, order) = (ASLEEP, NOTHING, Ordering::SeqCst);
        let _ = self.mark.compare_exchange(from, to, order, order);
    }

    /// Whether the shard has announced sleep.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
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

/// There is nothing to notice.
const NOTHING: u8 = 0;
/// The shard has announced sleep.
const ASLEEP: u8 = 1;
/// There may be messages.
const MESSAGES: u8 = 2;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

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
        assert!(wakeup.is_marked(), "the next turn notices it");
        wakeup.wake_up();
        assert!(!wakeup.is_marked());
        wakeup.ring();
        assert!(!wakeup.fall_asleep());
        assert!(wakeup.answer());
        assert!(wakeup.fall_asleep());
    }

    #[test]
    fn only_a_sleeping_shard_is_woken() {
        let wakeup = Wakeup::new(Waker::new().expect("an eventfd"));
        let is_rung = || {
            let is_rung = Waker::sleep([&wakeup.waker], Duration::ZERO).expect("an eventfd");
            wakeup.waker.drain();
            is_rung
        };
        wakeup.ring();
        assert!(!is_rung() && wakeup.answer(), "it is awake");
        assert!(wakeup.fall_asleep() && wakeup.is_asleep());
        wakeup.ring();
        assert!(is_rung());
        wakeup.wake_up();
        assert!(!wakeup.is_asleep() && wakeup.is_marked(), "the mark of a message stays");
        wakeup.ring();
        assert!(!is_rung() && !wakeup.fall_asleep() && !wakeup.is_asleep());
        wakeup.ring();
        assert!(!is_rung(), "it has not fallen asleep");
    }

    #[test]
    fn an_end_is_recorded_once_and_ends_all_connections() {
        let wakeup = Wakeup::new(Waker::new().expect("an eventfd"));
        assert!(wakeup.reserve(2) && wakeup.reserve(2) && !wakeup.reserve(2));
        wakeup.disconnected();
        assert_eq!((wakeup.connections(), wakeup.ended()), (1, None));
        wakeup.end(ShardEnd::Panicked);
        wakeup.end(ShardEnd::Dropped);
        assert_eq!((wakeup.connections(), wakeup.ended()), (0, Some(ShardEnd::Panicked)));
        assert!(wakeup.answer(), "who waits for it looks again");
        assert!(!wakeup.is_stop_wanted());
        wakeup.want_stop();
        assert!(wakeup.is_stop_wanted() && wakeup.answer());
    }
}
