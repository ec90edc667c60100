//! Credits: the limit of outstanding calls, and a share for each connection.

use std::collections::HashMap;

use rpcrdma::{Bulk, CallRefused, ConnectionId, Loan, Provider, Sink, Unsent, Want};
use rpcrdma_proto::SendError;

use crate::scenarios::explicit;
use crate::script::{Order, Part, Place, Script, part_bytes};
use crate::world::{Open, Plan, World, is_passing};

/// A call without a credit is refused at once; an answer makes room again.
pub fn used_up_credits_refuse_and_recover<P: Provider>(open: Open<'_, P>) {
    let plan = Plan::both(|raw| {
        raw.connections.credits = 4;
        raw.connections.request_transmissions_max = 4;
    });
    let (mut world, peer) = World::pair(open, &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let wait = Script::new(1, &[], &[Part::Inline(4)]).order(Order::Elsewhere);
    for left in (0..4).rev() {
        world.call(0, peer, &wait).expect("a credit");
        let now = world.now;
        assert_eq!(world.clients[0].turn(now).credits(peer), left);
    }
    let refused = CallRefused::Protocol(SendError::NotEnoughCredits { need: 1, have: 0 });
    assert_eq!(world.call(0, peer, &wait), Err(refused));
    world.quiesce();
    assert_eq!(world.call(0, peer, &wait), Err(refused), "time alone gives no credit");
    assert_eq!(world.clients[0].handle().stats().calls_sent, 5, "nothing of it was sent");
    let (ticket, finished) = world.servers[0].handler().elsewhere.pop().expect("four tickets");
    world.servers[0].handle().finish(ticket, finished).expect("there is room");
    world.until("one is answered", |world| world.open_calls() == 3);
    world.call(0, peer, &wait).expect("the credit of the answered call");
    assert_eq!(world.call(0, peer, &wait), Err(refused));
}

/// A call without credits or windows is not sent, and returns its filled memory and its sinks
/// unchanged, for the repeated call.
pub fn a_refused_call_gives_its_memory_back<P: Provider>(open: Open<'_, P>) {
    for windows in ["auto", "2"] {
        let mut plan = explicit::plan("two");
        plan.call.explicit.windows = windows.into();
        for raw in [&mut plan.serve, &mut plan.call] {
            raw.connections.credits = 2;
            raw.connections.request_transmissions_max = 1;
            raw.connections.call_transmissions_max = 1;
        }
        let (mut world, peer) = World::pair(open, &plan);
        world.round(0, peer, &Script::new(0, &[], &[]));
        let busy = match windows {
            "auto" => Script::new(1, &[Part::Inline(4)], &[]),
            _ => Script::new(1, &[], &[Part::Bulk(9_000)]).place(Place::Into(1)),
        };
        let busy = busy.order(Order::Elsewhere);
        while world.call(0, peer, &busy).is_ok() {}
        let open = world.open_calls();
        world.until("they are there", |world| world.servers[0].handler().elsewhere.len() == open);
        let script = Script::new(7, &[Part::Bulk(9_000)], &[Part::Bulk(9_000)]);
        let (mut data, mut room) = filled(&mut world, &script);
        let (at, sink_at) = (data.as_ptr(), room.as_ptr());
        let mut refusals = 0;
        loop {
            let Err(mut unsent) = make(&mut world, peer, &script, data, room) else { break };
            assert!(unsent.why().is_transient(), "{unsent}");
            refusals += 1;
            let placed: Vec<Bulk> = unsent.take_placed().collect();
            let [Bulk::Loan(loan)] = <[Bulk; 1]>::try_from(placed).expect("one piece") else {
                panic!("it was a loan")
            };
            let mut pieces = unsent.take_sink(0).expect("a sink").into_pieces();
            (data, room) = (loan, pieces.next().expect("one piece"));
            assert!(unsent.take_sink(0).is_none() && pieces.next().is_none());
            assert_eq!((data.as_ptr(), room.as_ptr()), (at, sink_at), "the same memory");
            assert!(data[..] == part_bytes(7, 0, 9_000), "as it was filled");
            if refusals == 3 {
                let elsewhere = std::mem::take(&mut world.servers[0].handler().elsewhere);
                for (ticket, finished) in elsewhere {
                    let sent = world.servers[0].handle().finish(ticket, finished);
                    sent.expect("there is room");
                }
                world.check_all();
            }
        }
        assert_eq!(refusals, 3);
        world.completion(0, |mut done| {
            assert!(done.result().is_ok(), "{:?}", done.result().err());
            assert!(done.take_sink(0).is_some());
        });
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// A buffer with the item of a call, and one for its result.
fn filled<P: Provider>(world: &mut World<P>, script: &Script) -> (Loan, Loan) {
    let now = world.now;
    let mut turn = world.clients[0].turn(now);
    let (mut data, room) = (turn.buffer().expect("a buffer"), turn.buffer().expect("another"));
    data[..9_000].copy_from_slice(&part_bytes(script.seed, 0, 9_000));
    data.truncate(9_000);
    (data, room)
}

#[expect(clippy::result_large_err, reason = "what was not taken is given back, not lost")]
fn make<P: Provider>(
    world: &mut World<P>,
    peer: ConnectionId,
    script: &Script,
    data: Loan,
    room: Loan,
) -> Result<(), Unsent> {
    let mut call = world.clients[0].call(peer, 7_000).expect("a slot");
    call.payload().put_fixed(&script.head());
    call.payload().place(data);
    call.want_into(Want { len_min: 0, len_max: 9_000 }, Sink::from(room));
    call.reply_payload_max(script.reply_payload_max());
    call.try_submit()
}

/// A message of several transmissions needs that many credits at once, or waits if there is no
/// other way.
pub fn a_long_call_waits_for_all_its_credits<P: Provider>(open: Open<'_, P>) {
    let plan = Plan::both(|raw| {
        raw.connections.credits = 4;
        raw.connections.request_transmissions_max = 4;
        raw.receive.placement.count = 1;
        raw.explicit.enabled = false;
    });
    let (mut world, peer) = World::pair(open, &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let wait = Script::new(1, &[], &[]).order(Order::Elsewhere);
    world.call(0, peer, &wait).expect("a credit");
    let long = Script::new(2, &[Part::Bulk(60_000)], &[]);
    let refused = CallRefused::Protocol(SendError::NotEnoughCredits { need: 4, have: 3 });
    assert_eq!(world.call(0, peer, &long), Err(refused));
    world.until("it is there", |world| world.servers[0].handler().elsewhere.len() == 1);
    let (ticket, finished) = world.servers[0].handler().elsewhere.pop().expect("one ticket");
    world.servers[0].handle().finish(ticket, finished).expect("there is room");
    world.finish();
    world.round(0, peer, &long);
    world.check_nothing_leaked();
}

/// With more connections than credits, each has at least one, and all make progress.
pub fn every_connection_gets_a_credit<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { clients: 4, ..Plan::default() };
    plan.serve.connections.max = 24;
    plan.serve.connections.credits = 16;
    // 24 connections share what is left of 80: 64 for control, 16 for replies, 30 to be granted.
    plan.serve.receive.replies = 16.into();
    plan.serve.receive.buffers = 110.into();
    plan.call.connections.max = 6;
    let mut world = World::new(open, &plan);
    let peers: Vec<_> = (0..24).map(|at| (at % 4, world.connect(at % 4))).collect();
    let (mut answered, mut round) = (HashMap::new(), 0);
    // How many turns a reply takes is the device's: soft-RoCE of Linux 6.12 has threads of its own.
    world.until("many calls are answered", |world| {
        round += 1;
        for (client, peer) in &peers {
            let script = Script::new(round, &[Part::Inline(40)], &[Part::Inline(60)]);
            match world.call(*client, *peer, &script) {
                Ok(_) => {}
                Err(why) => assert!(is_passing(why), "{why}"),
            }
        }
        let now = world.now;
        let mut held = 0;
        for (client, peer) in &peers {
            let limits = world.clients[*client].turn(now).credits(*peer);
            held += limits.max(1);
        }
        assert!(held <= 30, "no more is granted than Receives are there: {held}");
        for done in &world.done {
            *answered.entry((done.client, done.peer)).or_insert(0) += 1;
        }
        world.check_done();
        answered.len() == 24 && answered.values().all(|count| *count >= 15)
    });
    for (client, peer) in &peers {
        world.call_when_possible(*client, *peer, &Script::new(7, &[], &[Part::Inline(9)]));
    }
    world.check_all();
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.connections_established, stats.connections_closed), (24, 0));
    world.check_nothing_leaked();
}

/// As many calls as the configuration allows are open at one time, over all connections.
pub fn the_table_of_calls_is_bounded<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan::default();
    plan.call.connections.calls_max = 3;
    let mut world = World::new(open, &plan);
    let [first, second] = [0, 0].map(|client| world.connect(client));
    world.round(0, first, &Script::new(0, &[], &[]));
    world.round(0, second, &Script::new(0, &[], &[]));
    let wait = Script::new(1, &[], &[]).order(Order::Elsewhere);
    for peer in [first, second, first] {
        world.call(0, peer, &wait).expect("room in the table");
    }
    let refused = world.call(0, second, &wait);
    assert_eq!(refused, Err(CallRefused::Protocol(SendError::TableFull { max: 3 })));
    world.until("they are there", |world| world.servers[0].handler().elsewhere.len() == 3);
    for (ticket, finished) in std::mem::take(&mut world.servers[0].handler().elsewhere) {
        world.servers[0].handle().finish(ticket, finished).expect("there is room");
    }
    assert_eq!(world.finish().len(), 3);
    world.round(0, second, &Script::new(2, &[], &[]));
}

/// Replies are given Receives before their calls leave: a call whose reply has no room waits.
pub fn receives_are_kept_for_every_reply<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan::default();
    plan.call.connections.calls_max = 8;
    plan.call.connections.reply_transmissions_max = 8;
    plan.call.receive.replies = 8.into();
    plan.call.receive.placement.count = 1;
    let (mut world, peer) = World::pair(open, &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    // Four transmissions of a leading segment and 16 KiB each.
    let read = Script::new(1, &[], &[Part::Bulk(60_000)]).order(Order::Later);
    world.call(0, peer, &read).expect("Receives for four transmissions");
    world.call(0, peer, &read).expect("Receives for four more");
    let refused = world.call(0, peer, &read);
    assert!(
        matches!(refused, Err(CallRefused::Protocol(SendError::NotEnoughReceives { .. }))),
        "{refused:?}"
    );
    for done in world.finish() {
        assert_eq!(done.check(), (0, 1));
    }
    for _ in 0..30 {
        world.call_when_possible(0, peer, &read);
    }
    world.finish().iter().for_each(|done| assert_eq!(done.check(), (0, 1)));
    world.check_nothing_leaked();
}

/// A shard with few send slots answers all clients, and reports when it is busy.
pub fn few_send_slots_are_enough<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { clients: 2, ..Plan::default() };
    plan.serve.send.slots = 16;
    plan.serve.send.signal_every = 8;
    plan.call.send.slots = 16;
    let mut world = World::new(open, &plan);
    let peers = [world.connect(0), world.connect(1)];
    let mut checked = 0;
    for seed in 0..600 {
        let client = seed as usize % 2;
        let script =
            Script::new(seed, &[Part::Inline(seed % 5_000)], &[Part::Inline(seed % 3_000)]);
        let script = if seed % 3 == 0 { script.order(Order::Later) } else { script };
        world.call_when_possible(client, peers[client], &script);
        checked += world.check_done();
    }
    checked += world.check_all();
    assert_eq!(checked, 600);
    world.check_nothing_leaked();
}
