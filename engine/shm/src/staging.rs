//! The staging area of one direction: where bytes lie that do not fit in a slot.
//!
//! ```text
//!   0           tail                 head            len
//!   │   free    │ 17 │ 18 │ 20 │ 23 │      free      │     spans, by the position of their slot
//! ```
//!
//! Spans are freed in the order in which slots come home, so the area is a queue. A span lies in one
//! piece. It begins at 0 again as soon as there is room, so that little traffic touches little
//! memory. Only the producer keeps account of it: nothing here is read from shared memory.

use std::collections::VecDeque;

/// The account of a staging area.
#[derive(Debug)]
pub(crate) struct Staging {
    len: u32,
    /// The oldest first.
    spans: VecDeque<Span>,
}

/// Bytes that belong to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    position: u64,
    start: u32,
    end: u32,
}

impl Staging {
    /// `len` bytes for at most `slots` spans.
    pub(crate) fn new(len: u32, slots: usize) -> Staging {
        Staging { len, spans: VecDeque::with_capacity(slots) }
    }

    /// Where a span of `len` bytes would begin.
    pub(crate) fn room(&self, len: u32) -> Option<u32> {
        // An empty span takes a byte: no two begin at the same place.
        let len = len.max(1);
        let (Some(oldest), Some(newest)) = (self.spans.front(), self.spans.back()) else {
            return (len <= self.len).then_some(0);
        };
        let head = newest.end.next_multiple_of(ALIGN);
        if newest.start < oldest.start {
            // Wrapped: free between the newest and the oldest.
            return (oldest.start.checked_sub(head)? >= len).then_some(head);
        }
        if len <= oldest.start {
            return Some(0);
        }
        (self.len.checked_sub(head)? >= len).then_some(head)
    }

    /// Takes the span that [`Staging::room`] has found, for the slot at `position`.
    pub(crate) fn take(&mut self, position: u64, start: u32, len: u32) {
        debug_assert_eq!(self.room(len), Some(start));
        debug_assert!(self.spans.len() < self.spans.capacity(), "one span for each slot");
        self.spans.push_back(Span { position, start, end: start + len.max(1) });
    }

    /// Where the span of the slot at `position` begins.
    pub(crate) fn start_of(&self, position: u64) -> Option<u32> {
        let at = self.spans.binary_search_by_key(&position, |span| span.position).ok()?;
        Some(self.spans[at].start)
    }

    /// Frees the spans of all slots before `position`.
    #[inline]
    pub(crate) fn free_before(&mut self, position: u64) {
        while self.spans.front().is_some_and(|span| span.position < position) {
            self.spans.pop_front();
        }
    }
}

/// Spans begin at cache lines.
const ALIGN: u32 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_area_begins_at_zero_and_takes_all_of_it() {
        let mut staging = Staging::new(4096, 4);
        assert_eq!(staging.room(4097), None);
        assert_eq!(staging.room(4096), Some(0));
        staging.take(0, 0, 4096);
        assert_eq!(staging.room(1), None);
        staging.free_before(1);
        assert_eq!(staging.room(4096), Some(0));
    }

    #[test]
    fn it_wraps_as_soon_as_there_is_room_at_the_beginning() {
        let mut staging = Staging::new(4096, 8);
        staging.take(0, 0, 100);
        assert_eq!(staging.room(100), Some(128));
        staging.take(1, 128, 100);
        staging.free_before(1);
        assert_eq!(staging.room(128), Some(0), "in front of the oldest");
        assert_eq!(staging.room(129), Some(256), "behind the newest");
        staging.take(2, 0, 64);
        assert_eq!(staging.room(64), Some(64));
        assert_eq!(staging.room(65), None, "it would reach into the oldest");
        assert_eq!((staging.start_of(1), staging.start_of(2)), (Some(128), Some(0)));
        assert_eq!(staging.start_of(0), None);
    }

    #[test]
    fn empty_spans_have_places_of_their_own() {
        let mut staging = Staging::new(4096, 8);
        staging.take(0, 0, 0);
        assert_eq!(staging.room(0), Some(64));
        staging.take(1, 64, 0);
        staging.free_before(1);
        assert_eq!(staging.room(0), Some(0));
    }

    proptest! {
        /// Against a map of every byte: no two spans share one, and what fits in the whole free
        /// area of an empty one is never refused.
        #[test]
        fn spans_never_overlap(steps in prop::collection::vec((0_u32..2000, 0_u64..4), 1..200)) {
            let mut staging = Staging::new(4096, 256);
            let mut live: VecDeque<(u64, u32, u32)> = VecDeque::new();
            for (position, (len, returns)) in steps.into_iter().enumerate() {
                let position = position as u64;
                if let Some(start) = staging.room(len) {
                    prop_assert!(start + len <= 4096);
                    let is_apart = |&(_, from, to): &(u64, u32, u32)| start + len <= from || to <= start;
                    prop_assert!(live.iter().all(is_apart), "{start}+{len} in {live:?}");
                    staging.take(position, start, len);
                    live.push_back((position, start, start + len));
                } else {
                    prop_assert!(!live.is_empty(), "an empty area has room");
                }
                for _ in 0..returns {
                    if let Some((oldest, ..)) = live.pop_front() {
                        staging.free_before(oldest + 1);
                    }
                }
            }
        }
    }
}
