//! Shards that serve, and who is told when none is left.

use std::sync::{Arc, Mutex};

use crate::locks::lock;

/// How many shards serve, and who is told of the end. A clone is a share of the same.
#[derive(Clone, Default)]
pub struct Serving(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    shards: usize,
    /// Whether nobody takes connections any more.
    is_closed: bool,
    tell: Option<Box<dyn FnOnce() + Send>>,
}

/// A shard that serves, until this is dropped: with its handler, however the shard ends.
pub struct Serves(Serving);

impl Serving {
    /// One more shard serves.
    pub fn begin(&self) -> Serves {
        lock(&self.0).shards += 1;
        Serves(self.clone())
    }

    /// Nobody takes connections any more, whatever shards there are.
    pub fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Has `tell` called, once, when nobody serves any more: at once, if that is so.
    pub fn on_end(&self, tell: impl FnOnce() + Send + 'static) {
        self.change(|state| state.tell = Some(Box::new(tell)));
    }

    /// Whether nobody serves any more.
    pub fn is_over(&self) -> bool {
        lock(&self.0).is_over()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0);
        change(&mut state);
        let told = if state.is_over() { state.tell.take() } else { None };
        // Whoever is told may ask.
        drop(state);
        if let Some(tell) = told {
            tell();
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.is_closed || self.shards == 0
    }
}

impl Drop for Serves {
    fn drop(&mut self) {
        self.0.change(|state| state.shards -= 1);
    }
}
