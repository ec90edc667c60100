//! Sleep and wake without a fence on the fast path.
//!
//! ```text
//!   the sender                      the sleeper
//!   publish                         asleep = 1, for each of its senders
//!   order                           barrier: every running thread of the senders has a full fence
//!   asleep? ── yes ─▶ asleep = 0    look again
//!                     ring          sleep until rung
//!                                   asleep = 0
//! ```
//!
//! The sender stores, then loads another cache line. Without a fence a processor may execute the
//! load first, and both sides would miss each other. The sleeper, which has time, causes the fence
//! in all threads; for the sender the order of the program is enough then. A ring is remembered
//! until the sleeper has read it.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};

/// The sender's half, called after publishing: rings if the owner of the word sleeps or is about
/// to. `order` keeps the load behind the publishing. Costs one load if the owner is awake.
#[inline]
pub fn poke(asleep: &AtomicU32, order: impl FnOnce(), ring: impl FnOnce()) {
    order();
    if asleep.load(Ordering::Relaxed) != 0 {
        wake(asleep, ring);
    }
}

#[cold]
fn wake(asleep: &AtomicU32, ring: impl FnOnce()) {
    asleep.store(0, Ordering::Relaxed);
    ring();
}

/// The sleeper's half: sleeps by `wait`, for at most `timeout`, unless `is_ready` finds something in
/// the second look. `barrier` says whether it has reached all senders: if not, a ring may be missed,
/// and the sleep is short. Returns the result of `wait`.
pub fn sleep<'a, Words: Iterator<Item = &'a AtomicU32>, T>(
    words: impl Fn() -> Words,
    barrier: impl FnOnce() -> bool,
    is_ready: impl FnOnce() -> bool,
    timeout: Duration,
    wait: impl FnOnce(Duration) -> T,
) -> Option<T> {
    words().for_each(|asleep| asleep.store(1, Ordering::Relaxed));
    let timeout = if barrier() { timeout } else { timeout.min(NAP) };
    let slept = (!is_ready()).then(|| wait(timeout));
    words().for_each(|asleep| asleep.store(0, Ordering::Relaxed));
    slept
}

/// The longest sleep when a ring may be missed.
const NAP: Duration = Duration::from_micros(200);
