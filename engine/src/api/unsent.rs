//! A call that was not sent, with its memory.

use arrayvec::ArrayVec;

use super::sink::Sink;
use crate::error::CallRefused;
use crate::message::bulk::{Bulk, PIECES_MAX};
use crate::message::wanted::WANTS_MAX;

/// A call that was not sent: the reason, and the memory placed in it or given for its results,
/// unchanged. If [`CallRefused::is_transient`] is true, poll, and make the call again with this
/// memory instead of filling new memory.
///
/// Memory that is not taken returns to its pool when this is dropped.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unsent<E = CallRefused> {
    why: E,
    placed: ArrayVec<Bulk, PIECES_MAX>,
    sinks: ArrayVec<Option<Sink>, WANTS_MAX>,
}

impl<E: Copy> Unsent<E> {
    pub(crate) fn new(
        why: E,
        placed: impl Iterator<Item = Bulk>,
        sinks: impl Iterator<Item = Option<Sink>>,
    ) -> Unsent<E> {
        Unsent { why, placed: placed.collect(), sinks: sinks.collect() }
    }

    /// The same with a different reason.
    pub(crate) fn map<F>(self, why: impl FnOnce(E) -> F) -> Unsent<F> {
        Unsent { why: why(self.why), placed: self.placed, sinks: self.sinks }
    }

    /// The reason.
    pub fn why(&self) -> E {
        self.why
    }

    /// The memory placed so far, piece by piece in the order of placing; once.
    pub fn take_placed(&mut self) -> impl ExactSizeIterator<Item = Bulk> + use<E> {
        core::mem::take(&mut self.placed).into_iter()
    }

    /// The result buffer of a want, by the order of requests; once. `None` if it had none.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        self.sinks.get_mut(want)?.take()
    }
}

impl From<Unsent> for CallRefused {
    /// Drops the memory.
    fn from(unsent: Unsent) -> CallRefused {
        unsent.why
    }
}
