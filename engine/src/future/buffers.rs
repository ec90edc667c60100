//! Registered buffers for tasks: asked for anywhere, taken by the thread.

use std::collections::VecDeque;

use crate::{Loan, Provider, Session};
use crossbeam_queue::SegQueue;
use futures_channel::oneshot;

/// Tasks that have asked for a buffer since the thread looked.
pub(crate) type Asked = SegQueue<oneshot::Sender<Loan>>;

/// Tasks that wait for a buffer, in order.
#[derive(Default)]
pub(crate) struct Waiting(VecDeque<oneshot::Sender<Loan>>);

impl Waiting {
    /// Gives buffers to tasks, as far as there are any. True if one was given.
    pub fn serve<P: Provider>(
        &mut self,
        asked: &Asked,
        session: &mut Session<P>,
        now: u64,
    ) -> bool {
        self.0.extend(std::iter::from_fn(|| asked.pop()));
        if self.0.is_empty() {
            return false;
        }
        self.0.retain(|task| !task.is_canceled());
        let mut has_given = false;
        while !self.0.is_empty() {
            let Some(buffer) = session.turn(now).buffer() else { break };
            let Some(task) = self.0.pop_front() else { break };
            // One that waits no longer returns it.
            let _ = task.send(buffer);
            has_given = true;
        }
        has_given
    }

    /// Whether a task waits.
    pub fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// No task gets a buffer any more.
    pub fn end(&mut self, asked: &Asked) {
        self.0.clear();
        while asked.pop().is_some() {}
    }
}
