//! What a session knows beside its shard.

use std::collections::VecDeque;
use std::time::Duration;

use rpcrdma_provider::SetupError;

use super::calls::Calls;
use super::events::SessionEvent;
use super::lines::{Failed, Lines};
use super::outage::Outage;
use super::outcome::SessionCompletion;
use crate::message::owned_call::OwnedCall;
use crate::provider::{ConnectError, ConnectId};
use crate::shard::peers::ConnectionId;

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
    pub rest_until: u64,
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
    /// There is something to do beside polling, now.
    #[cold]
    pub fn hurry(&mut self) {
        (self.due, self.rest_until, self.only) = (0, 0, None);
    }

    /// Records an event.
    #[cold]
    pub fn tell(&mut self, event: SessionEvent) {
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
    pub fn on_failure(&mut self, Failed { address, again_in }: Failed, why: SetupError) {
        let reason = why.as_connect_error();
        self.outage = Some(Outage::NotConnected(reason));
        let event = match again_in.map(Duration::from_nanos) {
            Some(again_in) => SessionEvent::NotConnected { address, why, again_in },
            None => {
                self.given_up = Some(reason);
                SessionEvent::GivenUp { address, why }
            }
        };
        self.tell(event);
    }

    /// Why there is no connection, and none will be.
    pub fn is_over(&self) -> Option<ConnectError> {
        self.given_up.filter(|_| self.lines.are_over())
    }
}

/// Events that are kept.
pub(super) const EVENTS_MAX: usize = 256;
