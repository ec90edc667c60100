//! What the shard of a session reports to it.

use rpcrdma_proto::{Fatal, PeerLimits};
use rpcrdma_provider::SetupError;

use super::calls::Resend;
use super::events::SessionEvent;
use super::outage::Outage;
use super::outcome::{SessionCompletion, SessionError};
use super::state::{Done, SessionState};
use crate::api::call::Call;
use crate::api::completion::Completion;
use crate::api::handler::{Admission, Handler};
use crate::api::reply::{Answer, Reply};
use crate::connection_id::ConnectionId;
use crate::error::{CallError, CloseReason, Execution};
use crate::provider::{ConnectError, ConnectId};

/// The handler of a session for one poll.
pub(super) struct SessionHandler<'a, F> {
    pub state: &'a mut SessionState,
    pub now: u64,
    pub done: &'a mut F,
}

impl<F: FnMut(SessionCompletion<'_, '_>)> Handler for SessionHandler<'_, F> {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.refuse()
    }

    #[inline]
    fn on_reply(&mut self, mut done: Completion<'_>) {
        let index = done.cookie() as u32;
        if let Err(error) = done.result() {
            return self.state.on_failed(index, error, &mut done, self.done);
        }
        let cookie = self.state.calls.end(index);
        (self.done)(SessionCompletion::completed(cookie, &mut done));
    }

    fn on_connect(
        &mut self,
        peer: ConnectionId,
        attempt: Option<ConnectId>,
        _limits: &PeerLimits,
    ) -> Admission {
        let attempt = attempt.and_then(|id| self.state.lines.on_connect(id, peer, self.now));
        let Some(address) = attempt else { return Admission::Refuse };
        self.state.report(SessionEvent::Connected { address, peer });
        self.state.hurry();
        Admission::Accept
    }

    fn on_refused(&mut self, id: ConnectId, why: ConnectError) {
        self.state.on_refused(id, why, self.now);
    }

    fn on_close(&mut self, peer: ConnectionId, why: CloseReason) {
        let SessionHandler { state, now, .. } = self;
        let is_refusal = matches!(why, CloseReason::Protocol(Fatal::VersionRefused { .. }));
        // A side of two versions goes on with the other one.
        let has_refused = is_refusal && state.has_one_version;
        let Some(failed) = state.lines.on_close(peer, has_refused, *now) else { return };
        let address = failed.address;
        state.outage = Some(Outage::Lost(why));
        state.report(SessionEvent::Lost { address, why });
        if has_refused {
            state.on_failure(failed, SetupError::connect(address, why.as_connect_error()));
        }
        state.hurry();
    }
}

/// A poll that does not end as it should: the program has panicked, and so its shard has ended.
impl<F> Drop for SessionHandler<'_, F> {
    #[cold]
    fn drop(&mut self) {
        self.state.hurry();
    }
}

impl SessionState {
    /// A call has failed: it is completed, or waits to be sent again.
    #[cold]
    fn on_failed(
        &mut self,
        index: u32,
        error: CallError,
        completion: &mut Completion<'_>,
        done: Done<'_>,
    ) {
        let is_closed = self.is_closed;
        let record = self.calls.at(index);
        let cookie = record.cookie;
        let returned = record.failed(error);
        let returns = match returned {
            CallError::ConnectionLost(..) => true,
            // The errors of its other transmissions must not be taken for answers to the next
            // sending (wire.md W15): it has another xid. A server that may have executed the call
            // before would not recognize that one.
            CallError::FormRefused(..) => !record.was_sent,
            _ => false,
        };
        let is_ended = record.is_cancelled || is_closed;
        if returns && !is_ended && record.resend == Resend::SameXid {
            record.was_sent |= returned.execution() != Execution::NotExecuted;
            if !record.was_sent {
                record.xid = None;
            }
            if record.call.take_sinks_of(|want| completion.take_sink(want), self.keeps_sinks) {
                self.calls.wait(index);
                self.hurry();
            } else {
                self.fail(index, SessionError::Call(returned), done);
            }
            return;
        }
        let replaced = match returns && is_ended {
            true => Some(self.ended(index, returned.execution())),
            false => (returned != error).then_some(SessionError::Call(returned)),
        };
        self.calls.end(index);
        done(match replaced {
            Some(error) => SessionCompletion::replaced(cookie, error, completion),
            None => SessionCompletion::completed(cookie, completion),
        });
    }
}
