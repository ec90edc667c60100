//! What a session does between polls without work.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::api::Session;
use crate::provider::{Armed, Provider};

impl<P: Provider> Session<P> {
    /// As [`Client::arm`](crate::Client::arm): for a thread that sleeps in an event loop of its own.
    pub fn arm(&mut self, now: u64) -> Armed {
        let left = self.until_due(now);
        if left.is_zero() {
            return Armed::Ready;
        }
        match self.client.arm(now) {
            Armed::Ready => Armed::Ready,
            Armed::AtMost(most) => Armed::AtMost(most.min(left)),
        }
    }

    /// As [`Client::idle`](crate::Client::idle): waits, or not, after a poll that was `busy` or
    /// not, as the configured idle policy says; at most `timeout`. True if the thread has yielded
    /// its core.
    #[inline]
    pub fn idle(&mut self, busy: bool, now: u64, timeout: Duration) -> bool {
        let left = self.until_due(now).min(timeout);
        !left.is_zero() && self.client.idle(busy, now, left)
    }

    #[inline]
    pub(super) fn until_due(&self, now: u64) -> Duration {
        Duration::from_nanos(self.state.idle_until.saturating_sub(now))
    }
}

/// As that of [`Client`](crate::Client).
impl<P: Provider> AsFd for Session<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}
