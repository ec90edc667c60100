//! What waits in the thread, in order, until its deadline: calls that the session has no room for
//! yet, and tasks that have no place for a call.

use std::collections::VecDeque;

use super::places::Waiter;

/// What waits, in order.
pub(crate) struct Queue<T> {
    entries: VecDeque<T>,
    /// No deadline of them is earlier.
    earliest: u64,
}

/// What waits until its deadline.
pub(crate) trait Entry {
    /// When it ends at the latest; `u64::MAX` if it has no deadline.
    fn until(&self) -> u64;

    /// Whether its future was dropped.
    fn is_cancelled(&self) -> bool;
}

impl Entry for Waiter {
    fn until(&self) -> u64 {
        self.until
    }

    fn is_cancelled(&self) -> bool {
        self.place.is_canceled()
    }
}

impl<T: Entry> Queue<T> {
    pub fn new() -> Queue<T> {
        Queue { entries: VecDeque::new(), earliest: u64::MAX }
    }

    /// Adds an entry behind all others, unless its future was dropped: before it was here, nothing
    /// was found to cancel.
    pub fn push(&mut self, entry: T) {
        if entry.is_cancelled() {
            return;
        }
        self.earliest = self.earliest.min(entry.until());
        self.entries.push_back(entry);
    }

    /// Returns the first entry to its place.
    pub fn put_back(&mut self, entry: T) {
        self.entries.push_front(entry);
    }

    /// The first entry.
    pub fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front();
        if self.entries.is_empty() {
            self.earliest = entry.as_ref().map_or(u64::MAX, Entry::until);
        }
        entry
    }

    /// Removes the entries whose futures were dropped.
    pub fn remove_cancelled(&mut self) {
        self.entries.retain(|entry| !entry.is_cancelled());
    }

    /// Removes the entries whose deadlines have passed.
    pub fn take_late(&mut self, now: u64) -> Vec<T> {
        if now < self.earliest {
            return Vec::new();
        }
        let entries = std::mem::take(&mut self.entries).into_iter();
        let (late, others): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.until() <= now);
        self.entries = others.into();
        self.earliest = self.entries.iter().map(Entry::until).min().unwrap_or(u64::MAX);
        late
    }

    /// When [`Queue::take_late`] is to be asked again.
    pub fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}
