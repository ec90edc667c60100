//! Stopping a server with misbehaving raw peers: no delivered reply is lost, no failure is
//! reported, and no peer prevents the stop.

use rpcrdma::{CloseReason, ConnectionId, Fabric};
use rpcrdma_mempool::Access;
use rpcrdma_tests::raw_peer::{RawPeer, continuation, initial, message, properties, transmission};
use rpcrdma_tests::script::{Order, Part, Script};
use rpcrdma_tests::world::{Plan, World};
use rpcrdma_xdr::numbers::VERSION_TWO;
use rpcrdma_xdr::{Body, ChunkLists, Header, List, ReadSegment};

/// A server, and raw peers that have exchanged properties with it.
struct Scene {
    world: World<Fabric>,
    raws: Vec<RawPeer<Fabric>>,
}

impl Scene {
    fn new(count: usize) -> Scene {
        let mut plan = Plan::default();
        // Longer than any test waits.
        plan.serve.connections.stop_timeout = "1h".into();
        let fabric = Fabric::new();
        let world = World::new(&|| fabric.clone(), &plan);
        let raws = (0..count).map(|_| RawPeer::new(&fabric)).collect();
        let mut scene = Scene { world, raws };
        for at in 0..count {
            scene.raws[at].connect(scene.world.at);
            scene.until("it is connected", |scene| scene.raws[at].is_connected());
            scene.raws[at].send(&properties(0x99, 16));
            scene.answer(at);
        }
        scene
    }

    /// One turn of everything.
    fn turn(&mut self) {
        self.world.step();
        for raw in &mut self.raws {
            raw.turn().expect("there is room");
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Scene) -> bool) {
        for _ in 0..10_000 {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        panic!("not in so many turns: {what}");
    }

    /// The next transmission to a raw peer.
    fn answer(&mut self, at: usize) -> Vec<u8> {
        let mut answer = None;
        self.until("an answer", |scene| {
            answer = scene.raws[at].recv();
            answer.is_some()
        });
        answer.expect("it is there")
    }

    fn stop(&mut self) {
        self.world.servers[0].handle().stop();
    }

    fn is_stopped(&self) -> bool {
        self.world.servers[0].is_stopped()
    }

    fn dropped(&self) -> u64 {
        self.world.servers[0].handle().stats().calls_dropped
    }

    /// The connections that have ended, and why.
    fn closed(&mut self) -> Vec<(ConnectionId, CloseReason)> {
        self.world.servers[0].handler().closed.clone()
    }

    /// Waits until the server has stopped, and the raw peers have learnt no more than that.
    fn ends_in_silence(&mut self) {
        self.until("it has stopped", |scene| scene.is_stopped());
        let closed = self.closed();
        assert!(closed.iter().all(|(_, why)| *why == CloseReason::Stopped), "{closed:?}");
        for at in 0..self.raws.len() {
            self.until("it is lost", |scene| scene.raws[at].is_lost());
            let said = self.raws[at].recv();
            assert!(said.is_none(), "{:?}", said.map(|said| Header::decode(&said).map(drop)));
        }
        let stats = self.world.servers[0].handle().stats();
        assert_eq!((stats.violations, stats.buffers_leaked), (0, 0), "{stats:?}");
        self.world.check_nothing_leaked();
    }
}

fn call(xid: u32, order: Order) -> Vec<u8> {
    let script = Script::new(xid, &[Part::Inline(20)], &[Part::Inline(20)]).order(order);
    message(xid, 0, 16, &script.call_stream())
}

fn rpc(xid: u32) -> Vec<u8> {
    [xid.to_be_bytes(), 0_u32.to_be_bytes()].concat()
}

/// A reply that was sent without a signal has not necessarily arrived.
#[test]
fn a_stop_waits_until_the_last_reply_is_taken() {
    for signal_every in [1, 16] {
        let mut plan = Plan::default();
        plan.serve.send.signal_every = signal_every;
        let fabric = Fabric::new();
        let world = World::new(&|| fabric.clone(), &plan);
        let mut scene = Scene { world, raws: vec![RawPeer::new(&fabric)] };
        scene.raws[0].connect(scene.world.at);
        scene.until("it is connected", |scene| scene.raws[0].is_connected());
        scene.raws[0].send(&properties(0x99, 16));
        scene.answer(0);
        scene.raws[0].send(&call(7, Order::Answer));
        // The server answers, and is stopped before its client looks.
        for _ in 0..20 {
            scene.world.step();
        }
        assert_eq!(scene.world.servers[0].handle().stats().replies_sent, 1);
        scene.stop();
        for _ in 0..200 {
            scene.world.step();
        }
        assert!(!scene.is_stopped(), "the reply is not taken");
        scene.raws[0].turn().expect("it is connected");
        let reply = scene.raws[0].recv().expect("the reply");
        let (header, _) = Header::decode(&reply).expect("a header");
        assert_eq!((header.xid, header.body), (7, Body::Msg(ChunkLists::EMPTY)));
        scene.ends_in_silence();
    }
}

#[test]
fn an_incomplete_group_does_not_prevent_stopping() {
    let mut scene = Scene::new(2);
    for raw in &mut scene.raws {
        raw.send(&initial(20, 5, &rpc(20)));
        raw.send(&continuation(20, 1, &[0; 64]));
    }
    scene.until("it is there", |scene| scene.world.servers[0].audit().receives_parked == 4);
    scene.stop();
    // One of them continues with it meanwhile.
    for xnum in 2..5 {
        scene.raws[0].send(&continuation(20, xnum, &[0; 64]));
    }
    scene.ends_in_silence();
    assert_eq!(scene.world.servers[0].handler().calls, 0);
}

#[test]
fn a_group_completed_during_a_stop_is_dropped() {
    let mut scene = Scene::new(1);
    scene.raws[0].send(&call(7, Order::Never));
    scene.until("it is there", |scene| scene.world.servers[0].handler().never.len() == 1);
    scene.raws[0].send(&initial(20, 3, &rpc(20)));
    scene.turn();
    scene.stop();
    scene.turn();
    for xnum in 1..3 {
        scene.raws[0].send(&continuation(20, xnum, &[0; 64]));
    }
    scene.until("it is dropped", |scene| scene.dropped() == 1);
    assert_eq!(scene.world.servers[0].audit().receives_parked, 0);
    let ticket = scene.world.servers[0].handler().never.pop().expect("a ticket");
    let now = scene.world.now;
    let answered = scene.world.servers[0].turn(now).resume(ticket, |reply| reply.send());
    assert!(answered.is_ok());
    let reply = scene.answer(0);
    assert_eq!(Header::decode(&reply).expect("a header").0.xid, 7);
    scene.ends_in_silence();
}

/// A peer that continues to send beyond its grant, and receives what is sent to it.
#[test]
fn a_peer_that_sends_without_end_does_not_keep_a_server_from_stopping() {
    let mut scene = Scene::new(2);
    scene.raws[0].send(&call(7, Order::Never));
    scene.until("it is there", |scene| scene.world.servers[0].handler().never.len() == 1);
    scene.stop();
    let mut xid = 100;
    // Something is owed to the first; nothing to the second, which is the one that floods.
    scene.until("the second is lost", |scene| {
        for _ in 0..8 {
            xid += 1;
            scene.raws[1].send(&call(xid, Order::Answer));
        }
        scene.raws[1].is_lost()
    });
    assert!(!scene.raws[0].is_lost() && !scene.is_stopped());
    // Now the first floods: its calls come to the end of its grant, and so it loses its answer.
    scene.until("the first is lost", |scene| {
        xid += 1;
        scene.raws[0].send(&call(xid, Order::Answer));
        scene.raws[0].is_lost()
    });
    scene.until("it has stopped", |scene| scene.is_stopped());
    assert_eq!(scene.world.servers[0].handle().stats().violations, 0);
    assert!(scene.dropped() >= 15, "as many as were granted, and not answered");
    assert_eq!(scene.world.servers[0].handler().calls, 1);
}

/// Calls whose data wait to be read, and calls whose data come while the server stops.
#[test]
fn calls_whose_data_have_not_arrived_are_dropped() {
    let mut scene = Scene::new(1);
    let script = Script::new(1, &[Part::Bulk(8_000)], &[]);
    let stream = script.call_stream();
    let at = stream.len() - 8_000;
    let target = scene.raws[0].show(&[1; 8_000], Access::REMOTE_READ);
    let reads = [ReadSegment { position: at as u32 + 8, target }];
    for xid in 1..=6 {
        let lists = ChunkLists { reads: List::from_slice(&reads), ..ChunkLists::EMPTY };
        let header = Header { xid, vers: VERSION_TWO, credit: 16, body: Body::Msg(lists) };
        let payload = [&xid.to_be_bytes()[..], &[0; 4], &stream[..at]].concat();
        assert!(scene.raws[0].send(&transmission(&header, &payload)));
    }
    // The raw peer is not polled, so its data do not come.
    for _ in 0..20 {
        scene.world.step();
    }
    let audit = scene.world.servers[0].audit();
    assert_eq!(audit.fetches, 6, "{audit:?}");
    scene.stop();
    for _ in 0..20 {
        scene.world.step();
    }
    scene.ends_in_silence();
    assert_eq!(scene.dropped(), 6);
    assert_eq!(scene.world.servers[0].handler().calls, 0);
}

/// What comes on a connection that its program has closed, or that its handler has rejected, is
/// answered with nothing, either.
#[test]
fn calls_on_a_connection_that_ends_are_not_answered() {
    for is_refused in [false, true] {
        let fabric = Fabric::new();
        let world = World::new(&|| fabric.clone(), &Plan::default());
        let mut scene = Scene { world, raws: vec![RawPeer::new(&fabric)] };
        scene.world.servers[0].handler().refuses = is_refused;
        scene.raws[0].connect(scene.world.at);
        scene.until("it is connected", |scene| scene.raws[0].is_connected());
        scene.raws[0].send(&properties(0x99, 16));
        if !is_refused {
            scene.answer(0);
            let peer = scene.world.servers[0].handler().connected[0];
            assert!(scene.world.servers[0].handle().close(peer));
        }
        for xid in 1..5 {
            scene.raws[0].send(&call(xid, Order::Answer));
        }
        scene.until("it is lost", |scene| scene.raws[0].is_lost());
        while let Some(said) = scene.raws[0].recv() {
            let (header, _) = Header::decode(&said).expect("a header");
            assert_eq!(header.xid, 0x99, "the answer to its properties, and no other");
        }
        let stats = scene.world.servers[0].handle().stats();
        assert_eq!((stats.violations, stats.calls_received), (0, 0));
    }
}

/// The owner of the ticket is gone: the state of the call is unknown, and nothing wrong is
/// reported.
#[test]
fn a_ticket_that_is_dropped_while_stopping_ends_its_call_with_the_connection() {
    let mut scene = Scene::new(1);
    for xid in 1..4 {
        scene.raws[0].send(&call(xid, Order::Never));
    }
    scene.until("they are there", |scene| scene.world.servers[0].handler().never.len() == 3);
    scene.stop();
    for _ in 0..50 {
        scene.turn();
    }
    assert!(!scene.is_stopped(), "three answers are owed");
    drop(scene.world.servers[0].handler().never.drain(..).collect::<Vec<_>>());
    scene.ends_in_silence();
    let stats = scene.world.servers[0].handle().stats();
    assert_eq!((stats.calls_received, stats.calls_unanswered, stats.refusals_sent), (3, 3, 0));
}
