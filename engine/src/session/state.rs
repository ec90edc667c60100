//! What a session knows beside its shard.

use std::collections::VecDeque;
use std::time::Duration;

use rpcrdma_provider::SetupError;

use super::calls::Calls;
use super::events::SessionEvent;
use super::lines::Lines;
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
    /// The connection of every new call: the session has no other, it is up, and no call waits.
    pub only: Option<ConnectionId>,
    /// Whether result buffers come back with a call that failed.
    pub keeps_sinks: bool,
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
        if let Some((address, delay)) = self.lines.on_refused(id, now) {
            let (why, again_in) = (SetupError::connect(address, why), Duration::from_nanos(delay));
            self.tell(SessionEvent::NotConnected { address, why, again_in });
            self.hurry();
        }
    }
}

/// Events that are kept.
pub(super) const EVENTS_MAX: usize = 256;
