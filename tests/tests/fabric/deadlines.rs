//! When calls end that have a deadline, and when a shard wakes for one.

use rpcrdma_engine::{CallBuilder, CallError, Execution, Fabric};
use rpcrdma_tests::script::{Order, Random, Script};
use rpcrdma_tests::world::{Plan, World};

/// The granularity of deadlines, and the time of a turn here.
const GRANULARITY: u64 = 1 << 20;
const STEP: u64 = 100_000;

#[test]
fn a_call_ends_at_most_a_millisecond_after_its_deadline_and_not_before() {
    let fabric = Fabric::new();
    let plan = Plan::both(|raw| {
        raw.connections.credits = 64;
        raw.connections.credits_requested = 64;
        raw.connections.calls_max = 64;
    });
    let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let mut random = Random(5);
    let mut until = std::collections::HashMap::new();
    let call = Script::new(1, &[], &[]).order(Order::Never);
    for after in (0..64).map(|_| u64::from(random.below(300_000_000))) {
        // Also some that have passed, and far ones, which the end of the connection completes.
        let at = match after % 8 {
            0 => world.now.saturating_sub(after),
            1 => u64::MAX - after,
            _ => world.now + after,
        };
        let (cookie, ()) = world
            .call_with(0, peer, &call, |call| {
                call.deadline(at);
                Ok(())
            })
            .expect("a credit");
        until.insert(cookie, at.max(world.now));
    }
    let end = world.now + 302_000_000;
    while world.now < end {
        let before = world.now;
        world.now += STEP;
        world.turn_client(0);
        for done in std::mem::take(&mut world.done) {
            let at = until.remove(&done.cookie).expect("it ends once");
            let is_in_time = at <= world.now && before < at.saturating_add(GRANULARITY);
            assert!(is_in_time, "{at} ended between {before} and {}", world.now);
        }
    }
    assert!(until.values().all(|at| *at > end), "{until:?}");
    assert_eq!(world.open_calls(), until.len());
    assert!(world.clients[0].handle().close(peer));
    assert_eq!(world.finish().len(), until.len());
}

#[test]
fn a_deadline_that_has_passed_before_the_call_was_sent_ends_it() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    for at in [0, 1, world.now] {
        let call = Script::new(1, &[], &[]).order(Order::Never);
        let with = |call: &mut CallBuilder<'_>| {
            call.deadline(at);
            Ok(())
        };
        world.call_with(0, peer, &call, with).expect("a credit");
        world.turn_client(0);
        let [done] = world.done.as_slice() else { panic!("it ends in the next turn") };
        let late = CallError::DeadlineExceeded(Execution::Unknown);
        assert_eq!(done.result, Err(late));
        world.done.clear();
    }
}
