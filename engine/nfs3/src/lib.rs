//! An NFSv3 server over a directory, on RDMA: the export, the threads that work on it, the shards, and MOUNT.
//!
//! ```text
//!   client ══ RDMA ══▶ shard: handler ── Job ──▶ work: procedures ──▶ names, files, data, directory
//!                        ▲     │ drc                                         │
//!                        └─────┴──── Done ◀──────────────────────────────────┘  export: nodes, tree
//!   client ── TCP ───▶ mount ── the handle of the export
//! ```
//! All procedures of RFC 1813, and MOUNT on TCP; no lock manager. `credentials` says who may do what, `handles`
//! and `nodes` how handles work, `drc` what is remembered of calls, and `work` why there are threads.
//!
//! ```no_run
//! use rpcrdma_engine::Fabric;
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
//! let (listen, mount) = ("10.0.0.1:20049".parse()?, "10.0.0.1:20048".parse()?);
//! let server = Server::start(Fabric::new(), config()?, &options, listen, mount)?;
//! println!("NFS at {}, MOUNT at {}", server.address(), server.mount_address());
//! server.stop()?;
//! # Ok(())
//! # }
//! ```

#![expect(
    clippy::result_large_err,
    reason = "a failed procedure says attributes, as one that did well"
)]

mod arguments;
mod at_once;
mod attributes;
mod call;
mod changes;
mod credentials;
mod data;
mod directory;
mod drc;
mod export;
mod files;
mod handler;
mod handles;
mod held;
mod listings;
mod locks;
mod medium;
mod mount;
mod mount_calls;
mod names;
mod node;
mod nodes;
mod procedures;
mod rpc;
mod searches;
mod status;
#[cfg(test)]
mod tests;
mod tree;
mod work;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nfs3_types::nfs3::nfs_fh3;
use rpcrdma_engine::{Config, ConfigError, Engine, EngineThread, Panicked, Provider, ShardHandle};

pub use credentials::Squash;
use drc::Drc;
pub use export::Options;
use export::{Export, Limits};
use handler::NfsHandler;
use mount::MountServer;
use work::{Queue, Workers};

/// A server that runs. Dropping it stops it.
pub struct Server<P: Provider> {
    // Dropped in this order: no more calls, then no more work.
    mount: MountServer,
    engine: Engine<P>,
    workers: Workers,
    shards: Vec<ShardHandle>,
    address: SocketAddr,
    export: Arc<Export>,
}

impl<P: Provider> Server<P> {
    /// Starts a server on a device: NFS at `listen`, MOUNT at `mount`. The process has no umask from then
    /// on: files are made with the modes that clients ask for.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn start(
        provider: P,
        config: Config,
        options: &Options,
        listen: SocketAddr,
        mount: SocketAddr,
    ) -> Result<Server<P>, Box<dyn Error>> {
        let export = Arc::new(Export::open(options, Limits::of(&config))?);
        let (drc, queue) = (Arc::new(Drc::new(ANSWERS_KEPT)), Arc::new(Queue::default()));
        rustix::process::umask(rustix::fs::Mode::empty());
        let workers = Workers::start(options.workers, &queue, &export, &drc)?;
        let mut engine = Engine::new(provider, config)?;
        let shards = engine.start({
            let export = export.clone();
            move |shard| NfsHandler::new(shard, export.clone(), drc.clone(), queue.clone())
        })?;
        let address = engine.listen(listen)?;
        let mount = MountServer::start(mount, export.clone())
            .map_err(|error| format!("MOUNT at {mount}: {error}"))?;
        Ok(Server { mount, engine, workers, shards, address, export })
    }

    /// Where NFS listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where MOUNT listens.
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

    /// How many calls wait for a thread.
    pub fn waiting(&self) -> usize {
        self.workers.waiting()
    }

    /// Has each panic of a thread of the engine reported, and `tell` called when they leave nobody to serve:
    /// the last shard has panicked, or the thread that takes connections.
    pub fn on_end(&self, tell: impl Fn() + Send + Sync + 'static) {
        let left = AtomicUsize::new(self.shards.len());
        self.engine.on_failure(move |failure| {
            eprintln!("nfs3: {failure}");
            let is_end = match failure.thread {
                EngineThread::Shard(_) => left.fetch_sub(1, Ordering::Relaxed) == 1,
                _ => true,
            };
            if is_end {
                tell();
            }
        });
    }

    /// Answers what was asked, and stops.
    ///
    /// # Errors
    /// The first panic of a thread of the engine, if there was one.
    pub fn stop(mut self) -> Result<(), Panicked> {
        self.engine.stop();
        self.engine.failures().into_iter().next().map_or(Ok(()), Err)
    }
}

/// What a server needs of the engine: it calls nobody, and takes data of up to 1 MiB either way.
///
/// # Errors
/// None that are known.
pub fn config() -> Result<Config, ConfigError> {
    let mut raw = Config::profile("laptop")?.raw().clone();
    // A thread that spins is in the way of those that bring it work, unless it has a processor to itself.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = if processors < PROCESSORS_TO_SPIN { "0us" } else { "50us" };
    raw.engine.idle.spin = spin.into();
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

/// Where there are fewer, the shard, the network, the threads of the file system and whoever else is on this machine share
/// them.
const PROCESSORS_TO_SPIN: usize = 4;
/// Answers that are kept for calls that are repeated.
const ANSWERS_KEPT: usize = 1024;
