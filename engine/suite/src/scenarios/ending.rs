//! Closing connections and stopping shards while calls are open.

use rpcrdma::provider::DeviceCaps;
use rpcrdma::{CallError, CallRefused, CloseReason, Execution, Provider, WcStatus};

use super::owned::check_owned;
use crate::script::{Order, Part, Script};
use crate::world::{Open, Plan, World};

/// Whichever side closes, each open call fails once with the loss, and the other connection
/// continues.
pub fn a_close_completes_open_calls<P: Provider>(open: Open<'_, P>) {
    for by_client in [true, false] {
        let mut world = World::new(open, &Plan::default());
        let [doomed, other] = [0, 0].map(|client| world.connect(client));
        world.round(0, doomed, &Script::new(0, &[], &[]));
        world.round(0, other, &Script::new(0, &[], &[]));
        for seed in 0..5 {
            let script = Script::new(seed, &[Part::Bulk(20_000)], &[]).order(Order::Elsewhere);
            world.call(0, doomed, &script).expect("a credit");
        }
        world.call(0, other, &Script::new(6, &[], &[]).order(Order::Later)).expect("a credit");
        world.until("they are there", |world| world.servers[0].handler().elsewhere.len() == 5);
        let caller = world.servers[0].handler().connected[0];
        let why = if by_client {
            assert!(world.clients[0].handle().close(doomed));
            CloseReason::Local
        } else {
            assert!(world.servers[0].handle().close(caller));
            CloseReason::PeerGone
        };
        let done = world.finish();
        let (lost, kept): (Vec<_>, Vec<_>) = done.iter().partition(|done| done.peer == doomed);
        assert_eq!((lost.len(), kept.len()), (5, 1));
        for done in lost {
            assert_eq!(done.result, Err(CallError::ConnectionLost(why, Execution::Unknown)));
        }
        kept[0].check();
        world.until("both have forgotten it", |world| {
            world.servers[0].handle().connections() + world.clients[0].handle().connections() == 2
        });
        world.round(0, other, &Script::new(7, &[Part::Bulk(9_000)], &[Part::Bulk(9_000)]));
        world.check_nothing_leaked();
    }
}

/// Calls that have not left when their connection is closed are not sent, and their memory returns;
/// those between them leave over their own connection.
pub fn a_close_discards_calls_that_have_not_left<P: Provider>(open: Open<'_, P>) {
    let mut world = World::new(open, &Plan::default());
    world.lends = true;
    let [doomed, other] = [0, 0].map(|client| world.connect(client));
    world.round(0, doomed, &Script::new(0, &[], &[]));
    world.round(0, other, &Script::new(0, &[], &[]));
    world.quiesce();
    let before = world.clients[0].shard().audit();
    let bulk = before.bulk;
    let item = [Part::Inline(5), Part::Bulk(9_000)];
    for (seed, parts) in [(1, &[][..]), (2, &item), (3, &[Part::Inline(50)]), (4, &item)] {
        for peer in [doomed, other] {
            world.call(0, peer, &Script::new(seed, parts, &[])).expect("a credit");
        }
    }
    let audit = world.clients[0].shard().audit();
    let held = audit.messages.held - before.messages.held;
    let slots = audit.send.held - before.send.held;
    assert_eq!((slots, audit.bulk.leaving), (8, 4));
    // A short one is a message, too, where the device does not copy it.
    assert!(held == 4 || held <= 8 && world.caps.inline_len < 256, "{held}");
    assert!(world.clients[0].handle().close(doomed));
    world.turn_client(0);
    check_owned(&world.clients[0].shard().audit());
    let (lost, kept): (Vec<_>, Vec<_>) =
        world.finish().into_iter().partition(|done| done.peer == doomed);
    assert_eq!((lost.len(), kept.len()), (4, 4));
    for done in lost {
        assert_eq!(
            done.result,
            Err(CallError::ConnectionLost(CloseReason::Local, Execution::NotExecuted))
        );
    }
    kept.iter().for_each(|done| _ = done.check());
    world.quiesce();
    assert_eq!(world.servers[0].handler().calls, 2 + 4, "those of the other");
    let audit = world.clients[0].shard().audit();
    assert_eq!((audit.messages.held, audit.send.held), (0, 0));
    assert_eq!(audit.bulk.free + audit.bulk.returning, bulk.free + bulk.returning);
    check_owned(&world.clients[0].shard().audit());
    world.check_nothing_leaked();
}

/// A server that is stopped answers what it has taken in, takes in nothing more, and ends.
pub fn a_stop_lets_open_calls_finish<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    for seed in 1..6 {
        let script = Script::new(seed, &[], &[Part::Bulk(30_000)]).order(Order::Later);
        world.call(0, peer, &script).expect("a credit");
    }
    world.until("they are there", |world| world.servers[0].handler().calls == 6);
    let answered = world.done.len();
    world.servers[0].handle().stop();
    assert!(!world.servers[0].is_stopped());
    let done = world.finish();
    assert_eq!(done.len(), 5, "{answered} of them before the stop");
    done.iter().for_each(|done| assert_eq!(done.check(), (0, 1)));
    world.until("it has stopped", |world| world.servers[0].is_stopped());
    let closed = &world.servers[0].handler().closed;
    assert!(matches!(closed.as_slice(), [(_, CloseReason::Stopped)]), "{closed:?}");
    world.until("the client knows", |world| world.clients[0].handle().connections() == 0);
    world.check_nothing_leaked();
}

/// Calls that arrive at a shard that stops are not answered: they end with their connection, when
/// nothing of it is owed any more.
pub fn a_stopping_server_drops_new_calls<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    world.call(0, peer, &Script::new(1, &[], &[]).order(Order::Elsewhere)).expect("a credit");
    world.until("it is there", |world| world.servers[0].handler().calls == 2);
    world.servers[0].handle().stop();
    world.step();
    for (seed, len) in [(2, 0), (3, 20_000), (4, 60_000)] {
        let script = Script::new(seed, &[Part::Bulk(len)], &[]);
        world.call(0, peer, &script).expect("the client does not know");
    }
    world.until("they are there", |world| world.servers[0].handle().stats().calls_dropped == 3);
    world.quiesce();
    assert_eq!(world.open_calls(), 4, "nothing is said of them, and one is owed");
    let (ticket, finished) = world.servers[0].handler().elsewhere.pop().expect("a ticket");
    world.servers[0].handle().finish(ticket, finished).expect("there is room");
    let mut done = world.finish();
    done.sort_by_key(|done| done.cookie);
    done[0].check();
    for lost in &done[1..] {
        assert_eq!(
            lost.result,
            Err(CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown))
        );
    }
    world.until("it has stopped", |world| world.servers[0].is_stopped());
    assert_eq!(world.servers[0].handler().calls, 2, "no call reaches the handler any more");
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.violations, stats.replies_sent), (0, 2), "{stats:?}");
    world.check_nothing_leaked();
}

/// Clients that continue to call do not delay a stop, and none gets an error for its call.
pub fn a_stop_ends_while_clients_continue_to_call<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { clients: 2, ..Plan::default() };
    // Longer than the test waits.
    plan.serve.connections.stop_timeout = "1h".into();
    let mut world = World::new(open, &plan);
    let peers = [0, 1].map(|client| world.connect(client));
    let mut seed = 0;
    let mut called = 0;
    world.until("the server has stopped", |world| {
        for (client, peer) in peers.into_iter().enumerate() {
            let order = if seed % 3 == 0 { Order::Later } else { Order::Answer };
            let script = Script::new(seed, &[Part::Bulk(seed % 30_000)], &[Part::Bulk(9_000)]);
            called += u32::from(world.call(client, peer, &script.order(order)).is_ok());
            seed += 7;
        }
        if seed > 2_000 {
            world.servers[0].handle().stop();
        }
        world.servers[0].is_stopped()
    });
    let done = world.finish();
    assert_eq!(done.len() as u32, called);
    for done in &done {
        match done.result {
            Ok(_) => drop(done.check()),
            Err(why) => assert!(is_lost_with_its_peer(why, &world.caps), "{why}"),
        }
    }
    let answered = done.iter().filter(|done| done.result.is_ok()).count() as u64;
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.calls_received, stats.replies_sent), (answered, answered), "{stats:?}");
    assert_eq!(stats.violations, 0, "{stats:?}");
    world.check_nothing_leaked();
}

/// What is not answered in time does not keep a shard from stopping.
pub fn a_stop_does_not_wait_for_ever<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan::default();
    plan.serve.connections.stop_timeout = "2ms".into();
    let (mut world, peer) = World::pair(open, &plan);
    let never = Script::new(1, &[Part::Bulk(50_000)], &[]).order(Order::Never);
    world.call_when_possible(0, peer, &never);
    world.until("it is there", |world| world.servers[0].handler().never.len() == 1);
    world.servers[0].handle().stop();
    let begin = world.now;
    world.until("it has stopped", |world| world.servers[0].is_stopped());
    assert!(world.now - begin >= 2_000_000, "it waited for stop_timeout");
    let lost = world.finish().pop().expect("one call").result;
    assert_eq!(lost, Err(CallError::ConnectionLost(CloseReason::PeerGone, Execution::Unknown)));
    world.check_nothing_leaked();
}

/// A client that stops waits for its replies, makes no new calls, and ends.
pub fn a_client_stops_with_calls_open<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    for seed in 1..8 {
        let script = Script::new(seed, &[Part::Bulk(8_000)], &[Part::Bulk(7_000)]);
        world.call(0, peer, &script.order(Order::Later)).expect("a credit");
    }
    world.clients[0].handle().stop();
    world.step();
    assert_eq!(world.call(0, peer, &Script::new(9, &[], &[])), Err(CallRefused::Stopping));
    let done = world.finish();
    assert_eq!(done.len(), 7);
    done.iter().for_each(|done| assert_eq!(done.check(), (1, 1)));
    world.until("it has stopped", |world| world.clients[0].shard().is_stopped());
    world.until("the server knows", |world| world.servers[0].handle().connections() == 0);
    let closed = &world.servers[0].handler().closed;
    assert!(matches!(closed.as_slice(), [(_, CloseReason::PeerGone)]), "{closed:?}");
}

/// A shard is dropped with open calls: the peer learns of it, and continues.
pub fn a_dropped_shard_is_gone<P: Provider>(open: Open<'_, P>) {
    for server_goes in [true, false] {
        let mut plan = Plan { servers: 2, clients: 2, ..Plan::default() };
        plan.serve.connections.max = 3;
        let mut world = World::new(open, &plan);
        let peers = [0, 0, 1, 1].map(|client| (client, world.connect(client)));
        for (client, peer) in peers {
            world.round(client, peer, &Script::new(0, &[], &[]));
        }
        for (client, peer) in peers {
            let script = Script::new(1, &[Part::Bulk(40_000)], &[Part::Bulk(40_000)]);
            world.call(client, peer, &script).expect("a credit");
        }
        world.clients[0].poll(world.now, |_| {});
        if server_goes {
            drop(world.servers.remove(0));
            world.finish();
            // Each client had one connection with it.
            world.until("the clients know", |world| {
                world.clients.iter().all(|client| client.handle().connections() == 1)
            });
            world.connect(0);
        } else {
            world.drop_client(0);
            world.until("the servers know", |world| {
                world.servers.iter().all(|server| server.handle().connections() == 1)
            });
            let alive = [0, 1].map(|at| world.servers[at].handler().calls >= 2);
            assert_eq!(alive, [true, true]);
        }
    }
}

/// The identifier of an ended connection is invalid, also after its place is used again.
pub fn a_stale_id_identifies_no_connection<P: Provider>(open: Open<'_, P>) {
    let (mut world, stale) = World::pair(open, &Plan::default());
    assert!(world.clients[0].handle().close(stale));
    world.until("it is gone", |world| world.clients[0].handle().connections() == 0);
    let peer = world.connect(0);
    assert_ne!(peer, stale);
    assert_eq!(world.call(0, stale, &Script::new(1, &[], &[])), Err(CallRefused::NoPeer));
    let now = world.now;
    let mut turn = world.clients[0].turn(now);
    assert_eq!((turn.credits(stale), turn.limits(stale).is_none()), (0, true));
    assert!(world.clients[0].handle().close(stale), "the order is taken");
    world.quiesce();
    world.round(0, peer, &Script::new(1, &[], &[]));
}

/// Whether a call was lost because its peer has ended the connection. A request that was flushed says
/// only that it has ended: on iWARP often before the connection manager reports who has ended it.
fn is_lost_with_its_peer(why: CallError, caps: &DeviceCaps) -> bool {
    let [gone, flushed] = [CloseReason::PeerGone, CloseReason::Transport(WcStatus::Flushed)]
        .map(|why| CallError::ConnectionLost(why, Execution::Unknown));
    why == gone || caps.reads_expose && why == flushed
}
