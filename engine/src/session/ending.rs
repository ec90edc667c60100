//! Calls of a session that end without their shard: they waited, or no shard has them any more.

use super::outcome::{SessionCompletion, SessionError};
use super::state::{Done, SessionState};
use crate::error::{CallError, Execution};

impl SessionState {
    /// Completes the calls that wait for longer than their deadlines allow, or were cancelled.
    pub(super) fn end_late(&mut self, now: u64, done: Done<'_>) -> bool {
        let mut busy = false;
        while let Some(index) = self.calls.next_late(now) {
            self.calls.leave(index);
            let outage = self.outage.filter(|_| self.lines.up() == 0);
            let record = self.calls.at(index);
            let execution = record.execution();
            let error = match (record.is_cancelled, outage) {
                (true, _) => SessionError::Call(CallError::Cancelled(execution)),
                (false, Some(outage)) => SessionError::DeadlineExceeded(outage, execution),
                (false, None) => SessionError::Call(CallError::DeadlineExceeded(execution)),
            };
            self.fail(index, error, done);
            busy = true;
        }
        busy
    }

    /// Completes all calls that wait: the session is closed, or has no address left.
    pub(super) fn end_waiting(&mut self, done: Done<'_>) -> bool {
        let mut busy = false;
        while let Some(index) = self.calls.first() {
            self.calls.leave(index);
            let execution = self.calls.at(index).execution();
            let error = self.ended(index, execution);
            self.fail(index, error, done);
            busy = true;
        }
        busy
    }

    /// Completes all calls that are under way: the shard completes none any more. What they have
    /// exposed is lost.
    pub(super) fn end_sent(&mut self, done: Done<'_>) -> bool {
        let sent: Vec<u32> = self.calls.all_sent().collect();
        for index in &sent {
            let execution = self.calls.at(*index).execution();
            let error = self.ended(*index, execution);
            self.fail(*index, error, done);
        }
        !sent.is_empty()
    }

    /// Why a call ends that the program, or the end of the session, does not let go on.
    pub(super) fn ended(&mut self, index: u32, execution: Execution) -> SessionError {
        match (self.calls.at(index).is_cancelled, self.is_over()) {
            (true, _) => SessionError::Call(CallError::Cancelled(execution)),
            (false, Some(why)) if !self.is_closed => SessionError::NoConnection(why, execution),
            (false, _) => SessionError::Closed(execution),
        }
    }

    /// Completes a call with what it holds.
    pub(super) fn fail(&mut self, index: u32, error: SessionError, done: Done<'_>) {
        let record = self.calls.at(index);
        let (cookie, mut call) = (record.cookie, core::mem::take(&mut record.call));
        // It is over, even if the program panics.
        self.calls.end(index);
        done(SessionCompletion::waiting(cookie, error, &mut call));
    }
}
