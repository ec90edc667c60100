//! Calls and replies in the payload stream.

use rpcrdma::Provider;

use crate::script::{Part, Script};
use crate::world::{Open, Plan, World};

/// Every length up to some hundred, and around every boundary of inline thresholds, segments and
/// slots, is echoed in one transmission.
pub fn every_length_is_echoed<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let edges = [1024, 2048, 4096, 8192, 20_480, 36_864];
    let edges = edges.into_iter().flat_map(|edge: u32| edge - 80..edge + 9);
    for len in (0..200).chain(edges.step_by(3)) {
        let script = Script::new(len, &[Part::Inline(len)], &[Part::Inline(len)]);
        assert_eq!(world.round(0, peer, &script), (0, 0));
    }
    let stats = world.clients[0].handle().stats();
    assert_eq!(stats.groups_completed, 0, "no transmission is continued before it is full");
    assert_eq!(stats.calls_completed, stats.calls_sent);
    world.check_nothing_leaked();
}

/// Payload that is longer than a receive buffer is continued, both ways.
pub fn long_payload_is_continued<P: Provider>(open: Open<'_, P>) {
    let plan = Plan::both(|raw| raw.receive.placement.count = 0);
    let (mut world, peer) = World::pair(open, &plan);
    let edges = (1..=12).map(|count| count * 4096).chain([1, 100]);
    for len in edges.flat_map(|edge: u32| edge.saturating_sub(101)..edge + 5).step_by(7) {
        let script = Script::new(len, &[Part::Inline(len)], &[Part::Inline(len)]);
        assert_eq!(world.round(0, peer, &script), (0, 0));
    }
    for stats in [world.clients[0].handle().stats(), world.servers[0].handle().stats()] {
        assert!(stats.groups_completed > 100, "long messages are continued");
    }
    world.check_nothing_leaked();
}

/// Payload that lies in more send slots than a transmission has gather entries.
pub fn payload_of_many_slots_travels<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let long = &[45_056, 53_248, 57_344, 61_362, 65_536, 100_000, 131_072][..];
    // A transmission has at most a receive buffer's length, in slots of 8 KiB.
    let lens = if world.gathers_all() { long } else { &[9_000, 16_384, 24_000] };
    for &len in lens {
        let script = Script::new(len, &[Part::Inline(len)], &[Part::Inline(len)]);
        assert_eq!(world.round(0, peer, &script), (0, 0));
    }
    world.check_nothing_leaked();
}

/// A call of nothing but transaction id and message type is answered by a reply of no more.
pub fn an_empty_call_is_answered<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    for cookie in 0..100 {
        world.clients[0].call(peer, cookie).expect("a call").submit().expect("a credit");
        world.completion(0, |done| {
            assert_eq!(done.cookie(), cookie);
            let reply = done.result().expect("the service answers");
            assert_eq!(reply.contiguous().map(<[u8]>::len), Some(8));
        });
    }
    // Another completion would be one of a call that is not open.
    world.quiesce();
}

/// Calls need not wait for each other, and each gets its own reply.
pub fn many_calls_are_in_flight<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let script = |seed| Script::new(seed, &[Part::Inline(seed % 900)], &[Part::Inline(seed % 700)]);
    // The first reply brings the grant.
    world.round(0, peer, &script(1));
    let mut most = 0;
    let mut checked = 0;
    for seed in 0..2_000 {
        world.call_when_possible(0, peer, &script(seed));
        most = most.max(world.open_calls());
        checked += world.check_done();
    }
    checked += world.check_all();
    assert_eq!((checked, most), (2_000, 16), "as many at a time as there are credits");
}
