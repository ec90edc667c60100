//! Who wakes the future of a thread that polls: itself, as a rule.
//!
//! ```text
//!   AWAKE ──wake──▶ WOKEN ──take──▶ AWAKE            the thread polls: a store
//!     └─fall_asleep─▶ ASLEEP ──wake──▶ WOKEN          it sleeps: its shard is woken
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Wake;

use crate::ShardHandle;

/// Whether the future is to be polled.
pub(super) struct Alarm {
    state: AtomicU8,
    shard: ShardHandle,
}

impl Alarm {
    /// The future is to be polled.
    pub fn new(shard: ShardHandle) -> Alarm {
        Alarm { state: AtomicU8::new(WOKEN), shard }
    }

    /// Whether it was woken since this was asked.
    pub fn take(&self) -> bool {
        let is_woken = self.state.load(Ordering::Relaxed) == WOKEN;
        // It sees all that was done before it was woken, the last time, too.
        is_woken && self.state.swap(AWAKE, Ordering::SeqCst) == WOKEN
    }

    /// Announces that the thread may sleep. False if it was woken.
    pub fn fall_asleep(&self) -> bool {
        let order = Ordering::SeqCst;
        self.state.compare_exchange(AWAKE, ASLEEP, order, order).is_ok()
    }

    /// The thread sleeps no longer. Whether it was woken stays.
    pub fn wake_up(&self) {
        let order = Ordering::SeqCst;
        let _ = self.state.compare_exchange(ASLEEP, AWAKE, order, order);
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Alarm>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Alarm>) {
        if self.state.swap(WOKEN, Ordering::SeqCst) == ASLEEP {
            self.shard.wake();
        }
    }
}

/// The thread polls its session.
const AWAKE: u8 = 0;
/// The thread sleeps, or is about to.
const ASLEEP: u8 = 1;
/// The future is to be polled.
const WOKEN: u8 = 2;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use crate::{Config, Engine, Fabric};

    use super::*;

    /// An alarm, what rings it, and whether its shard was woken since this was asked.
    fn alarm() -> (Arc<Alarm>, Waker, impl Fn() -> bool) {
        let engine = Engine::new(Fabric::new(), Config::default()).expect("an engine");
        let shard = engine.client().expect("a client").handle().clone();
        let _ = shard.wakeup().answer();
        let alarm = Arc::new(Alarm::new(shard.clone()));
        let waker = Waker::from(Arc::clone(&alarm));
        (alarm, waker, move || shard.wakeup().answer())
    }

    #[test]
    fn a_future_is_polled_first_and_then_once_for_all_who_wake_it() {
        let (alarm, waker, is_shard_woken) = alarm();
        assert_eq!([alarm.take(), alarm.take()], [true, false]);
        (0..3).for_each(|_| waker.wake_by_ref());
        assert_eq!([alarm.take(), alarm.take()], [true, false]);
        assert!(!is_shard_woken(), "its thread does not sleep");
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_once() {
        let (alarm, waker, is_shard_woken) = alarm();
        assert!(!alarm.fall_asleep(), "it was woken before");
        assert!(alarm.take() && alarm.fall_asleep());
        assert!(!is_shard_woken());
        waker.wake_by_ref();
        assert!(is_shard_woken());
        waker.wake_by_ref();
        assert!(!is_shard_woken());
        alarm.wake_up();
        assert_eq!([alarm.take(), alarm.take()], [true, false], "it is known behind the sleep");
        assert!(alarm.fall_asleep());
        alarm.wake_up();
        waker.wake_by_ref();
        assert!(!is_shard_woken() && alarm.take(), "it sleeps no longer");
    }
}
