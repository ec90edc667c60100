//! Asynchronous events of a device, and their effect on connections.

use std::sync::{Arc, Mutex};

use rpcrdma::provider::{ConnectError, QueueEvent, WcStatus};
use rpcrdma::{CallError, CloseReason, ConnectionId, Execution, Fabric};
use rpcrdma_suite::script::{Order, Part, Script};
use rpcrdma_suite::world::{Plan, World};
use rpcrdma_testing::fault::{FaultLog, FaultPlan, FaultyProvider};

type Device = FaultyProvider<Fabric>;

/// The numbers that devices of any size give to their first two queue pairs: in the upper bits the
/// last use that there is, in the lower ones the index of the queue pair.
fn qp_nums() -> impl Iterator<Item = u32> {
    (1..16).flat_map(|index_bits| [0, 1].map(|index| (1 << 24) - (1 << index_bits) + index))
}

/// A server and a client with two connections and a call open on each; the server's device first.
fn scene() -> (World<Device>, [ConnectionId; 2], [Arc<FaultLog>; 2]) {
    let fabric = Fabric::new();
    let logs = Mutex::new(Vec::new());
    let open = || {
        let device = FaultyProvider::new(fabric.clone(), FaultPlan::default());
        logs.lock().expect("one thread").push(device.hooks().log());
        device
    };
    let mut world = World::new(&open, &Plan::default());
    let peers = [0, 0].map(|client| world.connect(client));
    for peer in peers {
        world.round(0, peer, &Script::new(0, &[], &[]));
    }
    for peer in peers {
        let script = Script::new(1, &[Part::Bulk(20_000)], &[]).order(Order::Elsewhere);
        world.call(0, peer, &script).expect("a credit");
    }
    world.until("they are there", |world| world.servers[0].handler().elsewhere.len() == 2);
    let logs: Vec<_> = logs.into_inner().expect("one thread");
    (world, peers, logs.try_into().expect("two devices"))
}

/// Answers the calls that are open.
fn answer(world: &mut World<Device>) {
    let server = &mut world.servers[0];
    let handle = server.handle().clone();
    for (ticket, finished) in server.handler().elsewhere.drain(..) {
        handle.finish(ticket, finished).expect("there is room for every ticket");
    }
}

/// Why connections of the server have ended so far.
fn reasons(world: &mut World<Device>) -> Vec<CloseReason> {
    world.servers[0].handler().closed.iter().map(|(_, why)| *why).collect()
}

#[test]
fn a_lost_device_ends_every_connection_and_is_reported() {
    let (mut world, peers, [server, _]) = scene();
    server.inject_event(0, QueueEvent::DeviceLost);
    world.until("the peers know", |world| world.clients[0].handle().connections() == 0);
    assert_eq!(reasons(&mut world), [CloseReason::DeviceLost; 2]);
    let done = world.finish();
    assert_eq!(done.len(), peers.len());
    for done in done {
        assert_eq!(
            done.result,
            Err(CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown))
        );
    }
    world.until("the shard ends", |world| world.servers[0].is_stopped());
    assert_eq!(world.servers[0].handle().stats().devices_lost, 1);
    assert_eq!(world.try_connect(0), Err(ConnectError::NoListener), "no shard serves any more");
    world.check_nothing_leaked();
}

#[test]
fn a_device_that_is_lost_completes_the_calls_made_through_it() {
    let (mut world, peers, [_, client]) = scene();
    client.inject_event(0, QueueEvent::DeviceLost);
    let done = world.finish();
    assert_eq!(done.len(), peers.len());
    for done in done {
        assert_eq!(
            done.result,
            Err(CallError::ConnectionLost(CloseReason::DeviceLost, Execution::Unknown))
        );
    }
    world.until("the server knows", |world| world.servers[0].handle().connections() == 0);
    assert_eq!(reasons(&mut world), [CloseReason::PeerGone; 2]);
    world.check_nothing_leaked();
}

#[test]
fn a_queue_pair_the_device_gives_up_ends_its_connection() {
    let (mut world, peers, [server, _]) = scene();
    // Tried until one was meant.
    for qp_num in qp_nums() {
        server.inject_event(0, QueueEvent::Failed { qp_num });
        world.turn();
        if !reasons(&mut world).is_empty() {
            break;
        }
    }
    assert_eq!(reasons(&mut world), [CloseReason::Failed]);
    world.until("the peer knows", |world| world.clients[0].handle().connections() == 1);
    answer(&mut world);
    let done = world.finish();
    assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 1);
    let kept =
        peers.iter().find(|peer| done.iter().any(|it| it.peer == **peer && it.result.is_ok()));
    world.round(0, *kept.expect("one is left"), &Script::new(3, &[], &[Part::Bulk(9_000)]));
    world.check_nothing_leaked();
}

#[test]
fn a_port_that_goes_down_and_up_is_counted_and_ends_nothing() {
    let (mut world, peers, [server, client]) = scene();
    for event in [QueueEvent::PortDown, QueueEvent::PortUp, QueueEvent::PortDown] {
        server.inject_event(0, event);
        client.inject_event(0, event);
    }
    answer(&mut world);
    let done = world.finish();
    assert_eq!(done.len(), peers.len());
    done.iter().for_each(|done| assert!(done.result.is_ok(), "{done:?}"));
    for handle in [world.servers[0].handle(), world.clients[0].handle()] {
        let stats = handle.stats();
        assert_eq!((stats.ports_down, stats.ports_up, stats.devices_lost), (2, 1, 0));
        assert_eq!(handle.connections(), peers.len());
    }
    world.check_nothing_leaked();
}

/// A server and a client with a connection that has been used; the server's device first. Nothing
/// fails before its log begins.
fn pair(faults: FaultPlan, plan: &Plan) -> (World<Device>, ConnectionId, [Arc<FaultLog>; 2]) {
    let fabric = Fabric::new();
    let logs = Mutex::new(Vec::new());
    let open = || {
        let device = FaultyProvider::new(fabric.clone(), faults);
        device.hooks().log().end();
        logs.lock().expect("one thread").push(device.hooks().log());
        device
    };
    let (mut world, peer) = World::pair(&open, plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let logs: Vec<_> = logs.into_inner().expect("one thread");
    (world, peer, logs.try_into().expect("two devices"))
}

/// A queue pair fails with a request on it, and an event states which side failed, if any, in the
/// turn in which the request comes back.
fn flushed(event: impl Fn(u32) -> Option<QueueEvent>) -> CloseReason {
    let faults = FaultPlan { flush_ppm: 1_000_000, polls_late_max: 50, ..FaultPlan::default() };
    let plan = Plan::both(|raw| raw.send.signal_every = 1);
    let (mut world, peer, [_, client]) = pair(faults, &plan);
    world.call(0, peer, &Script::new(1, &[], &[]).order(Order::Never)).expect("a credit");
    qp_nums().filter_map(event).for_each(|event| client.inject_event(0, event));
    client.begin();
    world.turn_client(0);
    world.turn_client(0);
    client.end();
    let done = world.finish().pop().expect("one call");
    match done.result {
        Err(CallError::ConnectionLost(why, _)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn flushed_requests_do_not_hide_the_first_error() {
    let failed = flushed(|qp_num| Some(QueueEvent::Failed { qp_num }));
    assert_eq!(failed, CloseReason::Failed);
    let gone = flushed(|qp_num| Some(QueueEvent::Disconnected { qp_num }));
    assert_eq!(gone, CloseReason::PeerGone);
    let others = flushed(|qp_num| Some(QueueEvent::Failed { qp_num: qp_num >> 12 }));
    assert_eq!(others, CloseReason::Transport(WcStatus::Flushed), "the reason is unknown");
}

#[test]
fn a_device_that_takes_no_more_receives_is_lost() {
    let faults = FaultPlan { recv_gone_ppm: 1_000_000, ..FaultPlan::default() };
    let (mut world, peer, [server, _]) = pair(faults, &Plan::default());
    server.begin();
    // The Receive that it takes is to be posted again.
    world.call(0, peer, &Script::new(1, &[], &[])).expect("a credit");
    world.until("the shard ends", |world| world.servers[0].is_stopped());
    assert_eq!(reasons(&mut world), [CloseReason::DeviceLost]);
    assert_eq!(world.servers[0].handle().stats().devices_lost, 1);
    assert_eq!(world.finish().len(), 1);
    world.check_nothing_leaked();
}
