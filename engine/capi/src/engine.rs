//! The engine: a device, its listeners, and the threads of its shards.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::net::SocketAddr;

use ::rpcrdma::control::Admissions;
use ::rpcrdma::metrics::MetricsServer;
use ::rpcrdma::{
    Clock, Config, Engine, Fabric, Panicked, SetupError, ShmName, built, provider_for,
};

use crate::arguments::{
    self, OK, address, array, caught, give, given, sized, taken_back, value, write_text,
};
use crate::config::rpcrdma_config;
use crate::failure::{c_text, invalid, setup, with_text};
use crate::handle::rpcrdma_handle;
use crate::handler::{Factory, rpcrdma_handler};
use crate::provider::{AnyControl, AnyEngine, each};
use crate::stats::{rpcrdma_counter, write_counters};
use crate::status::rpcrdma_status::RPCRDMA_E_LISTEN;

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
    /// Where its metrics are served, if they are.
    metrics: Option<MetricsServer>,
}

/// How an engine is opened. 0 and NULL are the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rpcrdma_engine_options {
    /// `sizeof(rpcrdma_engine_options)`.
    pub size: usize,
    /// Where the program is going to listen, or to connect to. If the configuration says "auto"
    /// (`engine.provider`), the provider that leads there is opened: shared memory for "shm:...", an
    /// RDMA device for an IP address that one has, or whose route begins at one, and TCP for another.
    /// NULL: the software fabric, which connects the shards and clients of one engine.
    pub address: *const c_char,
    /// Called once for each thread of the engine that panics, and for each shard that panics while
    /// the program polls it, with a text that ends with the call. The thread that panicked calls it,
    /// at any time: it uses no function of the engine that is "one at a time" while another thread
    /// may be in one, nor one that waits for a shard.
    ///
    /// A client, session or shard that the program polls may outlive `rpcrdma_engine_free`, and
    /// still calls it: `arg` stays valid until the last of them is freed, too.
    pub on_failure: Option<unsafe extern "C" fn(arg: *mut c_void, text: *const c_char)>,
    /// For `on_failure`.
    pub arg: *mut c_void,
    /// If not 0, the first xids of shards and clients depend on it, for reproducible runs.
    pub xid_seed: u64,
    /// Without a control thread: the program calls `rpcrdma_engine_step`, for event loops of one
    /// thread and for tests. `rpcrdma_engine_listen` and `rpcrdma_connect` do not wait for a step:
    /// begin connecting, step and poll.
    pub is_stepped: bool,
    /// 0.
    pub reserved: [u8; 7],
}

/// Opens the device that the configuration names (`engine.provider`), with a control thread. The
/// configuration is copied; NULL is the default one. `options` may be NULL.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_new(
    config: Option<&rpcrdma_config>,
    options: *const rpcrdma_engine_options,
    engine: Option<&mut MaybeUninit<*mut rpcrdma_engine>>,
) -> c_int {
    given!(engine);
    let options = match options.is_null() {
        true => rpcrdma_engine_options::NONE,
        // SAFETY: the program passes a structure with its size.
        false => value!(unsafe { sized(options, rpcrdma_engine_options::NONE, "options") }),
    };
    let mut config = config.map_or_else(Config::default, |config| config.0.clone());
    if !options.address.is_null() {
        // SAFETY: the program passes a text.
        let at = value!(unsafe { address(options.address) });
        let mut raw = config.raw().clone();
        raw.engine.provider = provider_for(&config, Some(at)).as_str().into();
        config = Config::try_from(raw).expect("the word of a provider is one of the key's");
    }
    caught(|| match AnyEngine::open(config, !options.is_stepped) {
        Ok((opened, control)) => {
            if options.xid_seed != 0 {
                each!(AnyEngine, &opened, it => it.seed_xids(options.xid_seed));
            }
            if let Some(report) = options.on_failure {
                let reporter = Reporter { report, arg: options.arg };
                let report = move |panicked: &Panicked| reporter.report(panicked);
                each!(AnyEngine, &opened, it => it.on_failure(report));
            }
            give(engine, rpcrdma_engine::of(opened, control))
        }
        Err(error) => setup(&error),
    })
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
    let Some(engine) = engine else { return c"".as_ptr() };
    let configured = each!(AnyEngine, &engine.engine, it => it.config().engine().provider);
    built::opened(configured).as_c_str().as_ptr()
}

/// What became of the connection requests of peers, counted by outcome, and "panics" of its
/// threads: writes at most `capacity` counters, and how many there are to `count`.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_stats(
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
        (c"panics", each!(AnyEngine, &engine.engine, engine => engine.failures().len()) as u64),
    ];
    // SAFETY: the program passes so many places.
    let places = unsafe { array(counters.cast(), capacity) };
    count.write(write_counters(all.into_iter(), places));
    OK
}

/// Serves the metrics of all shards to Prometheus, over HTTP at `GET /metrics` of an address of IP
/// such as "127.0.0.1:9464", on a thread of its own, until the engine is freed. Port 0 selects a
/// free one. There is neither encryption nor authentication. `text` receives the address in use, as
/// in `rpcrdma_engine_listen`. Serving them anew ends serving them where they were.
///
/// Thread: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpcrdma_engine_serve_metrics(
    engine: Option<&mut rpcrdma_engine>,
    at: *const c_char,
    text: *mut c_char,
    len: usize,
) -> c_int {
    given!(engine);
    // SAFETY: the program passes a text.
    let at = value!(unsafe { arguments::text(at, "at") });
    let at: SocketAddr =
        value!(at.parse().map_err(|_| invalid("at: no address of IP with a port")));
    caught(|| {
        engine.metrics = None;
        match each!(AnyEngine, &engine.engine, engine => engine.metrics()).serve(at) {
            Ok(server) => {
                let at = server.address();
                engine.metrics = Some(server);
                // SAFETY: the program passes room for `len` bytes.
                unsafe { write_text(&at, text, len) }
            }
            Err(error) => with_text(RPCRDMA_E_LISTEN, &error),
        }
    })
}

/// The time of the library's monotonic clock, in nanoseconds. It costs some ten nanoseconds.
///
/// Thread: any.
#[unsafe(no_mangle)]
pub extern "C" fn rpcrdma_now() -> u64 {
    Clock::new().now()
}

impl rpcrdma_engine {
    /// An engine that the program steps, over this fabric, with the first xids of the seed: for
    /// programs in Rust that count.
    ///
    /// # Errors
    /// As for `Engine::without_threads`.
    #[doc(hidden)]
    pub fn stepped_over(
        fabric: Fabric,
        config: Config,
        xid_seed: u64,
    ) -> Result<Box<Self>, SetupError> {
        let (engine, control) = Engine::without_threads(fabric, config)?;
        engine.seed_xids(xid_seed);
        Ok(Box::new(rpcrdma_engine::of(engine.into(), Some(control.into()))))
    }

    fn of(engine: AnyEngine, control: Option<AnyControl>) -> rpcrdma_engine {
        rpcrdma_engine { engine, control, shards: Vec::new(), metrics: None }
    }
}

impl rpcrdma_engine_options {
    /// Each field has its default.
    pub const NONE: rpcrdma_engine_options = rpcrdma_engine_options {
        size: size_of::<rpcrdma_engine_options>(),
        address: ptr::null(),
        on_failure: None,
        arg: ptr::null_mut(),
        xid_seed: 0,
        is_stepped: false,
        reserved: [0; 7],
    };
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
        let text = c_text(panicked);
        // SAFETY: the program gave it for this; the text stays during the call.
        unsafe { (self.report)(self.arg, text.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ::rpcrdma::Address;

    use super::*;
    use crate::inspect::rpcrdma_handle_inspect;
    use crate::status::rpcrdma_status::RPCRDMA_E_PANICKED;

    unsafe extern "C" fn count(arg: *mut c_void, _text: *const c_char) {
        // SAFETY: the test passes this counter, which outlives the client.
        unsafe { &*arg.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
    }

    /// Threads of the engine that have panicked, as it counts them.
    fn panics(engine: &rpcrdma_engine) -> u64 {
        let mut all = [const { MaybeUninit::<rpcrdma_counter>::uninit() }; 20];
        let mut count = MaybeUninit::uninit();
        let (places, room) = (all.as_mut_ptr().cast(), all.len());
        // SAFETY: there is room for so many counters.
        let number = unsafe { rpcrdma_engine_stats(Some(engine), places, room, Some(&mut count)) };
        assert_eq!(number, OK);
        // SAFETY: the function has returned success.
        let last = unsafe { count.assume_init() } - 1;
        // SAFETY: as above.
        unsafe { all[last].assume_init() }.value
    }

    #[test]
    fn a_panic_is_reported_also_by_a_client_that_outlives_its_engine() {
        for outlives in [false, true] {
            let reported = AtomicUsize::new(0);
            let options = rpcrdma_engine_options {
                on_failure: Some(count),
                arg: ptr::from_ref(&reported).cast_mut().cast(),
                ..rpcrdma_engine_options::NONE
            };
            let mut place = MaybeUninit::uninit();
            // SAFETY: the options are those of this function.
            assert_eq!(unsafe { rpcrdma_engine_new(None, &options, Some(&mut place)) }, OK);
            // SAFETY: the function has returned success.
            let engine = unsafe { place.assume_init() };
            // SAFETY: the engine is the test's.
            let mut engine = unsafe { Box::from_raw(engine) };
            let none = &rpcrdma_handler::NONE;
            // SAFETY: the handler has its size.
            assert_eq!(unsafe { rpcrdma_engine_start(Some(&mut engine), none) }, OK);
            let AnyEngine::Fabric(fabric) = &engine.engine else { panic!("a fabric") };
            let at = fabric.listen("127.0.0.1:0".parse::<Address>().expect("an address"));
            let mut client = fabric.client().expect("a client");
            let server = client.connect(at.expect("a listener")).expect("a server");
            client.call(server, 1).expect("room for a call").submit().expect("a server");
            let mut kept = (!outlives).then_some(engine);
            assert_eq!(kept.as_deref().map_or(0, panics), 0);
            assert_eq!(reported.load(Ordering::SeqCst), 0);
            // When the call is answered, or lost with its server.
            let long = Duration::from_secs(60);
            let poll = AssertUnwindSafe(|| client.poll_for(long, |_| panic!("a test")));
            assert!(catch_unwind(poll).is_err(), "the call has ended");
            assert_eq!(reported.load(Ordering::SeqCst), 1);
            if let Some(engine) = kept.take() {
                assert_eq!(panics(&engine), 1);
                let handle = rpcrdma_handle(client.handle().clone());
                let mut report = MaybeUninit::uninit();
                let inspected = rpcrdma_handle_inspect(Some(&handle), 1, Some(&mut report));
                assert_eq!(inspected, RPCRDMA_E_PANICKED.number());
            }
        }
    }
}
