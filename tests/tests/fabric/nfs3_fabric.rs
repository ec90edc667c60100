//! The NFSv3 test client and `rpcrdma-nfs3` on the software fabric, in both versions and with all
//! thresholds varied: the file system has the same content for every form of message.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use nfs3_types::nfs3::{REMOVE3args, diropargs3, filename3};
use nfs3_types::xdr_codec::Opaque;
use rpcrdma::provider::QueueEvent;
use rpcrdma::ulb::nfs3;
use rpcrdma::{Address, CallError, Clock, Engine, Execution, Fabric, ShardHandle, ShardState};
use rpcrdma_config::{Config, Raw};
use rpcrdma_nfs3::{Options, Server, Squash};
use rpcrdma_testing::fault::{FaultPlan, FaultyProvider};
use rpcrdma_tests::failing::{Failing, Ledger};
use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::nfs::mount::mount;
use rpcrdma_tests::nfs::suite;
use rpcrdma_tests::nfs::{Failure, Moved, Nfs, Request, Scene};

/// What is exported of a folder, and its options.
fn exported(folder: &Folder) -> Options {
    let directory = folder.join("export");
    fs::create_dir(&directory).expect("it is ours");
    let key = folder.join("key");
    Options { directory, key, squash: Squash::None, is_async: true, workers: 2 }
}

/// What the server is configured like before a test changes it.
pub fn serving(change: impl Fn(&mut Raw)) -> Config {
    changed(rpcrdma_nfs3::config().expect("it is built in").raw().clone(), change)
}

/// The same of the client.
pub fn calling(change: impl Fn(&mut Raw)) -> Config {
    let mut raw = Config::default().raw().clone();
    raw.app.bulk.count = 80;
    raw.app.bulk.length = "256KiB".into();
    raw.explicit.buffers.count = 32;
    changed(raw, change)
}

fn changed(mut raw: Raw, change: impl Fn(&mut Raw)) -> Config {
    raw.engine.numa_bind = false;
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    change(&mut raw);
    Config::try_from(raw).expect("the configuration of a test holds")
}

/// How both ends are configured.
pub struct Configs {
    pub server: Config,
    pub client: Config,
}

/// Serves a folder, connects, and hands both to a test.
pub fn with_server(
    configs: Configs,
    inline: u32,
    test: impl FnOnce(&mut Scene<'_, Fabric>, Address),
) {
    let (folder, fabric) = (Folder::within(Path::new(env!("CARGO_TARGET_TMPDIR"))), Fabric::new());
    let any = "127.0.0.1:0".parse().expect("an address");
    let options = exported(&folder);
    let server = Server::start(fabric.clone(), configs.server, &options, any, any);
    let server = server.expect("a server");
    let moved = || {
        let stats: Vec<_> = server.shards().iter().map(ShardHandle::stats).collect();
        Moved {
            reads: stats.iter().map(|stats| stats.rdma_reads).sum(),
            writes: stats.iter().map(|stats| stats.rdma_writes).sum(),
        }
    };
    let export = options.directory;
    let root = mount(server.mount_address(), export.as_os_str().as_encoded_bytes());
    let root = root.expect("the directory is exported");
    assert_eq!(root, server.root());
    let calling = Engine::new(fabric, configs.client).expect("an engine");
    let client = calling.client().expect("a client");
    let nfs = Nfs::connect(client, server.address()).expect("a connection");
    let mut scene = Scene::new(nfs, root, &export, &moved, inline);
    test(&mut scene, server.address());
}

/// Runs the whole suite.
fn run(inline: u32, change: impl Fn(&mut Raw)) {
    let both = Configs { server: serving(&change), client: calling(&change) };
    with_server(both, inline, |scene, _| suite::all(scene));
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
fn version_one_with_chunks_of_many_segments_and_every_reply_in_its_chunk() {
    let change = |raw: &mut Raw| {
        raw.protocol.version = "one".into();
        raw.receive.placement.count = 0;
        raw.interop.reply_chunk = "always".into();
    };
    let call = calling(|raw| {
        change(raw);
        raw.explicit.buffers.length = "72KiB".into();
        raw.explicit.buffers.count = 64;
        raw.app.bulk.length = "72KiB".into();
        raw.app.bulk.count = 128;
    });
    with_server(Configs { server: serving(change), client: call }, 4096, |scene, _| {
        suite::all(scene)
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
fn the_version_of_a_server_is_discovered_once() {
    let server = serving(|raw| raw.protocol.version = "one".into());
    let both = Configs { server, client: calling(|_| {}) };
    with_server(both, 4096, suite::versions::the_version_of_a_server_is_discovered_once);
}

/// A REMOVE is repeated over another connection: with the xid of the first it is answered as that
/// was, and the file is removed once; with another xid it is another call.
#[test]
fn a_call_that_is_repeated_with_its_xid_is_not_executed_again() {
    let both = Configs { server: serving(|_| {}), client: calling(|_| {}) };
    with_server(both, 4096, |scene, to| {
        let (dir, path) = scene.fresh("repeated");
        for (name, is_cancelled) in [("answered", false), ("given up", true)] {
            let name3 = filename3(Opaque::borrowed(name.as_bytes()));
            let object = diropargs3 { dir: dir.clone(), name: name3 };
            let remove = Request::new(nfs3::REMOVE, &REMOVE3args { object });
            fs::write(path.join(name), "once").expect("a file");
            let rpc = &mut scene.nfs.rpc;
            let call = rpc.submit(&remove).expect("there is room");
            let xid = if is_cancelled {
                // It leaves with the first poll, and is given up before its answer is looked at: if
                // that has not come with the same.
                let mut answered = None;
                rpc.client().poll(Clock::new().now(), |done| answered = Some(done.xid()));
                answered.unwrap_or_else(|| {
                    let xid = rpc.cancel(call);
                    let gone = CallError::Cancelled(Execution::Unknown);
                    let done = rpc.finish(call);
                    assert!(matches!(done, Err(Failure::Call { error, .. }) if error == gone));
                    xid
                })
            } else {
                let reply = rpc.finish(call).expect("an answer");
                assert_eq!(status(&reply.results), 0);
                reply.xid
            };
            rpc.reconnect(to).expect("another connection");
            let again = rpc.call(&remove.clone().repeating(xid)).expect("an answer");
            assert_eq!((status(&again.results), again.xid), (0, xid), "{name}: as the first time");
            assert!(!path.join(name).exists());
            let other = rpc.call(&remove).expect("an answer");
            assert_eq!(status(&other.results), 2, "{name}: NFS3ERR_NOENT");
        }
    });
}

/// A server that lives on its shards ends with the last of them, and says which was the first.
#[test]
fn a_server_whose_shards_have_panicked_ends_with_an_error_that_names_one() {
    let (folder, ledger) =
        (Folder::within(Path::new(env!("CARGO_TARGET_TMPDIR"))), Ledger::sound());
    let provider = Failing::new(Fabric::new(), ledger.clone());
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = serving(|raw| raw.engine.shards = 2);
    let server = Server::start(provider, config, &exported(&folder), any, any).expect("a server");
    let (sender, ends) = mpsc::channel();
    let shards = server.shards().to_vec();
    let states = move || shards.iter().map(ShardHandle::state).collect::<Vec<_>>();
    server.on_end(move || sender.send(states()).expect("the test waits"));
    for count in [1, 2] {
        ledger.frighten();
        let is_dead = |shard: &&ShardHandle| shard.state() == ShardState::Panicked;
        while server.shards().iter().filter(is_dead).count() < count {
            server.shards().iter().for_each(ShardHandle::wake);
            std::thread::yield_now();
        }
    }
    let states = ends.recv_timeout(Duration::from_secs(60)).expect("it is called");
    assert_eq!(states, [ShardState::Panicked; 2], "while one is left it serves on");
    let numbers = server.shards().iter().map(ShardHandle::shard);
    let text = |number| format!("shard {number} has panicked: this test lets the poll panic");
    let known: Vec<String> = numbers.map(text).collect();
    let said = server.stop().expect_err("it has failed").to_string();
    assert!(known.contains(&said), "{said}");
    assert!(ends.try_recv().is_err(), "it is called once");
}

/// Shards without a control thread do not serve.
#[test]
fn a_server_whose_control_thread_has_panicked_ends_with_an_error_that_names_it() {
    let (folder, ledger) =
        (Folder::within(Path::new(env!("CARGO_TARGET_TMPDIR"))), Ledger::sound());
    let provider = Failing::new(Fabric::new(), ledger.clone());
    let any = "127.0.0.1:0".parse().expect("an address");
    let server = Server::start(provider, serving(|_| {}), &exported(&folder), any, any);
    let server = server.expect("a server");
    let (sender, ends) = mpsc::channel();
    server.on_end(move || sender.send(()).expect("the test waits"));
    ledger.frighten_cm();
    ends.recv_timeout(Duration::from_secs(60)).expect("it is called");
    assert!(server.shards().iter().all(|shard| shard.state() == ShardState::Running));
    let said = server.stop().expect_err("it has failed").to_string();
    let expected = "the control plane has panicked: this test lets the connection manager panic";
    assert_eq!(said, expected);
}

/// Shards that end without a panic are missed as well.
#[test]
fn a_server_whose_device_is_lost_ends_with_an_error() {
    let folder = Folder::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let provider = FaultyProvider::new(Fabric::new(), FaultPlan::default());
    let log = provider.hooks().log();
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = serving(|raw| raw.engine.shards = 2);
    let server = Server::start(provider, config, &exported(&folder), any, any).expect("a server");
    let (sender, ends) = mpsc::channel();
    server.on_end(move || sender.send(()).expect("the test waits"));
    for (queues, shard) in (0..).zip(server.shards()) {
        assert!(ends.try_recv().is_err(), "while one is left it serves on");
        log.inject_event(queues, QueueEvent::DeviceLost);
        while shard.state() == ShardState::Running {
            std::thread::yield_now();
        }
    }
    ends.recv_timeout(Duration::from_secs(60)).expect("it is called");
    let said = server.stop().expect_err("it has failed").to_string();
    assert_eq!(said, "no shard serves any more: the device is lost");
    assert!(ends.try_recv().is_err(), "it is called once");
}

pub fn status(results: &[u8]) -> u32 {
    let word = results.first_chunk().expect("results begin with a status");
    u32::from_be_bytes(*word)
}
