//! The calls that tasks wait for: in front of the session, in the session, and over.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::task::Waker;

use crate::{
    CallError, Execution, Provider, Session, SessionCallId, SessionCompletion, SessionError,
    SessionRefused, SessionUnsent,
};

use super::error::{AsyncError, CallFailed};
use super::queue::{Entry, Queue};
use super::request::Request;
use super::response::Response;

/// What becomes of a call.
pub(crate) type Outcome = Result<Response, CallFailed>;

/// The way of an outcome to the task that waits for it.
pub(crate) trait Answer {
    /// What its call has as long as it is queued.
    type Place;

    /// Whether no task waits.
    fn is_canceled(&self) -> bool;

    /// Passes it on. Returns what wakes the task, if that is left to the caller.
    fn give(self, outcome: Outcome) -> Option<Waker>;
}

/// A call on its way to the session.
pub(crate) struct Job<A: Answer> {
    pub id: u64,
    pub request: Request,
    pub answer: A,
    pub place: A::Place,
}

/// The calls that tasks wait for.
pub(crate) struct Awaited<A: Answer> {
    /// The session has no room for them yet.
    queue: Queue<Job<A>>,
    open: HashMap<u64, Open<A>, BuildHasherDefault<Spread>>,
    /// Tasks whose calls are over, to be woken.
    woken: Vec<Waker>,
}

/// A call that the session has.
struct Open<A> {
    answer: A,
    id: SessionCallId,
    wants: usize,
    keeps_loans: bool,
}

/// What was found to cancel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cancelled {
    pub is_any: bool,
    /// One that the session does not have.
    pub is_any_waiting: bool,
}

impl<A: Answer> Entry for Job<A> {
    fn until(&self) -> u64 {
        self.request.until()
    }

    fn is_cancelled(&self) -> bool {
        self.answer.is_canceled()
    }
}

impl<A: Answer> Awaited<A> {
    pub fn new() -> Awaited<A> {
        Awaited { queue: Queue::new(), open: HashMap::default(), woken: Vec::new() }
    }

    /// Adds a call behind all others.
    pub fn push(&mut self, job: Job<A>) {
        self.queue.push(job);
    }

    /// Makes a call of a task that has asked at `now`, unless others wait, or it is late. What has to
    /// wait is moved to the queue.
    pub fn begin<P: Provider>(
        &mut self,
        request: &mut Request,
        (id, answer, place): (u64, A, A::Place),
        session: &mut Session<P>,
        now: u64,
    ) {
        let may_begin = self.queue.is_empty() && now < request.until();
        let waits =
            if may_begin { self.hand_over(id, request, answer, session) } else { Some(answer) };
        if let Some(answer) = waits {
            let request = std::mem::take(request);
            self.queue.push(Job { id, request, answer, place });
        }
    }

    /// Passes calls to the session, as many as it takes, but not for long. True if there were any.
    pub fn submit<P: Provider>(&mut self, session: &mut Session<P>) -> bool {
        let mut busy = false;
        for _ in 0..JOBS_PER_TURN {
            let Some(job) = self.queue.pop() else { break };
            let Job { id, mut request, answer, place } = job;
            if let Some(answer) = self.hand_over(id, &mut request, answer, session) {
                self.queue.put_back(Job { id, request, answer, place });
                break;
            }
            busy = true;
        }
        busy
    }

    /// Passes a call to the session. If it has to wait, the request is as before, and the answer is
    /// returned.
    fn hand_over<P: Provider>(
        &mut self,
        id: u64,
        request: &mut Request,
        answer: A,
        session: &mut Session<P>,
    ) -> Option<A> {
        if answer.is_canceled() {
            return None;
        }
        let (wants, keeps_loans) = (request.call.wants(), request.keeps_loans);
        let mut call = session.call(id);
        std::mem::swap(&mut *call, &mut request.call);
        call.resend(request.resend);
        match call.submit() {
            Ok(call) => {
                self.open.insert(id, Open { answer, id: call, wants, keeps_loans });
                None
            }
            Err(unsent) => self.refused(request, answer, unsent),
        }
    }

    /// A call was refused: it has to wait, or is over.
    #[cold]
    fn refused(&mut self, request: &mut Request, answer: A, unsent: SessionUnsent) -> Option<A> {
        let not = Execution::NotExecuted;
        let why = match unsent.why() {
            SessionRefused::Full => None,
            SessionRefused::Closed => Some(SessionError::Closed(not).into()),
            SessionRefused::Call(why) => Some(SessionError::Refused(why, not).into()),
            SessionRefused::NoConnection(why) => Some(SessionError::NoConnection(why, not).into()),
        };
        request.call = unsent.into_call().unwrap_or_default();
        let Some(why) = why else { return Some(answer) };
        let call = std::mem::take(&mut request.call);
        self.give(answer, Err(CallFailed::unsent(why, call)));
        None
    }

    /// Ends the calls that have waited for longer than their deadlines allow. True if there were
    /// any.
    pub fn end_late(&mut self, now: u64, why: impl Fn() -> AsyncError) -> bool {
        let late = self.queue.take_late(now);
        let is_any = !late.is_empty();
        for Job { request, answer, .. } in late {
            self.give(answer, Err(CallFailed::unsent(why(), request.call)));
        }
        is_any
    }

    /// When [`Awaited::end_late`] is to be asked again.
    pub fn earliest(&self) -> u64 {
        self.queue.earliest()
    }

    /// Cancels calls whose futures were dropped.
    pub fn cancel<P: Provider>(
        &mut self,
        ids: impl IntoIterator<Item = u64>,
        session: &mut Session<P>,
    ) -> Cancelled {
        let mut found = Cancelled::default();
        for id in ids {
            found.is_any = true;
            match self.open.get(&id) {
                Some(open) => _ = session.cancel(open.id),
                None => found.is_any_waiting = true,
            }
        }
        if found.is_any_waiting {
            self.queue.remove_cancelled();
        }
        found
    }

    /// A call of the session is over. Without a future that waits, its memory returns to its pools.
    pub fn complete(&mut self, mut done: SessionCompletion<'_, '_>) {
        let Some(open) = self.open.remove(&done.cookie()) else { return };
        if open.answer.is_canceled() {
            return;
        }
        let outcome = match Response::of(&mut done, open.wants, open.keeps_loans) {
            Ok(response) => Ok(response),
            Err(why) => Err(CallFailed::over(why.into(), &mut done, open.wants)),
        };
        self.give(open.answer, outcome);
    }

    /// Passes on an outcome.
    fn give(&mut self, answer: A, outcome: Outcome) {
        self.woken.extend(answer.give(outcome));
    }

    /// Tasks whose calls are over, to be woken.
    pub fn woken(&mut self) -> &mut Vec<Waker> {
        &mut self.woken
    }

    /// Ends every call: the session answers none any more. `execution` is what is known of a call
    /// that it has.
    pub fn end(
        &mut self,
        execution: impl Fn(SessionCallId) -> Execution,
        why: impl Fn(Execution) -> AsyncError,
    ) {
        for (_, open) in std::mem::take(&mut self.open) {
            let why = why(execution(open.id));
            self.give(open.answer, Err(CallFailed::without_memory(why)));
        }
        while let Some(Job { request, answer, .. }) = self.queue.pop() {
            let why = why(Execution::NotExecuted);
            self.give(answer, Err(CallFailed::unsent(why, request.call)));
        }
    }

    /// Calls that the session has.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Calls in front of the session.
    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

/// Spreads the numbers of calls, which count up: no peer chooses them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(GOLDEN);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Why a call ends whose deadline has passed in front of the session.
pub(crate) fn late<P: Provider>(session: &Session<P>) -> AsyncError {
    let not = Execution::NotExecuted;
    match session.outage() {
        Some(outage) => SessionError::DeadlineExceeded(outage, not).into(),
        None => SessionError::Call(CallError::DeadlineExceeded(not)).into(),
    }
}

/// Calls that are taken, and calls that are passed on, between two polls.
pub(crate) const JOBS_PER_TURN: usize = 64;
/// 2^64 over the golden ratio: consecutive multiples are far from each other, in the upper bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
