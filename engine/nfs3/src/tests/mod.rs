//! The whole server over the software fabric, over shared memory and over TCP, with a client that
//! encodes arguments and decodes results.

mod client;
mod effects;
mod kernel_rights;
mod mounts;

use std::path::{Path, PathBuf};

use rpcrdma::{Address, Config, Fabric, Provider, Shm, Tcp};
use rpcrdma_tests::folder::Folder;
use rustix::fs::Uid;
use rustix::thread::set_thread_res_uid;

use crate::export::{DataLimits, Export};
use crate::{Options, Server, Squash, config, spin};
use client::{Client, failed};

/// The tests over the software fabric.
#[path = "."]
mod over_fabric {
    use super::*;

    pub type Running = super::Running<Fabric>;
    pub type Client = super::Client<Fabric>;

    mod at_once;
    mod files;
    mod lists;
    mod lost;
    mod names;
    mod repeats;
    mod rights;
}

/// The same tests over shared memory.
#[path = "."]
#[expect(clippy::duplicate_mod, reason = "the tests name no provider, and run over each")]
mod over_shm {
    use super::*;

    pub type Running = super::Running<Shm>;
    pub type Client = super::Client<Shm>;

    mod at_once;
    mod files;
    mod lists;
    mod lost;
    mod names;
    mod repeats;
    mod rights;
}

/// The same tests over TCP.
#[path = "."]
#[expect(clippy::duplicate_mod, reason = "the tests name no provider, and run over each")]
mod over_tcp {
    use super::*;

    pub type Running = super::Running<Tcp>;
    pub type Client = super::Client<Tcp>;

    mod at_once;
    mod files;
    mod lists;
    mod lost;
    mod names;
    mod repeats;
    mod rights;
}

/// A provider that both ends can open in any process.
pub trait Device: Provider + Clone {
    /// What configurations call it.
    const NAME: &str;
    /// An address to listen on that is not in use.
    const ANY: &str;

    fn open() -> Self;
}

impl Device for Fabric {
    const NAME: &str = "fabric";
    const ANY: &str = "127.0.0.1:0";

    fn open() -> Fabric {
        Fabric::new()
    }
}

impl Device for Shm {
    const NAME: &str = "shm";
    const ANY: &str = "shm:@";

    fn open() -> Shm {
        Shm::new().expect("a thread")
    }
}

impl Device for Tcp {
    const NAME: &str = "tcp";
    const ANY: &str = "127.0.0.1:0";

    fn open() -> Tcp {
        Tcp::new().expect("a thread")
    }
}

/// Runs a test on a thread that is not root; the threads that it starts are not root either.
pub fn not_as_root(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if rustix::process::geteuid().is_root() {
            set_thread_res_uid(None, Some(Uid::from_raw(1234)), None).expect("root may");
        }
        test();
    });
    thread.join().expect("the test passes");
}

/// A temporary directory with an export.
pub struct Scratch(Folder);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::within(&std::env::temp_dir())
    }

    /// As [`Scratch::new`], in this folder.
    pub fn within(parent: &Path) -> Scratch {
        let folder = Folder::within(parent);
        std::fs::create_dir(folder.join("export")).expect("it is ours");
        Scratch(folder)
    }

    /// The exported directory.
    pub fn export(&self) -> PathBuf {
        self.0.join("export")
    }

    /// The export as a server opens it.
    pub fn opened(&self) -> Export {
        self.opened_as(&self.options())
    }

    /// As [`Scratch::opened`], with these options.
    pub fn opened_as(&self, options: &Options) -> Export {
        let limits = DataLimits { read_max: 1 << 20, write_max: 1 << 20, list_max: 1 << 16 };
        Export::open(options, limits).expect("a directory")
    }

    /// The options that it is served with.
    pub fn options(&self) -> Options {
        Options {
            directory: self.export(),
            key: self.0.join("key"),
            squash: Squash::None,
            is_async: true,
            workers: 2,
        }
    }
}

/// A server of a directory, and a client of it.
pub struct Running<P: Device> {
    // Dropped first: over the software fabric, a stopping server waits for acknowledgements of its
    // clients.
    pub client: Client<P>,
    pub server: Server<P>,
    pub device: P,
    pub scratch: Scratch,
}

impl<P: Device> Running<P> {
    pub fn new() -> Running<P> {
        Running::serving(Scratch::new())
    }

    /// Serves a directory, which may have been served before.
    pub fn serving(scratch: Scratch) -> Running<P> {
        Running::working(scratch, 2)
    }

    /// As [`Running::serving`], with this number of worker threads.
    pub fn working(scratch: Scratch, workers: usize) -> Running<P> {
        Running::on_shards(scratch, workers, 1)
    }

    /// As [`Running::working`], with this number of shards.
    pub fn on_shards(scratch: Scratch, workers: usize, shards: i64) -> Running<P> {
        let device = P::open();
        let any = P::ANY.parse::<Address>().expect("an address");
        let mut raw = config().expect("it is built in").raw().clone();
        raw.engine.shards = shards;
        raw.engine.provider = P::NAME.into();
        let server = Server::start(
            device.clone(),
            Config::try_from(raw).expect("it adds up"),
            &Options { workers, ..scratch.options() },
            any,
            "127.0.0.1:0".parse().expect("an address"),
        )
        .expect("a server");
        let client = Client::connect(device.clone(), server.address(), server.root());
        Running { server, client, device, scratch }
    }

    pub fn export(&self) -> PathBuf {
        self.scratch.export()
    }

    /// Stops the server and starts another.
    pub fn restart(self) -> Running<P> {
        let Running { server, client, scratch, .. } = self;
        drop(client);
        server.stop().expect("nothing has panicked");
        Running::serving(scratch)
    }
}

#[test]
fn a_shard_spins_where_it_has_a_processor_to_itself() {
    assert_eq!([3, 4].map(spin), ["0us", "50us"]);
    let processors = std::thread::available_parallelism().expect("some").get();
    let config = config().expect("it is built in");
    assert_eq!(config.raw().engine.idle.spin, spin(processors).into());
}

/// Reads a file of the export through the file system.
pub fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the file is there")
}
