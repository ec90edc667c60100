//! When calls end that have a deadline, and when a shard wakes for one.

use std::time::{Duration, Instant};

use rpcrdma::provider::Armed;
use rpcrdma::{CallBuilder, CallError, Clock, CloseReason, Execution, Fabric};
use rpcrdma_suite::script::{Order, Random, Script};
use rpcrdma_suite::world::{Plan, World};

/// The granularity of deadlines, and the time of a turn here.
const GRANULARITY: u64 = 1 << 20;
const STEP: u64 = 100_000;
/// The interval of looks at all times.
const LOOK: u64 = 10_000_000;
const MILLISECOND: u64 = 1_000_000;

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

/// How long the client, or the server, may sleep after its next look at all times.
fn sleep_ns(world: &mut World<Fabric>, is_client: bool) -> u64 {
    world.now += LOOK;
    let mut arm = || {
        let now = world.now;
        world.turn_client(0);
        world.servers[0].poll_once(now);
        match is_client {
            true => world.clients[0].arm(now),
            false => world.servers[0].arm(now),
        }
    };
    let most = (0..100).find_map(|_| match arm() {
        Armed::Ready => None,
        Armed::AtMost(most) => Some(most),
    });
    u64::try_from(most.expect("the work ends").as_nanos()).expect("a number")
}

#[test]
fn a_shard_wakes_for_the_next_deadline_and_looks_rarely_if_nothing_is_outstanding() {
    for (timeout, is_looked_for) in [("0s", false), ("1min", true)] {
        let fabric = Fabric::new();
        let plan = Plan::both(|raw| raw.connections.call_timeout = timeout.into());
        let mut world = World::new(&|| fabric.clone(), &plan);
        assert_eq!(sleep_ns(&mut world, true), 1000 * MILLISECOND, "there is no connection");
        let peer = world.connect(0);
        world.round(0, peer, &Script::new(0, &[], &[]));
        world.quiesce();
        for is_client in [true, false] {
            assert_eq!(
                sleep_ns(&mut world, is_client),
                100 * MILLISECOND,
                "nothing is outstanding"
            );
        }
        let call = Script::new(1, &[], &[]).order(Order::Never);
        world.call(0, peer, &call).expect("a credit");
        world.until("it is there", |world| world.servers[0].handler().never.len() == 1);
        world.quiesce();
        let most = if is_looked_for { LOOK } else { 100 * MILLISECOND };
        assert_eq!(sleep_ns(&mut world, true), most, "a call has a timeout, or none");
        assert_eq!(sleep_ns(&mut world, false), LOOK, "the program may look for its answer");
        for after in [70, 33, 3].map(|after| after * MILLISECOND) {
            let at = world.now + LOOK + after;
            let with = |call: &mut CallBuilder<'_>| {
                call.deadline(at);
                Ok(())
            };
            world.call_with(0, peer, &call, with).expect("a credit");
            let left = sleep_ns(&mut world, true).max(STEP);
            assert!(left <= after.min(most) && left + 64 * GRANULARITY > after.min(most), "{left}");
            // However early the wheel is looked at, the shard wakes in time.
            let mut turns = 0;
            while world.done.is_empty() {
                let Armed::AtMost(left) = world.clients[0].arm(world.now) else { panic!("idle") };
                assert!(left <= Duration::from_millis(100) && !left.is_zero());
                world.now += left.as_nanos() as u64;
                world.turn_client(0);
                turns += 1;
            }
            assert!(at <= world.now && world.now < at + GRANULARITY && turns <= 10, "{turns}");
            assert_eq!(world.done.drain(..).count(), 1);
        }
    }
}

#[test]
fn a_sleeping_shard_wakes_for_idle_timeouts() {
    let fabric = Fabric::new();
    let plan = Plan::both(|raw| raw.connections.idle_timeout = "150ms".into());
    let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    world.quiesce();
    assert_eq!(sleep_ns(&mut world, false), 100 * MILLISECOND, "it is idle from here on");
    world.now += 80 * MILLISECOND;
    assert_eq!(sleep_ns(&mut world, false), 60 * MILLISECOND);
    world.now += 50 * MILLISECOND;
    world.turn();
    assert_eq!(sleep_ns(&mut world, false), LOOK, "its sends are awaited");
    assert_eq!(world.servers[0].handle().stats().idle_timeouts, 1);
}

#[test]
fn a_client_that_sleeps_in_poll_for_ends_a_call_at_its_deadline() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    let (clock, begin) = (Clock::new(), Instant::now());
    let mut call = world.clients[0].call(peer, 7).expect("a slot");
    call.payload().put_fixed(&Script::new(1, &[], &[]).head());
    let at = clock.now() + 20 * MILLISECOND;
    call.deadline(at).reply_payload_max(64);
    call.submit().expect("a credit");
    let mut ended = None;
    while ended.is_none() {
        // The server does not answer, and nothing else wakes it.
        world.clients[0].poll_for(Duration::from_secs(20), |done| ended = done.result().err());
    }
    assert_eq!(ended, Some(CallError::DeadlineExceeded(Execution::Unknown)));
    assert!(clock.now() >= at && begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_client_yields_its_core_when_it_has_been_idle_for_as_long_as_it_spins() {
    let fabric = Fabric::new();
    let (mut world, _) = World::pair(&|| fabric.clone(), &Plan::default());
    let mut idle = |is_busy, now| world.clients[0].idle(is_busy, now, Duration::ZERO);
    let day = 86_400_000 * MILLISECOND;
    assert!(!idle(true, 0) && !idle(false, 1), "it spins");
    assert!(idle(false, day));
    assert!(!idle(true, day) && !idle(false, 2 * day), "it spins again after work");
}

#[test]
fn a_peer_that_does_not_answer_in_time_loses_its_connection() {
    let fabric = Fabric::new();
    let plan = Plan::both(|raw| raw.connections.call_timeout = "1s".into());
    let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let call = Script::new(1, &[], &[]).order(Order::Never);
    world.call(0, peer, &call).expect("a credit");
    world.until("it is there", |world| world.servers[0].handler().never.len() == 1);
    let begin = world.now;
    while world.done.is_empty() {
        world.now += LOOK;
        assert!(world.now - begin <= 1_250 * MILLISECOND, "a quarter later at most");
        world.turn_client(0);
    }
    assert!(world.now - begin >= 1_000 * MILLISECOND);
    let lost = CallError::ConnectionLost(CloseReason::NotAnswering, Execution::Unknown);
    assert_eq!(world.done.pop().map(|done| done.result), Some(Err(lost)));
    assert_eq!(world.clients[0].handle().stats().call_timeouts, 1);
    world.until("both know", |world| {
        world.clients[0].handle().connections() + world.servers[0].handle().connections() == 0
    });
    world.check_nothing_leaked();
}

#[test]
fn a_turn_ends_256_late_calls_and_the_next_one_the_others() {
    const CALLS: usize = 300;
    let fabric = Fabric::new();
    let plan = Plan::both(|raw| {
        raw.connections.credits = CALLS as i64;
        raw.connections.credits_requested = CALLS as i64;
        raw.connections.calls_max = CALLS as i64;
    });
    let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let call = Script::new(1, &[], &[]).order(Order::Never);
    let at = world.now + 1_000 * MILLISECOND;
    let with = |call: &mut CallBuilder<'_>| {
        call.deadline(at);
        Ok(())
    };
    for _ in 0..CALLS {
        world.call_with(0, peer, &call, with).expect("a credit");
        world.turn();
    }
    world.now = at + GRANULARITY;
    for ended in [256, CALLS] {
        world.turn_client(0);
        assert_eq!(world.done.len(), ended);
    }
}

#[test]
fn the_last_of_several_deadlines_counts() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    let call = Script::new(1, &[], &[]).order(Order::Never);
    let [soon, late] = [50, 500].map(|after| world.now + after * MILLISECOND);
    let pairs = [[soon, u64::MAX], [u64::MAX, soon], [soon, late], [late, soon]];
    let made = pairs.map(|[first, last]| {
        let with = |call: &mut CallBuilder<'_>| {
            call.deadline(first).deadline(last);
            Ok(())
        };
        world.call_with(0, peer, &call, with).expect("a credit").0
    });
    for (at, ended) in [(soon, &[made[1], made[3]][..]), (late, &[made[2]]), (late + late, &[])] {
        world.now = at + GRANULARITY;
        world.turn_client(0);
        let mut done: Vec<u64> = world.done.drain(..).map(|done| done.cookie).collect();
        done.sort_unstable();
        assert_eq!(done, ended);
    }
}
