//! Calls and replies whose bytes travel in the payload stream.

use rpcrdma_engine::Provider;

use crate::script::{Part, Script};
use crate::world::{Open, Plan, World};

/// Every length up to some hundred, and around every boundary of inline thresholds, segments and
/// slots, is echoed; longer payload is continued.
pub fn every_length_is_echoed<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let around = [1024, 2048, 4096, 8192, 20_480, 36_864];
    let edges = around.into_iter().flat_map(|edge: u32| edge - 80..edge + 9);
    for len in (0..200).chain(edges.step_by(3)) {
        let script = Script::new(len, &[Part::Inline(len)], &[Part::Inline(len)]);
        assert_eq!(world.round(0, peer, &script), (0, 0));
    }
    let stats = world.clients[0].handle().stats();
    assert!(stats.groups > 0, "long replies are continued");
    assert_eq!(stats.calls_done, stats.calls_out);
    world.check_nothing_leaked();
}

/// A call of nothing but transaction id and message type is answered by a reply of no more.
pub fn an_empty_call_is_answered<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let mut replies = 0;
    for cookie in 0..100 {
        world.clients[0].call(peer, cookie).expect("a call").submit().expect("a credit");
        for _ in 0..100 {
            world.now += 1;
            world.servers[0].poll_once(world.now);
            world.clients[0].poll(world.now, |done| {
                assert_eq!(done.cookie(), cookie);
                let reply = done.result().expect("the service answers");
                assert_eq!(reply.contiguous().map(<[u8]>::len), Some(8));
                replies += 1;
            });
        }
    }
    assert_eq!(replies, 100);
}

/// Payload that lies in more send slots than a transmission has gather entries.
pub fn payload_of_many_slots_travels<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    for len in [45_056, 53_248, 57_344, 61_362, 65_536, 100_000, 131_072] {
        let script = Script::new(len, &[Part::Inline(len)], &[Part::Inline(len)]);
        assert_eq!(world.round(0, peer, &script), (0, 0));
    }
    world.check_nothing_leaked();
}
