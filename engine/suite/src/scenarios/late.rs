//! Deferred answers: in a later turn, in another order, from another thread.

use rpcrdma::{Finished, Provider};

use crate::script::{Order, Part, Random, Script};
use crate::world::{Open, Plan, World};

/// Deferred calls are answered in random order; every caller gets its own answer.
pub fn answers_come_in_any_order<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let mut random = Random(7);
    let mut order = Vec::new();
    for _ in 0..300 {
        let script = random.script(9_000).order(Order::Later);
        world.call_when_possible(0, peer, &script);
        order.extend(world.done.drain(..).map(|done| (done.check(), done.cookie).1));
    }
    order.extend(world.finish().iter().map(|done| (done.check(), done.cookie).1));
    assert_eq!(order.len(), 300);
    assert!(!order.is_sorted(), "the order is another");
    assert!(world.servers[0].handler().is_idle());
    world.check_nothing_leaked();
}

/// An answer made elsewhere goes by the handle of its shard, with bulk and text around it.
pub fn tickets_are_finished_through_the_handle<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let handle = world.servers[0].handle().clone();
    let reply = [Part::Inline(60), Part::Bulk(16_390), Part::Inline(21)];
    for seed in 0..50 {
        let reply = if seed % 3 == 0 { &reply[..1] } else { &reply };
        let script = Script::new(seed, &[Part::Bulk(seed)], reply).order(Order::Elsewhere);
        world.call_when_possible(0, peer, &script);
        if seed % 4 != 3 {
            continue;
        }
        world.until("the calls are there", |world| {
            world.servers[0].handler().elsewhere.len() == world.open_calls()
        });
        let tickets: Vec<_> = world.servers[0].handler().elsewhere.drain(..).rev().collect();
        for (ticket, finished) in tickets {
            handle.finish(ticket, finished).expect("there is room for every ticket");
        }
        world.finish().iter().for_each(|done| {
            done.check();
        });
        world.quiesce();
    }
    world.check_nothing_leaked();
}

/// A ticket of an ended connection sends no answer, and the memory of its answer returns to its
/// pool.
pub fn stale_tickets_are_void<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let elsewhere = Script::new(1, &[], &[Part::Bulk(5_000)]).order(Order::Elsewhere);
    let later = Script::new(2, &[], &[]).order(Order::Never);
    world.round(0, peer, &Script::new(0, &[], &[]));
    world.call(0, peer, &elsewhere).expect("a call");
    world.call(0, peer, &elsewhere).expect("a call");
    world.call(0, peer, &later).expect("a call");
    world.until("the calls are there", |world| world.servers[0].handler().calls == 4);
    assert!(world.clients[0].handle().close(peer));
    world.finish();
    world.until("the server knows", |world| world.servers[0].handler().closed.len() == 1);
    // A new connection in the same place is not who the tickets were for.
    let second = world.connect(0);
    let handle = world.servers[0].handle().clone();
    let mut stale: Vec<_> = world.servers[0].handler().elsewhere.drain(..).collect();
    let never = world.servers[0].handler().never.pop().expect("a ticket");
    let now = world.now;
    let mut turn = world.servers[0].turn(now);
    assert!(!turn.is_open(&never));
    let never = turn.resume(never, |_| unreachable!("it is void")).expect_err("it is void");
    let (ticket, finished) = stale.pop().expect("two");
    let (_, finished) = turn.finish(ticket, finished).expect_err("it is void");
    assert_eq!(finished.bulk.len(), 1, "the memory is handed back");
    drop(finished);
    // Another thread cannot know it; the answer is dropped.
    let (ticket, finished) = stale.pop().expect("two");
    handle.finish(ticket, finished).expect("there is room");
    handle.finish(never, Finished::default()).expect("there is room");
    world.quiesce();
    assert_eq!(world.round(0, second, &Script::new(9, &[Part::Bulk(9)], &[])), (1, 0));
    assert_eq!(world.servers[0].handle().stats().replies_sent, 2);
    world.check_nothing_leaked();
}

/// Answers find room however many there are before the shard reads them: those of connections that
/// have ended come on top of those that are open.
pub fn answers_of_many_connections_find_room<P: Provider>(open: Open<'_, P>) {
    let plan = Plan::both(|raw| raw.connections.max = 1);
    let (mut world, mut peer) = World::pair(open, &plan);
    let call = Script::new(1, &[], &[Part::Inline(4)]).order(Order::Elsewhere);
    for ended in 1..=8 {
        for _ in 0..16 {
            world.call_when_possible(0, peer, &call);
        }
        world.until("the calls are there", |world| {
            world.servers[0].handler().elsewhere.len() == 16 * ended
        });
        assert!(world.clients[0].handle().close(peer));
        world.finish();
        world.until("both know", |world| {
            world.clients[0].handle().connections() + world.servers[0].handle().connections() == 0
        });
        peer = world.connect(0);
    }
    let last = world.call(0, peer, &call).expect("a call");
    world.until("it is there", |world| world.servers[0].handler().elsewhere.len() == 129);
    let handle = world.servers[0].handle().clone();
    for (ticket, finished) in world.servers[0].handler().elsewhere.drain(..) {
        handle.finish(ticket, finished).expect("the shard is there");
    }
    assert_eq!(world.finish().iter().map(|done| (done.check(), done.cookie).1).sum::<u64>(), last);
    assert_eq!(world.servers[0].handle().stats().replies_sent, 1);
    world.check_nothing_leaked();
}

/// A ticket belongs to one shard: another shard returns it.
pub fn a_ticket_belongs_to_its_shard<P: Provider>(open: Open<'_, P>) {
    let plan = Plan { servers: 2, ..Plan::default() };
    let (mut world, peer) = World::pair(open, &plan);
    let script = Script::new(3, &[], &[Part::Inline(12)]).order(Order::Elsewhere);
    world.call(0, peer, &script).expect("a call");
    let mut at = 0;
    world.until("the call is there", |world| {
        at = usize::from(!world.servers[1].handler().elsewhere.is_empty());
        !world.servers[at].handler().elsewhere.is_empty()
    });
    let (ticket, finished) = world.servers[at].handler().elsewhere.pop().expect("a ticket");
    let [own, other] = [at, 1 - at].map(|at| world.servers[at].handle().clone());
    let (ticket, finished) = other.finish(ticket, finished).expect_err("it is another shard's");
    own.finish(ticket, finished).expect("there is room");
    world.finish()[0].check();
}

/// A call whose ticket is kept holds its credit; other calls continue, and the end of the
/// connection completes it.
pub fn an_unanswered_call_ends_with_its_connection<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    world
        .call(0, peer, &Script::new(1, &[Part::Bulk(5)], &[]).order(Order::Never))
        .expect("a call");
    for seed in 2..40 {
        world.call_when_possible(0, peer, &Script::new(seed, &[], &[]));
    }
    world.until("all but one are over", |world| world.open_calls() == 1);
    world.done.drain(..).for_each(|done| {
        done.check();
    });
    let caller = world.servers[0].handler().connected[0];
    assert!(world.servers[0].handle().close(caller));
    let done = world.finish();
    assert!(done[0].result.is_err());
    world.check_nothing_leaked();
}
