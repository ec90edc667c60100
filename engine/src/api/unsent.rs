//! A call that was not sent, with its memory.

use arrayvec::ArrayVec;

use super::sink::Sink;
use crate::error::CallRefused;
use crate::message::bulk::{Bulk, PIECES_MAX};
use crate::message::wanted::WANTS_MAX;

/// A call that was not sent: why, and the memory that was placed in it or stated for its results, as
/// it was given. So what was filled is not filled again: where
/// [`CallRefused::is_transient`] says so, poll, and make the call once more with it.
///
/// What is not taken goes home when this is dropped.
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

    /// The same for another reason.
    pub(crate) fn map<F>(self, why: impl FnOnce(E) -> F) -> Unsent<F> {
        Unsent { why: why(self.why), placed: self.placed, sinks: self.sinks }
    }

    /// What was in the way.
    pub fn why(&self) -> E {
        self.why
    }

    /// The memory that was placed, piece by piece in the order of placing, as far as it had come to
    /// that; once.
    pub fn take_placed(&mut self) -> impl ExactSizeIterator<Item = Bulk> + use<E> {
        core::mem::take(&mut self.placed).into_iter()
    }

    /// The sink of a want, in the order in which they were stated; once. `None` if it had none.
    pub fn take_sink(&mut self, want: usize) -> Option<Sink> {
        self.sinks.get_mut(want)?.take()
    }
}

impl From<Unsent> for CallRefused {
    /// Lets the memory go.
    fn from(unsent: Unsent) -> CallRefused {
        unsent.why
    }
}
