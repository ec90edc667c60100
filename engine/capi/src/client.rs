//! The client: a calling shard that its program polls.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd};

use ::rpcrdma_engine::{SetupError, Turn};

use crate::arguments::{OK, address, bytes, caught, give, given, shared, value};
use crate::call::{Lender, Owner, rpcrdma_call};
use crate::call_id::rpcrdma_call_id;
use crate::done::Done;
use crate::engine::rpcrdma_engine;
use crate::failure::{Failure, fail, plain, setup};
use crate::handle::rpcrdma_handle;
use crate::handler::{attempt_of, id_of};
use crate::loan::rpcrdma_loan;
use crate::message::{rpcrdma_connection, rpcrdma_on_completion};
use crate::polled::{self, Polled};
use crate::provider::{AnyClient, AnyEngine, each, each_into};
use crate::status::rpcrdma_status::{RPCRDMA_E_NOTHING, RPCRDMA_E_PENDING};
use crate::turn::{buffer, release, rpcrdma_turn};

/// A shard that only sends calls, and that its program polls.
pub struct rpcrdma_client {
    pub(crate) polled: Polled<AnyClient>,
    handle: rpcrdma_handle,
    fd: c_int,
}

/// A client for the calling thread to poll.
///
/// Thread: one at a time; the calling thread polls it.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_client_new(
    engine: Option<&mut rpcrdma_engine>,
    client: Option<&mut MaybeUninit<*mut rpcrdma_client>>,
) -> c_int {
    given!(engine, client);
    caught(|| match make(&engine.engine) {
        Ok(made) => give(client, made),
        Err(error) => setup(&error),
    })
}

/// Ends a client at once, with its connections. NULL is ignored. Inside a callback of the
/// client it does nothing.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_free(client: *mut rpcrdma_client) {
    // SAFETY: the program had it from `rpcrdma_client_new`.
    unsafe { polled::free(client, |client| &client.polled) };
}

/// Connects and waits until calls can be made. Completions of other calls that arrive meanwhile
/// are lost: connect first. Needs an engine with a control thread.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_connect(
    client: *mut rpcrdma_client,
    to: *const c_char,
    connection: Option<&mut MaybeUninit<rpcrdma_connection>>,
) -> c_int {
    shared!(client);
    given!(connection);
    // SAFETY: the program passes a text.
    let to = value!(unsafe { address(to) });
    let client = value!(client.polled.free());
    caught(|| match each!(AnyClient, client, client => client.connect(to)) {
        Ok(name) => {
            connection.write(rpcrdma_connection::of(name));
            OK
        }
        Err(error) => setup(&error),
    })
}

/// Requests a connection; `rpcrdma_client_connected` returns the outcome after some polls.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_begin_connect(
    client: *mut rpcrdma_client,
    to: *const c_char,
    attempt: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    shared!(client);
    given!(attempt);
    // SAFETY: the program passes a text.
    let to = value!(unsafe { address(to) });
    let client = value!(client.polled.free());
    caught(|| match each!(AnyClient, client, client => client.begin_connect(to)) {
        Ok(id) => {
            attempt.write(attempt_of(id));
            OK
        }
        Err(error) => setup(&error),
    })
}

/// The outcome of an attempt to connect, once: 0 with `connection`, `RPCRDMA_E_PENDING` if it is
/// open (or was returned), otherwise why there is none.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_connected(
    client: *mut rpcrdma_client,
    attempt: u64,
    connection: Option<&mut MaybeUninit<rpcrdma_connection>>,
) -> c_int {
    shared!(client);
    given!(connection);
    let client = value!(client.polled.free());
    match each!(AnyClient, client, client => client.connected(id_of(attempt))) {
        None => plain(RPCRDMA_E_PENDING),
        Some(Err(why)) => fail(Failure::Connect(why)),
        Some(Ok(name)) => {
            connection.write(rpcrdma_connection::of(name));
            OK
        }
    }
}

/// Begins a call. `cookie` comes back with its completion. A call under construction is discarded.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_call(
    client: *mut rpcrdma_client,
    connection: rpcrdma_connection,
    cookie: u64,
    call: Option<&mut MaybeUninit<*mut rpcrdma_call>>,
) -> c_int {
    shared!(client);
    given!(call);
    call.write(value!(client.begin(connection, cookie)));
    OK
}

/// Begins a call, writes `len` bytes and their padding behind transaction id and message type, and
/// submits it, in one call: the fast way for calls without placed data and wants. The bytes begin
/// with the RPC header of the call, which a program may prepare once. `reply_payload_max` is that of
/// `rpcrdma_call_reply_payload_max`; 0 for the default. Of a call that is refused nothing is kept.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_send(
    client: *mut rpcrdma_client,
    connection: rpcrdma_connection,
    cookie: u64,
    data: *const u8,
    len: usize,
    reply_payload_max: u32,
) -> c_int {
    shared!(client);
    // SAFETY: the program passes so many bytes.
    let data = unsafe { bytes(data, len) };
    let (client, _) = value!(client.polled.beginning());
    let begun = each!(AnyClient, client, client => client.call(connection.name(), cookie));
    let sent = begun.and_then(|mut call| {
        call.payload().put_fixed(data);
        if reply_payload_max != 0 {
            call.reply_payload_max(reply_payload_max);
        }
        call.submit()
    });
    match sent {
        Ok(()) => OK,
        Err(why) => fail(Failure::Refused(why)),
    }
}

/// Ends a call before its reply: it completes with `RPCRDMA_E_CANCELLED` in the next poll, unless
/// its reply arrives first. `RPCRDMA_E_NOTHING` if it is over, `RPCRDMA_E_INVALID` if the id is not
/// of this client.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_cancel(
    client: *mut rpcrdma_client,
    call: rpcrdma_call_id,
) -> c_int {
    shared!(client);
    let name = value!(call.name(client.handle.0.shard()));
    let client = value!(client.polled.free());
    match each!(AnyClient, client, client => client.cancel(name)) {
        true => OK,
        false => plain(RPCRDMA_E_NOTHING),
    }
}

/// Sends submitted calls, processes arrivals and passes every completion to `done`: 1 if there was
/// work, 0 if not. Never blocks. `done` must not use the client.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_poll(
    client: *mut rpcrdma_client,
    now_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    shared!(client);
    let done = Done::of(done, arg);
    caught(|| {
        let busy = client.polled.polling(
            |client| each!(AnyClient, client, client => client.poll(now_ns, |it| done.report(it))),
        );
        busy.map_or_else(|number| number, c_int::from)
    })
}

/// As `rpcrdma_client_poll`, until there was work, at most `timeout_ns`; with the clock of
/// `rpcrdma_now`. After some ten microseconds without work the thread sleeps.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_poll_for(
    client: *mut rpcrdma_client,
    timeout_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    shared!(client);
    let (done, timeout) = (Done::of(done, arg), Duration::from_nanos(timeout_ns));
    caught(|| {
        let busy = client.polled.polling(|client| {
            each!(AnyClient, client, client => client.poll_for(timeout, |it| done.report(it)))
        });
        busy.map_or_else(|number| number, c_int::from)
    })
}

/// A registered buffer of the configured length: `loan` receives it. `RPCRDMA_E_NO_BUFFER` if none
/// is free.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_buffer(
    client: *mut rpcrdma_client,
    loan: Option<&mut MaybeUninit<rpcrdma_loan>>,
) -> c_int {
    shared!(client);
    given!(loan);
    let client = value!(client.polled.free());
    buffer(each!(AnyClient, client, client => client.turn(0).buffer()), loan)
}

/// Returns a loan, without the atomic operations of `rpcrdma_loan_free`. Takes it.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_release(
    client: *mut rpcrdma_client,
    loan: Option<&mut rpcrdma_loan>,
) -> c_int {
    shared!(client);
    given!(loan);
    let client = value!(client.polled.free());
    each!(AnyClient, client, client => release(&mut client.turn(0), loan))
}

/// Sleeps, or not, as `engine.idle` says, after a poll that was `busy` (not 0) or not; at most
/// `timeout_ns`. 1 if the thread has yielded its core: read the clock anew; otherwise 0.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_idle(
    client: *mut rpcrdma_client,
    busy: c_int,
    now_ns: u64,
    timeout_ns: u64,
) -> c_int {
    shared!(client);
    let client = value!(client.polled.free());
    caught(|| {
        each!(AnyClient, client, client => client.idle(busy != 0, now_ns, Duration::from_nanos(timeout_ns))).into()
    })
}

/// Announces that the thread is about to sleep in an event loop, and looks once more: 0 if there is
/// work, so poll; 1 if the thread may sleep until `rpcrdma_client_fd` is readable, at most `most_ns`
/// (`UINT64_MAX` without a limit), and then polls. Submit first, then arm.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_arm(
    client: *mut rpcrdma_client,
    now_ns: u64,
    most_ns: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    shared!(client);
    given!(most_ns);
    let client = value!(client.polled.free());
    polled::armed(each!(AnyClient, client, client => client.arm(now_ns)), most_ns)
}

/// The descriptor that ends the sleep announced by `rpcrdma_client_arm`, for epoll or poll. It is
/// level-triggered, and the client's: do not close it. Negative on failure.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_fd(client: *mut rpcrdma_client) -> c_int {
    shared!(client);
    client.fd
}

/// Waits until there may be something to do, at most `timeout_ns`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_wait(
    client: *mut rpcrdma_client,
    timeout_ns: u64,
) -> c_int {
    shared!(client);
    let client = value!(client.polled.free());
    caught(|| {
        each!(AnyClient, client, client => client.wait(Duration::from_nanos(timeout_ns)));
        OK
    })
}

/// The shard behind it, for memory, tickets and limits. It ends with the next call on the client.
/// NULL for NULL.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_turn(
    client: *mut rpcrdma_client,
    now_ns: u64,
) -> *mut rpcrdma_turn {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let Some(client) = (unsafe { client.as_ref() }) else { return ptr::null_mut() };
    client.polled.lend(now_ns, Lender::of(client))
}

/// The handle to reach it from other threads. It ends with the client: clone it to keep it for
/// longer. NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_client_handle(
    client: *mut rpcrdma_client,
) -> *const rpcrdma_handle {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    unsafe { client.as_ref() }.map_or(ptr::null(), |client| ptr::from_ref(&client.handle))
}

fn make(engine: &AnyEngine) -> Result<Box<rpcrdma_client>, SetupError> {
    let client = each_into!(AnyEngine, engine, engine => AnyClient, engine.client()?);
    let handle = each!(AnyClient, &client, client => rpcrdma_handle(client.handle().clone()));
    let fd = each!(AnyClient, &client, client => client.as_fd().as_raw_fd());
    let mut client = Box::new(rpcrdma_client { polled: Polled::new(client), handle, fd });
    let (owner, number) = (Lender::of(&*client), client.handle.0.shard());
    *client.polled.call() = rpcrdma_call::of(owner, number);
    Ok(client)
}

impl rpcrdma_client {
    /// The client, its handle and its descriptor.
    pub(crate) fn into_parts(self) -> (AnyClient, rpcrdma_handle, c_int) {
        (self.polled.into_object(), self.handle, self.fd)
    }
}

impl Owner for rpcrdma_client {
    fn with(&self, now: u64, act: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int> {
        self.polled.polling(|client| each!(AnyClient, client, client => act(&mut client.turn(now))))
    }

    fn look(&self) -> Result<(), c_int> {
        self.polled.with_kept_call().map(drop)
    }

    #[inline(always)]
    fn begin(
        &self,
        connection: rpcrdma_connection,
        cookie: u64,
    ) -> Result<&mut rpcrdma_call, c_int> {
        let (client, call) = self.polled.beginning()?;
        let begun = each!(AnyClient, client, client => {
            client.call(connection.name(), cookie).map(|builder| {
                call.begin(builder, connection, cookie);
            })
        });
        match begun {
            Ok(()) => Ok(call),
            Err(why) => Err(fail(Failure::Refused(why))),
        }
    }

    fn submit(&self, act: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int> {
        let client = self.polled.with_kept_call()?;
        each!(AnyClient, client, client => act(&mut client.turn(0)));
        Ok(())
    }
}
