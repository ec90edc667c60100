//! Panicked threads of the engine, and their reporting.
//!
//! ```text
//!   panic ─▶ record ─▶ its connections end, waiting callers get an error ─▶ notify, once
//! ```

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use rpcrdma_provider::{EngineThread, Panicked};

use crate::trace;

/// Describes a thread whose panic was caught.
pub(crate) fn caught(thread: EngineThread, panic: &(dyn Any + Send)) -> Panicked {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Panicked::new(thread, text.unwrap_or("with a value that is no text"))
}

/// Describes a shard polled by its program, to which the panic propagates.
pub(crate) fn polled(shard: u32) -> Panicked {
    Panicked::new(EngineThread::Shard(shard), "while its program polled it")
}

/// All panics of an engine.
#[derive(Default)]
pub(crate) struct Failures(Mutex<FailureState>);

#[derive(Default)]
struct FailureState {
    list: Vec<Panicked>,
    /// The number that was reported.
    notified: usize,
    callback: Option<Callback>,
}

type Callback = Arc<dyn Fn(&Panicked) + Send + Sync>;

impl Failures {
    /// Stores a panic, to be reported after the affected peers and callers are notified.
    pub fn record(&self, failure: Panicked) {
        trace::panicked(&failure);
        self.state().list.push(failure);
    }

    /// Reports new panics to the program, if it registered a callback.
    pub fn notify(&self) {
        let mut state = self.state();
        let Some(callback) = state.callback.clone() else { return };
        let new: Vec<Panicked> = state.list.iter().skip(state.notified).cloned().collect();
        state.notified = state.list.len();
        drop(state);
        for failure in new {
            // This reports a panic; a panic of the callback must not hide it.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&failure)));
        }
    }

    /// Sets the callback; reports earlier panics to it at once.
    pub fn on_failure(&self, callback: Callback) {
        self.state().callback = Some(callback);
        self.notify();
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Vec<Panicked> {
        self.state().list.clone()
    }

    /// The panic of the control plane.
    pub fn of_control(&self) -> Option<Panicked> {
        let state = self.state();
        state.list.iter().find(|failure| failure.thread == EngineThread::Control).cloned()
    }

    fn state(&self) -> MutexGuard<'_, FailureState> {
        // Data under the lock is always consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(shard: u32) -> Panicked {
        Panicked::new(EngineThread::Shard(shard), "no")
    }

    #[test]
    fn each_failure_is_reported_once_to_a_late_listener_too() {
        let failures = Failures::default();
        failures.record(failure(1));
        failures.notify();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&reported);
        let callback = move |failure: &Panicked| list.lock().unwrap().push(failure.to_string());
        failures.on_failure(Arc::new(callback));
        failures.record(failure(2));
        failures.notify();
        failures.notify();
        let reported = reported.lock().unwrap().clone();
        assert_eq!(reported, ["shard 1 has panicked: no", "shard 2 has panicked: no"]);
        assert_eq!(failures.list(), [failure(1), failure(2)]);
        assert_eq!(failures.of_control(), None);
    }

    #[test]
    fn a_panic_in_the_listener_hides_no_failure() {
        let failures = Failures::default();
        failures.on_failure(Arc::new(|_| panic!("what now")));
        for shard in 0..3 {
            failures.record(failure(shard));
        }
        failures.notify();
        assert_eq!(failures.list().len(), 3);
    }

    #[test]
    fn the_message_of_a_panic_is_kept() {
        let said = |panic: &(dyn Any + Send)| caught(EngineThread::Control, panic).message;
        assert_eq!(said(&"text"), "text");
        assert_eq!(said(&String::from("number 7")), "number 7");
        assert_eq!(said(&7_u32), "with a value that is no text");
    }
}
