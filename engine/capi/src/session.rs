//! Sessions: calls to a service whose connections come and go.

use core::ffi::{c_char, c_int};
use core::mem::{ManuallyDrop, MaybeUninit, transmute_copy};
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd};

use ::rpcrdma::{
    Address, Armed, ConnectionId, Engine, Session, SessionCall, SessionEvent, SessionOptions,
    SetupError, Turn,
};

use crate::arguments::{OK, address, array, c_chars, caught, give, given, shared, sized, value};
use crate::call_id::rpcrdma_call_id;
use crate::done::Done;
use crate::engine::{RPCRDMA_ADDRESS_MAX, rpcrdma_engine};
use crate::failure::{Failure, fail, invalid, plain, setup};
use crate::message::rpcrdma_connection;
use crate::polled::{
    Message, Polled, PolledSession, rpcrdma_call, rpcrdma_polled, rpcrdma_session,
};
use crate::provider::{AnyEngine, AnySessionCall, Known, each};
use crate::status::rpcrdma_status::RPCRDMA_E_NOTHING;

/// How a session connects, and what it keeps meanwhile. 0 is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_session_options {
    /// `sizeof(rpcrdma_session_options)`.
    pub size: usize,
    /// Connections at a time; 1 by default, and at most `connections.max`.
    pub connections: usize,
    /// The first delay before a lost connection is made again; 10 ms by default.
    pub backoff_min_ns: u64,
    /// The longest delay; 5 s by default.
    pub backoff_max_ns: u64,
    /// Calls that may wait; 1024 by default.
    pub waiting_calls: usize,
    /// Bytes that they may hold; 64 MiB by default.
    pub waiting_bytes: usize,
}

/// What happened to a connection of a session.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rpcrdma_session_event_kind {
    /// It is up.
    RPCRDMA_SESSION_CONNECTED = 0,
    /// It was lost.
    RPCRDMA_SESSION_LOST = 1,
    /// It was not made.
    RPCRDMA_SESSION_NOT_CONNECTED = 2,
    /// It was not made, and no later attempt can succeed without a change of the program or of a
    /// configuration: this address is not tried again. When all are given up, the calls of the
    /// session complete with the status of the last event of this kind.
    RPCRDMA_SESSION_GIVEN_UP = 3,
}

/// What happened to a connection of a session.
#[repr(C)]
#[derive(Debug)]
pub struct rpcrdma_session_event {
    /// A value of `rpcrdma_session_event_kind`.
    pub kind: c_int,
    /// Why it was lost or not made, as `rpcrdma_status`; otherwise 0.
    pub status: c_int,
    /// Its name, if it is up.
    pub connection: rpcrdma_connection,
    /// When the next address is tried, from then on, if it was not made.
    pub again_in_ns: u64,
    /// Where to, as text.
    pub address: [c_char; RPCRDMA_ADDRESS_MAX],
}

/// A session, for the calling thread to poll: it connects with its first poll. All `addresses` are
/// those of one service, in the order of preference. `options` may be NULL. Freed by
/// `rpcrdma_polled_free`.
///
/// Thread: one at a time; the calling thread polls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_new(
    engine: Option<&mut rpcrdma_engine>,
    addresses: *const *const c_char,
    count: usize,
    options: *const rpcrdma_session_options,
    session: Option<&mut MaybeUninit<*mut rpcrdma_polled>>,
) -> c_int {
    given!(engine, session);
    // SAFETY: the program passes so many texts.
    let texts = unsafe { array(addresses.cast_mut(), count) };
    // SAFETY: the program passes texts.
    let parsed: Result<Vec<_>, _> = texts.iter().map(|at| unsafe { address(*at) }).collect();
    let addresses = value!(parsed);
    let defaults = rpcrdma_session_options::DEFAULT;
    let options = match options.is_null() {
        true => defaults,
        // SAFETY: the program passes a structure with its size.
        false => value!(unsafe { sized(options, defaults, "options") }),
    };
    caught(|| match each!(AnyEngine, &engine.engine, it => make(it, &addresses, &options.into())) {
        Ok(made) => give(session, made),
        Err(error) => setup(&error),
    })
}

/// Begins a call of a session. `cookie` comes back with its completion. A call under construction is
/// discarded. The call is sent with the next poll after `rpcrdma_call_submit`, or kept until there
/// are a connection and credits.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_call(
    session: *mut rpcrdma_session,
    cookie: u64,
    call: Option<&mut MaybeUninit<*mut rpcrdma_call>>,
) -> c_int {
    shared!(session);
    given!(call);
    let (object, place) = value!(session.beginning());
    place.begin_for_session(value!(object.session()).call(cookie), cookie);
    place.owner = session;
    call.write(place);
    OK
}

/// What happened to the connections of a session, oldest first. `RPCRDMA_E_NOTHING` if there is
/// nothing new. Of more than 256 that the program does not ask for, the oldest are forgotten.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_next_event(
    session: *mut rpcrdma_session,
    event: Option<&mut MaybeUninit<rpcrdma_session_event>>,
) -> c_int {
    shared!(session);
    given!(event);
    match value!(value!(session.free()).session()).next_event() {
        None => return plain(RPCRDMA_E_NOTHING),
        Some(happened) => event.write(rpcrdma_session_event::of(&happened)),
    };
    OK
}

/// Connections of a session that are up.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_connections(session: *mut rpcrdma_session) -> usize {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let session = unsafe { session.as_ref() }.and_then(|session| session.free().ok());
    session.and_then(|it| it.session().ok()).map_or(0, |session| session.connections())
}

/// Calls of a session that are not completed: under way or waiting.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_open_calls(session: *mut rpcrdma_session) -> usize {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let session = unsafe { session.as_ref() }.and_then(|session| session.free().ok());
    session.and_then(|it| it.session().ok()).map_or(0, |session| session.open_calls())
}

/// Stops a session: calls that wait complete with `RPCRDMA_E_CLOSED`, calls under way have
/// `connections.stop_timeout` to complete. Poll until `rpcrdma_is_stopped`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_close(session: *mut rpcrdma_session) -> c_int {
    shared!(session);
    value!(value!(session.free()).session()).close();
    OK
}

fn make<P: Known>(
    engine: &Engine<P>,
    addresses: &[Address],
    options: &SessionOptions,
) -> Result<Box<rpcrdma_polled>, SetupError> {
    let client = engine.client()?;
    let (handle, fd) = (client.handle().clone(), client.as_fd().as_raw_fd());
    let session = Session::new(client, addresses.iter().copied(), options)?;
    Ok(rpcrdma_polled::new(session, handle, fd))
}

impl<P: Known> Polled for Session<P> {
    fn poll(&mut self, now: u64, done: &Done) -> bool {
        Session::poll(self, now, |it| done.report_of_session(it))
    }

    fn poll_for(&mut self, timeout: Duration, done: &Done) -> bool {
        Session::poll_for(self, timeout, |it| done.report_of_session(it))
    }

    fn idle(&mut self, busy: bool, now: u64, timeout: Duration) -> bool {
        Session::idle(self, busy, now, timeout)
    }

    fn arm(&mut self, now: u64) -> Armed {
        Session::arm(self, now)
    }

    fn wait(&mut self, timeout: Duration) {
        Session::wait(self, timeout);
    }

    fn is_stopped(&mut self) -> bool {
        self.is_closed()
    }

    fn session(&mut self) -> Result<&mut dyn PolledSession, c_int> {
        Ok(self)
    }

    fn with_turn(&mut self, act: &mut dyn FnMut(&mut Turn<'_>)) {
        act(&mut self.turn(0));
    }

    /// The session's own completions are not those of such a call.
    fn begin(&mut self, _: rpcrdma_connection, _: u64, _: &mut rpcrdma_call) -> Result<(), c_int> {
        Err(not_for_sessions())
    }

    fn send(&mut self, _: ConnectionId, _: u64, _: &Message<'_>) -> Result<(), c_int> {
        Err(not_for_sessions())
    }

    fn cancel(&mut self, call: &rpcrdma_call_id, shard: u32) -> Result<bool, c_int> {
        Ok(Session::cancel(self, call.name(shard)?))
    }
}

impl<P: Known> PolledSession for Session<P> {
    #[inline(always)]
    fn call(&mut self, cookie: u64) -> AnySessionCall {
        let call = ManuallyDrop::new(Session::call(self, cookie));
        // SAFETY: only the lifetime changes, and the original is not used again. The session is not
        // used for anything else meanwhile: `rpcrdma_polled` sees to that.
        P::named(unsafe { transmute_copy::<SessionCall<'_, P>, SessionCall<'static, P>>(&call) })
    }

    fn next_event(&mut self) -> Option<SessionEvent> {
        Session::next_event(self)
    }

    fn connections(&self) -> usize {
        Session::connections(self)
    }

    fn open_calls(&self) -> usize {
        Session::open_calls(self)
    }

    fn close(&mut self) {
        Session::close(self);
    }
}

#[cold]
fn not_for_sessions() -> c_int {
    invalid("session: begin calls with rpcrdma_session_call")
}

impl rpcrdma_session_options {
    const DEFAULT: rpcrdma_session_options = rpcrdma_session_options {
        size: 0,
        connections: 0,
        backoff_min_ns: 0,
        backoff_max_ns: 0,
        waiting_calls: 0,
        waiting_bytes: 0,
    };
}

impl From<rpcrdma_session_options> for SessionOptions {
    fn from(given: rpcrdma_session_options) -> SessionOptions {
        let default = SessionOptions::default();
        let count = |count, default| if count == 0 { default } else { count };
        let span = |ns, default| if ns == 0 { default } else { Duration::from_nanos(ns) };
        SessionOptions {
            connections: count(given.connections, default.connections),
            backoff_min: span(given.backoff_min_ns, default.backoff_min),
            backoff_max: span(given.backoff_max_ns, default.backoff_max),
            waiting_calls: count(given.waiting_calls, default.waiting_calls),
            waiting_bytes: count(given.waiting_bytes, default.waiting_bytes),
        }
    }
}

impl rpcrdma_session_event {
    fn of(event: &SessionEvent) -> rpcrdma_session_event {
        use rpcrdma_session_event_kind::{
            RPCRDMA_SESSION_CONNECTED, RPCRDMA_SESSION_GIVEN_UP, RPCRDMA_SESSION_LOST,
            RPCRDMA_SESSION_NOT_CONNECTED,
        };
        let mut written = rpcrdma_session_event {
            kind: RPCRDMA_SESSION_CONNECTED as c_int,
            status: OK,
            connection: rpcrdma_connection::NONE,
            again_in_ns: 0,
            address: [0; RPCRDMA_ADDRESS_MAX],
        };
        let at = match event {
            SessionEvent::Connected { address, peer } => {
                written.connection = rpcrdma_connection::of(*peer);
                address
            }
            SessionEvent::Lost { address, why } => {
                written.kind = RPCRDMA_SESSION_LOST as c_int;
                written.status = fail(Failure::Close(*why));
                address
            }
            SessionEvent::NotConnected { address, why, again_in } => {
                written.kind = RPCRDMA_SESSION_NOT_CONNECTED as c_int;
                written.status = setup(why);
                written.again_in_ns = u64::try_from(again_in.as_nanos()).unwrap_or(u64::MAX);
                address
            }
            SessionEvent::GivenUp { address, why } => {
                written.kind = RPCRDMA_SESSION_GIVEN_UP as c_int;
                written.status = setup(why);
                address
            }
            _ => return written,
        };
        c_chars(at, &mut written.address);
        written
    }
}
