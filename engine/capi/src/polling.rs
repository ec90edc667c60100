//! Polling, waiting and sleeping: the same for a shard, a client and a session.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;

use ::rpcrdma::Armed;

use crate::arguments::{OK, caught, given, shared, value};
use crate::done::Done;
use crate::handle::rpcrdma_handle;
use crate::message::rpcrdma_on_completion;
use crate::polled::{self, rpcrdma_polled};

/// Ends a shard, client or session at once, with its connections and calls. NULL is ignored. Inside
/// a callback of the object it does nothing.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_polled_free(polled: *mut rpcrdma_polled) {
    // SAFETY: the program had it from `rpcrdma_shard_new` or one of the others.
    unsafe { polled::free(polled) };
}

/// Does all available work once: sends what was submitted, processes arrivals, connects a session.
/// 1 if there was any, 0 if not. Never blocks. Every completion of a client or session is passed to
/// `done`, which must not use it; those of a shard that serves go to its `on_reply` instead.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_poll(
    polled: *mut rpcrdma_polled,
    now_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    shared!(polled);
    let done = Done::of(done, arg);
    caught(|| {
        let busy = polled.polling(|object| object.poll(now_ns, &done));
        busy.map_or_else(|number| number, c_int::from)
    })
}

/// As `rpcrdma_poll`, until there was work, at most `timeout_ns`; with the clock of `rpcrdma_now`.
/// After some ten microseconds without work the thread sleeps.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_poll_for(
    polled: *mut rpcrdma_polled,
    timeout_ns: u64,
    done: rpcrdma_on_completion,
    arg: *mut c_void,
) -> c_int {
    shared!(polled);
    let (done, timeout) = (Done::of(done, arg), Duration::from_nanos(timeout_ns));
    caught(|| {
        let busy = polled.polling(|object| object.poll_for(timeout, &done));
        busy.map_or_else(|number| number, c_int::from)
    })
}

/// Polls a shard that serves until it is stopped, and waits as `engine.idle` says.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_run(shard: *mut rpcrdma_polled) -> c_int {
    shared!(shard);
    caught(|| {
        let ran = shard.polling(|object| object.run()).and_then(|ran| ran);
        ran.map_or_else(|number| number, |()| OK)
    })
}

/// Sleeps, or not, as `engine.idle` says, after a poll that was `busy` (not 0) or not; at most
/// `timeout_ns`, and not beyond what is due. 1 if the thread has yielded its core: read the clock
/// anew; otherwise 0.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_idle(
    polled: *mut rpcrdma_polled,
    busy: c_int,
    now_ns: u64,
    timeout_ns: u64,
) -> c_int {
    shared!(polled);
    let timeout = Duration::from_nanos(timeout_ns);
    caught(|| {
        let slept = polled.polling(|object| object.idle(busy != 0, now_ns, timeout));
        slept.map_or_else(|number| number, c_int::from)
    })
}

/// Waits until there may be something to do, at most `timeout_ns`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_wait(polled: *mut rpcrdma_polled, timeout_ns: u64) -> c_int {
    shared!(polled);
    caught(|| {
        let waited = polled.polling(|object| object.wait(Duration::from_nanos(timeout_ns)));
        waited.map_or_else(|number| number, |()| OK)
    })
}

/// Announces that the thread is about to sleep in an event loop, and looks once more: 0 if there is
/// work, so poll; 1 if the thread may sleep until `rpcrdma_fd` is readable, at most `most_ns`
/// (`UINT64_MAX` without a limit), and then polls. Submit first, then arm.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_arm(
    polled: *mut rpcrdma_polled,
    now_ns: u64,
    most_ns: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    shared!(polled);
    given!(most_ns);
    match value!(polled.polling(|object| object.arm(now_ns))) {
        Armed::Ready => 0,
        Armed::AtMost(most) => {
            most_ns.write(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
            1
        }
    }
}

/// The descriptor that ends the sleep announced by `rpcrdma_arm`, for epoll or poll. It is
/// level-triggered, and the object's: do not close it. Negative on failure.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_fd(polled: *mut rpcrdma_polled) -> c_int {
    shared!(polled);
    polled.fd
}

/// Whether all is over: a shard was asked to stop and has stopped, a session was closed and has no
/// call left, the shard of a client has ended.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_is_stopped(polled: *mut rpcrdma_polled) -> bool {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    let object = unsafe { polled.as_ref() }.and_then(|polled| polled.free().ok());
    object.is_some_and(|object| object.is_stopped())
}

/// The handle to reach it from other threads. It ends with the object: clone it to keep it for
/// longer. NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_handle_of(polled: *mut rpcrdma_polled) -> *const rpcrdma_handle {
    // SAFETY: the program passes NULL or what it was given, and has not freed it.
    unsafe { polled.as_ref() }.map_or(ptr::null(), |polled| ptr::from_ref(polled.handle()))
}
