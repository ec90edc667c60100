//! Doorbell batching: short messages wait for others if many are in flight, and not if there is
//! only one.

use rpcrdma::{Fabric, Snapshot};
use rpcrdma_suite::script::{Order, Part, Script};
use rpcrdma_suite::world::{Plan, World};

fn plan(hold: &str) -> Plan {
    Plan::both(|raw| {
        raw.send.hold = hold.into();
        raw.connections.credits = 32;
        raw.connections.credits_requested = 32;
        raw.connections.calls_max = 32;
        raw.send.slots = 128;
    })
}

fn small_call(seed: u32) -> Script {
    Script::new(seed, &[Part::Inline(40)], &[Part::Inline(40)])
}

/// What each side had for a call: doorbells and Sends. A call is made in each step, if there is a
/// credit.
fn stream(hold: &str) -> [(f64, f64); 2] {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &plan(hold));
    world.round(0, peer, &small_call(0));
    let counted = |world: &World<Fabric>| {
        [world.clients[0].handle().stats(), world.servers[0].handle().stats()]
    };
    let before = counted(&world);
    for seed in 0..2_000 {
        world.call_when_possible(0, peer, &small_call(seed));
        world.step();
        world.check_done();
    }
    world.check_all();
    let after = counted(&world);
    [0, 1].map(|side| {
        let each = |of: fn(&Snapshot) -> u64| (of(&after[side]) - of(&before[side])) as f64 / 2e3;
        (each(|stats| stats.doorbells), each(|stats| stats.transmissions_sent))
    })
}

#[test]
fn without_holding_every_turn_has_a_doorbell() {
    for (doorbells, sent) in stream("0us") {
        assert_eq!((doorbells, sent), (1.0, 1.0));
    }
}

#[test]
fn with_holding_a_stream_has_a_doorbell_for_several_calls() {
    for (doorbells, sent) in stream("20us") {
        assert!(doorbells < 0.3, "{doorbells} doorbells for a call");
        assert_eq!(sent, 1.0, "as many messages as without");
    }
}

#[test]
fn a_caller_of_one_call_at_a_time_is_not_delayed() {
    let steps = |hold| {
        let fabric = Fabric::new();
        let (mut world, peer) = World::pair(&|| fabric.clone(), &plan(hold));
        world.round(0, peer, &small_call(0));
        let begin = world.now;
        for seed in 0..200 {
            world.round(0, peer, &small_call(seed));
        }
        world.now - begin
    };
    assert_eq!(steps("10ms"), steps("0us"));
}

/// What is held is sent before the connection is closed, and when the shard stops.
#[test]
fn held_messages_are_sent() {
    for by_stop in [false, true] {
        let fabric = Fabric::new();
        let (mut world, peer) = World::pair(&|| fabric.clone(), &plan("10ms"));
        for seed in 0..300 {
            world.call_when_possible(0, peer, &small_call(seed).order(Order::Answer));
            world.turn_client(0);
        }
        world.until("the server has seen them", |world| world.servers[0].handler().calls == 300);
        let server = world.servers[0].handler().connected[0];
        match by_stop {
            true => world.servers[0].handle().stop(),
            false => assert!(world.servers[0].handle().close(server)),
        }
        assert_eq!(world.check_all(), 300, "all of them were answered");
        world.check_nothing_leaked();
    }
}

/// So many are posted at once to one peer.
#[test]
fn sixteen_calls_of_a_turn_have_one_doorbell() {
    for (calls, doorbells) in [(1, 1), (16, 1), (17, 2)] {
        let fabric = Fabric::new();
        let (mut world, peer) = World::pair(&|| fabric.clone(), &plan("0us"));
        world.round(0, peer, &small_call(0));
        let counted = |world: &World<Fabric>| world.clients[0].handle().stats().doorbells;
        let before = counted(&world);
        for seed in 0..calls {
            world.call(0, peer, &small_call(seed)).expect("there are 32 credits");
        }
        world.turn_client(0);
        assert_eq!(counted(&world) - before, doorbells, "for {calls} calls");
        assert_eq!(world.check_all(), calls as usize);
    }
}
