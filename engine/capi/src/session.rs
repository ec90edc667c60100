//! Sessions: calls to a service whose connections come and go.

use core::ffi::{c_char, c_int, c_void};
use core::mem::{ManuallyDrop, MaybeUninit, transmute_copy};
use core::ptr;
use core::time::Duration;

use ::rpcrdma_engine::{
    Address, Provider, Session, SessionCall, SessionEvent, SessionOptions, SetupError, Turn,
};

use crate::arguments::{
    OK, address, array, c_chars, caught, give, given, shared, sized, taken_back, value,
};
use crate::call::{Lender, Owner, rpcrdma_call};
use crate::call_id::rpcrdma_call_id;
use crate::client::rpcrdma_client;
use crate::done::Done;
use crate::engine::RPCRDMA_ADDRESS_MAX;
use crate::failure::{Failure, fail, invalid, plain, setup};
use crate::handle::rpcrdma_handle;
use crate::message::{rpcrdma_connection, rpcrdma_on_completion};
use crate::polled::{self, Polled};
use crate::provider::{AnyClient, AnySession, AnySessionCall, each, each_into};
use crate::status::rpcrdma_status::RPCRDMA_E_NOTHING;
use crate::turn::rpcrdma_turn;

/// A service behind one or several addresses: it connects, connects again, spreads calls over its
/// connections, and keeps calls while there is none.
pub struct rpcrdma_session {
    pub(crate) polled: Polled<AnySession>,
    handle: rpcrdma_handle,
    fd: c_int,
}

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

/// A session over a client without connections, which it takes: `*client` becomes NULL. It connects
/// with its first poll. If the options do not fit (`RPCRDMA_E_CONFIG`), the client is freed; after
/// other failures it stays. All `addresses` are those of one service, in the order of preference.
/// `options` may be NULL.
///
/// Thread: polling, of the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_new(
    client: Option<&mut *mut rpcrdma_client>,
    addresses: *const *const c_char,
    count: usize,
    options: *const rpcrdma_session_options,
    session: Option<&mut MaybeUninit<*mut rpcrdma_session>>,
) -> c_int {
    given!(client, session);
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
    // SAFETY: the program had it from `rpcrdma_client_new`.
    if let Some(client) = unsafe { client.as_ref() } {
        value!(client.polled.free().map(drop));
    }
    // SAFETY: the program had it from `rpcrdma_client_new`, and loses it here.
    let taken = unsafe { taken_back(core::mem::replace(client, core::ptr::null_mut())) };
    let Some(taken) = taken else { return invalid("client") };
    caught(|| match make(*taken, &addresses, &options.into()) {
        Ok(made) => give(session, made),
        Err(error) => setup(&error),
    })
}

/// Ends a session at once, with its connections and calls. NULL is ignored. Inside a callback of
/// the session it does nothing.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_free(session: *mut rpcrdma_session) {
    // SAFETY: the program had it from `rpcrdma_session_new`.
    unsafe { polled::free(session, |session| &session.polled) };
}

/// Begins a call. `cookie` comes back with its completion. A call under construction is discarded.
/// The call is sent with the next poll after `rpcrdma_call_submit`, or kept until there are a
/// connection and credits.
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
    let (object, place) = value!(session.polled.beginning());
    let draft =
        each_into!(AnySession, object, object => AnySessionCall, forever(object.call(cookie)));
    call.write(place.begin_for_session(draft, cookie));
    OK
}

/// Ends a call before its reply, as `rpcrdma_client_cancel`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_cancel(
    session: *mut rpcrdma_session,
    call: rpcrdma_call_id,
) -> c_int {
    shared!(session);
    let name = value!(call.name(session.handle.0.shard()));
    let session = value!(session.polled.free());
    match each!(AnySession, session, session => session.cancel(name)) {
        true => OK,
        false => plain(RPCRDMA_E_NOTHING),
    }
}

/// Connects, sends what waits and was submitted, and passes every completion to `done`: 1 if there
/// was work, 0 if not. Never blocks. `done` must not use the session.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_poll(
    session: *mut rpcrdma_session,
    now_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    shared!(session);
    let done = Done::of(done, arg);
    caught(|| {
        let busy = session.polled.polling(|session| {
            each!(AnySession, session, session => {
                session.poll(now_ns, |it| done.report_of_session(it))
            })
        });
        busy.map_or_else(|number| number, c_int::from)
    })
}

/// As `rpcrdma_session_poll`, until there was work, at most `timeout_ns`; with the clock of
/// `rpcrdma_now`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_poll_for(
    session: *mut rpcrdma_session,
    timeout_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    shared!(session);
    let (done, timeout) = (Done::of(done, arg), Duration::from_nanos(timeout_ns));
    caught(|| {
        let busy = session.polled.polling(|session| {
            each!(AnySession, session, session => {
                session.poll_for(timeout, |it| done.report_of_session(it))
            })
        });
        busy.map_or_else(|number| number, c_int::from)
    })
}

/// What happened to its connections, oldest first. `RPCRDMA_E_NOTHING` if there is nothing new. Of
/// more than 256 that the program does not ask for, the oldest are forgotten.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_next_event(
    session: *mut rpcrdma_session,
    event: Option<&mut MaybeUninit<rpcrdma_session_event>>,
) -> c_int {
    shared!(session);
    given!(event);
    let session = value!(session.polled.free());
    match each!(AnySession, session, session => session.next_event()) {
        None => return plain(RPCRDMA_E_NOTHING),
        Some(happened) => event.write(rpcrdma_session_event::of(&happened)),
    };
    OK
}

/// Connections that are up.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_connections(session: *mut rpcrdma_session) -> usize {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let session = unsafe { session.as_ref() };
    let Some(Ok(session)) = session.map(|session| session.polled.free()) else { return 0 };
    each!(AnySession, session, session => session.connections())
}

/// Calls that are not completed: under way or waiting.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_open_calls(session: *mut rpcrdma_session) -> usize {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let session = unsafe { session.as_ref() };
    let Some(Ok(session)) = session.map(|session| session.polled.free()) else { return 0 };
    each!(AnySession, session, session => session.open_calls())
}

/// Stops: calls that wait complete with `RPCRDMA_E_CLOSED`, calls under way have
/// `connections.stop_timeout` to complete. Poll until `rpcrdma_session_is_closed`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_close(session: *mut rpcrdma_session) -> c_int {
    shared!(session);
    let session = value!(session.polled.free());
    each!(AnySession, session, session => session.close());
    OK
}

/// Whether all is over.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_is_closed(session: *mut rpcrdma_session) -> bool {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let session = unsafe { session.as_ref() };
    let Some(Ok(session)) = session.map(|session| session.polled.free()) else { return false };
    each!(AnySession, session, session => session.is_closed())
}

/// Waits until there may be something to do, at most `timeout_ns`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_wait(
    session: *mut rpcrdma_session,
    timeout_ns: u64,
) -> c_int {
    shared!(session);
    let session = value!(session.polled.free());
    caught(|| {
        each!(AnySession, session, session => session.wait(Duration::from_nanos(timeout_ns)));
        OK
    })
}

/// The shard behind it, for memory, tickets and limits. It ends with the next call on the session.
/// NULL for NULL.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_turn(
    session: *mut rpcrdma_session,
    now_ns: u64,
) -> *mut rpcrdma_turn {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let Some(session) = (unsafe { session.as_ref() }) else { return ptr::null_mut() };
    session.polled.lend(now_ns, Lender::of(session))
}

/// The handle to reach it from other threads. It ends with the session: clone it to keep it for
/// longer. NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_handle(
    session: *mut rpcrdma_session,
) -> *const rpcrdma_handle {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    unsafe { session.as_ref() }.map_or(ptr::null(), |session| ptr::from_ref(&session.handle))
}

/// Sleeps, or not, as `engine.idle` says, after a poll that was `busy` (not 0) or not. It ends for
/// everything that is due. 1 if the thread has yielded its core: read the clock anew; otherwise 0.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_idle(
    session: *mut rpcrdma_session,
    busy: c_int,
    now_ns: u64,
) -> c_int {
    shared!(session);
    let session = value!(session.polled.free());
    caught(|| {
        each!(AnySession, session, session => session.idle(busy != 0, now_ns, Duration::MAX)).into()
    })
}

/// Announces that the thread is about to sleep in an event loop, and looks once more: 0 if there is
/// work, so poll; 1 if the thread may sleep until `rpcrdma_session_fd` is readable, at most
/// `most_ns` (`UINT64_MAX` without a limit), and then polls. Submit first, then arm.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_arm(
    session: *mut rpcrdma_session,
    now_ns: u64,
    most_ns: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    shared!(session);
    given!(most_ns);
    let session = value!(session.polled.free());
    polled::armed(each!(AnySession, session, session => session.arm(now_ns)), most_ns)
}

/// The descriptor that ends the sleep announced by `rpcrdma_session_arm`, for epoll or poll. It is
/// level-triggered, and the session's: do not close it. Negative on failure.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_session_fd(session: *mut rpcrdma_session) -> c_int {
    shared!(session);
    session.fd
}

fn make(
    client: rpcrdma_client,
    addresses: &[Address],
    options: &SessionOptions,
) -> Result<Box<rpcrdma_session>, SetupError> {
    let (client, handle, fd) = client.into_parts();
    let to = addresses.iter().copied();
    let session =
        each_into!(AnyClient, client, client => AnySession, Session::new(client, to, options)?);
    let mut session = Box::new(rpcrdma_session { polled: Polled::new(session), handle, fd });
    let (owner, number) = (Lender::of(&*session), session.handle.0.shard());
    *session.polled.call() = rpcrdma_call::of(owner, number);
    Ok(session)
}

impl Owner for rpcrdma_session {
    fn with(&self, now: u64, act: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int> {
        self.polled
            .polling(|session| each!(AnySession, session, session => act(&mut session.turn(now))))
    }

    fn look(&self) -> Result<(), c_int> {
        self.polled.with_kept_call().map(drop)
    }

    /// The session's own completions are not those of such a call.
    fn begin(&self, _: rpcrdma_connection, _: u64) -> Result<&mut rpcrdma_call, c_int> {
        Err(invalid("turn: begin calls with rpcrdma_session_call"))
    }

    fn submit(&self, _: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int> {
        Err(invalid("call"))
    }

    fn session_call(&self, cookie: u64) -> Result<AnySessionCall, c_int> {
        let session = self.polled.with_kept_call()?;
        Ok(each_into!(AnySession, session, it => AnySessionCall, forever(it.call(cookie))))
    }
}

/// A call for as long as its session is not used for anything else: [`Polled`] sees to that.
#[inline(always)]
fn forever<P: Provider>(call: SessionCall<'_, P>) -> SessionCall<'static, P> {
    let call = ManuallyDrop::new(call);
    // SAFETY: only the lifetime changes, and the original is not used again.
    unsafe { transmute_copy::<SessionCall<'_, P>, SessionCall<'static, P>>(&call) }
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
