//! What a client of one thread has behind its handles: the session, and what tasks wait for.

use std::time::Duration;

use crate::{Execution, Loan, Provider, Session, SessionError, SessionEvent};
use futures_channel::oneshot;

use super::answer::ThisThread;
use crate::future::awaited::{Awaited, late};
use crate::future::buffers::{BUFFER_WAIT, Waiting};
use crate::future::request::Request;

/// The session, and what tasks wait for.
pub(super) struct State<P: Provider> {
    pub session: Session<P>,
    pub awaited: Awaited<ThisThread>,
    /// Calls whose futures were dropped since the last turn.
    pub cancelled: Vec<u64>,
    waiting: Waiting,
    /// One that was taken from the session, to see whether there is any.
    event: Option<SessionEvent>,
    next: u64,
    /// The time of the last turn, or of the poll of the future behind it.
    pub now: u64,
    is_closed: bool,
}

/// What becomes of a task that asks for a buffer.
pub(super) enum Asked {
    Given(Loan),
    Waits(oneshot::Receiver<Loan>),
    Closed,
}

impl<P: Provider> State<P> {
    pub fn new(session: Session<P>) -> State<P> {
        State {
            session,
            awaited: Awaited::new(),
            cancelled: Vec::new(),
            waiting: Waiting::default(),
            event: None,
            next: 0,
            now: 0,
            is_closed: false,
        }
    }

    /// Makes a call, or lets it wait for the session. Returns its name.
    pub fn call(&mut self, request: &mut Request, answer: ThisThread) -> u64 {
        let id = self.next;
        self.next += 1;
        self.awaited.begin(request, (id, answer, ()), &mut self.session, self.now);
        id
    }

    /// A registered buffer, behind the tasks that wait for one.
    pub fn ask_for_buffer(&mut self) -> Asked {
        if self.is_closed {
            return Asked::Closed;
        }
        if !self.waiting.is_any()
            && let Some(buffer) = self.session.turn(self.now).buffer()
        {
            return Asked::Given(buffer);
        }
        let (task, given) = oneshot::channel();
        self.waiting.extend([task]);
        Asked::Waits(given)
    }

    /// Does what there is to do for calls, once. True if there was anything.
    pub fn turn(&mut self, now: u64) -> bool {
        self.now = now;
        let State { session, awaited, cancelled, .. } = self;
        let mut busy = !cancelled.is_empty();
        if busy {
            awaited.cancel(cancelled.drain(..), session);
        }
        busy |= awaited.end_late(now, || late(session));
        busy |= awaited.submit(session);
        busy | session.poll(now, |done| awaited.complete(done))
    }

    /// Whether there is anything to do beside calls.
    pub fn has_rare_work(&mut self) -> bool {
        if let Some(event) = self.next_event() {
            self.event = Some(event);
            return true;
        }
        self.waiting.is_any() || self.session.is_closed()
    }

    /// What has happened to the connections, oldest first.
    pub fn next_event(&mut self) -> Option<SessionEvent> {
        self.event.take().or_else(|| self.session.next_event())
    }

    /// The next task that waits for a buffer, and its buffer.
    pub fn next_loan(&mut self) -> Option<(oneshot::Sender<Loan>, Loan)> {
        self.waiting.next(&mut self.session, self.now)
    }

    /// Ends all calls, and the wait for buffers. Returns the tasks that wait for one.
    pub fn end(&mut self) -> Waiting {
        self.is_closed = true;
        let State { session, awaited, waiting, .. } = self;
        let execution = |call| session.execution(call).unwrap_or(Execution::Unknown);
        awaited.end(execution, |execution| SessionError::Closed(execution).into());
        std::mem::take(waiting)
    }

    /// Waits by the idle policy after a turn at `now` that was busy or not. True if the thread has
    /// yielded its core.
    pub fn rest(&mut self, busy: bool, now: u64) -> bool {
        let most = Duration::from_nanos(self.awaited.earliest().saturating_sub(now));
        if busy || !self.waiting.is_any() {
            return self.session.idle(busy, now, most);
        }
        self.session.wait(BUFFER_WAIT.min(most));
        true
    }
}
