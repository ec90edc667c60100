//! Registered buffers for tasks: asked for anywhere, taken by the thread that polls.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Loan, Provider, Session};
use crossbeam_queue::SegQueue;
use futures_channel::oneshot;

/// Tasks that have asked for a buffer since the thread looked.
pub(crate) type Asked = SegQueue<oneshot::Sender<Loan>>;

/// Tasks that wait for a buffer, in order.
#[derive(Default)]
pub(crate) struct Waiting(VecDeque<oneshot::Sender<Loan>>);

impl Waiting {
    /// Further tasks wait.
    pub fn extend(&mut self, tasks: impl IntoIterator<Item = oneshot::Sender<Loan>>) {
        self.0.extend(tasks);
    }

    /// The next task that waits, and a buffer for it, if there is one.
    pub fn next<P: Provider>(
        &mut self,
        session: &mut Session<P>,
        now: u64,
    ) -> Option<(oneshot::Sender<Loan>, Loan)> {
        while self.0.front()?.is_canceled() {
            self.0.pop_front();
        }
        let Some(buffer) = session.turn(now).buffer() else {
            self.0.retain(|task| !task.is_canceled());
            return None;
        };
        Some((self.0.pop_front()?, buffer))
    }

    /// Whether a task waits.
    pub fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// No task gets a buffer any more.
    pub fn end(&mut self) {
        self.0.clear();
    }
}

/// How often a thread that has nothing else to do looks for buffers that tasks wait for.
pub(crate) const BUFFER_WAIT: Duration = Duration::from_millis(1);
