//! A shard that the program polls on its own thread.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd};

use ::rpcrdma_engine::{SetupError, Shard, Turn};

use crate::arguments::{OK, address, caught, give, given, shared, value};
use crate::call::{Lender, Owner, rpcrdma_call};
use crate::engine::rpcrdma_engine;
use crate::failure::{Failure, fail, setup};
use crate::handle::rpcrdma_handle;
use crate::handler::{Callbacks, Factory, attempt_of, rpcrdma_handler};
use crate::message::rpcrdma_connection;
use crate::polled::{self, Polled};
use crate::provider::{AnyEngine, any, each, each_into};
use crate::turn::rpcrdma_turn;

type Served<P> = Shard<P, Callbacks>;

any!(AnyShard, Served);

/// A shard that serves the engine's listeners, and that its program polls.
pub struct rpcrdma_shard {
    pub(crate) polled: Polled<AnyShard>,
    handle: rpcrdma_handle,
    fd: c_int,
}

/// A shard for the calling thread to poll. It calls `handler->start` before it returns.
///
/// Thread: one at a time; the calling thread polls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_new(
    engine: Option<&mut rpcrdma_engine>,
    handler: *const rpcrdma_handler,
    shard: Option<&mut MaybeUninit<*mut rpcrdma_shard>>,
) -> c_int {
    given!(engine, shard);
    // SAFETY: the program passes a structure with its size.
    let factory = value!(unsafe { Factory::of(handler) });
    caught(|| match make(&engine.engine, &factory) {
        Ok(made) => give(shard, made),
        Err(error) => setup(&error),
    })
}

/// Ends a shard at once, with its connections. NULL is ignored. Inside a callback of the
/// shard it does nothing.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_free(shard: *mut rpcrdma_shard) {
    // SAFETY: the program had it from `rpcrdma_shard_new`.
    unsafe { polled::free(shard, |shard| &shard.polled) };
}

/// Does all available work once: 1 if there was any, 0 if not. Never blocks.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_poll(shard: *mut rpcrdma_shard, now_ns: u64) -> c_int {
    shared!(shard);
    caught(|| {
        let busy =
            shard.polled.polling(|shard| each!(AnyShard, shard, shard => shard.poll_once(now_ns)));
        busy.map_or_else(|number| number, c_int::from)
    })
}

/// Polls until the shard is stopped, and waits as `engine.idle` says.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_run(shard: *mut rpcrdma_shard) -> c_int {
    shared!(shard);
    caught(|| {
        let ran = shard.polled.polling(|shard| each!(AnyShard, shard, shard => shard.run()));
        ran.map_or_else(|number| number, |()| OK)
    })
}

/// Requests a connection; `on_connect` or `on_refused` receives the outcome with `attempt`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_connect(
    shard: *mut rpcrdma_shard,
    to: *const c_char,
    attempt: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    shared!(shard);
    given!(attempt);
    // SAFETY: the program passes a text.
    let to = value!(unsafe { address(to) });
    let shard = value!(shard.polled.free());
    caught(|| match each!(AnyShard, shard, shard => shard.connect(to)) {
        Ok(id) => {
            attempt.write(attempt_of(id));
            OK
        }
        Err(error) => setup(&error),
    })
}

/// Whether the shard was asked to stop and has stopped.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_is_stopped(shard: *mut rpcrdma_shard) -> bool {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let shard = unsafe { shard.as_ref() };
    let Some(Ok(shard)) = shard.map(|shard| shard.polled.free()) else { return false };
    each!(AnyShard, shard, shard => shard.is_stopped())
}

/// Sleeps, or not, as `engine.idle` says, after a poll that was `busy` (not 0) or not; at most
/// `timeout_ns`. 1 if the thread has yielded its core: read the clock anew; otherwise 0.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_idle(
    shard: *mut rpcrdma_shard,
    busy: c_int,
    now_ns: u64,
    timeout_ns: u64,
) -> c_int {
    shared!(shard);
    let shard = value!(shard.polled.free());
    caught(|| {
        each!(AnyShard, shard, shard => shard.idle(busy != 0, now_ns, Duration::from_nanos(timeout_ns))).into()
    })
}

/// Announces that the thread is about to sleep in an event loop, and looks once more: 0 if there is
/// work, so poll; 1 if the thread may sleep until `rpcrdma_shard_fd` is readable, at most `most_ns`
/// (`UINT64_MAX` without a limit), and then polls. Submit first, then arm.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_arm(
    shard: *mut rpcrdma_shard,
    now_ns: u64,
    most_ns: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    shared!(shard);
    given!(most_ns);
    let shard = value!(shard.polled.free());
    polled::armed(each!(AnyShard, shard, shard => shard.arm(now_ns)), most_ns)
}

/// The descriptor that ends the sleep announced by `rpcrdma_shard_arm`, for epoll or poll. It is
/// level-triggered, and the shard's: do not close it. Negative on failure.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_fd(shard: *mut rpcrdma_shard) -> c_int {
    shared!(shard);
    shard.fd
}

/// Waits until there may be something to do, at most `timeout_ns`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_wait(shard: *mut rpcrdma_shard, timeout_ns: u64) -> c_int {
    shared!(shard);
    let shard = value!(shard.polled.free());
    caught(|| {
        each!(AnyShard, shard, shard => shard.wait(Duration::from_nanos(timeout_ns)));
        OK
    })
}

/// The shard behind it, for memory, tickets and limits. It ends with the next call on the shard.
/// NULL for NULL.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_turn(
    shard: *mut rpcrdma_shard,
    now_ns: u64,
) -> *mut rpcrdma_turn {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let Some(shard) = (unsafe { shard.as_ref() }) else { return ptr::null_mut() };
    shard.polled.lend(now_ns, Lender::of(shard))
}

/// The handle to reach it from other threads. It ends with the shard: clone it to keep it for
/// longer. NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_handle(shard: *mut rpcrdma_shard) -> *const rpcrdma_handle {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    unsafe { shard.as_ref() }.map_or(ptr::null(), |shard| ptr::from_ref(&shard.handle))
}

fn make(engine: &AnyEngine, factory: &Factory) -> Result<Box<rpcrdma_shard>, SetupError> {
    let shard = each_into!(AnyEngine, engine, engine => AnyShard, {
        // The handle comes with the shard: the context is made when there is one.
        let mut shard = engine.shard(factory.later())?;
        let handle = shard.handle().clone();
        shard.handler().start(handle);
        shard
    });
    let handle = each!(AnyShard, &shard, shard => rpcrdma_handle(shard.handle().clone()));
    let fd = each!(AnyShard, &shard, shard => shard.as_fd().as_raw_fd());
    let mut shard = Box::new(rpcrdma_shard { polled: Polled::new(shard), handle, fd });
    let (owner, number) = (Lender::of(&*shard), shard.handle.0.shard());
    *shard.polled.call() = rpcrdma_call::of(owner, number);
    Ok(shard)
}

impl Owner for rpcrdma_shard {
    fn with(&self, now: u64, act: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int> {
        self.polled.polling(|shard| each!(AnyShard, shard, shard => act(&mut shard.turn(now))))
    }

    fn look(&self) -> Result<(), c_int> {
        self.polled.with_kept_call().map(drop)
    }

    fn begin(
        &self,
        connection: rpcrdma_connection,
        cookie: u64,
    ) -> Result<&mut rpcrdma_call, c_int> {
        let (shard, call) = self.polled.beginning()?;
        // The time has no effect on it.
        let begun = each!(AnyShard, shard, shard => {
            shard.turn(0).call(connection.name(), cookie).map(|builder| {
                call.begin(builder, connection, cookie);
            })
        });
        match begun {
            Ok(()) => Ok(call),
            Err(why) => Err(fail(Failure::Refused(why))),
        }
    }

    fn submit(&self, act: &mut dyn FnMut(&mut Turn<'_>)) -> Result<(), c_int> {
        let shard = self.polled.with_kept_call()?;
        each!(AnyShard, shard, shard => act(&mut shard.turn(0)));
        Ok(())
    }
}
