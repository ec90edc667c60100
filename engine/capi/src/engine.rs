//! The engine: a device, its listeners, and the threads of its shards.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::ffi::CString;

use ::rpcrdma_engine::control::Admissions;
use ::rpcrdma_engine::{
    Clock, Config, Engine, Fabric, Panicked, SetupError, ShmName, provider_for,
};

use crate::arguments::{OK, address, array, caught, give, given, taken_back, value, write_text};
use crate::config::rpcrdma_config;
use crate::failure::{invalid, setup};
use crate::handle::rpcrdma_handle;
use crate::handler::{Factory, rpcrdma_handler};
use crate::provider::{AnyControl, AnyEngine, each};
use crate::stats::{rpcrdma_counter, write_counters};

/// Room for any address as text, with its NUL.
pub const RPCRDMA_ADDRESS_MAX: usize = 128;

const _: () = assert!("shm:".len() + ShmName::LEN_MAX < RPCRDMA_ADDRESS_MAX);

/// A device with shards on it.
pub struct rpcrdma_engine {
    pub(crate) engine: AnyEngine,
    /// If the program steps it.
    control: Option<AnyControl>,
    /// Those with threads. In boxes: the program has pointers to them.
    #[expect(clippy::vec_box, reason = "a handle stays where it is when more shards start")]
    shards: Vec<Box<rpcrdma_handle>>,
}

/// Opens the device that the configuration names (`engine.provider`), with a control thread. "auto"
/// opens the software fabric, which connects the shards and clients of one engine. The
/// configuration is copied.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_new(
    config: Option<&rpcrdma_config>,
    engine: Option<&mut MaybeUninit<*mut rpcrdma_engine>>,
) -> c_int {
    open(config, true, engine)
}

/// As `rpcrdma_engine_new`, for a program that listens at this address, or connects to it. If the
/// configuration says "auto", it opens the provider that leads there: shared memory for "shm:...", an
/// RDMA device for an IP address that one has, or whose route begins at one, and TCP for another.
/// `rpcrdma_engine_provider` states which. Without an address (NULL) both ends are in the program.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_new_for(
    config: Option<&rpcrdma_config>,
    at: *const c_char,
    engine: Option<&mut MaybeUninit<*mut rpcrdma_engine>>,
) -> c_int {
    given!(config);
    let at = if at.is_null() {
        None
    } else {
        // SAFETY: the program passes a text.
        Some(value!(unsafe { address(at) }))
    };
    let mut raw = config.0.raw().clone();
    raw.engine.provider = provider_for(&config.0, at).as_str().into();
    let named = Config::try_from(raw).expect("the word of a provider is one of the key's");
    open(Some(&rpcrdma_config(named)), true, engine)
}

/// As `rpcrdma_engine_new`, without a control thread: the program steps the control plane, for
/// event loops of one thread and for tests. `rpcrdma_engine_listen` and `rpcrdma_client_connect`
/// do not wait for a step: begin connecting, step and poll.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_new_stepped(
    config: Option<&rpcrdma_config>,
    engine: Option<&mut MaybeUninit<*mut rpcrdma_engine>>,
) -> c_int {
    open(config, false, engine)
}

/// Processes connection requests and events of an engine without a control thread; waits for them
/// at most `timeout_ns`.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_step(
    engine: Option<&mut rpcrdma_engine>,
    timeout_ns: u64,
) -> c_int {
    given!(engine);
    let Some(control) = &mut engine.control else { return invalid("engine") };
    caught(|| {
        each!(AnyControl, control, control => control.step(Duration::from_nanos(timeout_ns)));
        OK
    })
}

/// Makes the first xids of shards and clients created from now on depend on `seed`, for
/// reproducible runs.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_seed_xids(
    engine: Option<&mut rpcrdma_engine>,
    seed: u64,
) -> c_int {
    given!(engine);
    each!(AnyEngine, &engine.engine, engine => engine.seed_xids(seed));
    OK
}

/// Stops all shards as `rpcrdma_engine_stop`, and frees the engine. Shards and clients that the
/// program polls, handles and loans stay valid, and are freed on their own. NULL is ignored. On the
/// thread of one of its shards, which cannot wait for itself, it frees nothing.
///
/// Thread: one at a time, not a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_free(engine: *mut rpcrdma_engine) {
    if is_of(engine) {
        let _ = on_own_shard();
        return;
    }
    // SAFETY: the program had it from one of the functions above.
    let engine = unsafe { taken_back(engine) };
    caught(|| {
        drop(engine);
        OK
    });
}

/// Listens at an address, such as "192.0.2.1:20049" or "shm:/run/store.sock", and distributes
/// connections over the serving shards in turn. Port 0, and "shm:@", select a free one.
///
/// `text` receives the address in use with a NUL at its end, in at most `len` bytes
/// (`RPCRDMA_ADDRESS_MAX` are enough); NULL if it is not needed. It listens even if the address is
/// cut off (`RPCRDMA_E_TRUNCATED`).
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_listen(
    engine: Option<&mut rpcrdma_engine>,
    at: *const c_char,
    text: *mut c_char,
    len: usize,
) -> c_int {
    given!(engine);
    // SAFETY: the program passes a text.
    let at = value!(unsafe { address(at) });
    caught(|| {
        let listening = match &mut engine.control {
            Some(control) => each!(AnyControl, control, control => control.listen(at)),
            None => each!(AnyEngine, &engine.engine, engine => engine.listen(at)),
        };
        match listening {
            // SAFETY: the program passes room for `len` bytes.
            Ok(at) => unsafe { write_text(&at, text, len) },
            Err(error) => setup(&error),
        }
    })
}

/// Starts the configured number of shards (`engine.shards`), each on its own thread with its own
/// context of the handler, and returns when all of them serve. The handler is copied. If it fails,
/// shards that have started run until `rpcrdma_engine_stop`.
///
/// Thread: one at a time, not a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_start(
    engine: Option<&mut rpcrdma_engine>,
    handler: *const rpcrdma_handler,
) -> c_int {
    given!(engine);
    // SAFETY: the program passes a structure with its size.
    let factory = value!(unsafe { Factory::of(handler) });
    let of = ptr::from_ref(engine).addr();
    caught(|| {
        let make = move |shard| {
            SHARD_OF.set(of);
            factory.make(shard)
        };
        match each!(AnyEngine, &mut engine.engine, engine => engine.start(make)) {
            Ok(shards) => {
                engine
                    .shards
                    .extend(shards.into_iter().map(|shard| Box::new(rpcrdma_handle(shard))));
                OK
            }
            Err(error) => setup(&error),
        }
    })
}

/// How many shards were started.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_shard_count(engine: Option<&rpcrdma_engine>) -> usize {
    engine.map_or(0, |engine| engine.shards.len())
}

/// The handle of a started shard; NULL behind the last. It belongs to the engine: clone it to keep
/// it for longer.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_shard(
    engine: Option<&rpcrdma_engine>,
    index: usize,
) -> *const rpcrdma_handle {
    let shard = engine.and_then(|engine| engine.shards.get(index));
    shard.map_or(ptr::null(), |shard| ptr::from_ref(&**shard))
}

/// Stops the started shards, and waits for them. A stopping shard delivers no new call, answers
/// those that it has delivered, and completes its own, until `connections.stop_timeout`.
/// `RPCRDMA_E_INVALID` on the thread of one of them, which cannot wait for itself.
///
/// Thread: one at a time, not a callback.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_stop(engine: Option<&mut rpcrdma_engine>) -> c_int {
    given!(engine);
    if is_of(engine) {
        return on_own_shard();
    }
    caught(|| {
        each!(AnyEngine, &mut engine.engine, engine => engine.stop());
        OK
    })
}

/// The provider that was opened: "fabric", "shm", "tcp" or "verbs". A constant text.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_provider(engine: Option<&rpcrdma_engine>) -> *const c_char {
    let name = match engine.map(|engine| &engine.engine) {
        None => c"",
        Some(AnyEngine::Fabric(_)) => c"fabric",
        Some(AnyEngine::Shm(_)) => c"shm",
        Some(AnyEngine::Tcp(_)) => c"tcp",
        #[cfg(feature = "verbs")]
        Some(AnyEngine::Verbs(_)) => c"verbs",
    };
    name.as_ptr()
}

/// Calls `report` once for each thread of the engine that panicked, and for each shard that panicked
/// while the program polled it, with a text that ends with the call. Earlier ones are reported
/// at once.
/// The thread that panicked calls it, at any time: `report` uses no function of the engine that is "one
/// at a time" while another thread may be in one, nor one that waits for a shard.
///
/// A client, session or shard that the program polls may outlive `rpcrdma_engine_free`, and then
/// still calls `report`: `arg` stays valid until the last of them is freed, too.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_on_failure(
    engine: Option<&mut rpcrdma_engine>,
    report: Option<unsafe extern "C" fn(arg: *mut c_void, text: *const c_char)>,
    arg: *mut c_void,
) -> c_int {
    given!(engine, report);
    let reporter = Reporter { report, arg };
    caught(|| {
        let report = move |panicked: &Panicked| reporter.report(panicked);
        each!(AnyEngine, &engine.engine, engine => engine.on_failure(report));
        OK
    })
}

/// How many threads of the engine have panicked.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_engine_failures(engine: Option<&rpcrdma_engine>) -> usize {
    let Some(engine) = engine else { return 0 };
    each!(AnyEngine, &engine.engine, engine => engine.failures().len())
}

/// What became of the connection requests of peers, counted by outcome: writes at most `capacity`
/// counters, and how many there are to `count`.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_admissions(
    engine: Option<&rpcrdma_engine>,
    counters: *mut rpcrdma_counter,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    given!(engine, count);
    let Admissions { accepted, not_allowed, refused, full, peer_full, busy, stopping, .. } =
        each!(AnyEngine, &engine.engine, engine => engine.admissions());
    let all = [
        (c"accepted", accepted),
        (c"not_allowed", not_allowed),
        (c"refused", refused),
        (c"full", full),
        (c"peer_full", peer_full),
        (c"busy", busy),
        (c"stopping", stopping),
    ];
    // SAFETY: the program passes so many places.
    let places = unsafe { array(counters.cast(), capacity) };
    count.write(write_counters(all.into_iter(), places));
    OK
}

/// The time of the library's monotonic clock, in nanoseconds. It costs some ten nanoseconds.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_now() -> u64 {
    Clock::new().now()
}

impl rpcrdma_engine {
    /// An engine that the program steps, over this fabric: for programs in Rust that count.
    ///
    /// # Errors
    /// As for `Engine::without_threads`.
    #[doc(hidden)]
    pub fn stepped_over(fabric: Fabric, config: Config) -> Result<Box<Self>, SetupError> {
        let (engine, control) = Engine::without_threads(fabric, config)?;
        let (engine, control) = (AnyEngine::Fabric(engine), Some(AnyControl::Fabric(control)));
        Ok(Box::new(rpcrdma_engine { engine, control, shards: Vec::new() }))
    }
}

fn open(
    config: Option<&rpcrdma_config>,
    has_thread: bool,
    engine: Option<&mut MaybeUninit<*mut rpcrdma_engine>>,
) -> c_int {
    given!(config, engine);
    caught(|| match AnyEngine::open(config.0.clone(), has_thread) {
        Ok((opened, control)) => {
            give(engine, rpcrdma_engine { engine: opened, control, shards: Vec::new() })
        }
        Err(error) => setup(&error),
    })
}

thread_local! {
    /// The address of the engine that has started a shard on this thread; 0 for none.
    static SHARD_OF: Cell<usize> = const { Cell::new(0) };
}

/// Whether the engine has started a shard on this thread.
fn is_of(engine: *const rpcrdma_engine) -> bool {
    !engine.is_null() && SHARD_OF.get() == engine.addr()
}

#[cold]
fn on_own_shard() -> c_int {
    invalid("engine: its shard cannot wait for itself")
}

/// The function of the program that gets failures.
struct Reporter {
    report: unsafe extern "C" fn(arg: *mut c_void, text: *const c_char),
    arg: *mut c_void,
}

// SAFETY: the header states that any thread of the engine calls it.
unsafe impl Send for Reporter {}

// SAFETY: as above; the engine calls it from one thread at a time, and the header says "any thread".
unsafe impl Sync for Reporter {}

impl Reporter {
    fn report(&self, panicked: &Panicked) {
        let text = CString::new(panicked.to_string().replace('\0', " ")).unwrap_or_default();
        // SAFETY: the program gave it for this; the text stays during the call.
        unsafe { (self.report)(self.arg, text.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::client::{rpcrdma_client, rpcrdma_client_handle, rpcrdma_client_send};
    use crate::client::{rpcrdma_client_connect, rpcrdma_client_free, rpcrdma_client_new};
    use crate::config::{rpcrdma_config_default, rpcrdma_config_free};
    use crate::handler::rpcrdma_handler;
    use crate::inspect::rpcrdma_handle_inspect;
    use crate::provider::AnyClient;
    use crate::status::rpcrdma_status::RPCRDMA_E_PANICKED;

    unsafe extern "C" fn count(arg: *mut c_void, _text: *const c_char) {
        // SAFETY: the test passes this counter, which outlives the client.
        unsafe { &*arg.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
    }

    /// The value that a function gives.
    fn made<T>(make: impl FnOnce(Option<&mut MaybeUninit<T>>) -> c_int) -> T {
        let mut place = MaybeUninit::uninit();
        assert_eq!(make(Some(&mut place)), OK);
        // SAFETY: the function has returned success.
        unsafe { place.assume_init() }
    }

    #[test]
    #[expect(
        clippy::multiple_unsafe_ops_per_block,
        reason = "it is a C program, as far as it can be"
    )]
    fn a_panic_is_reported_also_by_a_client_that_outlives_its_engine() {
        for outlives in [false, true] {
            let reported = AtomicUsize::new(0);
            // SAFETY: all pointers are those that the library gave, or to objects of this function.
            unsafe {
                let config = made(|out| rpcrdma_config_default(out));
                let engine = made(|out| rpcrdma_engine_new(config.as_ref(), out));
                rpcrdma_config_free(config);
                let arg = ptr::from_ref(&reported).cast_mut().cast();
                assert_eq!(rpcrdma_engine_on_failure(engine.as_mut(), Some(count), arg), OK);
                assert_eq!(rpcrdma_engine_start(engine.as_mut(), &rpcrdma_handler::NONE), OK);
                let (mut at, any) = ([0; 64], c"127.0.0.1:0".as_ptr());
                let (room, len) = (at.as_mut_ptr(), at.len());
                assert_eq!(rpcrdma_engine_listen(engine.as_mut(), any, room, len), OK);
                let client = made(|out| rpcrdma_client_new(engine.as_mut(), out));
                let to = made(|out| rpcrdma_client_connect(client, at.as_ptr(), out));
                assert_eq!(rpcrdma_client_send(client, to, 1, ptr::null(), 0, 0), OK);
                assert_eq!(rpcrdma_engine_failures(engine.as_ref()), 0);
                if outlives {
                    rpcrdma_engine_free(engine);
                }
                assert_eq!(reported.load(Ordering::SeqCst), 0);
                panic_in(client);
                assert_eq!(reported.load(Ordering::SeqCst), 1);
                if !outlives {
                    assert_eq!(rpcrdma_engine_failures(engine.as_ref()), 1);
                    let (mut report, client) =
                        (MaybeUninit::uninit(), rpcrdma_client_handle(client).as_ref());
                    let inspected = rpcrdma_handle_inspect(client, 1, Some(&mut report));
                    assert_eq!(inspected, RPCRDMA_E_PANICKED.number());
                    rpcrdma_engine_free(engine);
                }
                rpcrdma_client_free(client);
            }
        }
    }

    /// Panics when the call of a client is answered, or lost with its server.
    ///
    /// # Safety
    /// The client is the library's, and not in use.
    unsafe fn panic_in(client: *mut rpcrdma_client) {
        // SAFETY: the caller guarantees it.
        let polled = unsafe { (*client).polled.free() }.expect("no callback uses it");
        let panicked = each!(AnyClient, polled, client => {
            let long = Duration::from_secs(60);
            catch_unwind(AssertUnwindSafe(|| client.poll_for(long, |_| panic!("a test"))))
        });
        assert!(panicked.is_err(), "the call has ended");
    }
}
