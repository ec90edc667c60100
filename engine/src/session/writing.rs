//! A call of a session, being written and sent.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::api::Session;
use super::calls::{Resend, SessionCallId, State};
use super::state::SessionState;
use crate::api::owned::PlacedMemory;
use crate::api::unsent::Unsent;
use crate::connection_id::ConnectionId;
use crate::error::CallRefused;
use crate::message::owned_call::OwnedCall;
use crate::provider::{ConnectError, Provider};

/// Why a session did not accept a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionRefused {
    /// As many calls wait, or as many bytes, as [`SessionOptions`](super::SessionOptions) allows:
    /// poll, then try again.
    #[error(
        "too many calls or bytes wait for a connection or for credits; poll, then try again, or \
         raise waiting_calls or waiting_bytes"
    )]
    Full,
    /// There is no connection and there will be none: all addresses are given up, the last one for
    /// this reason.
    #[error("no address of the session can be connected to: {0}")]
    NoConnection(ConnectError),
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
    cookie: u64,
    resend: Resend,
}

impl<'s, P: Provider> SessionCall<'s, P> {
    #[inline]
    pub(super) fn new(session: &'s mut Session<P>, cookie: u64) -> SessionCall<'s, P> {
        SessionCall { session, cookie, resend: Resend::Never }
    }

    /// What becomes of the call when its connection is lost; [`Resend::Never`] by default.
    #[inline]
    pub fn resend(&mut self, resend: Resend) {
        self.resend = resend;
    }

    /// Sends the call with the next poll, or keeps it until there are a connection and credits.
    /// Calls that wait are sent in the order of submission, and before later ones.
    ///
    /// # Errors
    /// [`SessionUnsent`] returns the call and states the reason; nothing has been sent.
    #[inline]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    pub fn submit(self) -> Result<SessionCallId, SessionUnsent> {
        let mut this = ManuallyDrop::new(self);
        let SessionCall { session, cookie, resend } = &mut *this;
        let (cookie, resend) = (*cookie, *resend);
        let Some(peer) = session.ready() else { return session.put_off(cookie, resend) };
        match resend {
            Resend::Never => session.send(cookie, peer),
            Resend::SameXid => session.send_apart(cookie, resend, peer),
        }
    }
}

impl<P: Provider> Deref for SessionCall<'_, P> {
    type Target = OwnedCall;

    #[inline]
    fn deref(&self) -> &OwnedCall {
        &self.session.state.draft
    }
}

impl<P: Provider> DerefMut for SessionCall<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut OwnedCall {
        &mut self.session.state.draft
    }
}

impl<P: Provider> Drop for SessionCall<'_, P> {
    /// Its memory returns to its pools.
    fn drop(&mut self) {
        self.session.state.draft.clear();
    }
}

impl<P: Provider> Session<P> {
    /// Begins a call. `cookie` comes back with its completion.
    ///
    /// Cost of a call beside that of [`Client::call`](crate::Client::call): some fifty
    /// instructions, of which half copy its payload.
    #[inline]
    pub fn call(&mut self, cookie: u64) -> SessionCall<'_, P> {
        // What a call left that was forgotten, or sent.
        self.state.draft.clear();
        SessionCall::new(self, cookie)
    }

    /// The connection for a new call, unless others wait. Then none waits that keeps an xid, either.
    #[inline]
    fn ready(&mut self) -> Option<ConnectionId> {
        match self.state.only {
            Some(only) => Some(only),
            None => self.look_for_ready(),
        }
    }

    #[inline(never)]
    fn look_for_ready(&mut self) -> Option<ConnectionId> {
        let is_free = !self.state.is_closed && !self.state.calls.has_waiting();
        if is_free { self.choose() } else { None }
    }

    /// Sends the call under construction.
    #[inline(always)]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    fn send(&mut self, cookie: u64, peer: ConnectionId) -> Result<SessionCallId, SessionUnsent> {
        let Session { client, state, .. } = self;
        let (index, record) = state.calls.take(cookie);
        let sent = client.call(peer, index.into()).and_then(|builder| {
            record.state = State::Sent { peer, id: builder.id() };
            builder.submit_owned(&mut state.draft, PlacedMemory::Moves)
        });
        match sent {
            Ok(()) => Ok(record.id(index)),
            Err(why) => self.not_sent(index, Resend::Never, why),
        }
    }

    /// Keeps the call under construction, and sends it.
    #[inline(never)]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    fn send_apart(
        &mut self,
        cookie: u64,
        resend: Resend,
        peer: ConnectionId,
    ) -> Result<SessionCallId, SessionUnsent> {
        let SessionState { calls, draft, .. } = &mut self.state;
        let index = calls.keep(cookie, resend, draft);
        match self.send_kept(index, peer) {
            Ok(()) => Ok(self.state.calls.id(index)),
            Err(why) => {
                // It is under construction again.
                let SessionState { calls, draft, .. } = &mut self.state;
                core::mem::swap(&mut calls.at(index).call, draft);
                self.not_sent(index, resend, why)
            }
        }
    }

    /// The call under construction waits.
    #[cold]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    fn put_off(&mut self, cookie: u64, resend: Resend) -> Result<SessionCallId, SessionUnsent> {
        let over = self.state.is_over();
        let SessionState { calls, draft, is_closed, .. } = &mut self.state;
        let why = match over {
            _ if *is_closed => Some(SessionRefused::Closed),
            Some(why) => Some(SessionRefused::NoConnection(why)),
            None => (!calls.has_room_for(draft.held())).then_some(SessionRefused::Full),
        };
        if let Some(why) = why {
            return Err(Unsent::new(why, core::mem::take(draft), true));
        }
        let index = calls.keep(cookie, resend, draft);
        calls.wait(index);
        let id = calls.id(index);
        self.state.hurry();
        Ok(id)
    }

    /// The call under construction was not sent: it waits, if that may help.
    #[cold]
    #[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
    fn not_sent(
        &mut self,
        index: u32,
        resend: Resend,
        why: CallRefused,
    ) -> Result<SessionCallId, SessionUnsent> {
        let cookie = self.state.calls.end(index);
        if self.is_passing(why) {
            return self.put_off(cookie, resend);
        }
        let call = core::mem::take(&mut self.state.draft);
        Err(Unsent::new(SessionRefused::Call(why), call, true))
    }
}
