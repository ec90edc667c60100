//! Sleep and wake without a fence on the fast path.
//!
//! ```text
//!   the sender                      the sleeper
//!   publish                         asleep = 1, for each of its senders
//!   order                           barrier: every running thread of the senders has a full fence
//!   asleep? ── yes ─▶ asleep = 0    look again
//!                     ring          sleep until rung
//!                      └ not rung:  asleep = 0
//!                        asleep = 1
//! ```
//!
//! The sender stores, then loads another cache line. Without a fence a processor may execute the
//! load first, and both sides would miss each other. The sleeper, which has time, causes the fence
//! in all threads; for the sender the order of the program is enough then. A ring is remembered
//! until the sleeper has read it.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};

/// The sender's half, called after publishing: rings if the owner of the word sleeps, or is about
/// to. If `ring` returns that it has not, the next call rings. `order` keeps the load behind the
/// publishing. Costs one load if the owner is awake.
#[inline]
pub fn notify(asleep: &AtomicU32, order: impl FnOnce(), ring: impl FnOnce() -> bool) {
    order();
    if asleep.load(Ordering::Relaxed) != 0 {
        wake(asleep, ring);
    }
}

#[cold]
fn wake(asleep: &AtomicU32, ring: impl FnOnce() -> bool) {
    asleep.store(0, Ordering::Relaxed);
    if !ring() {
        // If its owner is awake by now, the next call rings once without need.
        asleep.store(1, Ordering::Relaxed);
    }
}

/// The sleeper's half: announces the sleep, unless `is_ready` finds something in the second look.
/// Returns how long it may last. `barrier` returns whether it has reached all senders: if not, a
/// ring may be missed, and the sleep is short.
pub fn fall_asleep<'a, Words: Iterator<Item = &'a AtomicU32>>(
    words: impl Fn() -> Words,
    barrier: impl FnOnce() -> bool,
    is_ready: impl FnOnce() -> bool,
) -> Option<Duration> {
    words().for_each(|asleep| asleep.store(1, Ordering::Relaxed));
    let most = if barrier() { Duration::MAX } else { UNCERTAIN_SLEEP };
    if is_ready() {
        wake_up(words());
        return None;
    }
    Some(most)
}

/// Withdraws the announcement.
pub fn wake_up<'a>(words: impl Iterator<Item = &'a AtomicU32>) {
    words.for_each(|asleep| asleep.store(0, Ordering::Relaxed));
}

/// The longest sleep when a ring may be missed.
const UNCERTAIN_SLEEP: Duration = Duration::from_micros(200);

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What a notification does to this word: whether it rings, and what the word is then.
    fn notified(before: u32, is_rung: bool) -> (bool, u32) {
        let (word, is_ordered, rings) = (AtomicU32::new(before), Cell::new(false), Cell::new(0));
        let ring = || {
            assert!(is_ordered.get(), "the word is read after the order");
            rings.set(rings.get() + 1);
            is_rung
        };
        notify(&word, || is_ordered.set(true), ring);
        assert!(is_ordered.get() && rings.get() <= 1);
        (rings.get() == 1, word.load(Ordering::Relaxed))
    }

    #[test]
    fn a_sleeper_is_rung_once_and_one_that_was_not_is_rung_again() {
        assert_eq!(notified(0, true), (false, 0));
        assert_eq!(notified(1, true), (true, 0));
        assert_eq!(notified(1, false), (true, 1));
    }

    #[test]
    fn what_is_ready_ends_the_sleep_and_a_missing_barrier_shortens_it() {
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        let state = || words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let asleep = |has_reached: bool, is_ready: bool| {
            let barrier = || {
                assert_eq!(state(), [1, 1], "announced before the barrier");
                has_reached
            };
            fall_asleep(|| words.iter(), barrier, || is_ready)
        };
        for has_reached in [true, false] {
            assert_eq!(asleep(has_reached, true), None);
            assert_eq!(state(), [0, 0]);
        }
        assert_eq!(asleep(true, false), Some(Duration::MAX));
        assert_eq!(asleep(false, false), Some(Duration::from_micros(200)));
        assert_eq!(state(), [1, 1]);
        wake_up(words.iter());
        assert_eq!(state(), [0, 0]);
    }
}
