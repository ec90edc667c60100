//! Our NFSv3 client against a server of ours on the fabric, in both versions and with every
//! threshold moved: whatever way the messages take, the file system behind it holds the same.

mod nfs3_stand_in;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nfs3_stand_in::StandIn;
use rpcrdma_config::{Config, Raw};
use rpcrdma_engine::{Engine, Fabric, ShardHandle};
use rpcrdma_tests::nfs::suite;
use rpcrdma_tests::nfs::{Moved, Nfs, Scene};

/// A directory that is gone with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nfs3-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir(&path).expect("a directory can be made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What both sides are configured like before a test changes it.
fn configured(change: impl Fn(&mut Raw)) -> Config {
    let mut raw = Config::default().raw().clone();
    raw.engine.numa_bind = false;
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    raw.app.bulk.count = 80;
    raw.app.bulk.length = "256KiB".into();
    raw.explicit.buffers.count = 32;
    change(&mut raw);
    Config::try_from(raw).expect("the configuration of a test holds")
}

/// Serves a folder, connects, and hands both to a test.
fn with_server<T>(
    serve: Config,
    call: Config,
    inline: u32,
    test: impl FnOnce(&mut Scene<'_, Fabric>, SocketAddr) -> T,
) -> T {
    let (folder, fabric) = (Folder::new(), Fabric::new());
    let mut engine = Engine::new(fabric.clone(), serve).expect("an engine");
    let path = folder.0.clone();
    let serving = engine.start(move |_| StandIn::new(&path)).expect("a server");
    let at = engine.listen("127.0.0.1:0".parse().expect("an address")).expect("a listener");
    let moved = || {
        let stats: Vec<_> = serving.iter().map(ShardHandle::stats).collect();
        Moved {
            reads: stats.iter().map(|stats| stats.reads).sum(),
            writes: stats.iter().map(|stats| stats.writes).sum(),
        }
    };
    let calling = Engine::new(fabric, call).expect("an engine");
    let nfs = Nfs::connect(calling.client().expect("a client"), at).expect("a connection");
    let root = StandIn::handle_of(&folder.0);
    let mut scene = Scene::new(nfs, root, &folder.0, &moved, inline);
    test(&mut scene, at)
}

/// Runs the whole suite.
fn run(inline: u32, change: impl Fn(&mut Raw)) {
    let (serve, call) = (configured(&change), configured(&change));
    with_server(serve, call, inline, |scene, _| suite::all(scene));
}

#[test]
fn version_one_with_messages_of_4096_bytes() {
    run(4096, |raw| {
        raw.protocol.version = "one".into();
        raw.receive.placement.count = 0;
    });
}

#[test]
fn version_one_with_messages_of_1024_bytes() {
    run(1024, |raw| {
        raw.protocol.version = "one".into();
        raw.receive.inline = "1KiB".into();
        raw.receive.placement.count = 0;
    });
}

#[test]
fn version_one_with_small_landing_buffers_and_every_reply_in_its_chunk() {
    run(4096, |raw| {
        raw.protocol.version = "one".into();
        raw.receive.placement.count = 0;
        raw.explicit.buffers.length = "20KiB".into();
        raw.explicit.buffers.count = 128;
        raw.interop.reply_chunk = "always".into();
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
fn version_two_without_placement_by_send() {
    run(4096, |raw| {
        raw.features.placement = false;
        raw.receive.placement.count = 0;
    });
}

/// A server that knows version one only says so; the connection goes on in it, and the next one
/// begins with it.
#[test]
fn a_server_of_version_one_is_found_out_once() {
    let serve = configured(|raw| raw.protocol.version = "one".into());
    let call = configured(|_| {});
    with_server(serve, call, 4096, |scene, at| {
        suite::versions::a_server_of_version_one_is_found_out_once(scene, at);
    });
}
