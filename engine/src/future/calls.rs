//! The thread's end of what tasks ask for: calls, places for them, and buffers.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::{Execution, Provider, Session, SessionCallId, SessionCompletion};
use async_channel::Receiver;

use super::awaited::{Awaited, JOBS_PER_TURN, Job, late};
use super::buffers::Waiting;
use super::places::Waiter;
use super::queue::Queue;
use super::shared::{AnyThread, Shared, State};

/// The calls of the thread. When it is dropped, every call that is not over is answered.
pub(crate) struct Calls {
    shared: Arc<Shared>,
    jobs: Receiver<Job<AnyThread>>,
    awaited: Awaited<AnyThread>,
    /// Tasks that wait for a place in the queue.
    waiters: Queue<Waiter>,
    waiting: Waiting,
}

impl Calls {
    pub fn new(shared: Arc<Shared>, jobs: Receiver<Job<AnyThread>>) -> Calls {
        let (awaited, waiters, waiting) = (Awaited::new(), Queue::new(), Waiting::default());
        Calls { shared, jobs, awaited, waiters, waiting }
    }

    /// Takes the calls that tasks have made, but not for long. True if there were any. Notes the
    /// tasks that wait for a place.
    pub fn take(&mut self) -> bool {
        while let Some(waiter) = self.shared.waiters.pop() {
            self.waiters.push(waiter);
        }
        let mut is_any = false;
        for job in (0..JOBS_PER_TURN).map_while(|_| self.jobs.try_recv().ok()) {
            self.awaited.push(job);
            is_any = true;
        }
        is_any
    }

    /// Passes calls to the session, as many as it takes, but not for long. True if there were any.
    pub fn submit<P: Provider>(&mut self, session: &mut Session<P>) -> bool {
        self.awaited.submit(session)
    }

    /// Gives the places that are free to the tasks that wait for one.
    pub fn give_places(&mut self) {
        while let Some(waiter) = self.waiters.pop() {
            let Some(place) = self.shared.places.take() else {
                self.waiters.put_back(waiter);
                break;
            };
            // If its future was dropped, the place is free again.
            let _ = waiter.place.send(Ok(place));
        }
    }

    /// Ends the calls that have waited for longer than their deadlines allow. True if there were
    /// any.
    pub fn end_late<P: Provider>(&mut self, session: &Session<P>, now: u64) -> bool {
        let is_any = self.awaited.end_late(now, || late(session));
        let waiters = self.waiters.take_late(now);
        let is_any = is_any || !waiters.is_empty();
        for waiter in waiters {
            // Its future may have been dropped.
            let _ = waiter.place.send(Err(late(session)));
        }
        is_any
    }

    /// How long the thread may sleep for the sake of the calls that wait here.
    pub fn until_due(&self, now: u64) -> Duration {
        let earliest = self.awaited.earliest().min(self.waiters.earliest());
        Duration::from_nanos(earliest.saturating_sub(now))
    }

    /// Cancels the calls whose futures were dropped. True if there were any.
    pub fn cancel<P: Provider>(&mut self, session: &mut Session<P>) -> bool {
        let dropped = std::iter::from_fn(|| self.shared.cancelled.pop());
        let found = self.awaited.cancel(dropped, session);
        if found.is_any_waiting {
            self.waiters.remove_cancelled();
        }
        found.is_any
    }

    /// Gives buffers to tasks. True if one was given.
    pub fn lend<P: Provider>(&mut self, session: &mut Session<P>, now: u64) -> bool {
        self.waiting.extend(std::iter::from_fn(|| self.shared.asked.pop()));
        let mut has_given = false;
        while let Some((task, buffer)) = self.waiting.next(session, now) {
            // One that waits no longer returns it.
            let _ = task.send(buffer);
            has_given = true;
        }
        has_given
    }

    /// Whether a task waits for a buffer: the pool does not report when one returns.
    pub fn is_short_of_buffers(&self) -> bool {
        self.waiting.is_any()
    }

    /// A call of the session is over.
    pub fn complete(&mut self, done: SessionCompletion<'_, '_>) {
        self.awaited.complete(done);
    }

    /// Calls that the session has.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.awaited.open()
    }

    /// Calls that are queued.
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.jobs.len() + self.awaited.queued()
    }

    /// Tasks that wait for a place.
    #[cfg(test)]
    pub fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// Sets what is known of the connections.
    pub fn set_state(&self, state: State) {
        self.shared.set_state(state);
    }

    /// Whether the client was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Answers every call: there will be no other answer. `execution` is what is known of a call
    /// that the session has.
    pub fn end(&mut self, execution: impl Fn(SessionCallId) -> Execution) {
        self.shared.close();
        self.waiting.end();
        while self.shared.asked.pop().is_some() {}
        // Their futures learn it from the end of their channels.
        while self.waiters.pop().or_else(|| self.shared.waiters.pop()).is_some() {}
        while let Ok(job) = self.jobs.try_recv() {
            self.awaited.push(job);
        }
        self.awaited.end(execution, |execution| self.shared.end(execution));
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.panicked();
            self.set_state(State::default());
        }
        self.end(|_| Execution::Unknown);
    }
}
