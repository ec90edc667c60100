//! Reports of shards to other threads: what they state, and that every thread gets one or learns
//! why not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rpcrdma::ulb::{Protection, nfs3};
use rpcrdma::{
    Answer, Call, Clock, Engine, Fabric, Handler, InspectError, LatencyReport, PeerState,
    RefuseCalls, Reply, Shard, Turn, Version,
};
use rpcrdma_suite::pair::Pair;
use rpcrdma_suite::script::{Order, Part, Script};
use rpcrdma_suite::setup::{checked, small};
use rpcrdma_suite::world::{Plan, World};

/// Longer than any test lasts.
const LONG: Duration = Duration::from_secs(600);

/// Answers with nothing; panics once the flag is set.
struct Empty<'a>(&'a AtomicBool);

impl Handler for Empty<'_> {
    fn on_call<'a>(&mut self, _call: Call<'a>, reply: Reply<'a>) -> Answer<'a> {
        reply.send()
    }

    fn on_turn(&mut self, _turn: &mut Turn<'_>) {
        assert!(!self.0.load(Ordering::Relaxed), "the flag is set");
    }
}

/// A shard that is not polled yet.
fn shard<H: Handler>(handler: H) -> Shard<Fabric, H> {
    let engine = Engine::without_threads(Fabric::new(), checked(&small()));
    let (engine, _control) = engine.expect("an engine");
    engine.shard(handler).expect("a shard")
}

fn script(seed: u32, order: Order) -> Script {
    Script::new(seed, &[Part::Inline(40)], &[Part::Inline(60)]).order(order)
}

#[test]
fn a_report_states_what_is_open_on_both_sides() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    world.quiesce();
    let open: Vec<u64> = (0..3)
        .map(|seed| world.call(0, peer, &script(seed, Order::Later)).expect("a credit"))
        .collect();
    assert_eq!(open.len(), 3);
    let (mut caller, mut callee) = (None, None);
    world.until("all calls are with the handler", |world| {
        let report = world.servers[0].inspect();
        let is_so = report.gauges.calls_open == 3;
        (caller, callee) = (Some(world.clients[0].shard().inspect()), Some(report));
        is_so
    });
    let (caller, callee) = caller.zip(callee).expect("both are inspected");
    let ([ours], [theirs]) = (&caller.peers[..], &callee.peers[..]) else {
        panic!("one connection: {caller:?} {callee:?}");
    };
    assert_eq!((ours.state, theirs.state), (PeerState::Up, PeerState::Up));
    assert_eq!((ours.is_requested, theirs.is_requested), (true, false));
    assert_eq!((ours.version, theirs.version), (Some(Version::Two), Some(Version::Two)));
    assert_eq!((ours.id, ours.address), (peer, world.at));
    assert_eq!((ours.credits.used, theirs.granted.used), (3, 3));
    assert_eq!(ours.credits.limit.min(theirs.granted.limit), ours.credits.limit);
    assert_eq!((theirs.calls_open, caller.gauges.calls.used()), (3, 3));
    assert_eq!(caller.gauges.replies.used(), 3, "a Receive for each reply");
    assert_eq!(callee.gauges.grants.used(), u64::from(theirs.granted.limit));
    assert_eq!(callee.gauges.connections.used(), 1);
    assert_eq!((callee.counters.calls_received, caller.counters.calls_sent), (3, 3));
    world.check_all();
    let after = world.clients[0].shard().inspect();
    assert_eq!((after.peers[0].credits.used, after.gauges.calls.used()), (0, 0));
}

#[test]
fn the_bytes_of_transmissions_are_counted_and_those_of_groups() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    world.quiesce();
    // Received in single transmissions, and in groups.
    let mut received = |len: u32| {
        let before = world.servers[0].handle().stats();
        let script = Script::new(7, &[Part::Inline(len)], &[Part::Inline(60)]);
        world.call(0, peer, &script).expect("a credit");
        world.check_all();
        let after = world.servers[0].handle().stats();
        let continued = after.bytes_continued - before.bytes_continued;
        (after.bytes_received - before.bytes_received - continued, continued)
    };
    let (short, longer) = (received(40), received(240));
    assert_eq!((short.1, longer.1, longer.0 - short.0), (0, 0, 200));
    let (single, continued) = received(150_000);
    assert_eq!(single, 0);
    assert!((150_000..151_000).contains(&continued), "{continued} with the headers");
    let server = world.servers[0].handle().stats();
    let [peer] = &world.servers[0].inspect().peers[..] else { panic!("one connection") };
    assert_eq!(peer.counts.bytes_continued, server.bytes_continued);
}

#[test]
fn placed_bytes_are_counted_by_who_receives_them() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    world.quiesce();
    for bulk in [500, 30_000] {
        let placed = |world: &World<_>| {
            let [client, server] = [world.clients[0].handle(), world.servers[0].handle()];
            [client, server].map(|handle| handle.stats().bytes_placed)
        };
        let before = placed(&world);
        let call = [Part::Inline(40), Part::Bulk(bulk)];
        let reply = [Part::Inline(60), Part::Bulk(bulk + 4)];
        world.call(0, peer, &Script::new(7, &call, &reply)).expect("a credit");
        world.check_all();
        let after = placed(&world);
        let grown = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(grown, [u64::from(bulk) + 4, u64::from(bulk)]);
    }
}

#[test]
fn a_connection_counts_refusals_by_reason() {
    let fabric = Fabric::new();
    let (mut world, peer) = World::pair(&|| fabric.clone(), &Plan::default());
    world.quiesce();
    for order in [Order::Refuse, Order::Refuse, Order::Answer] {
        world.call(0, peer, &script(7, order)).expect("a credit");
    }
    let elsewhere = script(7, Order::Elsewhere);
    world.call(0, peer, &elsewhere).expect("a credit");
    world.until("it is there", |world| !world.servers[0].handler().elsewhere.is_empty());
    world.servers[0].handler().elsewhere.clear();
    world.until("all have ended", |world| world.open_calls() == 0);
    let counts = world.servers[0].inspect().peers[0].counts;
    assert_eq!((counts.refusals_sent, counts.refusals_handler), (3, 2));
    assert_eq!((counts.refusals_unsent, counts.refusals_dropped, counts.replies_sent), (0, 1, 1));
    // A shard that stops refuses nothing.
    world.call(0, peer, &elsewhere).expect("a credit");
    world.until("it is there", |world| !world.servers[0].handler().elsewhere.is_empty());
    world.servers[0].handle().stop();
    world.step();
    world.servers[0].handler().elsewhere.clear();
    world.until("it has stopped", |world| world.servers[0].is_stopped());
    let counts = world.servers[0].audit().gone;
    assert_eq!((counts.calls_received, counts.calls_unanswered), (5, 1));
    assert_eq!((counts.refusals_sent, counts.refusals_dropped, counts.replies_sent), (3, 1, 1));
    world.check_nothing_leaked();
}

#[test]
fn a_thread_that_sleeps_reports_to_all_that_ask_at_once() {
    let mut shard = shard(RefuseCalls);
    let handle = shard.handle().clone();
    thread::scope(|scope| {
        let stop = handle.clone();
        scope.spawn(move || shard.run());
        let asking: Vec<_> = (0..8)
            .map(|_| {
                let handle = handle.clone();
                scope.spawn(move || (0..50).map(|_| handle.inspect(LONG)).collect::<Vec<_>>())
            })
            .collect();
        for reports in asking {
            for report in reports.join().expect("it does not panic") {
                let report = report.expect("the shard runs");
                assert_eq!((report.shard, report.peers.len()), (handle.shard(), 0));
                assert!(report.gauges.receives_posted > 0);
            }
        }
        stop.stop();
    });
    assert_eq!(handle.inspect(LONG), Err(InspectError::Ended));
}

#[test]
fn a_shard_that_is_not_polled_does_not_report() {
    let mut shard = shard(RefuseCalls);
    let handle = shard.handle().clone();
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        assert_eq!(handle.inspect(timeout), Err(InspectError::TimedOut(timeout)));
    }
    // A report that no thread waits for any more delays no other.
    thread::scope(|scope| {
        let asking = scope.spawn(|| handle.inspect(LONG));
        while !asking.is_finished() {
            shard.poll_once(Clock::new().now());
        }
        asking.join().expect("it does not panic").expect("a report");
    });
}

#[test]
fn a_waiting_thread_learns_that_the_shard_has_ended_or_panicked() {
    for panics in [false, true] {
        let panics_now = AtomicBool::new(false);
        let mut shard = shard(Empty(&panics_now));
        let handle = shard.handle().clone();
        thread::scope(|scope| {
            let asking = scope.spawn(|| handle.inspect(LONG));
            let expected = if panics {
                panics_now.store(true, Ordering::Relaxed);
                let polled = catch_unwind(AssertUnwindSafe(|| shard.poll_once(0)));
                assert!(polled.is_err());
                InspectError::Panicked
            } else {
                drop(shard);
                InspectError::Ended
            };
            let found = asking.join().expect("it does not panic");
            // It may have reported in the turn that panicked.
            assert!(found.is_ok() && panics || found == Err(expected), "{found:?}");
        });
        let expected = if panics { InspectError::Panicked } else { InspectError::Ended };
        assert_eq!(handle.inspect(LONG), Err(expected));
    }
}

#[test]
fn more_connections_than_one_turn_looks_at_are_all_reported() {
    const CONNECTIONS: usize = 150;
    let fabric = Fabric::new();
    let plan = Plan::both(|raw| raw.connections.max = CONNECTIONS as i64);
    let mut world = World::new(&|| fabric.clone(), &plan);
    for _ in 0..CONNECTIONS {
        world.connect(0);
    }
    world.quiesce();
    let handle = world.servers[0].handle().clone();
    let report = thread::scope(|scope| {
        let asking = scope.spawn(|| handle.inspect(LONG));
        let mut turns = 0;
        while !asking.is_finished() {
            world.step();
            turns += 1;
        }
        assert!(turns >= 3, "64 in a turn");
        asking.join().expect("it does not panic").expect("a report")
    });
    let mut ids: Vec<_> = report.peers.iter().map(|peer| peer.id).collect();
    ids.dedup();
    assert_eq!(ids.len(), CONNECTIONS);
    let direct = world.servers[0].inspect();
    assert_eq!((direct.peers, direct.gauges), (report.peers, report.gauges));
}

#[test]
fn a_connection_that_ends_during_a_report_is_counted_once() {
    let fabric = Fabric::new();
    let plan = Plan::both(|raw| raw.connections.max = 40 * 64);
    let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
    world.quiesce();
    world.round(0, peer, &script(1, Order::Answer));
    let handle = world.servers[0].handle().clone();
    let report = thread::scope(|scope| {
        let asking = scope.spawn(|| handle.inspect(LONG));
        // The first turn that has something to do looks at the first places; then the client ends.
        while !world.turn_servers() {}
        world.drop_client(0);
        while !asking.is_finished() {
            world.turn_servers();
        }
        asking.join().expect("it does not panic").expect("a report")
    });
    assert_eq!(
        (report.peers.len(), report.gone.calls_received, report.counts().calls_received),
        (0, 1, 1)
    );
}

#[test]
fn one_call_in_so_many_is_timed_on_both_sides_and_its_answer_may_come_later() {
    for (sample, order) in
        [(1, Order::Answer), (1, Order::Later), (4, Order::Answer), (0, Order::Later)]
    {
        let fabric = Fabric::new();
        let plan = Plan::both(|raw| raw.stats.sample = sample);
        let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
        for seed in 0..400 {
            world.round(0, peer, &script(seed, order));
        }
        world.quiesce();
        let [service, calls] = [
            world.servers[0].handle().latencies().service,
            world.clients[0].handle().latencies().calls,
        ];
        let expected = match sample {
            0 => 0..=0,
            1 => 400..=400,
            _ => 80..=120,
        };
        assert!(expected.contains(&service.len()), "{} of 400, {sample}", service.len());
        assert!(expected.contains(&calls.len()), "{} of 400, {sample}", calls.len());
        assert!(world.servers[0].handle().latencies().calls.is_empty());
        if sample > 0 {
            assert!(service.max() > 0 && calls.max() >= service.min(), "they take some time");
        }
    }
}

/// The places of timed calls are free again, whatever becomes of the calls.
#[test]
fn calls_that_end_without_an_answer_leave_no_timer_behind() {
    let fabric = Fabric::new();
    let plan = Plan::both(|raw| raw.stats.sample = 1);
    let (mut world, _) = World::pair(&|| fabric.clone(), &plan);
    for round in 0..60 {
        let peer = world.connect(0);
        for seed in 0..12 {
            let order = if round % 2 == 0 { Order::Never } else { Order::Refuse };
            world.call(0, peer, &script(seed, order)).expect("a credit");
        }
        world.until("all have arrived", |world| {
            world.servers[0].handle().stats().calls_received >= 12 * (round + 1)
        });
        world.clients[0].handle().close(peer);
        world.until("it is gone", |world| {
            world.step();
            world.servers[0].handle().connections() == 1
        });
        world.finish();
    }
    // More calls than there are timers have ended that way.
    let peer = world.connect(0);
    let before = world.servers[0].handle().latencies().service.len();
    world.round(0, peer, &script(1, Order::Later));
    world.quiesce();
    assert_eq!(world.servers[0].handle().latencies().service.len(), before + 1);
    assert_eq!(world.clients[0].handle().latencies().calls.len(), 60 * 12 + 1);
}

#[test]
fn a_binding_names_the_procedure_of_a_timed_call() {
    let null = || nfs3::BINDING.bind(nfs3::NULL, Protection::None).expect("a procedure");
    let mut pair = Pair::configured(
        |_, _, reply| {
            nfs3::BINDING.bind(nfs3::NULL, Protection::None).expect("as above").reply(reply).send()
        },
        |raw| raw.stats.sample = 1,
    );
    for is_bound in [true, true, false, true] {
        match is_bound {
            true => null().call(pair.begin()).submit().expect("a short call"),
            false => pair.begin().submit().expect("a short call"),
        }
        pair.finish(|reply| assert!(reply.is_ok()));
    }
    let [server, client] = pair.latencies();
    let procedures = |report: &LatencyReport| {
        let found = report.procedures.iter();
        found.map(|it| (it.program, it.version, it.number, it.is_own, it.histogram.len())).collect()
    };
    let found: [Vec<_>; 2] = [procedures(&server), procedures(&client)];
    let (program, number) = (nfs3::BINDING.program, nfs3::NULL);
    assert_eq!(found, [vec![(program, 3, number, false, 4)], vec![(program, 3, number, true, 3)]]);
    assert_eq!((server.service.len(), client.calls.len()), (4, 4));
}
