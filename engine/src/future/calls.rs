//! The calls of the thread, from the queue to their answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::{
    CallError, Execution, Provider, Session, SessionCallId, SessionCompletion, SessionError,
    SessionRefused,
};
use async_channel::Receiver;
use futures_channel::oneshot;

use super::buffers::Waiting;
use super::error::{AsyncError, CallFailed};
use super::places::Waiter;
use super::queue::Queue;
use super::response::Response;
use super::shared::{Job, Outcome, Shared, State};

/// The calls of the thread. When it is dropped, every call that is not over is answered.
pub(crate) struct Calls {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    /// The session has no room for them yet.
    queue: Queue<Job>,
    /// Tasks that wait for a place in it.
    waiters: Queue<Waiter>,
    open: HashMap<u64, Open>,
    waiting: Waiting,
}

/// A call that the session has.
struct Open {
    answer: oneshot::Sender<Outcome>,
    id: SessionCallId,
    wants: usize,
    keeps_loans: bool,
}

impl Calls {
    pub fn new(shared: Arc<Shared>, jobs: Receiver<Job>) -> Calls {
        let (queue, waiters) = (Queue::new(), Queue::new());
        let (open, waiting) = (HashMap::new(), Waiting::default());
        Calls { shared, jobs, queue, waiters, open, waiting }
    }

    /// Takes the calls that tasks have made, but not for long. True if there were any. Notes the
    /// tasks that wait for a place.
    pub fn take(&mut self) -> bool {
        while let Some(waiter) = self.shared.waiters.pop() {
            self.waiters.push(waiter);
        }
        let mut is_any = false;
        for job in (0..JOBS_PER_TURN).map_while(|_| self.jobs.try_recv().ok()) {
            self.queue.push(job);
            is_any = true;
        }
        is_any
    }

    /// Passes calls to the session, as many as it takes, but not for long. True if there were any.
    pub fn submit<P: Provider>(&mut self, session: &mut Session<P>) -> bool {
        let mut busy = false;
        for _ in 0..JOBS_PER_TURN {
            let Some(job) = self.queue.pop() else { break };
            if let Some(job) = self.hand_over(job, session) {
                self.queue.put_back(job);
                break;
            }
            busy = true;
        }
        busy
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
        let (late, waiters) = (self.queue.take_late(now), self.waiters.take_late(now));
        let (is_any, execution) = (!late.is_empty() || !waiters.is_empty(), Execution::NotExecuted);
        let why = match session.outage() {
            Some(outage) => SessionError::DeadlineExceeded(outage, execution),
            None => SessionError::Call(CallError::DeadlineExceeded(execution)),
        };
        let why = AsyncError::from(why);
        for Job { request, answer, .. } in late {
            // Its future may have been dropped.
            let _ = answer.send(Err(CallFailed::unsent(why, request.call)));
        }
        for waiter in waiters {
            let _ = waiter.place.send(Err(why));
        }
        is_any
    }

    /// How long the thread may sleep for the sake of the calls that wait here.
    pub fn until_due(&self, now: u64) -> Duration {
        let earliest = self.queue.earliest().min(self.waiters.earliest());
        Duration::from_nanos(earliest.saturating_sub(now))
    }

    /// Passes a call to the session; returns it if it has to wait.
    fn hand_over<P: Provider>(&mut self, job: Job, session: &mut Session<P>) -> Option<Job> {
        let Job { id, mut request, answer, place } = job;
        if answer.is_canceled() {
            return None;
        }
        let (wants, keeps_loans) = (request.call.wants(), request.keeps_loans);
        let mut call = session.call(id);
        *call = request.call;
        call.resend(request.resend);
        let unsent = match call.submit() {
            Ok(call) => {
                self.open.insert(id, Open { answer, id: call, wants, keeps_loans });
                return None;
            }
            Err(unsent) => unsent,
        };
        let not = Execution::NotExecuted;
        let why = match unsent.why() {
            SessionRefused::Full => None,
            SessionRefused::Closed => Some(SessionError::Closed(not).into()),
            SessionRefused::Call(why) => Some(SessionError::Refused(why, not).into()),
            SessionRefused::NoConnection(why) => Some(SessionError::NoConnection(why, not).into()),
        };
        request.call = unsent.into_call().unwrap_or_default();
        let Some(why) = why else { return Some(Job { id, request, answer, place }) };
        // Its future may be gone.
        let _ = answer.send(Err(CallFailed::unsent(why, request.call)));
        None
    }

    /// Cancels the calls whose futures were dropped. True if there were any.
    pub fn cancel<P: Provider>(&mut self, session: &mut Session<P>) -> bool {
        let (mut is_any, mut is_any_waiting) = (false, false);
        while let Some(id) = self.shared.cancelled.pop() {
            is_any = true;
            match self.open.get(&id) {
                Some(open) => _ = session.cancel(open.id),
                None => is_any_waiting = true,
            }
        }
        if is_any_waiting {
            self.queue.remove_cancelled();
            self.waiters.remove_cancelled();
        }
        is_any
    }

    /// Gives buffers to tasks. True if one was given.
    pub fn lend<P: Provider>(&mut self, session: &mut Session<P>, now: u64) -> bool {
        self.waiting.serve(&self.shared.asked, session, now)
    }

    /// Whether a task waits for a buffer: the pool does not report when one returns.
    pub fn is_short_of_buffers(&self) -> bool {
        self.waiting.is_any()
    }

    /// Answers a call. Without a future that waits, its memory returns to its pools.
    pub fn complete(&mut self, mut done: SessionCompletion<'_, '_>) {
        let Some(open) = self.open.remove(&done.cookie()) else { return };
        if open.answer.is_canceled() {
            return;
        }
        let outcome = Response::of(&mut done, open.wants, open.keeps_loans);
        let outcome = outcome.map_err(|why| CallFailed::over(why.into(), &mut done, open.wants));
        let _ = open.answer.send(outcome);
    }

    /// Calls that the session has.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Calls that are queued.
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.jobs.len() + self.queue.len()
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
        self.waiting.end(&self.shared.asked);
        // Their futures learn it from the end of their channels.
        while self.waiters.pop().or_else(|| self.shared.waiters.pop()).is_some() {}
        for (_, open) in self.open.drain() {
            let why = self.shared.end(execution(open.id));
            let _ = open.answer.send(Err(CallFailed::without_memory(why)));
        }
        while let Some(job) = self.queue.pop().or_else(|| self.jobs.try_recv().ok()) {
            let why = self.shared.end(Execution::NotExecuted);
            let _ = job.answer.send(Err(CallFailed::unsent(why, job.request.call)));
        }
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

/// Calls that are taken, and calls that are passed on, between two polls.
const JOBS_PER_TURN: usize = 64;
