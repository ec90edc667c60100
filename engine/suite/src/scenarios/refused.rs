//! Calls that cannot be sent: the caller gets an error, nothing is sent, and the next call
//! succeeds.

use rpcrdma::{CallError, CallRefused, Execution, Provider, Refusal, SendError, Want};

use super::owned::check_owned;
use crate::scenarios::explicit;
use crate::script::{Order, Part, Script, part_offset};
use crate::world::{Open, Plan, World};

/// A handler that refuses a call: its caller gets an error and may call again.
pub fn a_handler_refuses_a_call<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    for seed in 0..40 {
        let parts = [Part::Bulk(seed * 700)];
        let script = Script::new(seed, &parts, &[Part::Bulk(seed)]).order(Order::Refuse);
        world.call_when_possible(0, peer, &script);
        let done = world.finish();
        assert_eq!(
            done[0].result,
            Err(CallError::Rejected(Refusal::BadHeader, Execution::Unknown))
        );
        // The handler has seen it, and may have done anything.
        let known = done[0].result.as_ref().map_err(CallError::execution);
        assert_eq!(known.err(), Some(Execution::Unknown));
    }
    assert_eq!(world.servers[0].handler().calls, 40);
    world.round(0, peer, &Script::new(1, &[Part::Bulk(5)], &[Part::Bulk(5)]));
    let stats = world.clients[0].handle().stats();
    assert_eq!((stats.calls_failed, stats.calls_completed), (40, 41));
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.calls_received, stats.replies_sent, stats.refusals_sent), (41, 1, 40));
    assert_eq!(stats.violations, 0, "it is no error of the caller");
    world.check_nothing_leaked();
}

/// A message that is longer than messages may be is refused where it is made, and so is a call
/// whose reply could be; one that just fits travels.
pub fn a_message_over_the_limit_is_refused_here<P: Provider>(open: Open<'_, P>) {
    const MAX: u32 = 16 << 10;
    let plan = Plan::both(|raw| raw.connections.rpc_len_max = "16KiB".into());
    let (mut world, peer) = World::pair(open, &plan);
    let script = |len| Script::new(1, &[Part::Bulk(len)], &[]);
    // Beside the item stand the two words of the engine and the head of the script.
    let beside = 8 + script(0).call_stream().len() as u32;
    for longer in [4, 40, 20_000] {
        let (max, len) = (MAX, MAX + longer);
        let why = SendError::TooLong { len, max };
        let refused = world.call(0, peer, &script(len - beside));
        assert_eq!(refused, Err(CallRefused::Protocol(why)));
    }
    assert_eq!(world.round(0, peer, &script(MAX - beside)), (1, 0));
    let wanting = Script::new(2, &[], &[Part::Bulk(MAX)]);
    let refused = world.call(0, peer, &wanting);
    assert!(
        matches!(refused, Err(CallRefused::Protocol(SendError::ReplyTooLong { max: MAX, .. }))),
        "{refused:?}"
    );
    world.round(0, peer, &Script::new(3, &[], &[Part::Bulk(MAX - 100)]));
    let stats = world.servers[0].handle().stats();
    assert_eq!((stats.calls_received, stats.violations), (2, 0), "the others have not left");
}

/// A call that is dropped instead of submitted releases all its resources.
pub fn a_dropped_call_takes_no_resources<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    let before = world.clients[0].handle().stats();
    for round in 0..500_u32 {
        let slice = world.source(0).slice(1, 0, 9_000);
        let mut call = world.clients[0].call(peer, 0).expect("nothing was taken");
        call.payload().put_fixed(&vec![7; round as usize * 30]);
        if round % 2 == 0 {
            call.payload().place(slice);
            call.want(Want { len_min: 0, len_max: 50_000 });
        }
        drop(call);
    }
    world.quiesce();
    let after = world.clients[0].handle().stats();
    assert_eq!(
        (before.transmissions_sent, before.calls_sent),
        (after.transmissions_sent, after.calls_sent)
    );
    let now = world.now;
    assert_eq!(world.clients[0].turn(now).credits(peer), 16);
    world.round(0, peer, &Script::new(2, &[Part::Bulk(50_000)], &[Part::Bulk(50_000)]));
}

/// Payload beyond what the slots of a message hold, or than the peer takes.
pub fn payload_that_is_too_long_is_refused<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let mut call = world.clients[0].call(peer, 0).expect("a call");
    call.payload().put_fixed(&vec![1; 600_000]);
    let refused = call.submit();
    // A message that the device has not copied still has a slot: with that there might be room.
    let is_busy = refused == Err(CallRefused::Busy) && world.caps.inline_len < 256;
    assert!(is_busy || refused == Err(CallRefused::PayloadTooLong), "{refused:?}");
    let mut call = world.clients[0].call(peer, 0).expect("all slots came back");
    call.payload().put_fixed(&[1; 4096]);
    drop(call);
    world.round(0, peer, &Script::new(2, &[Part::Inline(4_000)], &[]));
    assert_eq!(world.clients[0].handle().stats().calls_sent, 1);
}

/// A payload that needs more slots than the shard has is too long: the error is not transient,
/// because waiting would never help.
pub fn payload_of_more_slots_than_there_are_is_too_long<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &few_slots());
    world.round(0, peer, &Script::new(1, &[Part::Inline(3_900)], &[]));
    let mut call = world.clients[0].call(peer, 0).expect("a call");
    call.payload().put_fixed(&[1; 4_096]);
    assert_eq!(call.submit(), Err(CallRefused::PayloadTooLong));
    world.round(0, peer, &Script::new(2, &[Part::Inline(3_900)], &[]));
}

/// A slot of an unsignaled send is returned although nothing else is sent: a payload that needs all
/// slots waits for it for a limited time.
pub fn payload_of_all_slots_is_sent_by_an_idle_shard<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &few_slots());
    for seed in 1..20 {
        world.round(0, peer, &Script::new(seed, &[Part::Inline(500)], &[Part::Inline(500)]));
        world.round(0, peer, &Script::new(seed, &[Part::Inline(3_900)], &[Part::Inline(500)]));
    }
}

/// Slots that short messages of one turn were sent from are free for a payload that needs all.
pub fn payload_of_all_slots_follows_short_messages<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &few_slots());
    for seed in 1..20 {
        let short = Script::new(seed, &[Part::Inline(12)], &[Part::Inline(12)]);
        let made = (0..4).filter(|_| world.call(0, peer, &short).is_ok()).count();
        assert!(made > 2, "{made} calls leave together");
        assert_eq!(world.check_all(), made);
        world.quiesce();
        let long = Script::new(seed, &[Part::Inline(3_900)], &[Part::Inline(3_900)]);
        world.round(0, peer, &long);
        check_owned(&world.clients[0].shard().audit());
        check_owned(&world.servers[0].audit());
    }
}

fn few_slots() -> Plan {
    Plan::both(|raw| {
        raw.send.slots = 4;
        raw.send.length = "1KiB".into();
        raw.send.signal_every = 2;
        raw.connections.call_transmissions_max = 4;
        raw.connections.response_transmissions_max = 4;
    })
}

/// More items, or more pieces, than one message carries.
pub fn too_many_pieces_are_refused<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let slice = world.source(0).slice(1, 0, 40);
    let mut call = world.clients[0].call(peer, 0).expect("a call");
    (0..9).for_each(|_| call.payload().place(slice.clone()));
    assert_eq!(call.submit(), Err(CallRefused::TooManyPieces));
    let mut call = world.clients[0].call(peer, 0).expect("a call");
    call.payload().place_pieces((0..25).map(|_| slice.clone().into()));
    assert_eq!(call.submit(), Err(CallRefused::TooManyPieces));
    // An error is kept, whatever follows.
    let mut call = world.clients[0].call(peer, 0).expect("a call");
    call.payload().place_pieces((0..25).map(|_| slice.clone().into()));
    call.payload().put_u32(1);
    call.payload().place(slice);
    assert_eq!(call.submit(), Err(CallRefused::TooManyPieces));
    world.round(0, peer, &Script::new(2, &[Part::Bulk(4_000)], &[]));
    assert_eq!(world.clients[0].handle().stats().calls_sent, 1);
}

/// What the peer has to fetch as a whole is copied, from loans and from registered slices; what is
/// fetched apart is not.
pub fn slices_in_a_call_that_is_fetched_whole_are_copied<P: Provider>(open: Open<'_, P>) {
    let parts = [Part::Inline(0), Part::Bulk(50_001), Part::Bulk(8_000)];
    for version in explicit::VERSIONS {
        let (mut world, peer) = World::pair(open, &explicit::plan(version));
        let script = Script::new(1, &parts, &[Part::Inline(8)]);
        assert_eq!(world.round(0, peer, &script).0, 0, "nothing of it is apart");
        // One of them is fetched apart.
        let one = Script::new(2, &[parts[1], Part::Bulk(700)], &[Part::Inline(8)]);
        assert_eq!(world.round(0, peer, &one).0, 1, "the other is short enough for the message");
        world.lends = true;
        assert_eq!(world.round(0, peer, &script).0, 0, "nothing of it is apart");
        let mut plan = explicit::plan(version);
        plan.call.interop.read_chunks_max = 2;
        let (mut world, peer) = World::pair(open, &plan);
        assert_eq!(world.round(0, peer, &script).0, 2, "both are fetched");
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// One item in as many pieces as are possible, of lengths that divide nothing.
pub fn one_item_in_many_pieces_travels<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let script = Script::new(5, &[Part::Bulk(9_240)], &[Part::Inline(4)]);
    let start = part_offset(script.seed, 0);
    // Twelve pieces, one behind the other in the pattern.
    let lens = [1, 3, 5, 7, 11, 13, 100, 1_000, 2_000, 3_000, 3_099, 1];
    let mut offset = start;
    let mut pieces = Vec::new();
    for len in lens {
        pieces.push(world.source(0).slice_at(offset, len));
        offset += len as usize;
    }
    let mut call = world.clients[0].call(peer, 3).expect("a call");
    call.payload().put_fixed(&script.head());
    call.payload().place_pieces(pieces.into_iter().map(Into::into));
    call.submit().expect("twelve pieces, the header and the payload are within the limits");
    world.completion(0, |done| {
        assert_eq!(done.cookie(), 3);
        done.result().expect("the service found every byte");
    });
}
