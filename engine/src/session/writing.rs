//! A call of a session, being written and sent.

use core::ops::{Deref, DerefMut};

use super::Session;
use super::calls::{Resend, SessionCallId, State};
use crate::api::owned::Memory;
use crate::api::unsent::Unsent;
use crate::error::CallRefused;
use crate::message::owned_call::OwnedCall;
use crate::provider::Provider;
use crate::shard::peers::ConnectionId;

/// Why a session did not accept a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefused {
    /// As many calls wait, or as many bytes, as [`SessionOptions`](super::SessionOptions) allows:
    /// poll, then try again.
    #[error(
        "too many calls or bytes wait for a connection or for credits; poll, then try again, or \
         raise waiting_calls or waiting_bytes"
    )]
    Full,
    /// The session was closed, or its shard has ended.
    #[error("the session was closed")]
    Closed,
    /// The call cannot be sent, now or later.
    #[error(transparent)]
    Call(CallRefused),
}

/// A call that a session did not accept, with its memory.
pub type SessionUnsent = Unsent<SessionRefused>;

/// A call of a session under construction: an [`OwnedCall`] in its place. Dropping it discards the
/// call.
#[must_use = "a call is sent by `submit`"]
pub struct SessionCall<'s, P: Provider> {
    session: &'s mut Session<P>,
    index: u32,
}

impl<'s, P: Provider> SessionCall<'s, P> {
    #[inline]
    pub(super) fn new(session: &'s mut Session<P>, index: u32) -> SessionCall<'s, P> {
        SessionCall { session, index }
    }

    /// What becomes of the call when its connection is lost; [`Resend::Never`] by default.
    #[inline]
    pub fn resend(&mut self, resend: Resend) {
        self.session.state.calls.at(self.index).resend = resend;
    }

    /// Sends the call with the next poll, or keeps it until there are a connection and credits.
    /// Calls that wait are sent in the order of submission, and before later ones.
    ///
    /// # Errors
    /// [`SessionUnsent`] returns the call and states the reason; nothing has been sent.
    #[inline]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn submit(self) -> Result<SessionCallId, SessionUnsent> {
        let index = self.index;
        let state = &mut self.session.state;
        let id = state.calls.id(index);
        if !state.is_closed
            && !state.calls.has_waiting()
            && let Some(peer) = self.session.choose(0)
        {
            match self.session.send(index, peer) {
                Ok(()) => {
                    core::mem::forget(self);
                    return Ok(id);
                }
                Err(why) if self.session.is_passing(why) => {}
                Err(why) => return Err(self.take_back(SessionRefused::Call(why))),
            }
        }
        self.wait().map(|()| id)
    }

    #[cold]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    fn wait(self) -> Result<(), SessionUnsent> {
        let state = &mut self.session.state;
        if state.is_closed {
            return Err(self.take_back(SessionRefused::Closed));
        }
        if !state.calls.has_room_for(self.index) {
            return Err(self.take_back(SessionRefused::Full));
        }
        state.calls.wait(self.index);
        state.due = 0;
        core::mem::forget(self);
        Ok(())
    }

    #[cold]
    fn take_back(self, why: SessionRefused) -> SessionUnsent {
        let call = core::mem::take(&mut self.session.state.calls.at(self.index).call);
        Unsent::new(why, (call, true))
    }
}

impl<P: Provider> Deref for SessionCall<'_, P> {
    type Target = OwnedCall;

    #[inline]
    fn deref(&self) -> &OwnedCall {
        self.session.state.calls.get(self.index)
    }
}

impl<P: Provider> DerefMut for SessionCall<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut OwnedCall {
        &mut self.session.state.calls.at(self.index).call
    }
}

impl<P: Provider> Drop for SessionCall<'_, P> {
    fn drop(&mut self) {
        self.session.state.calls.end(self.index);
    }
}

impl<P: Provider> Session<P> {
    /// Sends a call on a connection. A call that is refused is as before.
    #[inline]
    pub(super) fn send(&mut self, index: u32, peer: ConnectionId) -> Result<(), CallRefused> {
        let Session { client, state, .. } = self;
        let mut builder = client.call(peer, index.into())?;
        while state.calls.keeps_xid(builder.id().xid()) {
            // The next one of that slot has another.
            drop(builder);
            builder = client.call(peer, index.into())?;
        }
        let record = state.calls.at(index);
        let memory = match record.resend {
            Resend::Never => Memory::Moves,
            Resend::SameXid => {
                if let Some(xid) = record.xid {
                    builder.xid(xid)?;
                }
                record.call.share_placed();
                Memory::Stays
            }
        };
        let id = builder.id();
        builder.submit_owned(&mut record.call, memory)?;
        record.state = State::Sent { peer, id };
        record.xid = Some(id.xid());
        Ok(())
    }
}
