//! The NFSv3 test client and `rpcrdma-nfs3` over TCP, in both versions: what the client stores is in
//! the file system.

use std::fs;

use rpcrdma::tcp::TcpOptions;
use rpcrdma::{Engine, ShardHandle, Tcp};
use rpcrdma_config::{Config, Raw};
use rpcrdma_nfs3::{Options, Server, Squash};
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::mount::mount;
use rpcrdma_tests::nfs::{Moved, Nfs, Scene, suite};

/// A configuration of a test: small memory, and changed.
fn changed(config: &Config, change: impl Fn(&mut Raw)) -> Config {
    let mut raw = config.raw().clone();
    raw.engine.provider = "tcp".into();
    raw.engine.numa_bind = false;
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    change(&mut raw);
    Config::try_from(raw).expect("the configuration of a test holds")
}

/// Serves a folder, connects, and runs the whole suite.
fn run(inline: u32, change: impl Fn(&mut Raw)) {
    let folder = Folder::new();
    let directory = folder.join("export");
    fs::create_dir(&directory).expect("it is ours");
    let key = folder.join("key");
    let options = Options { directory, key, squash: Squash::None, is_async: true, workers: 2 };
    let serving = changed(&rpcrdma_nfs3::config().expect("it is built in"), &change);
    let device = Tcp::with_options(TcpOptions::from(serving.tcp())).expect("they are allowed");
    let any = "127.0.0.1:0".parse().expect("an address");
    let server = Server::start(device.clone(), serving, &options, any, any).expect("a server");
    let moved = || {
        let stats: Vec<_> = server.shards().iter().map(ShardHandle::stats).collect();
        Moved {
            reads: stats.iter().map(|stats| stats.rdma_reads).sum(),
            writes: stats.iter().map(|stats| stats.rdma_writes).sum(),
        }
    };
    let export = &options.directory;
    let root = mount(server.mount_address(), export.as_os_str().as_encoded_bytes());
    let root = root.expect("the directory is exported");
    let calling = changed(&Config::default(), |raw| {
        raw.app.bulk.count = 80;
        raw.app.bulk.length = "256KiB".into();
        raw.explicit.buffers.count = 32;
        change(raw);
    });
    let engine = Engine::new(device, calling).expect("an engine");
    let nfs = Nfs::connect(engine.client().expect("a client"), server.address());
    let mut scene = Scene::new(nfs.expect("a connection"), root, export, &moved, inline);
    suite::all(&mut scene);
}

#[test]
fn version_one_with_messages_of_4096_bytes() {
    run(4096, |raw| {
        raw.protocol.version = "one".into();
        raw.receive.placement.count = 0;
    });
}

#[test]
fn version_one_by_registrations() {
    run(4096, |raw| {
        raw.protocol.version = "one".into();
        raw.receive.placement.count = 0;
        raw.explicit.exposure = "registration".into();
    });
}

#[test]
fn version_two() {
    run(4096, |_| {});
}

#[test]
fn version_two_with_checksums() {
    run(4096, |raw| raw.tcp.crc = true);
}
