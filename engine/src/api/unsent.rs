//! A call that was not sent.

use crate::error::CallRefused;
use crate::message::bulk::Bulk;
use crate::message::owned_call::OwnedCall;
use crate::message::sink::Sink;

/// A call that was not sent: the reason, and the call with the memory placed in it or given for its
/// results, unchanged. If [`CallRefused::is_transient`] is true, poll, and submit it again
/// ([`Client::submit`](crate::Client::submit)).
///
/// Memory that is not taken returns to its pool when this is dropped.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unsent<E = CallRefused> {
    why: E,
    call: OwnedCall,
    is_whole: bool,
}

impl<E: Copy> Unsent<E> {
    /// A call of which all was written, or of which only the memory is of use.
    pub(crate) fn new(why: E, call: OwnedCall, is_whole: bool) -> Unsent<E> {
        Unsent { why, call, is_whole }
    }

    /// The same with a different reason.
    pub(crate) fn map<F>(self, why: impl FnOnce(E) -> F) -> Unsent<F> {
        Unsent { why: why(self.why), call: self.call, is_whole: self.is_whole }
    }

    /// The reason.
    pub fn why(&self) -> E {
        self.why
    }

    /// The call, to be submitted again. Of one that was written into a
    /// [`CallBuilder`](crate::CallBuilder), xid
    /// ([`Turn::submit_with_xid`](crate::Turn::submit_with_xid)) and deadline are to be set again.
    ///
    /// `None` if it was refused while it was written, because it did not fit the send slots that
    /// were free: write it again, after taking its memory.
    pub fn into_call(self) -> Option<OwnedCall> {
        self.is_whole.then_some(self.call)
    }

    /// The memory placed so far, piece by piece in the order of placing; once.
    pub fn take_placed(&mut self) -> impl ExactSizeIterator<Item = Bulk> + use<E> {
        self.call.take_placed()
    }

    /// The result buffer of a want, by the order of requests; once. `None` if it had none.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        self.call.take_sink(want)
    }
}

impl From<Unsent> for CallRefused {
    /// Drops the call.
    fn from(unsent: Unsent) -> CallRefused {
        unsent.why
    }
}
