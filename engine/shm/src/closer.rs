//! The closer: threads that close what peers have sent unasked.
//!
//! Closing a descriptor can wait for others: for the other end of a TCP socket (SO_LINGER),
//! for the server of a file system. A peer chooses what it sends. A thread of this provider closes
//! what came from one user, and no other thread does: no user waits for what another has sent. It
//! ends when it has nothing to close.
//!
//! What waits is bounded by what brings it: a connection whose peer sends such a thing ends, and
//! leaves its socket and few descriptors. While many of a user's wait, its callers are rejected.
//! That cannot be done without end, as they may leave more: while very many wait, no caller is
//! taken.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The threads and their queues, which clones share, and whose descriptors this one closes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closer {
    /// By user. One that has nothing to close and no thread is not there.
    queues: Arc<Mutex<HashMap<u32, Queue>>>,
    user: u32,
}

/// What is to be closed for a user.
#[derive(Debug, Default)]
struct Queue {
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
        let mut queues = self.lock();
        let queue = queues.entry(self.user).or_default();
        queue.waiting.push(file);
        self.begin(queue);
    }

    /// That of a user.
    pub(crate) fn of(&self, user: u32) -> Closer {
        Closer { user, ..self.clone() }
    }

    /// Starts the thread if there is none. If there can be none now, the next look tries again.
    fn begin(&self, queue: &mut Queue) {
        if !queue.is_busy {
            let closer = self.clone();
            let thread = std::thread::Builder::new().name("rpcrdma-close".to_owned());
            queue.is_busy = thread.spawn(move || closer.run()).is_ok();
        }
    }

    /// Whether so many descriptors of the user wait that it must have no new connection.
    pub(crate) fn is_behind(&self) -> bool {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(&self.user) else { return false };
        let is_behind = queue.waiting.len() >= WAITING_MAX;
        if is_behind {
            // No connection is made, so none ends and starts it.
            self.begin(queue);
        }
        is_behind
    }

    /// Whether so many descriptors of all users wait, each of which may have a thread, that there
    /// must be no new connection at all.
    pub(crate) fn is_full(&self) -> bool {
        let mut queues = self.lock();
        let count = |queue: &Queue| queue.waiting.len() + usize::from(queue.is_busy);
        let is_full = queues.values().map(count).sum::<usize>() >= ALL_MAX;
        if is_full {
            queues.iter_mut().for_each(|(user, queue)| self.of(*user).begin(queue));
        }
        is_full
    }

    fn run(&self) {
        loop {
            let mut queues = self.lock();
            let Some(file) = queues.get_mut(&self.user).and_then(|queue| queue.waiting.pop())
            else {
                queues.remove(&self.user);
                return;
            };
            drop(queues);
            drop(file);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Foreign {
    pub(crate) fn new(file: OwnedFd, closer: &Closer) -> Foreign {
        Foreign { file: Some(file), closer: closer.clone() }
    }

    /// Closes it at once: it was found to be memory whose length is known, and closing it waits for
    /// nothing.
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

/// Descriptors of a user that may wait while it has new connections.
const WAITING_MAX: usize = 64;
/// Descriptors of all users that may wait, or be under way, while callers are taken.
const ALL_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// What remains if there could be no thread: nothing else would ever start one.
    #[test]
    fn what_waits_without_a_thread_is_closed_by_the_next_look() {
        let closer = Closer::default();
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let waiting = (0..WAITING_MAX).map(|_| file()).collect();
        closer.lock().insert(closer.user, Queue { waiting, is_busy: false });
        assert!(closer.is_behind());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while closer.is_behind() {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
    }

    /// The closing of a user's descriptors takes for ever, as far as this test sees.
    #[test]
    fn who_is_behind_is_alone_until_very_many_wait() {
        let closer = Closer::default();
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let stuck = |user, count| {
            let waiting = (0..count).map(|_| file()).collect();
            closer.lock().insert(user, Queue { waiting, is_busy: true });
        };
        stuck(1, WAITING_MAX - 1);
        assert!(!closer.of(1).is_behind());
        stuck(1, WAITING_MAX);
        assert!(closer.of(1).is_behind() && !closer.of(2).is_behind() && !closer.is_full());
        // What another user sends is closed meanwhile.
        closer.of(2).close(file());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while closer.lock().contains_key(&2) {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
        // One more of each is being closed.
        stuck(3, ALL_MAX - WAITING_MAX - 3);
        assert!(!closer.is_full());
        stuck(3, ALL_MAX - WAITING_MAX - 2);
        assert!(closer.is_full());
    }
}
