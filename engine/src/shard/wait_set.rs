//! The wait set: the descriptor that ends the sleep of a shard's thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::error::SetupError;
use crate::provider::{Queues, Waker, readable};

/// What the thread of a shard waits for: one descriptor for the waker of its mailbox and the bells of
/// its queues.
#[derive(Debug)]
pub(crate) struct WaitSet(OwnedFd);

impl WaitSet {
    pub(crate) fn new(waker: &Waker, queues: &impl Queues) -> Result<WaitSet, SetupError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|error| SetupError::System {
            call: "epoll_create1",
            source: error.into(),
            hint: "check the limit of open files (ulimit -n)",
        })?;
        for fd in queues.bells().into_iter().flatten().chain([waker.as_fd()]) {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN)
                .map_err(SetupError::unwatched)?;
        }
        Ok(WaitSet(epoll))
    }

    /// Sleeps until it is readable, at most `timeout`.
    pub(crate) fn sleep(&self, timeout: Duration) -> io::Result<()> {
        readable([self.0.as_raw_fd()], timeout).map(drop)
    }
}

impl AsFd for WaitSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
