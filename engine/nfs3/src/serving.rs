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
    ended: Option<Box<dyn FnOnce() + Send>>,
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

    /// Calls `ended` once when no shard serves any more, or connections are no longer accepted.
    pub fn on_end(&self, ended: impl FnOnce() + Send + 'static) {
        self.change(|state| state.ended = Some(Box::new(ended)));
    }

    /// Whether the server can no longer serve.
    pub fn is_over(&self) -> bool {
        lock(&self.0).is_over()
    }

    fn change(&self, change: impl FnOnce(&mut ServingState)) {
        let mut state = lock(&self.0);
        change(&mut state);
        let ended = if state.is_over() { state.ended.take() } else { None };
        // `ended` may call this type.
        drop(state);
        if let Some(ended) = ended {
            ended();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Whether it is over, and how often that was said.
    fn ends(serving: &Serving) -> (impl Fn() -> (bool, usize), Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let (of, reported) = (serving.clone(), Arc::clone(&count));
        (move || (of.is_over(), reported.load(Ordering::SeqCst)), count)
    }

    #[test]
    fn the_end_is_said_once_when_the_last_shard_has_ended() {
        let serving = Serving::default();
        let shards = [(); 3].map(|()| serving.begin());
        let (state, count) = ends(&serving);
        serving.on_end(move || _ = count.fetch_add(1, Ordering::SeqCst));
        for (shard, left) in shards.into_iter().zip([2, 1, 0]) {
            assert_eq!(state(), (false, 0));
            drop(shard);
            assert_eq!(lock(&serving.0).shards, left);
        }
        assert_eq!(state(), (true, 1));
        drop(serving.begin());
        assert_eq!(state(), (true, 1));
    }

    #[test]
    fn the_end_is_said_when_no_connection_is_accepted_and_at_once_if_it_was_before() {
        let serving = Serving::default();
        let _shard = serving.begin();
        let (state, count) = ends(&serving);
        let again = Arc::clone(&count);
        serving.on_end(move || _ = count.fetch_add(1, Ordering::SeqCst));
        assert_eq!(state(), (false, 0));
        serving.close();
        assert_eq!(state(), (true, 1));
        serving.on_end(move || _ = again.fetch_add(1, Ordering::SeqCst));
        assert_eq!(state(), (true, 2));
    }
}
