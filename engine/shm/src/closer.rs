//! The closer: a thread that closes what peers have sent unasked.
//!
//! Closing a descriptor can wait for somebody else: for the other end of a TCP socket (SO_LINGER),
//! for the server of a file system. A peer chooses what it sends. A thread of this provider closes
//! it, and no other thread does. It ends when it has nothing to close.
//!
//! What waits is bounded by what brings it: a connection whose peer sends such a thing ends, and
//! leaves its socket and few descriptors. While many wait, no connection is made.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The thread and its queue. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<OwnedFd>,
    /// There is a thread, which may be closing one.
    is_busy: bool,
}

/// A descriptor that a peer has sent. The closer closes it, unless it is found to be harmless.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// There until it is dropped.
    file: Option<OwnedFd>,
    closer: Closer,
}

impl Closer {
    /// Closes `file` some time.
    #[cold]
    pub(crate) fn close(&self, file: OwnedFd) {
        let mut state = self.lock();
        state.waiting.push(file);
        self.begin(&mut state);
    }

    /// Starts the thread if there is none. If there can be none now, the next look tries again.
    fn begin(&self, state: &mut State) {
        if !state.is_busy {
            let closer = self.clone();
            let thread = std::thread::Builder::new().name("rpcrdma-close".to_owned());
            state.is_busy = thread.spawn(move || closer.run()).is_ok();
        }
    }

    /// Whether so many descriptors wait that there must be no new connection.
    pub(crate) fn is_behind(&self) -> bool {
        let mut state = self.lock();
        let is_behind = state.waiting.len() >= WAITING_MAX;
        if is_behind {
            // No connection is made, so none ends and starts it.
            self.begin(&mut state);
        }
        is_behind
    }

    fn run(&self) {
        loop {
            let mut state = self.lock();
            let Some(file) = state.waiting.pop() else {
                state.is_busy = false;
                return;
            };
            drop(state);
            drop(file);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Foreign {
    pub(crate) fn new(file: OwnedFd, closer: &Closer) -> Foreign {
        Foreign { file: Some(file), closer: closer.clone() }
    }

    /// Closes it at once: it was found to be memory whose length is known, and closing it waits for
    /// nobody.
    pub(crate) fn close_now(mut self) {
        self.file = None;
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.closer.close(file);
        }
    }
}

/// Descriptors that may wait while connections are made.
const WAITING_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// What remains if there could be no thread: nothing else would ever start one.
    #[test]
    fn what_waits_without_a_thread_is_closed_when_somebody_looks() {
        let closer = Closer::default();
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        closer.lock().waiting.extend((0..WAITING_MAX).map(|_| file()));
        assert!(closer.is_behind());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while closer.is_behind() {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
    }
}
