//! The desk: the calls of the thread, from the queue to their answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use async_channel::Receiver;
use futures_channel::oneshot;
use rpcrdma_engine::{
    Execution, Provider, Session, SessionCallId, SessionCompletion, SessionRefused,
};

use crate::buffers::Waiting;
use crate::error::{AsyncError, CallFailed};
use crate::response::Response;
use crate::shared::{Job, Outcome, Shared};

/// The calls of the thread. When it is dropped, every call that is not over is answered.
pub(crate) struct Desk {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    /// The session has no room for it yet.
    held: Option<Job>,
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

impl Desk {
    pub fn new(shared: Arc<Shared>, jobs: Receiver<Job>) -> Desk {
        Desk { shared, jobs, held: None, open: HashMap::new(), waiting: Waiting::default() }
    }

    /// Passes calls to the session, as many as it takes, but not for long. True if there were any.
    pub fn submit<P: Provider>(&mut self, session: &mut Session<P>) -> bool {
        for count in 0..JOBS_PER_TURN {
            let Some(job) = self.held.take().or_else(|| self.jobs.try_recv().ok()) else {
                return count > 0;
            };
            self.held = self.hand_over(job, session);
            if self.held.is_some() {
                return count > 0;
            }
        }
        true
    }

    /// Passes a call to the session; returns it if it has to wait.
    fn hand_over<P: Provider>(&mut self, job: Job, session: &mut Session<P>) -> Option<Job> {
        let Job { id, mut request, answer } = job;
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
        let why = match unsent.why() {
            SessionRefused::Full => None,
            SessionRefused::Closed => Some(AsyncError::Closed(Execution::NotExecuted)),
            SessionRefused::Call(why) => Some(AsyncError::Refused(why, Execution::NotExecuted)),
            why => Some(AsyncError::NotAccepted(why)),
        };
        request.call = unsent.into_call().unwrap_or_default();
        let Some(why) = why else { return Some(Job { id, request, answer }) };
        // Nobody may wait for it any more.
        let _ = answer.send(Err(CallFailed::unsent(why, request.call)));
        None
    }

    /// Cancels the calls whose futures were dropped. True if there were any.
    pub fn cancel<P: Provider>(&mut self, session: &mut Session<P>) -> bool {
        let mut is_any = false;
        while let Some(id) = self.shared.cancelled.pop() {
            is_any = true;
            if let Some(open) = self.open.get(&id) {
                session.cancel(open.id);
            }
        }
        is_any
    }

    /// Gives buffers to tasks. True if one was given.
    pub fn lend<P: Provider>(&mut self, session: &mut Session<P>, now: u64) -> bool {
        self.waiting.serve(&self.shared.asked, session, now)
    }

    /// Whether a task waits for a buffer: the pool does not tell when one returns.
    pub fn is_short_of_buffers(&self) -> bool {
        self.waiting.is_any()
    }

    /// Answers a call. Without a future that waits, its memory returns to its pools.
    pub fn complete(&mut self, mut done: SessionCompletion<'_, '_>) {
        let Some(open) = self.open.remove(&done.cookie()) else { return };
        if open.answer.is_canceled() {
            return;
        }
        let outcome = match done.result().map(drop) {
            Ok(()) => Response::of(&mut done, open.wants, open.keeps_loans)
                .ok_or_else(|| CallFailed::without_memory(AsyncError::Closed(Execution::Executed))),
            Err(why) => Err(CallFailed::over(why.into(), &mut done, open.wants)),
        };
        let _ = open.answer.send(outcome);
    }

    /// Calls that the session has.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether the client was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Answers every call: there will be no other answer.
    pub fn end(&mut self) {
        self.shared.close();
        self.waiting.end(&self.shared.asked);
        for (_, open) in self.open.drain() {
            let why = self.shared.end(Execution::Unknown);
            let _ = open.answer.send(Err(CallFailed::without_memory(why)));
        }
        while let Some(job) = self.held.take().or_else(|| self.jobs.try_recv().ok()) {
            let why = self.shared.end(Execution::NotExecuted);
            let _ = job.answer.send(Err(CallFailed::unsent(why, job.request.call)));
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.panicked();
        }
        self.end();
    }
}

/// Calls that are taken from the queue between two polls.
const JOBS_PER_TURN: usize = 64;
