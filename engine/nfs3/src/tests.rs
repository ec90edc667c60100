//! The whole server over the fabric: a client that packs arguments and unpacks results.

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

use rpcrdma_engine::Fabric;
use rpcrdma_tests::folder::Folder;

use crate::export::{Export, Limits};
use crate::{Options, Server, Squash, config};
use client::Client;

/// A directory that is exported.
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

    /// As a server has it.
    pub fn opened(&self) -> Export {
        let limits = Limits { read_max: 1 << 20, write_max: 1 << 20, list_max: 1 << 16 };
        Export::open(&self.options(), limits).expect("a directory")
    }

    /// As it is served.
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
    // First to go: on the fabric, a server that stops waits for acknowledgements of its clients.
    pub client: Client,
    pub server: Server<Fabric>,
    pub fabric: Fabric,
    pub scratch: Scratch,
}

impl Running {
    pub fn new() -> Running {
        Running::serving(Scratch::new())
    }

    /// Serves a directory, maybe one that was served before.
    pub fn serving(scratch: Scratch) -> Running {
        Running::working(scratch, 2)
    }

    /// As [`Running::serving`], with so many threads for the file system.
    pub fn working(scratch: Scratch, workers: usize) -> Running {
        let fabric = Fabric::new();
        let any = "127.0.0.1:0".parse().expect("an address");
        let server = Server::start(
            fabric.clone(),
            config().expect("it is built in"),
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

/// Reads a file of the export by the server's own file system.
pub fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the file is there")
}
