//! Counts the serving shards, and calls a function when none is left.

use std::sync::{Arc, Mutex};

use crate::locks::lock;

/// The number of serving shards, and the function to call at the end. Clones share them.
#[derive(Clone, Default)]
pub struct Serving(Arc<Mutex<ServingState>>);

#[derive(Default)]
struct ServingState {
    shards: usize,
    /// Whether connections are no longer accepted.
    is_closed: bool,
    tell: Option<Box<dyn FnOnce() + Send>>,
}

/// A serving shard, until it is dropped with the shard's handler.
pub struct Serves(Serving);

impl Serving {
    /// Adds a serving shard.
    pub fn begin(&self) -> Serves {
        lock(&self.0).shards += 1;
        Serves(self.clone())
    }

    /// Records that connections are no longer accepted.
    pub fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Calls `tell` once when no shard serves any more, or connections are no longer accepted.
    pub fn on_end(&self, tell: impl FnOnce() + Send + 'static) {
        self.change(|state| state.tell = Some(Box::new(tell)));
    }

    /// Whether the server can no longer serve.
    pub fn is_over(&self) -> bool {
        lock(&self.0).is_over()
    }

    fn change(&self, change: impl FnOnce(&mut ServingState)) {
        let mut state = lock(&self.0);
        change(&mut state);
        let told = if state.is_over() { state.tell.take() } else { None };
        // `tell` may call this type.
        drop(state);
        if let Some(tell) = told {
            tell();
        }
    }
}

impl ServingState {
    fn is_over(&self) -> bool {
        self.is_closed || self.shards == 0
    }
}

impl Drop for Serves {
    fn drop(&mut self) {
        self.0.change(|state| state.shards -= 1);
    }
}
