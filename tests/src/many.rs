//! Many connections of one shard, on any device.

use rpcrdma::{CallError, ConnectionId, Provider};

use crate::opener::Open;
use crate::script::Random;
use crate::world::{Plan, World, is_passing};

/// Few Receives for each of many connections.
fn plan(connections: i64) -> Plan {
    Plan::both(|raw| {
        raw.connections.max = connections;
        raw.connections.credits = 4;
        raw.connections.credits_requested = 4;
        raw.connections.call_transmissions_max = 4;
        raw.connections.request_transmissions_max = 4;
        raw.connections.response_transmissions_max = 4;
        raw.receive.placement.count = 1;
    })
}

/// Calls over 64 connections of one shard.
///
/// # Panics
/// If one is not answered.
pub fn sixty_four_connections_share_one_shard<P: Provider>(open: Open<'_, P>) {
    let mut world = World::new(open, &plan(64));
    let peers: Vec<ConnectionId> = (0..64).map(|_| world.connect(0)).collect();
    let mut random = Random(64);
    let mut checked = 0;
    for count in 0..640 {
        let peer = peers[count % 64];
        world.call_when_possible(0, peer, &random.script(6_000));
        checked += world.check_done();
    }
    checked += world.check_all();
    assert_eq!(checked, 640);
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.connections_established, stats.connections_closed), (64, 0));
    world.check_all_returned();
    world.check_nothing_leaked();
}

/// Calls that are open on a connection that goes are lost with it, and no others.
///
/// # Panics
/// If another one is.
pub fn connections_come_and_go_under_load<P: Provider>(open: Open<'_, P>) {
    let mut world = World::new(open, &plan(16));
    let mut peers: Vec<ConnectionId> = (0..16).map(|_| world.connect(0)).collect();
    let mut gone = Vec::new();
    let mut random = Random(7);
    let (mut made, mut over, mut lost) = (0, 0, 0);
    for round in 0..60 {
        for _ in 0..12 {
            match world.call(0, random.choose(&peers), &random.script(6_000)) {
                Ok(_) => made += 1,
                Err(why) => assert!(is_passing(why), "{why}"),
            }
            world.step();
        }
        if round % 2 == 0 {
            let at = random.below(16) as usize;
            assert!(world.clients[0].handle().close(peers[at]));
        } else {
            let newest = *world.servers[0].handler().connected.last().expect("it is there");
            assert!(world.servers[0].handle().close(newest));
        }
        world.until("one is gone on both sides", |world| {
            world.servers[0].handle().connections() + world.clients[0].handle().connections() == 30
        });
        let now = world.now;
        let is_gone = |peer: &ConnectionId| world.clients[0].turn(now).limits(*peer).is_none();
        let at = peers.iter().position(is_gone).expect("one of them is gone");
        gone.push(std::mem::replace(&mut peers[at], world.connect(0)));
        for done in std::mem::take(&mut world.done) {
            over += 1;
            if let Err(CallError::ConnectionLost(..)) = done.result {
                assert!(gone.contains(&done.peer), "it was lost for a reason");
                lost += 1;
            } else {
                done.check();
            }
        }
    }
    over += world.check_all();
    assert_eq!(over, made, "each call is over once");
    assert!(lost < made / 2, "{lost} of {made} calls were lost");
    world.check_all_returned();
    world.check_nothing_leaked();
}
