//! The inbox: how other threads reach a shard. Bounded; costs the shard one plain load a turn.
//!
//! ```text
//!   another thread                         the shard, once a turn
//!   push ─▶ letters.store(true) ─▶ asleep? ─▶ ring     letters.load? ─▶ clear ─▶ pop until empty
//! ```
//! The order push, mark, look at `asleep` on one side and announce sleep, look at `letters` on the
//! other is sequentially consistent, so a letter is either seen before the sleep or ends it.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::provider::Waker;

/// A bounded queue of letters to one shard, and the means to wake it.
pub(crate) struct Inbox<T> {
    queue: ArrayQueue<T>,
    bell: std::sync::Arc<Bell>,
}

/// Says that there is something in one of the shard's inboxes.
pub(crate) struct Bell {
    letters: AtomicBool,
    asleep: AtomicBool,
    /// Ends the shard's sleep.
    pub(crate) waker: Waker,
    stop: AtomicBool,
    /// Whether the shard has ended, and how: an [`End`], or 0.
    end: AtomicU8,
    /// Connections that the shard has or that are on their way to it.
    connections: AtomicUsize,
}

/// How a shard has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum End {
    /// It was dropped.
    Dropped = 1,
    /// A panic has left it half done.
    Panicked = 2,
}

impl Bell {
    pub(crate) fn new(waker: Waker) -> Bell {
        Bell {
            letters: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            waker,
            stop: AtomicBool::new(false),
            end: AtomicU8::new(0),
            connections: AtomicUsize::new(0),
        }
    }

    /// Says that a letter was pushed. Rings only a shard that sleeps.
    pub(crate) fn ring(&self) {
        self.letters.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.waker.ring();
        }
    }

    /// Whether letters may have come since the last call. One load when not.
    #[inline]
    pub(crate) fn answer(&self) -> bool {
        self.letters.load(Ordering::Relaxed) && self.letters.swap(false, Ordering::SeqCst)
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

    /// Says that the shard has ended, the first time; it has no connections any more.
    pub(crate) fn end(&self, end: End) {
        let _ = self.end.compare_exchange(0, end as u8, Ordering::AcqRel, Ordering::Acquire);
        self.connections.store(0, Ordering::Release);
        self.ring();
    }

    /// How the shard has ended, if it has.
    pub(crate) fn ended(&self) -> Option<End> {
        match self.end.load(Ordering::Acquire) {
            0 => None,
            1 => Some(End::Dropped),
            _ => Some(End::Panicked),
        }
    }

    /// Reserves one of `max` connections; false if all are taken.
    pub(crate) fn reserve(&self, max: usize) -> bool {
        let more = |count: usize| (count < max).then_some(count + 1);
        self.connections.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Gives a reserved connection back.
    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Connections that are reserved.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Announces sleep; false if there is a letter to be read first.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.letters.load(Ordering::SeqCst) {
            self.wake_up();
            return false;
        }
        true
    }

    /// Takes the announcement back.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

impl<T> Inbox<T> {
    pub(crate) fn new(capacity: usize, bell: std::sync::Arc<Bell>) -> Inbox<T> {
        Inbox { queue: ArrayQueue::new(capacity), bell }
    }

    /// Leaves a letter; gives it back if the queue is full.
    pub(crate) fn send(&self, letter: T) -> Result<(), T> {
        self.queue.push(letter)?;
        self.bell.ring();
        Ok(())
    }

    /// Letters that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The oldest letter.
    pub(crate) fn pop(&self) -> Option<T> {
        self.queue.pop()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_letter_is_announced_once_and_read_in_order() {
        let bell = Arc::new(Bell::new(Waker::new().expect("an eventfd")));
        let inbox = Inbox::new(2, bell.clone());
        assert!(!bell.answer());
        inbox.send(1).expect("room for the first");
        inbox.send(2).expect("room for the second");
        assert_eq!(inbox.send(3), Err(3), "the inbox is bounded");
        assert!(bell.answer());
        assert!(!bell.answer());
        assert_eq!((inbox.pop(), inbox.pop(), inbox.pop()), (Some(1), Some(2), None));
    }

    #[test]
    fn a_shard_with_a_letter_does_not_fall_asleep() {
        let bell = Arc::new(Bell::new(Waker::new().expect("an eventfd")));
        assert!(bell.fall_asleep());
        bell.wake_up();
        bell.ring();
        assert!(!bell.fall_asleep());
        assert!(bell.answer());
        assert!(bell.fall_asleep());
    }
}
