//! The engine: a device, its listeners, and the threads of its shards.

use core::ffi::{c_char, c_int, c_void};

use crate::config::rpcrdma_config;
use crate::handle::rpcrdma_handle;
use crate::handler::rpcrdma_handler;
use crate::stats::rpcrdma_counter;
use crate::unfinished;

/// A device with shards on it.
pub struct rpcrdma_engine {
    _engine: (),
}

/// Opens the device that the configuration names (`engine.provider`), with a control thread. "auto"
/// opens the software fabric, which connects the shards and clients of one engine. The
/// configuration is copied.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_new(
    config: *const rpcrdma_config,
    engine: *mut *mut rpcrdma_engine,
) -> c_int {
    unfinished()
}

/// As `rpcrdma_engine_new`, without a control thread: the program steps the control plane, for
/// event loops of one thread and for tests. `rpcrdma_engine_listen` and `rpcrdma_client_connect`
/// do not wait for a step: begin connecting, step and poll.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_new_stepped(
    config: *const rpcrdma_config,
    engine: *mut *mut rpcrdma_engine,
) -> c_int {
    unfinished()
}

/// Processes connection requests and events of an engine without a control thread; waits for them
/// at most `timeout_ns`.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_step(
    engine: *mut rpcrdma_engine,
    timeout_ns: u64,
) -> c_int {
    unfinished()
}

/// Makes the first xids of shards and clients created from now on depend on `seed`, for
/// reproducible runs.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_seed_xids(engine: *mut rpcrdma_engine, seed: u64) -> c_int {
    unfinished()
}

/// Stops all shards as `rpcrdma_engine_stop`, and frees the engine. Shards and clients that the
/// program polls, handles and loans stay valid, and are freed on their own. NULL is ignored.
///
/// Thread: one at a time, not a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_free(engine: *mut rpcrdma_engine) {}

/// Listens at an address, such as "192.0.2.1:20049" or "shm:/run/store.sock", and distributes
/// connections over the serving shards in turn. Port 0, and "shm:@", select a free one.
///
/// `text` receives the address in use with a NUL at its end, in at most `len` bytes; NULL if it is
/// not needed.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_listen(
    engine: *mut rpcrdma_engine,
    at: *const c_char,
    text: *mut c_char,
    len: usize,
) -> c_int {
    unfinished()
}

/// Starts the configured number of shards (`engine.shards`), each on its own thread with its own
/// context of the handler, and returns when all of them serve.
///
/// Thread: one at a time, not a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_start(
    engine: *mut rpcrdma_engine,
    handler: *const rpcrdma_handler,
) -> c_int {
    unfinished()
}

/// How many shards were started.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_shard_count(engine: *const rpcrdma_engine) -> usize {
    0
}

/// The handle of a started shard; NULL behind the last. It belongs to the engine: clone it to keep
/// it for longer.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_shard(
    engine: *const rpcrdma_engine,
    index: usize,
) -> *const rpcrdma_handle {
    core::ptr::null()
}

/// Stops the started shards, and waits for them. A stopping shard delivers no new call, answers
/// those that it has delivered, and completes its own, until `connections.stop_timeout`.
///
/// Thread: one at a time, not a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_stop(engine: *mut rpcrdma_engine) -> c_int {
    unfinished()
}

/// The provider that was opened: "fabric", "shm" or "verbs". A constant text.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_provider(engine: *const rpcrdma_engine) -> *const c_char {
    c"".as_ptr()
}

/// Calls `tell` once for each thread of the engine that panicked, and for each shard that panicked
/// while the program polled it, with a text that ends with the call. Earlier ones are told at once.
/// The thread that panicked calls it.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_on_failure(
    engine: *mut rpcrdma_engine,
    tell: Option<unsafe extern "C" fn(arg: *mut c_void, text: *const c_char)>,
    arg: *mut c_void,
) -> c_int {
    unfinished()
}

/// How many threads of the engine have panicked.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_failures(engine: *const rpcrdma_engine) -> usize {
    0
}

/// What became of the connection requests of peers, counted by outcome: writes at most `capacity`
/// counters, and how many there are to `count`.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_admissions(
    engine: *const rpcrdma_engine,
    counters: *mut rpcrdma_counter,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    unfinished()
}

/// The time of the library's monotonic clock, in nanoseconds. It costs some ten nanoseconds.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_now() -> u64 {
    0
}
