//! The test client and an NFS server of another project, on an RDMA device, in version one.
//!
//! `RPCRDMA_TEST_DEVICE` and `RPCRDMA_TEST_ADDRESS` say which device, `RPCRDMA_TEST_NFS` which
//! server: `kernel` (also without it), `ganesha` or `ganesha-unpatched`. It exports `/export` from
//! this machine, with RDMA port 20049 and MOUNT on port 20048; what is read and written is compared
//! with the directory itself.

use std::cell::Cell;
use std::env;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;

use nfs3_types::nfs3::{createhow3, nfs_fh3, nfsstat3, sattr3, stable_how};
use rpcrdma_config::{Config, Raw};
use rpcrdma_engine::{Address, CallError, Engine};
use rpcrdma_tests::device::{address, device};
use rpcrdma_tests::nfs::client::{read_request, read_results};
use rpcrdma_tests::nfs::mount::mount;
use rpcrdma_tests::nfs::{Defect, Failure, Give, Moved, Nfs, Scene, Take, defects, suite};
use rpcrdma_tests::setup::suited;
use rpcrdma_verbs::Verbs;

const EXPORT: &str = "/export";

/// A server, and how it differs from others.
struct Kind {
    name: &'static str,
    /// Its default inline thresholds.
    inline: u32,
    /// Whether it invalidates a key with its reply.
    invalidates: bool,
    /// Whether it states what it counts and receives commands in `/proc`.
    is_kernel: bool,
    defects: &'static [Defect],
    /// What it needs of `[interop]`.
    interop: fn(&mut Raw),
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "kernel",
        inline: 4096,
        invalidates: true,
        is_kernel: true,
        defects: &[],
        interop: |_| {},
    },
    Kind { name: "ganesha", defects: defects::GANESHA, interop: for_ganesha, ..GANESHA },
    Kind {
        name: "ganesha-unpatched",
        defects: defects::GANESHA_UNPATCHED,
        interop: |raw| {
            for_ganesha(raw);
            raw.interop.write_chunk_padding = true;
        },
        ..GANESHA
    },
];

/// It states no sizes, so a message has 1024 bytes (RFC 8166 3.3.2).
const GANESHA: Kind = Kind {
    name: "",
    inline: 1024,
    invalidates: false,
    is_kernel: false,
    defects: &[],
    interop: for_ganesha,
};

fn for_ganesha(raw: &mut Raw) {
    raw.interop.read_chunk_last = true;
    raw.interop.links_in_line = true;
}

/// The server that is there.
fn kind() -> &'static Kind {
    let name = env::var("RPCRDMA_TEST_NFS").unwrap_or_else(|_| "kernel".into());
    KINDS.iter().find(|kind| kind.name == name).unwrap_or_else(|| panic!("no server is {name}"))
}

/// Whether the kernel's server is there, which a test controls by `/proc`; says so if not.
fn is_kernel() -> bool {
    let kind = kind();
    if !kind.is_kernel {
        eprintln!("SKIPPED: for the kernel's server, and this is {}", kind.name);
    }
    kind.is_kernel
}

thread_local! { static LOOKS: Cell<u64> = const { Cell::new(0) }; }

fn server() -> SocketAddr {
    SocketAddr::new(address(), 20_049)
}

/// The handle of the export.
fn root() -> nfs_fh3 {
    let service = SocketAddr::new(address(), 20_048);
    mount(service, EXPORT.as_bytes()).expect("the directory is exported")
}

/// What the server has counted of its RDMA Reads and Writes. One that counts nothing has more at
/// every look.
fn moved() -> Moved {
    if !kind().is_kernel {
        let looks = LOOKS.get() + 1;
        LOOKS.set(looks);
        return Moved { reads: looks, writes: looks };
    }
    let count = |name: &str| {
        let path = Path::new("/proc/sys/sunrpc/svc_rdma").join(name);
        let text = fs::read_to_string(&path).expect("a counter of the server");
        text.trim().parse().expect("a number")
    };
    Moved { reads: count("rdma_stat_read"), writes: count("rdma_stat_write") }
}

fn configured(change: impl Fn(&mut Raw)) -> Config {
    let mut raw = Config::default().raw().clone();
    raw.engine.provider = "verbs".into();
    raw.engine.numa_bind = false;
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    raw.connections.credits_requested = 64;
    raw.app.bulk.count = 80;
    raw.app.bulk.length = "256KiB".into();
    raw.explicit.buffers.count = 32;
    (kind().interop)(&mut raw);
    change(&mut raw);
    Config::try_from(raw).expect("the configuration of a test holds")
}

/// The server's version, so that nothing has to be found out.
fn one(raw: &mut Raw) {
    raw.protocol.version = "one".into();
    raw.receive.placement.count = 0;
}

fn connected(at: SocketAddr, change: impl Fn(&mut Raw)) -> (Engine<Verbs>, Nfs<Verbs>) {
    let device = device().device;
    let config = suited(&device, configured(change).raw());
    let engine = Engine::new(device, config).expect("an engine");
    let mut nfs = Nfs::connect(engine.client().expect("a client"), at).expect("a connection");
    nfs.may_answer_system_error = true;
    (engine, nfs)
}

fn scene(nfs: Nfs<Verbs>, inline: u32) -> Scene<'static, Verbs> {
    let mut scene = Scene::new(nfs, root(), Path::new(EXPORT), &moved, inline);
    scene.defects = kind().defects;
    scene
}

/// Connects, and hands a test the scene.
fn with_server(
    inline: u32,
    change: impl Fn(&mut Raw),
    test: impl FnOnce(&mut Scene<'_, Verbs>, Address),
) {
    let (_engine, nfs) = connected(server(), change);
    let mut scene = scene(nfs, inline);
    test(&mut scene, server().into());
    let stats = scene.nfs.rpc.client().handle().stats();
    assert_eq!((stats.leaked, stats.failed_completions), (0, 0), "{stats:?}");
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn messages_of_the_default_length() {
    with_server(kind().inline, one, |scene, _| suite::all(scene));
}

/// What the server says that it takes and sends in line, to those who connect meanwhile.
struct Stating;

impl Stating {
    fn new(inline: u32) -> Stating {
        fs::write(STATED, inline.to_string()).expect("the server is told");
        Stating
    }
}

impl Drop for Stating {
    fn drop(&mut self) {
        fs::write(STATED, KINDS[0].inline.to_string()).expect("the server is told");
    }
}

const STATED: &str = "/proc/sys/sunrpc/svc_rdma/max_req_size";

/// The server takes and sends 4096 bytes at least, so it is the client that does not.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn messages_of_1024_bytes() {
    let small = |raw: &mut Raw| {
        one(raw);
        raw.receive.inline = "1KiB".into();
        raw.send.length = "1KiB".into();
    };
    with_server(1024, small, |scene, _| suite::all(scene));
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn messages_of_8192_bytes() {
    if !is_kernel() {
        return;
    }
    let _stating = Stating::new(8192);
    let large = |raw: &mut Raw| {
        one(raw);
        raw.receive.inline = "8KiB".into();
    };
    with_server(8192, large, suite_of_data);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn messages_of_other_lengths_in_each_direction() {
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
        with_server(8192, change, |scene, _| {
            scene.is_thorough = false;
            suite::data::reads_stop_at_the_end(scene);
            suite::data::long_calls_are_fetched_as_a_whole(scene);
            suite::directories::directories_are_read_in_replies_of_every_size(scene);
        });
    }
}

/// Chunks of up to 16 segments, all that Linux's own client ever has.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn chunks_of_many_segments() {
    let small = |raw: &mut Raw| {
        one(raw);
        raw.explicit.buffers.length = "72KiB".into();
        raw.explicit.buffers.count = 64;
        raw.explicit.windows = 1024.into();
        raw.app.bulk.length = "72KiB".into();
        raw.app.bulk.count = 256;
    };
    with_server(kind().inline, small, suite_of_data);
}

/// Memory that is registered for each call, and not shown through windows.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn memory_by_registrations() {
    let registered = |raw: &mut Raw| {
        one(raw);
        raw.explicit.exposure = "registration".into();
    };
    with_server(kind().inline, registered, suite_of_data);
}

/// Only this side invalidates its memory.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn without_remote_invalidation() {
    let own = |raw: &mut Raw| {
        one(raw);
        raw.interop.remote_invalidation = false;
    };
    with_server(kind().inline, own, suite_of_data);
}

/// The kernel's server invalidates the only key of a call with its reply, if the client permits it;
/// of several keys it invalidates none.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn memory_with_one_key_is_invalidated_by_the_server() {
    for (may, pieces, own) in [(true, 1, 0), (true, 3, 3), (false, 1, 1)] {
        let change = |raw: &mut Raw| {
            one(raw);
            raw.explicit.exposure = "windows".into();
            raw.interop.remote_invalidation = may;
        };
        with_server(kind().inline, change, |scene, _| {
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
            let exposed = after.exposed - before.exposed;
            let invalidated = after.invalidations - before.invalidations;
            let own = if kind().invalidates { own } else { pieces as u64 };
            assert_eq!((exposed, invalidated), (20 * pieces as u64, 20 * own), "{may}, {pieces}");
        });
    }
}

fn suite_of_data(scene: &mut Scene<'_, Verbs>, _: Address) {
    scene.is_thorough = false;
    suite::data::reads_bring_what_is_in_the_file(scene);
    suite::data::writes_put_into_the_file_what_was_given(scene);
    suite::data::many_calls_are_in_flight(scene);
    suite::refusals::memory_that_is_too_small_fails_its_call_only(scene);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn the_version_of_a_server_is_discovered_once() {
    with_server(kind().inline, |_| {}, suite::versions::the_version_of_a_server_is_discovered_once);
}

/// Found out by the first call, where no properties are spoken of.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn the_first_call_discovers_the_version() {
    let bare = |raw: &mut Raw| {
        raw.features.properties = false;
        raw.features.placement = false;
        raw.features.continuation = false;
    };
    let (_engine, mut nfs) = connected(server(), bare);
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

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn addresses_of_version_six() {
    let at = SocketAddr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(), 20_049);
    let (_engine, nfs) = connected(at, one);
    let mut scene = scene(nfs, kind().inline);
    suite::names::attributes_are_those_of_the_file_system(&mut scene);
    suite::data::reads_stop_at_the_end(&mut scene);
}

/// The server grants as many credits as it is asked for, up to 64, and holds them.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn as_many_calls_as_the_server_grants() {
    with_server(kind().inline, one, |scene, _| {
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
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn calls_of_a_new_client_are_executed() {
    let dir = "cached";
    let path = Path::new(EXPORT).join(dir).join("file");
    let _ = fs::remove_dir_all(Path::new(EXPORT).join(dir));
    fs::create_dir(Path::new(EXPORT).join(dir)).expect("a directory");
    let root = root();
    let make = |seed: Option<u64>| {
        let engine = Engine::new(device().device, configured(one)).expect("an engine");
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
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn every_kind_of_message_crosses_the_wire() {
    let server = env::var("RPCRDMA_TEST_SERVER");
    let server = server.map_or(address(), |it| it.parse().expect("an address of the server"));
    let root = mount(SocketAddr::new(server, 20_048), EXPORT.as_bytes()).expect("an export");
    let (_engine, mut nfs) = connected(SocketAddr::new(server, 20_049), one);
    suite::kinds::every_kind_of_message(&mut nfs, &root, kind().defects);
    let stats = nfs.rpc.client().handle().stats();
    assert_eq!(stats.version_one, 1);
    if let Ok(file) = env::var("RPCRDMA_TEST_COUNT") {
        fs::write(file, format!("{}\n", stats.sent + stats.received)).expect("it is written");
    }
}

/// Connections are opened and closed; each returns all its memory.
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn connections_come_and_go() {
    with_server(kind().inline, one, |scene, at| {
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
#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_restarted_server_is_found_again() {
    if !is_kernel() {
        return;
    }
    let threads = |count: &str| fs::write("/proc/fs/nfsd/threads", count).expect("nfsd is here");
    let (_engine, nfs) = connected(server(), one);
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
            Err(Failure::Call { error: CallError::ConnectionLost(_), .. }) => {}
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
