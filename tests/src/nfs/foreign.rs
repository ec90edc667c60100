//! The test client and an NFS server of another project, in version one, over any provider.
//!
//! `RPCRDMA_TEST_ADDRESS` is an address of the server, `RPCRDMA_TEST_NFS` says which it is: `kernel`
//! (also without it), `ganesha` or `ganesha-unpatched`. It exports `/export` from this machine, with
//! RDMA port 20049 and MOUNT on port 20048; what is read and written is compared with the directory
//! itself. [`foreign_nfs!`](crate::foreign_nfs) makes the tests of a provider.

use std::env;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

use nfs3_types::nfs3::{createhow3, nfs_fh3, nfsstat3, sattr3, stable_how};
use rpcrdma::{Address, CallError, Engine, Provider};
use rpcrdma_config::{Config, Raw};

use super::client::{read_request, read_results};
use super::mount::mount;
use super::servers::{KINDS, is_kernel, kind, moved};
use super::{Defect, Failure, Give, Nfs, Scene, Take, suite};
use crate::device::address;
use crate::setup::suited;

/// Makes the tests, each of which opens the device.
#[macro_export]
macro_rules! foreign_nfs {
    (@@ $open:expr; [$(#[$attr:meta])*] $name:ident) => {
        #[test]
        $(#[$attr])*
        fn $name() {
            $crate::nfs::foreign::$name(&$open);
        }
    };
    (@ $open:expr; $attrs:tt $($name:ident)*) => {
        $($crate::foreign_nfs! { @@ $open; $attrs $name })*
    };
    ($open:expr; $(#[$attr:meta])*) => {
        $crate::foreign_nfs! {
            @ $open; [$(#[$attr])*]
            messages_of_the_default_length
            messages_of_1024_bytes
            messages_of_8192_bytes
            messages_of_other_lengths_in_each_direction
            chunks_of_many_segments
            memory_by_registrations
            without_remote_invalidation
            memory_with_one_key_is_invalidated_by_the_server
            the_version_of_a_server_is_discovered_once
            the_first_call_discovers_the_version
            addresses_of_version_six
            as_many_calls_as_the_server_grants
            calls_of_a_new_client_are_executed
            every_kind_of_message_crosses_the_wire
            connections_come_and_go
            a_restarted_server_is_found_again
        }
    };
}

const EXPORT: &str = "/export";

fn server() -> SocketAddr {
    SocketAddr::new(address(), 20_049)
}

/// The handle of the export.
fn root() -> nfs_fh3 {
    let service = SocketAddr::new(address(), 20_048);
    mount(service, EXPORT.as_bytes()).expect("the directory is exported")
}

fn configured<P: Provider>(device: &P, change: impl Fn(&mut Raw)) -> Config {
    let mut raw = Config::default().raw().clone();
    raw.engine.numa_bind = false;
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    raw.connections.credits_requested = 64;
    raw.app.bulk.count = 80;
    raw.app.bulk.length = "256KiB".into();
    raw.explicit.buffers.count = 32;
    (kind().interop)(&mut raw);
    change(&mut raw);
    suited(device, &raw)
}

/// The server's version, so that nothing has to be found out.
fn one(raw: &mut Raw) {
    raw.protocol.version = "one".into();
    raw.receive.placement.count = 0;
}

fn connected<P: Provider + Clone>(
    device: &P,
    at: SocketAddr,
    change: impl Fn(&mut Raw),
) -> (Engine<P>, Nfs<P>) {
    let engine = Engine::new(device.clone(), configured(device, change)).expect("an engine");
    let mut nfs = Nfs::connect(engine.client().expect("a client"), at).expect("a connection");
    nfs.may_answer_system_error = true;
    (engine, nfs)
}

fn scene<P: Provider>(nfs: Nfs<P>, inline: u32) -> Scene<'static, P> {
    let mut scene = Scene::new(nfs, root(), Path::new(EXPORT), &moved, inline);
    scene.defects = kind().defects;
    scene
}

/// Connects, and hands a test the scene.
fn with_server<P: Provider + Clone>(
    device: &P,
    inline: u32,
    change: impl Fn(&mut Raw),
    test: impl FnOnce(&mut Scene<'_, P>, Address),
) {
    let (_engine, nfs) = connected(device, server(), change);
    let mut scene = scene(nfs, inline);
    test(&mut scene, server().into());
    let stats = scene.nfs.rpc.client().handle().stats();
    assert_eq!((stats.buffers_leaked, stats.completions_failed), (0, 0), "{stats:?}");
}

/// The whole suite with the sizes that both sides have without being asked.
pub fn messages_of_the_default_length<P: Provider + Clone>(device: &P) {
    with_server(device, kind().inline, one, |scene, _| suite::all(scene));
}

/// What the server says that it takes and sends in line, to those who connect meanwhile.
struct Stating;

impl Stating {
    fn new(inline: u32) -> Stating {
        fs::write(STATED, inline.to_string()).expect("the server reads it");
        Stating
    }
}

impl Drop for Stating {
    fn drop(&mut self) {
        fs::write(STATED, KINDS[0].inline.to_string()).expect("the server reads it");
    }
}

const STATED: &str = "/proc/sys/sunrpc/svc_rdma/max_req_size";

/// The server takes and sends 4096 bytes at least, so it is the client that does not.
pub fn messages_of_1024_bytes<P: Provider + Clone>(device: &P) {
    let small = |raw: &mut Raw| {
        one(raw);
        raw.receive.inline = "1KiB".into();
        raw.send.length = "1KiB".into();
    };
    with_server(device, 1024, small, |scene, _| suite::all(scene));
}

/// Longer messages in line, in both directions.
pub fn messages_of_8192_bytes<P: Provider + Clone>(device: &P) {
    if !is_kernel() {
        return;
    }
    let _stating = Stating::new(8192);
    let large = |raw: &mut Raw| {
        one(raw);
        raw.receive.inline = "8KiB".into();
    };
    with_server(device, 8192, large, suite_of_data);
}

/// Longer messages in line, in one direction.
pub fn messages_of_other_lengths_in_each_direction<P: Provider + Clone>(device: &P) {
    if !is_kernel() {
        return;
    }
    let _stating = Stating::new(8192);
    for (sent, received) in [("1KiB", "8KiB"), ("8KiB", "1KiB")] {
        let change = |raw: &mut Raw| {
            one(raw);
            raw.send.length = sent.into();
            raw.receive.inline = received.into();
        };
        // What is longer than either is in a chunk for certain.
        with_server(device, 8192, change, |scene, _| {
            scene.is_thorough = false;
            suite::data::reads_stop_at_the_end(scene);
            suite::data::long_calls_are_fetched_as_a_whole(scene);
            suite::directories::directories_are_read_in_replies_of_every_size(scene);
        });
    }
}

/// Chunks of up to 16 segments, all that Linux's own client ever has.
pub fn chunks_of_many_segments<P: Provider + Clone>(device: &P) {
    let small = |raw: &mut Raw| {
        one(raw);
        raw.explicit.buffers.length = "72KiB".into();
        raw.explicit.buffers.count = 64;
        raw.explicit.windows = 1024.into();
        raw.app.bulk.length = "72KiB".into();
        raw.app.bulk.count = 256;
    };
    with_server(device, kind().inline, small, suite_of_data);
}

/// Memory that is registered for each call, and not exposed by windows.
pub fn memory_by_registrations<P: Provider + Clone>(device: &P) {
    let registered = |raw: &mut Raw| {
        one(raw);
        raw.explicit.exposure = "registration".into();
    };
    with_server(device, kind().inline, registered, suite_of_data);
}

/// Only this side invalidates its memory.
pub fn without_remote_invalidation<P: Provider + Clone>(device: &P) {
    let own = |raw: &mut Raw| {
        one(raw);
        raw.interop.remote_invalidation = false;
    };
    with_server(device, kind().inline, own, suite_of_data);
}

/// The kernel's server invalidates the only key of a call with its reply, if the client permits it;
/// of several keys it invalidates none.
pub fn memory_with_one_key_is_invalidated_by_the_server<P: Provider + Clone>(device: &P) {
    for (may, pieces, own) in [(true, 1, 0), (true, 3, 3), (false, 1, 1)] {
        let change = |raw: &mut Raw| {
            one(raw);
            raw.explicit.exposure = "windows".into();
            raw.interop.remote_invalidation = may;
        };
        with_server(device, kind().inline, change, |scene, _| {
            let (dir, path) = scene.fresh("keys");
            let bytes = suite::pattern(6, 30_000);
            fs::write(path.join("file"), &bytes).expect("a file");
            let file = scene.nfs.lookup(&dir, b"file").expect("the file").object;
            let before = scene.nfs.rpc.client().handle().stats();
            for _ in 0..10 {
                let read = scene.nfs.read(&file, 0, 30_000, Take::Sink(pieces)).expect("a READ");
                assert!(read.data == bytes);
                let give = Give::Apart(pieces);
                let done = scene.nfs.write(&file, 0, &bytes, stable_how::UNSTABLE, give);
                assert_eq!(done.expect("a WRITE").count, 30_000);
            }
            let after = scene.nfs.rpc.client().handle().stats();
            let exposed = after.exposures - before.exposures;
            let invalidated = after.invalidations - before.invalidations;
            let own = if kind().invalidates { own } else { pieces as u64 };
            assert_eq!((exposed, invalidated), (20 * pieces as u64, 20 * own), "{may}, {pieces}");
        });
    }
}

fn suite_of_data<P: Provider>(scene: &mut Scene<'_, P>, _: Address) {
    scene.is_thorough = false;
    suite::data::reads_bring_what_is_in_the_file(scene);
    suite::data::writes_put_into_the_file_what_was_given(scene);
    suite::data::many_calls_are_in_flight(scene);
    suite::refusals::memory_that_is_too_small_fails_its_call_only(scene);
}

/// Version two is tried once.
pub fn the_version_of_a_server_is_discovered_once<P: Provider + Clone>(device: &P) {
    with_server(
        device,
        kind().inline,
        |_| {},
        suite::versions::the_version_of_a_server_is_discovered_once,
    );
}

/// Found out by the first call, where no properties are spoken of.
pub fn the_first_call_discovers_the_version<P: Provider + Clone>(device: &P) {
    let bare = |raw: &mut Raw| {
        raw.features.properties = false;
        raw.features.placement = false;
        raw.features.continuation = false;
    };
    let (_engine, mut nfs) = connected(device, server(), bare);
    let first = nfs.null();
    let is_repeatable =
        matches!(&first, Err(Failure::Call { error, .. }) if CallError::is_repeatable(error));
    assert!(is_repeatable, "it was not executed: {first:?}");
    nfs.null().expect("the same call goes in version one");
    nfs.rpc.reconnect(server().into()).expect("the server is there");
    nfs.null().expect("the version is known");
    let stats = nfs.rpc.client().handle().stats();
    assert_eq!((stats.fallbacks_error, stats.versions_remembered), (1, 1));
}

/// The same server by IPv6.
pub fn addresses_of_version_six<P: Provider + Clone>(device: &P) {
    let at = SocketAddr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(), 20_049);
    let (_engine, nfs) = connected(device, at, one);
    let mut scene = scene(nfs, kind().inline);
    suite::names::attributes_are_those_of_the_file_system(&mut scene);
    suite::data::reads_stop_at_the_end(&mut scene);
}

/// The server grants as many credits as it is asked for, up to 64, and holds them.
pub fn as_many_calls_as_the_server_grants<P: Provider + Clone>(device: &P) {
    with_server(device, kind().inline, one, |scene, _| {
        let (dir, path) = scene.fresh("grants");
        fs::write(path.join("file"), suite::pattern(3, 100_000)).expect("a file");
        let file = scene.nfs.lookup(&dir, b"file").expect("the file").object;
        let mut calls = Vec::new();
        let mut most = 0;
        // Nothing is polled until no call can leave: however fast the server is, it has answered none.
        while calls.len() < 500 {
            let offset = calls.len() as u64 * 100;
            match scene.nfs.rpc.submit_now(&read_request(&file, offset, 5_000, Take::Sink(1))) {
                Ok(Some(call)) => calls.push((offset, call)),
                Ok(None) => scene.nfs.rpc.poll(),
                Err(why) => panic!("a READ: {why:?}"),
            }
            most = most.max(scene.nfs.rpc.open());
        }
        for (offset, call) in calls {
            let reply = scene.nfs.rpc.finish(call).expect("a READ");
            let read = read_results(&reply).expect("its results");
            assert!(read.data == suite::pattern(3, 100_000)[offset as usize..][..5_000]);
        }
        assert!((32..=64).contains(&most), "{most} calls were open at one time");
    });
}

/// The server has a cache of replies, by xid and address: a client that begins where another began
/// is answered out of it, and one that does not is served (wire.md W24).
pub fn calls_of_a_new_client_are_executed<P: Provider + Clone>(device: &P) {
    let dir = "cached";
    let path = Path::new(EXPORT).join(dir).join("file");
    let _ = fs::remove_dir_all(Path::new(EXPORT).join(dir));
    fs::create_dir(Path::new(EXPORT).join(dir)).expect("a directory");
    let root = root();
    let make = |seed: Option<u64>| {
        let engine = Engine::new(device.clone(), configured(device, one)).expect("an engine");
        if let Some(seed) = seed {
            engine.seed_xids(seed);
        }
        let client = engine.client().expect("a client");
        let mut nfs = Nfs::connect(client, server()).expect("a connection");
        let dir = nfs.lookup(&root, dir.as_bytes()).expect("the directory").object;
        let made = nfs.create_as(&dir, b"file", createhow3::GUARDED(sattr3::default()));
        made.map(drop)
    };
    make(Some(77)).expect("it is made");
    fs::remove_file(&path).expect("it was made");
    make(Some(77)).expect("out of the cache");
    if kind().defects.contains(&Defect::RepeatsExecuted) {
        fs::remove_file(&path).expect("it is made again");
    }
    assert!(!path.exists(), "the cache has answered, and nothing was made");
    make(None).expect("it is made");
    assert!(path.exists(), "another client is served");
    let again = make(None);
    assert!(matches!(again, Err(Failure::Status(nfsstat3::NFS3ERR_EXIST))), "{again:?}");
}

/// Where `RPCRDMA_TEST_SERVER` is another machine, what crosses the wire can be captured. How many
/// messages that were goes to the file `RPCRDMA_TEST_COUNT`.
pub fn every_kind_of_message_crosses_the_wire<P: Provider + Clone>(device: &P) {
    let server = env::var("RPCRDMA_TEST_SERVER");
    let server = server.map_or(address(), |it| it.parse().expect("an address of the server"));
    let root = mount(SocketAddr::new(server, 20_048), EXPORT.as_bytes()).expect("an export");
    let (_engine, mut nfs) = connected(device, SocketAddr::new(server, 20_049), one);
    suite::kinds::every_kind_of_message(&mut nfs, &root, kind().defects);
    let stats = nfs.rpc.client().handle().stats();
    assert_eq!(stats.connections_version_one, 1);
    if let Ok(file) = env::var("RPCRDMA_TEST_COUNT") {
        fs::write(file, format!("{}\n", stats.transmissions_sent + stats.transmissions_received))
            .expect("it is written");
    }
}

/// Connections are opened and closed; each returns all its memory.
pub fn connections_come_and_go<P: Provider + Clone>(device: &P) {
    with_server(device, kind().inline, one, |scene, at| {
        let (dir, path) = scene.fresh("comers");
        fs::write(path.join("file"), suite::pattern(4, 30_000)).expect("a file");
        let file = scene.nfs.lookup(&dir, b"file").expect("the file").object;
        for _ in 0..20 {
            let read = scene.nfs.read(&file, 1, 20_001, Take::Sink(2)).expect("a READ");
            assert!(read.data == suite::pattern(4, 30_000)[1..20_002]);
            scene.nfs.rpc.reconnect(at).expect("the server is there");
        }
    });
}

/// The server is stopped and started while there is a connection: open and later calls fail, none
/// is left, and a new connection goes.
pub fn a_restarted_server_is_found_again<P: Provider + Clone>(device: &P) {
    if !is_kernel() {
        return;
    }
    let threads = |count: &str| fs::write("/proc/fs/nfsd/threads", count).expect("nfsd is here");
    let (_engine, nfs) = connected(device, server(), one);
    let mut scene = scene(nfs, kind().inline);
    let (dir, path) = scene.fresh("restart");
    fs::write(path.join("file"), suite::pattern(5, 30_000)).expect("a file");
    let file = scene.nfs.lookup(&dir, b"file").expect("the file").object;
    let request = read_request(&file, 0, 20_000, Take::Sink(1));
    let calls: Vec<u64> =
        (0..10).map(|_| scene.nfs.rpc.submit(&request).expect("a READ")).collect();
    threads("0");
    for call in calls {
        match scene.nfs.rpc.finish(call) {
            Ok(reply) => assert!(reply.sink),
            Err(Failure::Call { error: CallError::ConnectionLost(..), .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    let mut after = 0;
    while scene.nfs.null().is_ok() {
        after += 1;
        assert!(after < 1000, "a server without threads does not answer");
    }
    fs::write("/proc/fs/nfsd/portlist", "rdma 20049").expect("a port of the server");
    threads("8");
    scene.nfs.rpc.reconnect(server().into()).expect("the server is back");
    let read = scene.nfs.read(&file, 0, 20_000, Take::Sink(1)).expect("a READ");
    assert!(read.data == suite::pattern(5, 30_000)[..20_000]);
}
