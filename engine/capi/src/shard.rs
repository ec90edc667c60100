//! A shard that the program polls on its own thread.

use core::ffi::{c_char, c_int};

use crate::engine::rpcrdma_engine;
use crate::handle::rpcrdma_handle;
use crate::handler::rpcrdma_handler;
use crate::turn::rpcrdma_turn;
use crate::unfinished;

/// A shard that serves the engine's listeners, and that its program polls.
pub struct rpcrdma_shard {
    _shard: (),
}

/// A shard for the calling thread to poll. It calls `handler->start` before it returns.
///
/// Thread: one at a time; the calling thread polls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_new(
    engine: *mut rpcrdma_engine,
    handler: *const rpcrdma_handler,
    shard: *mut *mut rpcrdma_shard,
) -> c_int {
    unfinished()
}

/// Ends a shard at once, with its connections. NULL is ignored.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_free(shard: *mut rpcrdma_shard) {}

/// Does all available work once: 1 if there was any, 0 if not. Never blocks.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_poll(shard: *mut rpcrdma_shard, now_ns: u64) -> c_int {
    unfinished()
}

/// Polls until the shard is stopped, and waits as `engine.idle` says.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_run(shard: *mut rpcrdma_shard) -> c_int {
    unfinished()
}

/// Requests a connection; `on_connect` or `on_refused` receives the outcome with `attempt`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_connect(
    shard: *mut rpcrdma_shard,
    to: *const c_char,
    attempt: *mut u64,
) -> c_int {
    unfinished()
}

/// Whether the shard was told to stop and has stopped.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_is_stopped(shard: *const rpcrdma_shard) -> bool {
    true
}

/// Sleeps, or not, as `engine.idle` says, after a poll that was `busy` (not 0) or not; at most
/// `timeout_ns`. 1 if the thread has yielded its core: read the clock anew; otherwise 0.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_rest(
    shard: *mut rpcrdma_shard,
    busy: c_int,
    now_ns: u64,
    timeout_ns: u64,
) -> c_int {
    unfinished()
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
    most_ns: *mut u64,
) -> c_int {
    unfinished()
}

/// The descriptor that ends the sleep announced by `rpcrdma_shard_arm`, for epoll or poll. It is
/// level-triggered, and the shard's: do not close it. Negative on failure.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_fd(shard: *const rpcrdma_shard) -> c_int {
    unfinished()
}

/// Waits until there may be something to do, at most `timeout_ns`.
///
/// Thread: polling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_wait(shard: *mut rpcrdma_shard, timeout_ns: u64) -> c_int {
    unfinished()
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
    core::ptr::null_mut()
}

/// The handle to reach it from other threads. It ends with the shard: clone it to keep it for
/// longer. NULL for NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_shard_handle(
    shard: *const rpcrdma_shard,
) -> *const rpcrdma_handle {
    core::ptr::null()
}
