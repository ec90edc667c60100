//! A connection is lost at every point: calls complete once, memory returns, other connections
//! continue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rpcrdma::{CallError, ConnectionId, Fabric};
use rpcrdma_testing::fault::{FaultPlan, FaultyProvider};
use rpcrdma_tests::checked_provider::{CheckedProvider, Watch, Weaken};
use rpcrdma_tests::raw_peer::{RawPeer, message, optional, properties};
use rpcrdma_tests::script::{Order, Part, Script};
use rpcrdma_tests::suite::explicit;
use rpcrdma_tests::world::{Plan, World, is_passing};
use rpcrdma_xdr::numbers::opttype;
use rpcrdma_xdr::{Array, Body, Header, Optional, XmtCont, XmtReq, XmtResp};

type Checked = CheckedProvider<Fabric>;

/// Who ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killer {
    Client,
    Server,
    /// The queues of the client vanish.
    ClientVanishes,
    /// The queues of the server vanish.
    ServerVanishes,
}

fn opener(watch: &Arc<Watch>) -> impl Fn() -> Checked + use<> {
    let (fabric, watch) = (Fabric::new(), Arc::clone(watch));
    move || CheckedProvider::new(fabric.clone(), Arc::clone(&watch))
}

/// Calls of all kinds, so many that they wait for each other.
fn workload() -> Vec<Script> {
    let bulk = [Part::Inline(8), Part::Bulk(100_000), Part::Inline(3)];
    let small = [Part::Inline(64)];
    let mut scripts = Vec::new();
    for seed in 0..4 {
        scripts.push(Script::new(seed, &bulk, &small));
        scripts.push(Script::new(seed, &small, &bulk));
        scripts.push(Script::new(seed, &small, &small).order(Order::Later));
        scripts.push(Script::new(seed, &bulk, &bulk).order(Order::Later));
        scripts.push(Script::new(seed, &bulk[1..2], &[]).order(Order::Keep));
        scripts.push(Script::new(seed, &small, &bulk[1..2]).order(Order::Elsewhere));
        scripts.push(Script::new(seed, &bulk, &small).order(Order::Refuse));
        scripts.push(Script::new(seed, &bulk[1..2], &bulk[1..2]).order(Order::Relay));
    }
    scripts
}

fn plan() -> Plan {
    let mut plan = Plan::both(|raw| {
        raw.connections.credits = 24;
        raw.connections.credits_requested = 24;
        raw.app.bulk.length = "128KiB".into();
        raw.receive.spares = 64;
    });
    plan.servers = 2;
    plan.clients = 2;
    plan
}

/// Runs the workload on one connection and kills it after `steps`. Returns whether it was over.
fn run(killer: Killer, steps: usize) -> bool {
    let watch = Arc::new(Watch::default());
    let open = opener(&watch);
    let mut world = World::new(&open, &plan());
    let receives = watch.receives.load(Ordering::Relaxed);
    // The second client calls the first server: it has no part in what follows.
    let doomed = world.connect(0);
    let at = usize::from(world.servers[0].handler().connected.is_empty());
    let other = [world.connect(1), world.connect(1)];
    let mut scripts = workload().into_iter();
    let mut next = scripts.next();
    let mut made = 0;
    let mut completed = 0;
    for _ in 0..steps {
        while let Some(script) = &next {
            match world.call(0, doomed, script) {
                Ok(_) => made += 1,
                Err(why) if is_passing(why) => break,
                Err(why) => panic!("{why}"),
            }
            next = scripts.next();
        }
        finish_elsewhere(&mut world);
        world.turn();
        completed += take_done(&mut world, doomed);
    }
    let is_over = next.is_none() && world.open_calls() == 0;
    kill(&mut world, killer, at, doomed);
    if killer == Killer::ClientVanishes {
        // Its program is dropped with it.
        completed = made;
    }
    world.until("all calls are over", |world| {
        completed += take_done(world, doomed);
        world.open_calls() == 0
    });
    assert_eq!(completed, made, "every call is completed once");
    bystanders_go_on(&mut world, killer, &other);
    let vanished = matches!(killer, Killer::ClientVanishes | Killer::ServerVanishes);
    if !vanished {
        world.quiesce();
        assert_eq!(watch.receives.load(Ordering::Relaxed), receives, "all Receives are posted");
    }
    world.check_nothing_leaked();
    drop(world);
    assert_eq!(watch.regions.load(Ordering::Relaxed), 0, "all memory was released");
    is_over
}

fn kill(world: &mut World<Checked>, killer: Killer, at: usize, doomed: ConnectionId) {
    match killer {
        Killer::Client => assert!(world.clients[0].handle().close(doomed)),
        Killer::Server => {
            let caller = world.servers[at].handler().connected[0];
            assert!(world.servers[at].handle().close(caller));
        }
        Killer::ClientVanishes => world.drop_client(0),
        Killer::ServerVanishes => drop(world.servers.remove(at)),
    }
}

fn bystanders_go_on(world: &mut World<Checked>, killer: Killer, other: &[ConnectionId]) {
    let client = if killer == Killer::ClientVanishes { 0 } else { 1 };
    let parts = [Part::Bulk(70_000)];
    let mut alive = 0;
    for (seed, peer) in other.iter().enumerate() {
        let script = Script::new(seed as u32, &parts, &parts);
        if world.call(client, *peer, &script).is_ok() {
            world.finish()[0].check();
            alive += 1;
        }
    }
    let lost = usize::from(killer == Killer::ServerVanishes);
    assert_eq!(alive, 2 - lost, "{killer:?}: the connections of the other client");
}

fn finish_elsewhere(world: &mut World<Checked>) {
    for server in &mut world.servers {
        let handle = server.handle().clone();
        for (ticket, finished) in server.handler().elsewhere.drain(..) {
            handle.finish(ticket, finished).expect("there is room for every ticket");
        }
        server.handler().kept.clear();
    }
}

fn take_done(world: &mut World<Checked>, doomed: ConnectionId) -> usize {
    let done: Vec<_> = world.done.drain(..).collect();
    for done in &done {
        assert_eq!(done.peer, doomed);
        let order = done.script.order;
        match &done.result {
            Ok(_) if order == Order::Relay => {}
            Ok(_) => {
                done.check();
            }
            Err(CallError::ConnectionLost(..)) => {}
            Err(CallError::Rejected(..)) => assert_eq!(order, Order::Refuse),
            Err(other) => panic!("{other}: {:?}", done.script),
        }
    }
    done.len()
}

fn at_every_step(killer: Killer) {
    let mut steps = 0;
    // Step by step at first, where the connection is young; then in longer and longer strides.
    while !run(killer, steps) {
        steps += 1 + steps / 24;
        assert!(steps < 4_000, "the workload never ends");
    }
    assert!(steps > 20, "the workload is longer than {steps} steps");
}

#[test]
fn the_client_closes_after_every_step() {
    at_every_step(Killer::Client);
}

#[test]
fn the_server_closes_after_every_step() {
    at_every_step(Killer::Server);
}

#[test]
fn the_client_vanishes_after_every_step() {
    at_every_step(Killer::ClientVanishes);
}

#[test]
fn the_server_vanishes_after_every_step() {
    at_every_step(Killer::ServerVanishes);
}

#[test]
fn a_connection_with_a_full_send_queue_is_closed_without_one_more_send() {
    let watch = Arc::new(Watch::default());
    let fabric = Fabric::new();
    let open = || {
        let checked = CheckedProvider::new(fabric.clone(), Arc::clone(&watch));
        checked.weaker(|caps| caps.send_depth = 4)
    };
    let (mut world, peer) = World::pair(&open, &plan());
    world.quiesce();
    for seed in 0..6 {
        let script = Script::new(seed, &[Part::Inline(400)], &[]);
        world.call(0, peer, &script).expect("a credit");
    }
    // Only the client has a turn: its sends wait for the server to take them.
    world.turn_client(0);
    assert!(world.clients[0].handle().close(peer));
    world.turn_client(0);
    assert_eq!(world.open_calls(), 0);
    world.until("it is gone", |world| world.clients[0].handle().connections() == 0);
    world.check_nothing_leaked();
}

#[test]
fn calls_with_exposed_memory_are_completed_while_another_connection_ends() {
    let watch = Arc::new(Watch::default());
    let fabric = Fabric::new();
    // Completions of one connection come behind those of the other, however they left. Without
    // windows nothing is fenced: a call is over when its Send has completed.
    let late =
        FaultPlan { completion_delayed_ppm: 500_000, polls_late_max: 6, ..FaultPlan::default() };
    let open = || {
        let faulty = FaultyProvider::new(fabric.clone(), late);
        CheckedProvider::new(faulty, Arc::clone(&watch)).weaker(|caps| caps.windows = 0)
    };
    let mut plan = plan();
    (plan.servers, plan.clients) = (1, 1);
    for raw in [&mut plan.serve, &mut plan.call] {
        raw.features.placement = false;
        raw.features.continuation = false;
        raw.receive.placement.count = 0;
        raw.explicit.exposure = "registration".into();
        raw.send.signal_every = 1;
    }
    let (mut world, stays) = World::pair(&open, &plan);
    let script = Script::new(1, &[Part::Bulk(20_000)], &[]);
    for round in 0..300 {
        let goes = world.connect(0);
        let never = script.clone().order(Order::Never);
        world.call(0, goes, &never).expect("a credit");
        for turn in 0..20 {
            let _ = world.call(0, stays, &script.clone().order(Order::Refuse));
            if turn == 5 + round % 10 {
                assert!(world.clients[0].handle().close(goes));
            }
            world.turn();
        }
        world.until("all calls are over", |world| world.open_calls() == 0);
        world.until("it is gone", |world| world.servers[0].handle().connections() == 1);
    }
    assert!(world.clients[0].handle().stats().exposures > 150);
}

/// As a device does with those of a shared queue.
#[test]
fn receives_of_a_dying_queue_pair_are_posted_again() {
    let watch = Arc::new(Watch::default());
    let fabric = Fabric::new();
    let taking = FaultPlan {
        recv_withheld_ppm: 900_000,
        recv_taken_along_ppm: 1_000_000,
        polls_late_max: 40,
        ..FaultPlan::default()
    };
    let logs = Mutex::new(Vec::new());
    let open = || {
        let faulty = FaultyProvider::new(fabric.clone(), taking);
        logs.lock().expect("no thread panicked with the lock").push(faulty.hooks().log());
        CheckedProvider::new(faulty, Arc::clone(&watch))
    };
    let (mut world, stays) = World::pair(&open, &plan());
    let script = Script::new(1, &[Part::Inline(64)], &[Part::Inline(64)]);
    world.quiesce();
    let receives = watch.receives.load(Ordering::Relaxed);
    for _ in 0..40 {
        let goes = world.connect(0);
        for _ in 0..8 {
            world.round(0, goes, &script);
        }
        assert!(world.clients[0].handle().close(goes));
        world.until("it is gone", |world| world.clients[0].handle().connections() == 1);
        world.round(0, stays, &script);
    }
    let logs = logs.into_inner().expect("no thread panicked with the lock");
    logs.iter().for_each(|log| log.end());
    let taken = logs.iter().map(|log| log.recvs_taken_along.load(Ordering::Relaxed));
    assert!(taken.sum::<u64>() > 10, "it has happened");
    world.quiesce();
    assert_eq!(watch.receives.load(Ordering::Relaxed), receives, "all Receives are posted");
    world.check_all_returned();
    world.check_nothing_leaked();
}

#[test]
fn a_shard_is_dropped_with_calls_that_have_not_left() {
    let watch = Arc::new(Watch::default());
    let open = opener(&watch);
    for count in 0..12 {
        let (mut world, peer) = World::pair(&open, &plan());
        world.round(0, peer, &Script::new(0, &[], &[]));
        for script in workload().iter().filter(|script| script.reply.len() < 3).take(count) {
            if script.call.len() < 3 {
                world.call(0, peer, script).expect("a credit");
            }
        }
        drop(world);
        assert_eq!(watch.regions.load(Ordering::Relaxed), 0, "{count} calls: memory was released");
    }
}

/// A call in transmissions that end with the client's life.
fn conversation() -> Vec<Vec<u8>> {
    let script = Script::new(1, &[Part::Inline(200)], &[Part::Inline(90)]);
    let stream = script.call_stream();
    let payload = [&7_u32.to_be_bytes()[..], &0_u32.to_be_bytes(), &stream].concat();
    let parts: Vec<&[u8]> = payload.chunks(100).collect();
    let (dp, rsd) = (Array::EMPTY, Array::EMPTY);
    let (count, pslen) = (parts.len() as u32, 100);
    let mut all =
        vec![properties(1, 16), message(6, 0, 16, &Script::new(1, &[], &[]).call_stream())];
    let req = XmtReq { dp, rsd, count, rsbuf: 1, pslen };
    all.push(optional(7, Optional::XmtReq(req), parts[0]));
    for (xnum, part) in parts.iter().enumerate().skip(1) {
        let cont = XmtCont { xnum: xnum as u32, itype: opttype::XMTREQ, pslen: part.len() as u32 };
        all.push(optional(7, Optional::XmtCont(cont), part));
    }
    all
}

#[test]
fn a_raw_client_leaves_after_every_transmission() {
    let watch = Arc::new(Watch::default());
    let open = opener(&watch);
    let conversation = conversation();
    let mut plan = Plan::default();
    plan.serve.connections.max = 3;
    let mut world = World::new(&open, &plan);
    let receives = watch.receives.load(Ordering::Relaxed);
    let good = world.connect(0);
    for said in 0..=conversation.len() {
        for turns in [0, 1, 20] {
            let mut raw = RawPeer::new(&open());
            raw.connect(world.at);
            for _ in 0..1_000 {
                world.step();
                raw.turn().expect("there is room");
                if raw.is_connected() {
                    break;
                }
            }
            conversation[..said].iter().for_each(|words| assert!(raw.send(words)));
            (0..turns).for_each(|_| world.turn());
            if turns > 0 {
                raw.disconnect();
            }
            drop(raw);
            world.until("it is gone", |world| world.servers[0].handle().connections() == 1);
            let script = Script::new(9, &[Part::Bulk(50_000)], &[Part::Bulk(50_000)]);
            assert_eq!(world.round(0, good, &script), (1, 1));
            world.quiesce();
            let posted = watch.receives.load(Ordering::Relaxed);
            assert_eq!(posted, receives, "all Receives of the engine are posted");
        }
    }
    world.check_nothing_leaked();
}

/// The replies of a raw server to the call of an engine: a group, of which it says only so much.
fn reply_group(xid: u32) -> Vec<Vec<u8>> {
    let payload = [&xid.to_be_bytes()[..], &1_u32.to_be_bytes(), &[3; 192]].concat();
    let parts: Vec<&[u8]> = payload.chunks(50 * 4 / 5).collect();
    let resp =
        XmtResp { dp: Array::EMPTY, count: parts.len() as u32, pslen: parts[0].len() as u32 };
    let mut all = vec![optional(xid, Optional::XmtResp(resp), parts[0])];
    for (xnum, part) in parts.iter().enumerate().skip(1) {
        let pslen = part.len() as u32;
        let cont = XmtCont { xnum: xnum as u32, itype: opttype::XMTRESP, pslen };
        all.push(optional(xid, Optional::XmtCont(cont), part));
    }
    all
}

#[test]
fn a_raw_server_leaves_after_every_transmission() {
    let watch = Arc::new(Watch::default());
    let open = opener(&watch);
    let mut world = World::new(&open, &Plan::default());
    let receives = watch.receives.load(Ordering::Relaxed);
    let count = reply_group(0).len();
    for said in 0..=count {
        let mut raw = RawPeer::new(&open());
        let at = raw.listen();
        let id = world.clients[0].begin_connect(at).expect("there is room");
        let peer = meet(&mut world, &mut raw, id);
        let mut call = world.clients[0].call(peer, 5).expect("a call");
        call.payload().put_fixed(&[9; 100]);
        // As many bytes as five transmissions have: so many Receives are kept for the reply.
        call.reply_payload_max(5 * 68_000);
        call.submit().expect("a credit");
        let mut done = Vec::new();
        let mut has_left = false;
        for step in 0..2_000 {
            world.now += 1_000;
            let now = world.now;
            world.clients[0].poll(now, |completion| {
                done.push(completion.result().map(|reply| reply.payload().flatten().count()));
            });
            if raw.turn().is_ok()
                && let Some(call) = raw.recv()
            {
                let (header, _) = Header::decode(&call).expect("a header");
                assert!(matches!(header.body, Body::Optional(Optional::XmtReq(_))), "a call");
                let group = reply_group(header.xid);
                group[..said].iter().for_each(|words| assert!(raw.send(words)));
            }
            if raw.is_quiet() && done.len() + usize::from(said < count) > 0 && !has_left {
                // The event was polled.
                (0..20).for_each(|_| raw.turn().expect("it listens"));
                has_left = step % 64 == 63;
                if has_left {
                    raw.disconnect();
                }
            }
        }
        let expected = if said == count { Ok(200) } else { Err(()) };
        let done: Vec<_> = done.into_iter().map(|done| done.map_err(|_| ())).collect();
        assert_eq!(done, [expected], "{said} of {count} transmissions");
        drop(raw);
        world.until("it is gone", |world| world.clients[0].handle().connections() == 0);
        world.quiesce();
        assert_eq!(watch.receives.load(Ordering::Relaxed), receives, "all Receives are posted");
    }
    world.check_nothing_leaked();
}

/// Lets a client and a raw server exchange properties.
fn meet(
    world: &mut World<Checked>,
    raw: &mut RawPeer<Checked>,
    id: rpcrdma::provider::ConnectId,
) -> ConnectionId {
    for _ in 0..1_000 {
        world.step();
        raw.turn().expect("it listens");
        if let Some(hello) = raw.recv() {
            let (header, _) = Header::decode(&hello).expect("a header");
            raw.send(&properties(header.xid, 16));
        }
        if let Some(outcome) = world.clients[0].connected(id) {
            return outcome.expect("a connection");
        }
    }
    panic!("no connection");
}

/// A device that does not give back what calls were being fetched by: it is lost with its place, so
/// that everything else has what it was promised. A call that would need it is rejected, and none
/// waits.
#[test]
fn buffers_a_device_keeps_of_a_fetch_are_lost_and_nothing_else_is() {
    let fabric = Fabric::new();
    let logs = Mutex::new(Vec::new());
    let plan = FaultPlan {
        completion_delayed_ppm: 1_000_000,
        polls_late_max: u32::MAX,
        ..FaultPlan::default()
    };
    let open = || {
        let provider = FaultyProvider::new(fabric.clone(), plan);
        provider.hooks().log().end();
        logs.lock().expect("no panic").push(provider.hooks().log());
        provider
    };
    let mut plan = explicit::plan("two");
    plan.serve.connections.max = 1;
    plan.serve.connections.credits = 2;
    plan.serve.connections.request_transmissions_max = 1;
    plan.serve.connections.response_transmissions_max = 1;
    plan.serve.connections.call_transmissions_max = 1;
    plan.serve.connections.calls_max = 0;
    plan.serve.send.slots = 2;
    plan.serve.send.signal_every = 1;
    let (mut world, mut peer) = World::pair(&open, &plan);
    let log = logs.lock().expect("no panic").remove(0);
    let places = world.servers[0].audit().grant_receives;
    let fetched = Script::new(1, &[Part::Bulk(9_000)], &[]);
    let answered = Script::new(2, &[Part::Inline(2_000)], &[Part::Inline(2_000)]);
    for lost in 0..places + 2 {
        world.round(0, peer, &answered);
        world.call_when_possible(0, peer, &fetched);
        // Not so far that its data are here.
        for _ in 0..20 {
            world.turn_servers();
            if world.servers[0].audit().fetches > 0 {
                break;
            }
            world.turn_client(0);
        }
        log.begin();
        assert!(world.clients[0].handle().close(peer));
        world.quiesce();
        world.now += 10_000_000_000;
        world.quiesce();
        log.end();
        let _ = world.finish();
        // There was one for each slot and for each place.
        let audit = world.servers[0].audit();
        let left = places.saturating_sub(lost + 1) as usize;
        assert_eq!(audit.messages.free, audit.send.free + left, "after {} times", lost + 1);
        peer = world.connect(0);
    }
    world.round(0, peer, &answered);
    world.call_when_possible(0, peer, &fetched);
    let done = world.finish().remove(0);
    assert!(matches!(done.result, Err(CallError::Rejected(..))), "{:?}", done.result);
}
