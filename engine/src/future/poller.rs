//! The thread that polls the session.

use crate::{Clock, Execution, Provider, Session, SessionEvent};

use super::buffers::BUFFER_WAIT;
use super::calls::Calls;
use super::reports::Reports;
use super::shared::State;

/// What the thread owns. In this order it is dropped: calls are answered before their connections
/// end, and the end of the thread is reported last.
pub(crate) struct Poller<P: Provider> {
    pub calls: Calls,
    pub session: Session<P>,
    is_ending: bool,
    reports: Reports,
}

impl<P: Provider> Poller<P> {
    pub fn new(calls: Calls, session: Session<P>, reports: Reports) -> Poller<P> {
        Poller { calls, session, is_ending: false, reports }
    }

    /// Polls until the client is closed, and waits by the engine's idle policy.
    pub fn run(mut self) {
        let clock = Clock::new();
        while !self.is_over() {
            let now = clock.now();
            let busy = self.turn(now);
            let most = self.calls.until_due(now);
            match busy || !self.calls.is_short_of_buffers() {
                true => _ = self.session.idle(busy, now, most),
                false => self.session.wait(BUFFER_WAIT.min(most)),
            }
        }
    }

    /// Does what there is to do, once. True if there was anything.
    pub fn turn(&mut self, now: u64) -> bool {
        let Poller { calls, session, .. } = self;
        let mut busy = calls.cancel(session);
        // One that is late already is not sent.
        busy |= calls.take();
        busy |= calls.end_late(session, now);
        busy |= calls.submit(session);
        calls.give_places();
        busy |= session.poll(now, |done| calls.complete(done));
        if let Some(event) = session.next_event() {
            self.report(event);
        }
        let Poller { calls, session, .. } = self;
        busy | calls.lend(session, now)
    }

    /// Passes on what happened to the connections.
    #[cold]
    fn report(&mut self, first: SessionEvent) {
        let Poller { calls, session, reports, .. } = self;
        let mut next = Some(first);
        while let Some(event) = next {
            reports.event(event);
            next = session.next_event();
        }
        calls.set_state(State { connections: session.connections(), outage: session.outage() });
    }

    /// Whether the client was closed, and its connections have ended. Begins that.
    pub fn is_over(&mut self) -> bool {
        if !self.is_ending && self.calls.is_closed() {
            self.is_ending = true;
            let Poller { calls, session, .. } = self;
            calls.end(|call| session.execution(call).unwrap_or(Execution::Unknown));
            self.session.close();
        }
        self.session.is_closed()
    }
}
