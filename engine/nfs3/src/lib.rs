//! An NFSv3 server over RDMA for a directory: the export, the worker threads, the handler of a
//! shard, and MOUNT.
//!
//! ```text
//!   client ══ RDMA ══▶ shard: handler ── Job ──▶ work: procedures ──▶ names, files, data, directory
//!                        ▲     │ drc                                         │
//!                        └─────┴──── Done ◀──────────────────────────────────┘  export: nodes, tree
//!   client ── TCP ───▶ mount ── the handle of the export
//! ```
//! It implements all procedures of RFC 1813, and MOUNT over TCP; there is no lock manager. See
//! `credentials` and `rights` for rights, `handles` and `nodes` for file handles, `drc` for
//! repeated calls, and `work` for the threads.
//!
//! ```no_run
//! use rpcrdma::{Address, Fabric};
//! use rpcrdma_nfs3::{Options, Server, Squash, config};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options {
//!     directory: "/srv/data".into(),
//!     key: "/srv/data.nfs3-key".into(),
//!     squash: Squash::Root,
//!     is_async: false,
//!     workers: 4,
//! };
//! let listen = "10.0.0.1:20049".parse::<Address>()?;
//! let mount = "10.0.0.1:20048".parse()?;
//! let server = Server::start(Fabric::new(), config()?, &options, listen, mount)?;
//! println!("NFS at {}, MOUNT at {}", server.address(), server.mount_address());
//! server.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `handler`
//! - `at_once`, `work`
//! - `procedures`
//! - `files`, `mount`
//! - `data`, `directory`, `mount_calls`, `names`
//! - `changes`, `export`
//! - `arguments`, `nodes`
//! - `drc`, `held`, `listings`, `rights`
//! - `call`, `node`
//! - `kept_rights`, `needs`, `rpc`
//! - `attributes`, `credentials`, `medium`, `searches`, `serving`
//! - `buffers`, `descriptors`, `handles`, `kept_answers`, `locks`, `ranges`, `status`, `tree`

#![expect(
    clippy::result_large_err,
    reason = "a failed procedure returns attributes, as a successful one does"
)]

mod arguments;
mod at_once;
mod attributes;
mod buffers;
mod call;
mod changes;
mod credentials;
mod data;
mod descriptors;
mod directory;
mod drc;
mod export;
mod files;
mod handler;
mod handles;
mod held;
mod kept_answers;
mod kept_rights;
mod listings;
mod locks;
mod medium;
mod mount;
mod mount_calls;
mod names;
mod needs;
mod node;
mod nodes;
mod procedures;
mod ranges;
mod rights;
mod rpc;
mod searches;
mod serving;
mod status;
#[cfg(test)]
mod tests;
mod tree;
mod work;

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use nfs3_types::nfs3::nfs_fh3;
use rpcrdma::{Address, Config, ConfigError, Engine, EngineThread, Provider, ShardHandle};

use buffers::Buffers;
pub use credentials::Squash;
use drc::Drc;
pub use export::Options;
use export::{DataLimits, Export};
use handler::NfsHandler;
use mount::MountServer;
use serving::Serving;
use work::{JobQueue, Workers};

/// A running server. Dropping it stops it.
pub struct Server<P: Provider> {
    // The order of the fields is the order of dropping: first the engine, then the worker threads.
    mount: MountServer,
    engine: Engine<P>,
    workers: Workers,
    shards: Vec<ShardHandle>,
    serving: Serving,
    address: Address,
    export: Arc<Export>,
    #[cfg(test)]
    drc: Arc<Drc<work::Waiter>>,
}

impl<P: Provider> Server<P> {
    /// Starts a server on a device: NFS at `listen`, MOUNT at `mount`. First it tries what it needs
    /// of the system. When it listens, it sets the umask of the process to 0, so that files get the
    /// modes that clients request.
    ///
    /// # Errors
    /// A message that states what failed.
    pub fn start(
        provider: P,
        config: Config,
        options: &Options,
        listen: impl Into<Address>,
        mount: SocketAddr,
    ) -> Result<Server<P>, Box<dyn Error>> {
        Server::start_at(provider, config, options, listen.into(), mount)
    }

    fn start_at(
        provider: P,
        config: Config,
        options: &Options,
        listen: Address,
        mount: SocketAddr,
    ) -> Result<Server<P>, Box<dyn Error>> {
        needs::check(&options.directory)?;
        let export = Arc::new(Export::open(options, DataLimits::of(&config))?);
        let credits = config.connections().credits.value() as usize;
        let buffers = config.app().bulk.count.as_usize();
        let (drc, queue) = (Arc::new(Drc::new(credits)), Arc::new(JobQueue::default()));
        let (mut engine, serving) = (Engine::new(provider, config)?, Serving::default());
        let shards = engine.start({
            let (export, serving) = (export.clone(), serving.clone());
            let (drc, queue) = (drc.clone(), queue.clone());
            move |shard| {
                let (export, serves) = (export.clone(), serving.begin());
                let buffers = Buffers::new(buffers);
                NfsHandler::new(shard, export, drc.clone(), queue.clone(), buffers, serves)
            }
        })?;
        let address = engine.listen(listen)?;
        // A socket of shared memory has the umask of the process. Only workers make files, and none
        // has begun.
        rustix::process::umask(rustix::fs::Mode::empty());
        let workers = Workers::start(options.workers, &queue, &export, &drc)?;
        let mount = MountServer::start(mount, export.clone())
            .map_err(|error| format!("cannot listen on {mount} for MOUNT: {error}"))?;
        Ok(Server {
            mount,
            engine,
            workers,
            shards,
            serving,
            address,
            export,
            #[cfg(test)]
            drc,
        })
    }

    /// The address that NFS listens on.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The address that MOUNT listens on.
    pub fn mount_address(&self) -> SocketAddr {
        self.mount.address()
    }

    /// The handle of the exported directory.
    pub fn root(&self) -> nfs_fh3 {
        self.export.handle(self.export.nodes().root())
    }

    /// Its shards.
    pub fn shards(&self) -> &[ShardHandle] {
        &self.shards
    }

    /// The metrics of its shards, for Prometheus.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> rpcrdma::metrics::Metrics {
        self.engine.metrics()
    }

    /// The number of calls that wait for a worker thread.
    pub fn waiting(&self) -> usize {
        self.workers.waiting()
    }

    /// Reports each panic of a thread of the engine on standard error, and calls `ended`, once, when
    /// the server can no longer serve: when the last shard has ended, or the thread that accepts
    /// connections has panicked. A shard ends by a panic, with its device, or because the server is
    /// stopped.
    pub fn on_end(&self, ended: impl FnOnce() + Send + 'static) {
        let serving = self.serving.clone();
        self.engine.on_failure(move |failure| {
            let _ = writeln!(io::stderr(), "nfs3: {failure}");
            if !matches!(failure.thread, EngineThread::Shard(_)) {
                serving.close();
            }
        });
        self.serving.on_end(ended);
    }

    /// Answers the calls in progress, and stops.
    ///
    /// # Errors
    /// The first panic of a thread of the engine, if there was one; otherwise, whether all shards
    /// had ended before.
    pub fn stop(mut self) -> Result<(), Box<dyn Error>> {
        let was_over = self.serving.is_over();
        self.engine.stop();
        match self.engine.failures().into_iter().next() {
            Some(panic) => Err(panic.into()),
            None if was_over => Err("no shard serves any more: the device is lost".into()),
            None => Ok(()),
        }
    }
}

/// The engine's configuration for a server: no calls of its own, and data of up to 1 MiB in both
/// directions.
///
/// # Errors
/// None are known.
pub fn config() -> Result<Config, ConfigError> {
    let mut raw = Config::profile("laptop")?.raw().clone();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    raw.engine.idle.spin = spin(processors).into();
    raw.connections.max = 16;
    raw.connections.credits = 32;
    raw.connections.credits_requested = 1;
    raw.connections.calls_max = 0;
    raw.connections.call_transmissions_max = 1;
    raw.connections.reply_transmissions_max = 1;
    raw.explicit.buffers.count = 64;
    raw.explicit.buffers.length = "256KiB".into();
    raw.app.bulk.count = 32;
    raw.app.bulk.length = "1MiB".into();
    raw.send.length = "16KiB".into();
    Config::try_from(raw)
}

/// How long an idle shard spins: a spinning thread delays the threads that give it work, unless it
/// has a processor to itself.
fn spin(processors: usize) -> &'static str {
    if processors < PROCESSORS_TO_SPIN { "0us" } else { "50us" }
}

/// With fewer, the shard shares them with the network, the worker threads and other programs.
const PROCESSORS_TO_SPIN: usize = 4;
