//! The memory of an idle connection, without the pools of its shard, and of rejected peers.
//!
//! Registered memory does not come from the allocator and is not counted; nor is what a shard has
//! for its calls and messages, which is the same for one connection and for hundreds.

use std::sync::{Mutex, PoisonError};

use rpcrdma::control::Admissions;
use rpcrdma::{
    Address, Answer, Call, Client, ConnectError, ConnectionId, Engine, Fabric, Handler, Provider,
    Rejection, Reply, Shard, ShardNeeds,
};
use rpcrdma_config::{Config, Raw};
use rpcrdma_tests::alloc::{Counting, held};
use rpcrdma_tests::world::{Plan, World, checked, small};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Silent;

impl Handler for Silent {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.refuse()
    }
}

/// A client and a server with as many connections as fit.
struct Pair {
    client: Client<Fabric>,
    server: Shard<Fabric, Silent>,
    peers: Vec<ConnectionId>,
    _engine: Engine<Fabric>,
}

impl Pair {
    /// With room for `room` connections, of which `count` are made.
    fn new(room: usize, count: usize) -> Pair {
        Pair::of(room, count, small(), 1024)
    }

    /// The same, with so many Receives.
    fn of(room: usize, count: usize, mut raw: Raw, receives: u32) -> Pair {
        // The same pools whatever the connections, all of them in memory.
        raw.memory.prefault = true;
        raw.connections.max = room as i64;
        raw.receive.inline = "1KiB".into();
        raw.receive.placement.length = "4KiB".into();
        raw.receive.buffers = receives.into();
        raw.receive.replies = 64_u32.into();
        let (engine, mut control) =
            Engine::without_threads(Fabric::new(), checked(&raw)).expect("an engine");
        let at =
            control.listen("127.0.0.1:0".parse::<Address>().expect("an address")).expect("a port");
        let mut server = engine.shard(Silent).expect("a server");
        let mut client = engine.client().expect("a client");
        let mut peers = Vec::with_capacity(room);
        let mut now = 1;
        for _ in 0..count {
            let id = client.begin_connect(at).expect("an attempt");
            let peer = loop {
                now += 1000;
                control.step(std::time::Duration::ZERO);
                server.poll_once(now);
                client.poll(now, |done| panic!("no call was made: {done:?}"));
                if let Some(outcome) = client.connected(id) {
                    break outcome.expect("a connection");
                }
                assert!(now < 1 << 40, "they connect");
            };
            peers.push(peer);
        }
        Pair { client, server, peers, _engine: engine }
    }
}

/// Bytes of this process that are in memory.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("a Linux system");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok());
    pages.expect("a number of pages") * 4096
}

/// What a client and a server with these connections take, of the allocator and of memory.
fn taken(room: usize, count: usize) -> (Pair, [i64; 2]) {
    let before = resident();
    let (mut pair, held) = held(|| Pair::new(room, count));
    assert_eq!(pair.peers.len(), count);
    pair.server.poll_once(1 << 41);
    pair.client.poll(1 << 41, |_| {});
    (pair, [held, resident() - before])
}

/// One test at a time: what is in memory is that of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn an_idle_connection_takes_less_than_four_kibibytes_a_side() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const N: usize = 256;
    // The parts that the first connection sets up once.
    let _first = taken(N, 1);
    // All of them stay, so that none is in the memory that another has left.
    let pairs = [taken(N, 0), taken(2 * N, 0), taken(N, N), taken(2 * N, 2 * N)];
    let each = |of: usize, than: usize, what: usize| {
        (pairs[of].1[what] - pairs[than].1[what]) / (2 * N as i64)
    };
    let (reserved, in_use) = (each(3, 2, 0), each(3, 2, 1));
    let tables = each(1, 0, 1);
    println!(
        "a side of an idle connection: {in_use} bytes, {tables} of them without it; {reserved} reserved"
    );
    // Pages are shared by several, and some of the memory is that of the test.
    assert!((512..=4096).contains(&in_use), "{in_use} bytes");
    // Nothing but the test's own list is allocated for a connection when it comes.
    let came = each(3, 2, 0) - each(1, 0, 0);
    assert!(came < 64, "{came} bytes are allocated for a connection when it comes");
}

/// How long a turn takes that checks the time limits, with 10,000 idle connections: the shortest of
/// many, and the longest of a round over all.
#[test]
#[ignore = "it measures times, and asserts none"]
fn the_time_of_a_look_at_ten_thousand_connections() {
    let mut raw = small();
    raw.connections.idle_timeout = "0s".into();
    let mut pair = Pair::of(10_000, 10_000, raw, 12_000);
    let mut now = 1 << 41;
    let mut looks: Vec<u128> = (0..200)
        .map(|_| {
            now += 10_000_000;
            let began = std::time::Instant::now();
            pair.server.poll_once(now);
            began.elapsed().as_nanos()
        })
        .collect();
    looks.sort_unstable();
    println!("a look: at least {} ns, median {} ns", looks[0], looks[100]);
}

/// Bytes of memory that programs may take now.
fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").expect("a Linux system");
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("a number") << 10
}

/// The profile for sizes takes what its sums say: of memory, of a device, and of the allocator.
#[test]
fn a_shard_of_the_profile_storage_large_takes_what_its_sums_say() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut raw = Config::profile("storage-large").expect("it is there").raw().clone();
    let is_touched = available() > 3 * checked(&raw).shard_memory_len();
    raw.memory.prefault = is_touched;
    raw.memory.pages = "4K".into();
    raw.memory.lock = "false".into();
    let config = checked(&raw);
    let fabric = Fabric::from_config(&config).expect("a fabric");
    let needs = ShardNeeds::new(&config, fabric.caps()).expect("a fabric has all of it");
    let before = resident();
    let (made, heap) = held(|| {
        let (engine, control) = Engine::without_threads(fabric, config).expect("an engine");
        let shard = engine.shard(Silent).expect("a shard");
        (shard, control, engine)
    });
    let grown = resident() - before;
    let shard = &made.0;
    let bytes = shard.handle().resources().bytes() as u64;
    println!("storage-large: {needs:?}; {bytes} bytes mapped, {heap} allocated, {grown} resident");
    // Headers of messages and whole pages come to it.
    assert!((needs.memory..needs.memory * 103 / 100).contains(&bytes), "{bytes}: {needs:?}");
    let audit = shard.audit();
    assert_eq!((audit.receives, audit.receives_posted), (needs.receives as usize, audit.receives));
    assert_eq!(audit.windows.total, needs.windows as usize);
    assert_eq!(audit.granted, 0);
    assert_eq!(audit.grant_receives, needs.credits);
    // 46 KiB for each connection are the fabric's stand-in for queues of a device, and not resident
    // until they are used.
    let queues = i64::from(needs.queue_pairs) * (46 << 10);
    assert!((queues..queues + TABLES_MAX).contains(&heap), "{heap} bytes are allocated");
    if is_touched {
        // What other tests have left is returned to the system at any time.
        let expected = bytes as i64 * 9 / 10..bytes as i64 + TABLES_MAX;
        assert!(expected.contains(&grown), "{grown} bytes are resident, of {expected:?}");
    } else {
        println!("the machine has too little memory to touch all of it");
    }
}

/// Bytes of the tables of such a shard, at most: docs/tuning.md says so.
const TABLES_MAX: i64 = 192 << 20;

/// What is left of peers that come again and again and may not connect: nothing but the counters.
#[test]
fn peers_that_are_rejected_leave_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    type Change = fn(&mut Raw);
    type Count = fn(&Admissions) -> u64;
    let ways: [(Change, Rejection, Count); 2] = [
        (
            |raw| raw.connections.deny = vec!["0.0.0.0/0".to_owned()],
            Rejection::NotAllowed,
            |counted| counted.not_allowed,
        ),
        (|raw| raw.connections.max_per_peer = 1, Rejection::PeerFull, |counted| counted.peer_full),
    ];
    for (change, why, count) in ways {
        let mut plan = Plan { clients: 2, ..Plan::default() };
        change(&mut plan.serve);
        let fabric = Fabric::new();
        let mut world = World::new(&|| fabric.clone(), &plan);
        if why == Rejection::PeerFull {
            world.connect(0);
        }
        let mut reject = |times: u64| {
            for _ in 0..times {
                assert_eq!(world.try_connect(1), Err(ConnectError::Rejected(why)));
            }
            let counted = count(&world.controls[0].admissions());
            let places = [world.servers[0].handle(), world.clients[1].handle()];
            (
                counted,
                places.map(|handle| handle.connections()),
                world.servers[0].audit().peers.len(),
            )
        };
        // Lists get their room.
        let (_, places, peers) = reject(100);
        let (left, bytes) = held(|| reject(10_000));
        assert_eq!(left, (10_100, places, peers), "{why}");
        assert_eq!(bytes, 0, "{why}");
    }
}
