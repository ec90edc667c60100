//! The whole server over the software fabric, with a client that encodes arguments and decodes
//! results.

mod at_once;
mod client;
mod files;
mod lists;
mod lost;
mod mounts;
mod names;
mod repeats;
mod rights;

use std::path::{Path, PathBuf};

use rpcrdma_engine::{Config, Fabric};
use rpcrdma_tests::folder::Folder;

use crate::export::{DataLimits, Export};
use crate::{Options, Server, Squash, config};
use client::Client;

/// A temporary directory with an export.
pub struct Scratch(Folder);

impl Scratch {
    pub fn new() -> Scratch {
        let folder = Folder::new();
        std::fs::create_dir(folder.join("export")).expect("it is ours");
        Scratch(folder)
    }

    /// The exported directory.
    pub fn export(&self) -> PathBuf {
        self.0.join("export")
    }

    /// The export as a server opens it.
    pub fn opened(&self) -> Export {
        let limits = DataLimits { read_max: 1 << 20, write_max: 1 << 20, list_max: 1 << 16 };
        Export::open(&self.options(), limits).expect("a directory")
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
pub struct Running {
    // Dropped first: over the software fabric, a stopping server waits for acknowledgements of its
    // clients.
    pub client: Client,
    pub server: Server<Fabric>,
    pub fabric: Fabric,
    pub scratch: Scratch,
}

impl Running {
    pub fn new() -> Running {
        Running::serving(Scratch::new())
    }

    /// Serves a directory, which may have been served before.
    pub fn serving(scratch: Scratch) -> Running {
        Running::working(scratch, 2)
    }

    /// As [`Running::serving`], with this number of worker threads.
    pub fn working(scratch: Scratch, workers: usize) -> Running {
        Running::on_shards(scratch, workers, 1)
    }

    /// As [`Running::working`], with this number of shards.
    pub fn on_shards(scratch: Scratch, workers: usize, shards: i64) -> Running {
        let fabric = Fabric::new();
        let any = "127.0.0.1:0".parse().expect("an address");
        let mut raw = config().expect("it is built in").raw().clone();
        raw.engine.shards = shards;
        let server = Server::start(
            fabric.clone(),
            Config::try_from(raw).expect("it adds up"),
            &Options { workers, ..scratch.options() },
            any,
            any,
        )
        .expect("a server");
        let client = Client::connect(fabric.clone(), server.address(), server.root());
        Running { server, client, fabric, scratch }
    }

    pub fn export(&self) -> PathBuf {
        self.scratch.export()
    }

    /// Stops the server and starts another.
    pub fn restart(self) -> Running {
        let Running { server, client, scratch, .. } = self;
        drop(client);
        server.stop().expect("nothing has panicked");
        Running::serving(scratch)
    }
}

/// Reads a file of the export through the file system.
pub fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the file is there")
}
