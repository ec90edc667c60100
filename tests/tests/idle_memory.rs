//! The memory of an idle connection, without the pools of its shard, and of rejected peers.
//!
//! Registered memory does not come from the allocator and is not counted; nor is what a shard has
//! for its calls and messages, which is the same for one connection and for hundreds.

use std::sync::{Mutex, PoisonError};

use rpcrdma_config::Raw;
use rpcrdma_engine::control::Admissions;
use rpcrdma_engine::{
    Address, Answer, Call, Client, ConnectError, ConnectionId, Engine, Fabric, Handler, Rejection,
    Reply, Shard,
};
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
        let mut raw = small();
        // The same pools whatever the connections, all of them in memory.
        raw.memory.prefault = true;
        raw.connections.max = room as i64;
        raw.receive.inline = "1KiB".into();
        raw.receive.placement.length = "4KiB".into();
        raw.receive.buffers = 1024_u32.into();
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
