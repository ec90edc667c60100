//! Why a call has no reply.

use crate::{Bulk, Execution, OwnedCall, SessionCompletion, SessionError, Sink};

/// Why a call has no reply. [`AsyncError::execution`] states what is known about its execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AsyncError {
    /// As without a future. It is [`SessionError::Closed`] if the client was closed, or its shard
    /// has ended.
    #[error(transparent)]
    Session(SessionError),
    /// The thread of the client has panicked. No call is answered any more.
    #[error("the thread of the client has panicked; {0}")]
    Panicked(Execution),
}

impl AsyncError {
    /// What is known about the execution of the call.
    pub fn execution(&self) -> Execution {
        match self {
            AsyncError::Session(error) => error.execution(),
            AsyncError::Panicked(execution) => *execution,
        }
    }
}

impl From<SessionError> for AsyncError {
    fn from(error: SessionError) -> AsyncError {
        AsyncError::Session(error)
    }
}

/// A call without a reply: the reason, and the memory of the call that has come back. What is not
/// taken returns to its pool when this is dropped.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct CallFailed {
    why: AsyncError,
    sinks: Vec<Option<Sink>>,
    placed: Vec<Bulk>,
}

impl CallFailed {
    /// A call of which nothing has come back.
    pub(crate) fn without_memory(why: AsyncError) -> CallFailed {
        CallFailed { why, sinks: Vec::new(), placed: Vec::new() }
    }

    /// A call that was not sent.
    pub(crate) fn unsent(why: AsyncError, mut call: OwnedCall) -> CallFailed {
        let sinks = (0..call.wants()).map(|want| call.take_sink(want)).collect();
        CallFailed { why, sinks, placed: call.take_placed().collect() }
    }

    /// A call with so many wants that is over.
    pub(crate) fn over(
        why: AsyncError,
        done: &mut SessionCompletion<'_, '_>,
        wants: usize,
    ) -> CallFailed {
        let sinks = (0..wants).map(|want| done.take_sink(want)).collect();
        CallFailed { why, sinks, placed: done.take_placed().collect() }
    }

    /// The reason.
    pub fn why(&self) -> AsyncError {
        self.why
    }

    /// The result buffer of a want, by the order of requests; once. `None` if it had none, or if it
    /// has not come back.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        self.sinks.get_mut(want)?.take()
    }

    /// The memory placed in a call that was not sent, piece by piece; once.
    pub fn take_placed(&mut self) -> impl ExactSizeIterator<Item = Bulk> + use<> {
        std::mem::take(&mut self.placed).into_iter()
    }
}
