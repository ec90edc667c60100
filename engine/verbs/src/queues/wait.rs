//! Sleeping: until the completion channel, the waker or the port's bell is rung, or a queue pair is
//! to be destroyed.
//!
//! The queue is armed for its next completion, and polled once more after that: a completion in
//! between causes no notification.
#![expect(unsafe_code, reason = "libibverbs is called")]

use std::io;
use std::ptr;
use std::time::Duration;

use rpcrdma_provider::{CqError, WC_BATCH, Waker};

use super::VerbsQueues;
use crate::fd::readable;
use crate::port::Chores;
use crate::wc;

impl VerbsQueues {
    /// Sleeps until there is work.
    pub(super) fn sleep(&mut self, waker: &Waker, timeout: Duration) -> Result<(), CqError> {
        if self.has_work() {
            return Ok(());
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
            return Ok(());
        }
        let timeout = self.until_next_end().map_or(timeout, |left| left.min(timeout));
        let (is_told, is_rung) = self.await_ring(waker, timeout).map_err(failed)?;
        if is_rung {
            self.port.bell.drain();
        }
        if is_told { self.take_note() } else { Ok(()) }
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.port.chores().intersects(Chores::BURIED | Chores::EVENTS)
    }

    /// Whether the completion channel and the port's bell have signalled.
    fn await_ring(&self, waker: &Waker, timeout: Duration) -> io::Result<(bool, bool)> {
        // SAFETY: the channel is alive.
        let channel = unsafe { (*self.port.channel).fd };
        let fds = [channel, waker.fd(), self.port.bell.fd()];
        readable(fds, timeout).map(|[is_told, _, is_rung]| (is_told, is_rung))
    }

    /// Takes a notification from the channel and acknowledges it; the queue cannot be destroyed
    /// before. Each arming causes one notification; an old one ends the next sleep.
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
