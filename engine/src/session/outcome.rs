//! What a call of a session became.

use super::outage::Outage;
use crate::api::completion::Completion;
use crate::error::{CallError, CallRefused, Execution};
use crate::message::bulk::Bulk;
use crate::message::incoming::Incoming;
use crate::message::owned_call::OwnedCall;
use crate::message::sink::Sink;
use crate::provider::ConnectError;

/// Why a call of a session has no reply. [`SessionError::execution`] states what is known about its
/// execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// As without a session. A loss of the connection ends only calls with
    /// [`Resend::Never`](super::Resend::Never), and those whose memory did not come back.
    #[error(transparent)]
    Call(CallError),
    /// The call was accepted, had to wait, and then could not be sent: on the next connection the
    /// limits are others, or it breaks a rule.
    #[error("{0}; {1}")]
    Refused(CallRefused, Execution),
    /// The deadline of the call passed while it waited and there was no connection, for this
    /// reason.
    #[error("the call exceeded its deadline without a connection: {0}; {1}")]
    DeadlineExceeded(Outage, Execution),
    /// There is no connection and there will be none: all addresses are given up, the last one for
    /// this reason.
    #[error("no address of the session can be connected to: {0}; {1}")]
    NoConnection(ConnectError, Execution),
    /// The session was closed.
    #[error("the session was closed; {0}")]
    Closed(Execution),
}

impl SessionError {
    /// What is known about the execution of the call.
    pub fn execution(&self) -> Execution {
        match self {
            SessionError::Call(error) => error.execution(),
            SessionError::Refused(_, execution)
            | SessionError::DeadlineExceeded(_, execution)
            | SessionError::NoConnection(_, execution)
            | SessionError::Closed(execution) => *execution,
        }
    }
}

/// A call of a session is over: its reply, or why there is none.
#[derive(Debug)]
pub struct SessionCompletion<'c, 'a> {
    cookie: u64,
    end: End<'c, 'a>,
}

#[derive(Debug)]
enum End<'c, 'a> {
    /// It was under way.
    Completed(&'c mut Completion<'a>),
    /// It was under way, and ends for another reason than its completion states.
    Replaced(SessionError, &'c mut Completion<'a>),
    /// It waited.
    Waiting(SessionError, &'c mut OwnedCall),
}

impl<'c, 'a> SessionCompletion<'c, 'a> {
    #[inline]
    pub(super) fn completed(cookie: u64, done: &'c mut Completion<'a>) -> Self {
        SessionCompletion { cookie, end: End::Completed(done) }
    }

    pub(super) fn replaced(cookie: u64, error: SessionError, done: &'c mut Completion<'a>) -> Self {
        SessionCompletion { cookie, end: End::Replaced(error, done) }
    }

    pub(super) fn waiting(cookie: u64, error: SessionError, call: &'c mut OwnedCall) -> Self {
        SessionCompletion { cookie, end: End::Waiting(error, call) }
    }

    /// The value that the program attached to the call.
    #[inline]
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The reply.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn result(&self) -> Result<&Incoming<'a>, SessionError> {
        match &self.end {
            End::Completed(done) => done.result().map_err(SessionError::Call),
            End::Replaced(error, _) | End::Waiting(error, _) => Err(*error),
        }
    }

    /// The reply, mutable, to take segments out of it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn result_mut(&mut self) -> Result<&mut Incoming<'a>, SessionError> {
        match &mut self.end {
            End::Completed(done) => done.result_mut().map_err(SessionError::Call),
            End::Replaced(error, _) | End::Waiting(error, _) => Err(*error),
        }
    }

    /// Returns the result buffer of a want, by the order of requests; once. See
    /// [`Completion::take_sink`].
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        match &mut self.end {
            End::Completed(done) | End::Replaced(_, done) => done.take_sink(want),
            End::Waiting(_, call) => call.take_sink(want),
        }
    }

    /// The memory placed in a call that ended while it waited, piece by piece; once. That of a call
    /// that was under way has returned to its pools, or does when this is dropped.
    pub fn take_placed(&mut self) -> impl ExactSizeIterator<Item = Bulk> + use<> {
        match &mut self.end {
            End::Waiting(_, call) => call.take_placed(),
            End::Completed(_) | End::Replaced(..) => OwnedCall::new().take_placed(),
        }
    }
}
