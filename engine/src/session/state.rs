//! What a session knows beside its shard.

use std::collections::VecDeque;
use std::time::Duration;

use rpcrdma_provider::SetupError;

use super::calls::Calls;
use super::events::SessionEvent;
use super::lines::{FailedLine, Lines, Next};
use super::outage::Outage;
use super::outcome::SessionCompletion;
use crate::connection_id::ConnectionId;
use crate::message::owned_call::OwnedCall;
use crate::provider::{ConnectError, ConnectId};

/// Where completions go that are rare: the program's closure is compiled into one place.
pub(super) type Done<'d> = &'d mut dyn FnMut(SessionCompletion<'_, '_>);

/// What a session knows beside its shard.
pub(super) struct SessionState {
    pub lines: Lines,
    pub calls: Calls,
    /// The call under construction.
    pub draft: OwnedCall,
    pub events: VecDeque<SessionEvent>,
    /// When there is something to do beside polling.
    pub due: u64,
    /// How long its thread may sleep if nothing wakes it.
    pub idle_until: u64,
    pub is_closed: bool,
    /// What went wrong last with a connection.
    pub outage: Option<Outage>,
    /// Why the last address was given up.
    pub given_up: Option<ConnectError>,
    /// The connection of every new call: the session has no other, it is up, and no call waits.
    pub only: Option<ConnectionId>,
    /// Whether result buffers come back with a call that failed.
    pub keeps_sinks: bool,
    /// Whether this side speaks one version only.
    pub has_one_version: bool,
}

impl SessionState {
    /// Without a connection or an event so far. It keeps no sinks and may choose a version.
    pub fn new(lines: Lines, calls: Calls) -> SessionState {
        SessionState {
            lines,
            calls,
            draft: OwnedCall::new(),
            events: VecDeque::with_capacity(EVENTS_MAX),
            due: 0,
            idle_until: 0,
            is_closed: false,
            outage: None,
            given_up: None,
            only: None,
            keeps_sinks: false,
            has_one_version: false,
        }
    }

    /// There is something to do beside polling, now.
    #[cold]
    pub fn hurry(&mut self) {
        (self.due, self.idle_until, self.only) = (0, 0, None);
    }

    /// Records an event.
    #[cold]
    pub fn report(&mut self, event: SessionEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// A connection was not made.
    #[cold]
    pub fn on_refused(&mut self, id: ConnectId, why: ConnectError, now: u64) {
        if let Some(failed) = self.lines.on_refused(id, why.is_transient(), now) {
            self.on_failure(failed, SetupError::connect(failed.address, why));
            self.hurry();
        }
    }

    /// A connection was not made, or could not be tried.
    #[cold]
    pub fn on_failure(&mut self, FailedLine { address, next }: FailedLine, why: SetupError) {
        let reason = why.as_connect_error();
        let event = match next {
            Next::Again(delay) => {
                let again_in = Duration::from_nanos(delay);
                SessionEvent::NotConnected { address, why, again_in }
            }
            Next::GivenUp => {
                self.given_up = Some(reason);
                SessionEvent::GivenUp { address, why }
            }
            Next::Nothing => return,
        };
        self.outage = Some(Outage::NotConnected(reason));
        self.report(event);
    }

    /// Why there is no connection, and none will be.
    pub fn is_over(&self) -> Option<ConnectError> {
        self.given_up.filter(|_| self.lines.are_over())
    }
}

/// Events that are kept.
const EVENTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use rpcrdma_proto::Fatal;
    use rpcrdma_provider::Address;

    use super::*;
    use crate::api::handler::Handler;
    use crate::error::CloseReason;
    use crate::session::backoff::Backoff;
    use crate::session::handler::SessionHandler;

    /// Two connections to one address, whose server has not the only version of this side.
    struct Two(SessionState);

    const REFUSED: ConnectError = ConnectError::Version { low: 2, high: 2 };

    impl Two {
        fn connecting() -> Two {
            let at: Address = "127.0.0.1:2049".parse().expect("an address");
            let second = Duration::from_secs(1);
            let mut lines = Lines::new([at], 2, Backoff::new(second, second, 7));
            (0..2).for_each(|line| lines.connecting(line, ConnectId(line as u64)));
            let state = SessionState::new(lines, Calls::new(0, 0, 0));
            Two(SessionState { has_one_version: true, ..state })
        }

        fn peer(line: u32) -> ConnectionId {
            ConnectionId { index: line, generation: 0 }
        }

        fn connect(&mut self, line: u32) {
            let id = ConnectId(line.into());
            self.0.lines.on_connect(id, Two::peer(line), 0).expect("it connects");
        }

        fn fail(&mut self, line: u32, why: ConnectError) {
            self.0.on_refused(ConnectId(line.into()), why, 0);
        }

        /// The server refuses the first message of this connection.
        fn refuse(&mut self, line: u32) {
            let why = CloseReason::Protocol(Fatal::VersionRefused { low: 2, high: 2 });
            let done = &mut |_: SessionCompletion<'_, '_>| ();
            let mut handler = SessionHandler { state: &mut self.0, now: 0, done };
            handler.on_close(Two::peer(line), why);
        }

        /// Why its address was given up, each time, and why it is over.
        fn end(self) -> (Vec<ConnectError>, Option<ConnectError>) {
            let given_up = self.0.events.iter().filter_map(|event| match event {
                SessionEvent::GivenUp { why, .. } => Some(why.as_connect_error()),
                _ => None,
            });
            (given_up.collect(), self.0.is_over())
        }
    }

    #[test]
    fn an_attempt_that_fails_behind_a_refusal_gives_no_reason() {
        for why in [ConnectError::NoListener, ConnectError::NoRoute, ConnectError::Stopped] {
            let mut two = Two::connecting();
            two.connect(0);
            two.refuse(0);
            two.fail(1, why);
            assert_eq!(two.end(), (vec![REFUSED], Some(REFUSED)), "{why}");
        }
    }

    #[test]
    fn a_refusal_behind_an_attempt_that_fails_gives_the_reason() {
        let mut two = Two::connecting();
        two.connect(0);
        two.fail(1, ConnectError::NoListener);
        assert_eq!(two.0.is_over(), None);
        two.refuse(0);
        assert_eq!(two.end(), (vec![REFUSED], Some(REFUSED)));
    }

    #[test]
    fn an_address_that_refuses_two_connections_is_given_up_once() {
        let mut two = Two::connecting();
        (0..2).for_each(|line| two.connect(line));
        two.refuse(0);
        assert_eq!(two.0.is_over(), None, "one is up");
        two.refuse(1);
        assert_eq!(two.end(), (vec![REFUSED], Some(REFUSED)));
    }

    /// A reason that passes does not become that of an end that lasts.
    #[test]
    fn an_attempt_that_fails_at_an_address_that_was_given_up_gives_no_reason() {
        let mut two = Two::connecting();
        two.fail(0, ConnectError::Stopped);
        two.fail(1, ConnectError::NoListener);
        let stopped = ConnectError::Stopped;
        let outage = Some(Outage::NotConnected(stopped));
        assert_eq!((two.0.events.len(), two.0.outage), (1, outage));
        assert_eq!(two.end(), (vec![stopped], Some(stopped)));
    }
}
