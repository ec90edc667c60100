//! The engine: a device, its control plane, and the threads of its shards; and the shards that a
//! program polls.

pub mod client;
pub mod shard;

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rpcrdma_config::{Config, Cores, IdlePolicy};
use rpcrdma_mempool::{Topology, allowed_cores, pin_to};

use crate::api::handler::{Handler, RefuseCalls};
use crate::control::{Admissions, Control, ControlShared};
use crate::engine::client::Client;
use crate::engine::shard::Shard;
use crate::error::SetupError;
use crate::fabric::Fabric;
use crate::failure::{self, EngineThread, Failures, Panicked};
use crate::handle::ShardHandle;
use crate::provider::{Address, Provider};
use crate::registry::ShardRegistry;
use crate::scatter::scattered;
use crate::shard::Core;
use crate::shard::start::ShardNumbers;
use crate::trace;

/// A device with shards on it. The type of the device is chosen here and nowhere else.
///
/// Dropping the engine stops its threads and waits for them.
///
/// ```
/// # use rpcrdma::*;
/// # use std::time::Duration;
/// # struct Increment;
/// # impl Handler for Increment {
/// #     fn on_call<'a>(&mut self, call: Call<'a>, mut reply: Reply<'a>) -> Answer<'a> {
/// #         let Ok(number) = call.reader().u32() else { return reply.refuse() };
/// #         reply.payload().put_u32(number + 1);
/// #         reply.send()
/// #     }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut engine = Engine::new(Fabric::new(), Config::profile("laptop")?)?;
/// let shards = engine.start(|_shard| Increment)?; // a thread and a handler for each shard
/// let address = engine.listen("127.0.0.1:0".parse::<Address>()?)?;
/// let client = engine.client()?; // polled by this thread
/// # drop((shards, address, client));
/// # Ok(())
/// # }
/// ```
pub struct Engine<P: Provider = Fabric> {
    provider: Arc<P>,
    config: Arc<Config>,
    shared: Arc<ControlShared<P>>,
    xids: AtomicU64,
    control: Option<JoinHandle<()>>,
    threads: Vec<(ShardHandle, JoinHandle<()>)>,
    registry: Arc<ShardRegistry>,
}

impl<P: Provider> Engine<P> {
    /// An engine with its own control thread.
    ///
    /// # Errors
    /// If the device is not the one that the configuration names or has no connection manager, or
    /// no thread can be made.
    pub fn new(provider: P, config: Config) -> Result<Engine<P>, SetupError> {
        let (mut engine, control) = Engine::without_threads(provider, config)?;
        let thread = std::thread::Builder::new()
            .name("rpcrdma-control".into())
            .spawn(move || run_control(control))
            .map_err(thread_error)?;
        engine.control = Some(thread);
        Ok(engine)
    }

    /// An engine whose control plane the caller steps: for hosts with their own event loop, and for
    /// tests that control every step.
    ///
    /// # Errors
    /// If the device is not the one that the configuration names, or has no connection manager.
    pub fn without_threads(
        provider: P,
        config: Config,
    ) -> Result<(Engine<P>, Control<P>), SetupError> {
        provider.check(&config)?;
        let control = Control::new(&provider, &config)?;
        trace::engine_made(&provider.caps().name);
        let engine = Engine {
            provider: Arc::new(provider),
            config: Arc::new(config),
            shared: control.shared(),
            xids: AtomicU64::new(RandomState::new().hash_one(0)),
            control: None,
            threads: Vec::new(),
            registry: Arc::default(),
        };
        Ok((engine, control))
    }

    /// Makes the first xids of shards created from now on depend on `seed`, for reproducible runs.
    /// By default they are unpredictable: a server with a duplicate request cache must not take the
    /// first calls of a new program for the last calls of an earlier one (wire.md W24).
    pub fn seed_xids(&self, seed: u64) {
        self.xids.store(seed, Ordering::Relaxed);
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The device.
    pub fn provider(&self) -> &P {
        &self.provider
    }

    /// Listens for connections and distributes them over the serving shards in turn. Port 0 selects
    /// a free port; returns the address in use. The listener closes when the last serving shard
    /// begins to stop or is gone; a program that creates new shards listens again. For an engine
    /// without threads use [`Control::listen`].
    ///
    /// # Errors
    /// If the address is in use, not available or of a kind that the device does not take, or the
    /// control thread has panicked.
    pub fn listen(&self, at: impl Into<Address>) -> Result<Address, SetupError> {
        if self.control.is_none() {
            return Err(SetupError::Stopped);
        }
        self.shared.listen(at.into())
    }

    /// Threads of this engine that panicked, and shards that panicked while the program polled
    /// them, in order of occurrence.
    pub fn failures(&self) -> Vec<Panicked> {
        self.shared.failures.list()
    }

    /// What became of the connection requests of peers: accepted, or rejected for which reason.
    pub fn admissions(&self) -> Admissions {
        self.shared.tally.snapshot()
    }

    /// The shards of this engine that have not ended, in the order of their numbers: those of its
    /// threads, and those that the program polls.
    pub fn shards(&self) -> Vec<ShardHandle> {
        self.registry.shards()
    }

    /// The metrics of all shards of this engine, to serve to Prometheus.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> crate::metrics::Metrics {
        let ControlShared { tally, failures, .. } = &*self.shared;
        crate::metrics::Metrics::new(self.registry.clone(), tally.clone(), failures.clone())
    }

    /// Calls `notify` once for each of [`Engine::failures`], including later ones. For those, the
    /// thread that panicked calls it, after its connections have ended. `notify` may wake the main
    /// thread, start another shard, or end the process.
    pub fn on_failure(&self, notify: impl Fn(&Panicked) + Send + Sync + 'static) {
        self.shared.failures.on_failure(Arc::new(notify));
    }

    /// A shard for the calling thread to poll. It serves the engine's listeners.
    ///
    /// # Errors
    /// If memory or queues cannot be allocated.
    pub fn shard<H: Handler>(&self, handler: H) -> Result<Shard<P, H>, SetupError> {
        self.maker()?.make(true, |_| handler)
    }

    /// A client for the calling thread to poll: a shard that sends calls and rejects incoming ones.
    ///
    /// # Errors
    /// If memory or queues cannot be allocated.
    pub fn client(&self) -> Result<Client<P>, SetupError> {
        Ok(Client::new(self.maker()?.make(false, |_| RefuseCalls)?))
    }

    /// Starts the configured number of shards, each on its own thread, and returns when all of them
    /// serve. Each new thread runs `factory` once.
    ///
    /// # Errors
    /// The first error of any shard, including a panic of `factory`. Shards started before it run
    /// until [`Engine::stop`].
    pub fn start<H, F>(&mut self, factory: F) -> Result<Vec<ShardHandle>, SetupError>
    where
        H: Handler,
        F: Fn(ShardHandle) -> H + Send + Clone + 'static,
    {
        let mut handles = Vec::new();
        for core in self.cores()? {
            let (maker, factory) = (self.maker()?, factory.clone());
            let (report, outcome) = mpsc::channel();
            let thread = std::thread::Builder::new()
                .name("rpcrdma-shard".into())
                .spawn(move || {
                    let (shard, failures) = (maker.number, maker.shared.failures.clone());
                    let made = caught(shard, || maker.make_pinned(core, factory));
                    match made.unwrap_or_else(|why| Err(SetupError::Panicked(why))) {
                        Ok(made) => {
                            let _ = report.send(Ok(made.handle().clone()));
                            run_shard(made, &failures);
                        }
                        Err(error) => {
                            let _ = report.send(Err(error));
                        }
                    }
                })
                .map_err(thread_error)?;
            let handle: ShardHandle = outcome.recv().map_err(|_| SetupError::Stopped)??;
            self.threads.push((handle.clone(), thread));
            handles.push(handle);
        }
        Ok(handles)
    }

    /// Stops the threads of all shards as [`ShardHandle::stop`] does, and waits for them.
    pub fn stop(&mut self) {
        for (handle, _) in &self.threads {
            handle.stop();
        }
        for (_, thread) in self.threads.drain(..) {
            // The thread has caught and reported any panic.
            let _ = thread.join();
        }
    }

    fn maker(&self) -> Result<ShardMaker<P>, SetupError> {
        Ok(ShardMaker {
            provider: self.provider.clone(),
            config: self.config.clone(),
            shared: self.shared.clone(),
            first_xid: scattered(self.xids.fetch_add(1, Ordering::Relaxed)),
            number: next_number(&SHARDS)?,
            registry: self.registry.clone(),
        })
    }

    /// The core of each shard; `None` for a shard that is not pinned.
    fn cores(&self) -> Result<Vec<Option<u32>>, SetupError> {
        // All cores of the machine, not those of the calling thread: a program that pins its main
        // thread still wants its shards on other cores. `pin_to` fails if the kernel does not
        // permit a core.
        let topology = Topology::detect();
        let present: Vec<usize> = topology.cores.iter().map(|core| core.id as usize).collect();
        self.config.check_cores(&present).map_err(|error| SetupError::Config(error.to_string()))?;
        let engine = self.config.engine();
        let count = engine.shards.as_usize();
        Ok(match &engine.cores {
            Cores::List(cores) => {
                cores.iter().take(count).map(|&core| u32::try_from(core).ok()).collect()
            }
            // A spinning shard needs a core to itself; the first core is left to the rest of the
            // machine.
            Cores::Auto if engine.idle.policy == IdlePolicy::Spin => {
                let preferred = topology.cores_by_preference(None);
                preferred.into_iter().rev().take(count).map(Some).collect()
            }
            Cores::Auto => vec![None; count],
        })
    }
}

impl<P: Provider> Drop for Engine<P> {
    fn drop(&mut self) {
        self.stop();
        self.shared.stop();
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
    }
}

/// Everything needed to make a shard, on any thread.
struct ShardMaker<P: Provider> {
    provider: Arc<P>,
    config: Arc<Config>,
    shared: Arc<ControlShared<P>>,
    first_xid: u32,
    number: u32,
    registry: Arc<ShardRegistry>,
}

impl<P: Provider> ShardMaker<P> {
    /// Makes a shard whose thread stays on one core, with memory from that core's node.
    fn make_pinned<H: Handler>(
        self,
        core: Option<u32>,
        factory: impl FnOnce(ShardHandle) -> H,
    ) -> Result<Shard<P, H>, SetupError> {
        if let Some(core) = core {
            pin_to(core).map_err(|error| SetupError::Core { core, reason: error.to_string() })?;
        }
        self.make(true, factory)
    }

    /// Makes a shard on the core that this thread is on.
    fn make<H: Handler>(
        self,
        serves: bool,
        factory: impl FnOnce(ShardHandle) -> H,
    ) -> Result<Shard<P, H>, SetupError> {
        let numbers = ShardNumbers { shard: self.number, first_xid: self.first_xid };
        let mut core = Core::new(&self.provider, &self.config, numbers, self.numa_node())?;
        // Before any peer connects to it.
        let handler = factory(core.parts.handle.clone());
        core.link.set_backward(handler.backward());
        let connections_max = self.config.connections().max.as_usize();
        core.attach(&self.shared, serves, connections_max);
        self.registry.register(&core.parts.handle);
        trace::shard_started(self.number, serves, core.parts.handle.resources());
        Ok(Shard::new(core, handler, &self.config, self.shared.failures.clone()))
    }

    /// The NUMA node to allocate memory from: that of the only core that this thread may run on.
    fn numa_node(&self) -> Option<u32> {
        let allowed = allowed_cores();
        let [core] = allowed.as_slice() else { return None };
        let wanted = self.config.engine().numa_bind;
        wanted.then(|| Topology::detect().core(*core).map(|core| core.node)).flatten()
    }
}

/// The control thread. If it panics, waiting threads get an error, and the program is notified.
fn run_control<P: Provider>(mut control: Control<P>) {
    let failures = control.shared().failures.clone();
    let ended = catch_unwind(AssertUnwindSafe(|| control.run()));
    if let Err(panic) = ended {
        failures.record(failure::caught(EngineThread::Control, &*panic));
    }
    let _ = catch_unwind(AssertUnwindSafe(|| drop(control)));
    failures.notify();
}

/// The thread of a shard. A panic of its handler has already been reported here.
fn run_shard<P: Provider, H: Handler>(mut shard: Shard<P, H>, failures: &Failures) {
    let number = shard.handle().shard();
    let ended = catch_unwind(AssertUnwindSafe(|| shard.run()));
    // Not while the panic unwinds: a second one would abort the process.
    if let Err(failure) = caught(number, || drop(shard))
        && ended.is_ok()
    {
        failures.record(failure);
        failures.notify();
    }
}

/// Runs `act` for a shard and returns a panic as an error.
fn caught<R>(shard: u32, act: impl FnOnce() -> R) -> Result<R, Panicked> {
    let done = catch_unwind(AssertUnwindSafe(act));
    done.map_err(|panic| failure::caught(EngineThread::Shard(shard), &*panic))
}

fn thread_error(source: std::io::Error) -> SetupError {
    SetupError::System {
        call: "pthread_create",
        source,
        hint: "the limit of threads may be reached (ulimit -u)",
    }
}

/// Numbers the shards of the process.
static SHARDS: AtomicU32 = AtomicU32::new(0);

/// The number of the next shard. Numbers do not wrap: the first shard may still exist.
fn next_number(shards: &AtomicU32) -> Result<u32, SetupError> {
    let order = Ordering::Relaxed;
    let count = shards.fetch_update(order, order, |count| count.checked_add(1));
    count.map_err(|count| SetupError::Limit {
        what: "shards that a process has made in its life",
        needed: u64::from(count) + 1,
        limit: count.into(),
        device: "the engine".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_shards_are_not_reused() {
        let shards = AtomicU32::new(u32::MAX - 2);
        let numbers = [(); 2].map(|()| next_number(&shards).expect("two are left"));
        assert_eq!(numbers, [u32::MAX - 2, u32::MAX - 1]);
        for _ in 0..3 {
            let error = next_number(&shards).expect_err("none is left");
            assert!(error.to_string().contains("4294967296 needed"), "{error}");
        }
    }
}
