//! A list of messages in order, linked through their heads.

use super::messages::{Messages, NONE};

/// A list of messages in order, linked through their heads. Only its lane changes it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Queue {
    pub const EMPTY: Queue = Queue { head: NONE, tail: NONE, len: 0 };

    #[inline]
    pub fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    #[inline]
    pub(super) fn push(&mut self, messages: &mut Messages, index: u32) {
        messages.head_mut(index).next = NONE;
        match self.tail {
            NONE => self.head = index,
            tail => messages.head_mut(tail).next = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// The number of messages.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Adds a message in front of all others.
    #[cold]
    pub(super) fn push_front(&mut self, messages: &mut Messages, index: u32) {
        messages.head_mut(index).next = self.head;
        if self.head == NONE {
            self.tail = index;
        }
        self.head = index;
        self.len += 1;
    }

    /// Removes a message from any position in the list.
    #[cold]
    pub(super) fn remove(&mut self, messages: &mut Messages, index: u32) {
        let next = messages.head(index).next;
        let mut before = NONE;
        let mut at = self.head;
        while at != index && at != NONE {
            (before, at) = (at, messages.head(at).next);
        }
        match before {
            NONE => self.head = next,
            before => messages.head_mut(before).next = next,
        }
        if self.tail == index {
            self.tail = before;
        }
        self.len -= 1;
    }

    /// Removes the first message.
    #[inline]
    pub(super) fn pop(&mut self, messages: &Messages) -> Option<u32> {
        let index = self.front()?;
        self.head = messages.head(index).next;
        self.len -= 1;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(index)
    }
}
