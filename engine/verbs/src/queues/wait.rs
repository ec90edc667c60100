//! Sleeping: until the completion channel or the port's bell is rung, or a queue pair is to be
//! destroyed.
//!
//! The queue is armed for its next completion, and polled once more after that: a completion in
//! between causes no notification.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rpcrdma_provider::{Armed, Bells, CqError, WC_BATCH};

use super::VerbsQueues;
use crate::port::Pending;
use crate::wc;

impl VerbsQueues {
    /// The completion channel and the port's bell.
    pub(super) fn both_bells(&self) -> Bells<'_> {
        // SAFETY: the channel is alive for as long as the port, and is never written to.
        let fd = unsafe { (*self.port.channel).fd };
        // SAFETY: the port owns the channel's descriptor, and outlives what is returned.
        let channel = unsafe { BorrowedFd::borrow_raw(fd) };
        [Some(channel), Some(self.port.bell.as_fd())]
    }

    /// Has the next completion ring the channel, unless there is work.
    pub(super) fn announce_sleep(&mut self) -> Result<Armed, CqError> {
        if self.has_work() {
            return Ok(Armed::Ready);
        }
        // SAFETY: the queue is alive and this thread is the only one that uses it.
        let code = unsafe { (self.ops.req_notify_cq)(self.cq, 0) };
        if code != 0 {
            return Err(CqError::Device(code.saturating_abs()));
        }
        let count = self.poll_device(WC_BATCH)?;
        let found = self.polled[..count].iter().map(|wc| wc::completion(wc, self.invalidated));
        self.ready.extend(found);
        if self.has_work() {
            return Ok(Armed::Ready);
        }
        Ok(Armed::AtMost(self.until_next_end().unwrap_or(Duration::MAX)))
    }

    /// Reads what has rung.
    pub(super) fn silence(&mut self) -> Result<(), CqError> {
        self.port.bell.drain();
        self.take_note()
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.port.pending().intersects(Pending::BURIED | Pending::EVENTS)
    }

    /// Takes a notification from the channel, if there is one, and acknowledges it; the queue cannot
    /// be destroyed before. Each arming causes one notification; an old one ends the next sleep.
    fn take_note(&mut self) -> Result<(), CqError> {
        let lib = self.port.device.lib;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive and does not block; both places are written to on success.
        let code =
            unsafe { (lib.ibv_get_cq_event)(self.port.channel, &raw mut cq, &raw mut context) };
        if code == 0 {
            // SAFETY: one event of the only queue of the channel was taken.
            unsafe { (lib.ibv_ack_cq_events)(self.cq, 1) };
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(failed(error)),
        }
    }
}

fn failed(error: io::Error) -> CqError {
    CqError::Device(error.raw_os_error().unwrap_or(0))
}
