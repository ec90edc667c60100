//! Silent peers: their connections end in time, and their places are free again.

use std::time::Duration;

use rpcrdma::provider::ConnectError;
use rpcrdma::{Armed, CloseReason, Fabric, Rejection};
use rpcrdma_config::Raw;
use rpcrdma_tests::raw_peer::{RawPeer, message, properties};
use rpcrdma_tests::script::{Order, Part, Script};
use rpcrdma_tests::world::{Plan, World, small};

const MS: u64 = 1_000_000;

/// A server with room for two connections, and raw peers.
struct Scene {
    world: World<Fabric>,
    fabric: Fabric,
    raws: Vec<RawPeer<Fabric>>,
}

impl Scene {
    fn new(change: impl FnOnce(&mut Raw)) -> Scene {
        let fabric = Fabric::new();
        let mut serve = small();
        let connections = &mut serve.connections;
        connections.max = 2;
        connections.connect_timeout = "50ms".into();
        connections.idle_timeout = "200ms".into();
        change(&mut serve);
        let plan = Plan { clients: 0, serve, ..Plan::default() };
        let world = World::new(&|| fabric.clone(), &plan);
        Scene { world, fabric, raws: Vec::new() }
    }

    /// A raw peer that is connected and says nothing; its number.
    fn silent(&mut self) -> usize {
        let mut raw = RawPeer::new(&self.fabric);
        raw.connect(self.world.at);
        self.raws.push(raw);
        let at = self.raws.len() - 1;
        for _ in 0..100 {
            self.world.step();
            self.raws[at].turn().expect("the server has room");
            if self.raws[at].is_connected() {
                return at;
            }
        }
        panic!("no connection");
    }

    /// A raw peer that has stated its properties.
    fn met(&mut self) -> usize {
        let at = self.silent();
        self.answer(at, &properties(0x99, 16));
        at
    }

    /// Sends something and takes the answer.
    fn answer(&mut self, at: usize, bytes: &[u8]) -> Vec<u8> {
        assert!(self.raws[at].send(bytes), "it is connected");
        for _ in 0..100 {
            self.turn();
            if let Some(answer) = self.raws[at].recv() {
                return answer;
            }
        }
        panic!("no answer");
    }

    fn turn(&mut self) {
        self.world.step();
        for raw in &mut self.raws {
            // An attempt that was rejected stays so.
            let _ = raw.turn();
        }
    }

    /// Lets so many milliseconds pass, in steps of one tick.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(10) {
            self.world.now += 10 * MS;
            self.turn();
        }
    }

    fn places(&self) -> usize {
        self.world.servers[0].handle().connections()
    }

    fn closed(&mut self) -> Vec<CloseReason> {
        self.world.servers[0].handler().closed.iter().map(|(_, why)| *why).collect()
    }
}

fn echo(xid: u32) -> Vec<u8> {
    message(xid, 0, 16, &Script::new(xid, &[], &[]).call_stream())
}

/// A call in the version that a server speaks.
fn call_in(version: &str, xid: u32) -> Vec<u8> {
    let mut call = echo(xid);
    let vers: u32 = if version == "one" { 1 } else { 2 };
    call[4..8].copy_from_slice(&vers.to_be_bytes());
    call
}

fn unanswered(xid: u32) -> Vec<u8> {
    let script = Script::new(xid, &[], &[]).order(Order::Never);
    message(xid, 0, 16, &script.call_stream())
}

#[test]
fn a_client_that_connects_and_sends_nothing_loses_its_place() {
    for version in ["auto", "one", "two"] {
        for properties in [true, false] {
            let mut scene = Scene::new(|raw| {
                raw.protocol.version = version.into();
                raw.features.properties = properties;
                raw.features.placement = properties;
                raw.features.continuation = properties;
            });
            let silent = [scene.silent(), scene.silent()];
            let mut late = RawPeer::new(&scene.fabric);
            late.connect(scene.world.at);
            scene.pass(40);
            assert_eq!(
                late.turn(),
                Err(ConnectError::Rejected(Rejection::Full)),
                "all places are taken"
            );
            assert!(silent.iter().all(|&at| scene.raws[at].is_connected()), "they have 50 ms");
            scene.pass(20);
            assert!(silent.iter().any(|&at| scene.raws[at].is_lost()), "{version} {properties}");
            // Another client connects, and stays while the silent ones are closed.
            let good = scene.silent();
            scene.answer(good, &call_in(version, 1));
            for xid in 2..8 {
                scene.pass(50);
                scene.answer(good, &call_in(version, xid));
            }
            assert!(silent.iter().all(|&at| scene.raws[at].is_lost()), "{version} {properties}");
            assert_eq!(scene.places(), 1);
            let stats = scene.world.servers[0].handle().stats();
            assert_eq!(
                (stats.opening_timeouts, stats.connections_established),
                (2, 1),
                "the others never came up"
            );
        }
    }
}

#[test]
fn a_shard_sleeps_no_longer_than_a_tick_while_a_connection_opens() {
    let mut scene = Scene::new(|_| {});
    let at = scene.silent();
    let sleep = |scene: &mut Scene| {
        // Each look is followed by one search for what is outstanding.
        scene.pass(20);
        match scene.world.servers[0].arm(scene.world.now) {
            Armed::AtMost(most) => most,
            Armed::Ready => panic!("there is nothing to do"),
        }
    };
    assert!(sleep(&mut scene) <= Duration::from_millis(10));
    scene.answer(at, &properties(0x99, 16));
    assert!(sleep(&mut scene) > Duration::from_millis(10), "nothing is outstanding");
}

#[test]
fn a_silent_client_is_kept_while_there_is_room() {
    // As one of version one, whose program connects long before it calls.
    for version in ["auto", "one"] {
        let mut scene = Scene::new(|raw| raw.protocol.version = version.into());
        let at = scene.silent();
        scene.pass(240);
        assert!(scene.raws[at].is_connected(), "as long as one that is idle");
        scene.answer(at, &call_in(version, 1));
        let at = scene.silent();
        // Within 50 ms the other one has called last: the shard is full, and this one has to go.
        scene.pass(60);
        assert!(scene.raws[at].is_lost());
        assert_eq!(scene.places(), 1);
    }
}

#[test]
fn messages_that_do_not_open_a_connection_count_as_silence() {
    let mut scene = Scene::new(|raw| raw.protocol.version = "two".into());
    let at = scene.silent();
    for _ in 0..6 {
        // Too short to be a message: dropped without a word (RFC 8166 4.5).
        scene.raws[at].send(&[0; 12]);
        scene.pass(10);
    }
    assert!(scene.raws[at].is_lost());
    assert_eq!(scene.world.servers[0].handle().stats().opening_timeouts, 1);
}

#[test]
fn an_unfinished_connect_request_loses_its_place() {
    let mut scene = Scene::new(|raw| {
        raw.connections.stop_timeout = "30ms".into();
        raw.protocol.version = "two".into();
    });
    let mut absent = RawPeer::new(&scene.fabric);
    absent.connect(scene.world.at);
    scene.pass(40);
    assert_eq!(scene.places(), 1, "accepted, and the other end was never taken over");
    scene.pass(20);
    // What is posted to disconnect waits for the other end, until that is given up.
    scene.pass(30);
    assert_eq!(scene.places(), 0);
    assert_eq!(scene.world.servers[0].handle().stats().buffers_leaked, 0);
    assert!(scene.closed().is_empty(), "the handler was never called for it");
}

#[test]
fn a_peer_that_calls_nothing_for_too_long_is_closed() {
    let mut scene = Scene::new(|_| {});
    let (stated, called) = (scene.met(), scene.silent());
    scene.answer(called, &echo(1));
    scene.pass(190);
    assert!(scene.raws[stated].is_connected() && scene.raws[called].is_connected());
    scene.pass(30);
    assert!(scene.raws[stated].is_lost() && scene.raws[called].is_lost());
    assert_eq!(scene.closed(), [CloseReason::Idle; 2]);
    assert_eq!(scene.places(), 0);
    assert_eq!(scene.world.servers[0].handle().stats().idle_timeouts, 2);
}

/// A shard with thousands of places looks at some of them every 10 ms: at all of them every 50.
#[test]
fn a_shard_with_many_places_closes_idle_connections_soon_after_their_time() {
    let mut scene = Scene::new(|raw| {
        raw.connections.max = 5_000;
        raw.receive.buffers = 6_000_u32.into();
    });
    let all: Vec<usize> = (0..3).map(|_| scene.met()).collect();
    scene.pass(150);
    assert!(all.iter().all(|at| scene.raws[*at].is_connected()));
    scene.pass(60 + 50);
    assert!(all.iter().all(|at| scene.raws[*at].is_lost()));
    assert_eq!(scene.closed(), [CloseReason::Idle; 3]);
    assert_eq!(scene.places(), 0);
}

#[test]
fn a_peer_that_calls_in_time_stays() {
    let mut scene = Scene::new(|_| {});
    let at = scene.met();
    for xid in 1..10 {
        scene.pass(150);
        scene.answer(at, &echo(xid));
    }
    // A call that is being worked on is not silence, however long it takes.
    scene.raws[at].send(&unanswered(20));
    scene.pass(2_000);
    assert!(scene.raws[at].is_connected());
    assert!(scene.closed().is_empty());
}

#[test]
fn dropped_messages_do_not_keep_a_connection() {
    let mut scene = Scene::new(|_| {});
    let at = scene.met();
    for _ in 0..22 {
        // wire.md P7: a second CONNPROP is ignored.
        scene.raws[at].send(&properties(0x9a, 16));
        scene.pass(10);
    }
    assert!(scene.raws[at].is_lost());
    assert_eq!(scene.closed(), [CloseReason::Idle]);
}

#[test]
fn idle_timeouts_can_be_disabled() {
    let mut scene = Scene::new(|raw| raw.connections.idle_timeout = "0s".into());
    let at = scene.met();
    scene.world.now += 100 * 3_600_000 * MS;
    scene.pass(500);
    scene.answer(at, &echo(1));
    assert!(scene.closed().is_empty());
}

#[test]
fn own_connections_have_no_idle_timeout() {
    let fabric = Fabric::new();
    let mut plan = Plan::default();
    plan.serve.connections.idle_timeout = "0s".into();
    plan.call.connections.idle_timeout = "10ms".into();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
    for _ in 0..20 {
        world.now += 10 * MS;
        world.step();
    }
    world.round(0, peer, &Script::new(1, &[], &[Part::Inline(8)]));
}

#[test]
fn a_peer_with_an_outstanding_answer_is_closed_as_not_answering() {
    let mut scene = Scene::new(|raw| {
        raw.connections.call_timeout = "1s".into();
        raw.connections.calls_max = 4;
    });
    let at = scene.met();
    let server = &mut scene.world.servers[0];
    let peer = *server.handler().connected.last().expect("it is up");
    let now = scene.world.now;
    let mut turn = scene.world.servers[0].turn(now);
    let call = turn.call(peer, 1).expect("one credit is there for certain");
    call.submit().expect("a short call");
    scene.pass(900);
    assert!(scene.raws[at].is_connected(), "the call has a second");
    scene.pass(600);
    assert_eq!(scene.closed(), [CloseReason::NotAnswering]);
    assert_eq!(scene.places(), 0);
}

#[test]
fn a_call_that_was_given_up_does_not_keep_a_silent_peer() {
    let mut scene = Scene::new(|_| {});
    let at = scene.met();
    let peer = *scene.world.servers[0].handler().connected.last().expect("it is up");
    let now = scene.world.now;
    let mut turn = scene.world.servers[0].turn(now);
    let mut call = turn.call(peer, 1).expect("one credit is there for certain");
    call.deadline(now + 300 * MS);
    call.submit().expect("a short call");
    scene.pass(290);
    assert!(scene.raws[at].is_connected(), "its answer is awaited");
    scene.pass(190);
    assert!(scene.raws[at].is_connected(), "it was silent for less than the time");
    scene.pass(60);
    assert_eq!(scene.closed(), [CloseReason::Idle]);
    assert_eq!(scene.places(), 0);
}
