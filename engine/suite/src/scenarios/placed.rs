//! Bulk data: placed in the peer's segments, or inline where that is not requested or not possible.

use rpcrdma::{CallError, CallRefused, Execution, Provider, Want};
use rpcrdma_proto::{Refusal, SendError};

use super::explicit;
use crate::script::{Part, Script};
use crate::world::{Open, Plan, World, is_passing, large};

/// Bytes of a placement segment in the configurations of the suite.
const SEGMENT: u32 = 16 << 10;

/// Lengths around every boundary of segments and transmissions, with every residue of four.
fn edges(up_to: u32) -> impl Iterator<Item = u32> {
    let boundaries = (1..=up_to / SEGMENT).filter(|count| *count < 10 || count % 4 == 0);
    (1..=20).chain(boundaries.flat_map(|count| count * SEGMENT - 5..=count * SEGMENT + 5))
}

fn long_plan() -> Plan {
    let mut plan = Plan { serve: large(1 << 20), call: large(1 << 20), ..Plan::default() };
    for raw in [&mut plan.serve, &mut plan.call] {
        raw.connections.call_transmissions_max = 18;
        raw.connections.reply_transmissions_max = 18;
        raw.connections.request_transmissions_max = 18;
        raw.connections.response_transmissions_max = 18;
        raw.app.bulk.count = 4;
    }
    plan
}

/// A WRITE of every length is placed.
pub fn a_write_of_every_length_is_placed<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &long_plan());
    for len in edges(1 << 20) {
        let script = Script::new(len, &[Part::Inline(24), Part::Bulk(len)], &[Part::Inline(8)]);
        assert_eq!(world.round(0, peer, &script), (1, 0), "{len} bytes");
    }
    assert!(world.servers[0].handle().stats().groups_completed > 0, "long items are continued");
    world.check_nothing_leaked();
}

/// A READ of every length is placed.
pub fn a_read_of_every_length_is_placed<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &long_plan());
    for len in edges(1 << 20) {
        let script = Script::new(len, &[Part::Inline(8)], &[Part::Bulk(len), Part::Inline(5)]);
        assert_eq!(world.round(0, peer, &script), (0, 1), "{len} bytes");
    }
    assert!(world.clients[0].handle().stats().groups_completed > 0, "long items are continued");
    world.check_nothing_leaked();
}

/// An item of no bytes is never placed.
pub fn an_item_without_bytes_stays_in_line<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let parts = [Part::Bulk(0), Part::Inline(3), Part::Bulk(0)];
    assert_eq!(world.round(0, peer, &Script::new(1, &parts, &parts)), (0, 0));
    let mixed = [Part::Bulk(0), Part::Bulk(7), Part::Bulk(0)];
    assert_eq!(world.round(0, peer, &Script::new(2, &mixed, &mixed)), (1, 1));
}

/// Several items, both ways, with payload between them.
pub fn several_items_are_placed_in_order<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let (gathers_all, most) = if world.gathers_all() { (true, 8) } else { (false, 4) };
    for count in 1..=most {
        let mut parts = vec![Part::Inline(3)];
        for index in 0..count {
            parts.push(Part::Bulk(1 + index * 2_500));
            parts.push(Part::Inline(index * 37));
        }
        let script = Script::new(count, &parts, &parts);
        let (called, replied) = world.round(0, peer, &script);
        let is_whole = (called, replied) == (count, count as usize);
        assert!(is_whole || !gathers_all && count > 1, "{called} and {replied} of {count}");
    }
    world.check_nothing_leaked();
}

/// Padding that is longer than the zeros it is gathered from takes several pieces: a call travels, or
/// it is refused before anything of it has left. The items of a reply are then copied, and come in
/// line.
pub fn padding_of_many_pieces_does_no_harm<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::both(|raw| raw.send.zero = "4KiB".into()));
    for count in 1..=8 {
        let parts: Vec<Part> = (1..=count).map(Part::Bulk).collect();
        let items = match world.call(0, peer, &Script::new(count, &parts, &[])) {
            Ok(_) => world.finish()[0].check().0,
            Err(why) => {
                assert_eq!(why, CallRefused::TooManyPieces);
                count
            }
        };
        assert_eq!(items, count);
        world.call_when_possible(0, peer, &Script::new(count, &[], &parts));
        let done = world.finish();
        let (_, items) = done[0].check();
        assert!([0, count as usize].contains(&items), "{items} of {count}");
        world.round(0, peer, &Script::new(count, &parts[..1], &parts[..1]));
    }
    world.check_nothing_leaked();
}

/// Messages of any mixture arrive as they were sent.
pub fn any_mixture_arrives<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let mut random = crate::script::Random(0x5eed);
    let mut placed = (0, 0);
    let len_max = if world.gathers_all() { 64 << 10 } else { 16 << 10 };
    for _ in 0..400 {
        let (call, reply) = world.round(0, peer, &random.script(len_max));
        placed = (placed.0 + call, placed.1 + reply);
    }
    assert!(placed.0 > 100 && placed.1 > 100, "{placed:?} items were placed");
    world.check_nothing_leaked();
}

/// A bulk part of a reply that was not requested is sent inline, continued if it is long.
pub fn a_read_that_is_not_wanted_placed_comes_in_line<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    for len in [1, 3, 900, 4_000, 4_096, 16_384, 60_001] {
        let script = Script::new(len, &[], &[Part::Bulk(len), Part::Inline(9)]).wants(&[]);
        assert_eq!(world.round(0, peer, &script), (0, 0), "{len} bytes");
    }
}

/// An item below the requested minimum length is sent inline (TOOSHORT), others are placed.
pub fn an_item_shorter_than_wanted_comes_in_line<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let want = [Want { len_min: 4_096, len_max: 40_000 }];
    for (len, items) in [(1, 0), (4_095, 0), (4_096, 1), (40_000, 1)] {
        let script = Script::new(len, &[], &[Part::Bulk(len), Part::Inline(9)]).wants(&want);
        assert_eq!(world.round(0, peer, &script), (0, items), "{len} bytes");
    }
}

/// Requested results without an item (NOITEM), and those after a used one.
pub fn wants_without_items_are_harmless<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let want = |len_min| Want { len_min, len_max: 20_000 };
    let nothing = Script::new(1, &[], &[Part::Inline(50)]).wants(&[want(0), want(0)]);
    assert_eq!(world.round(0, peer, &nothing), (0, 0));
    let one = Script::new(2, &[], &[Part::Bulk(77)]).wants(&[want(0), want(0), want(0)]);
    assert_eq!(world.round(0, peer, &one), (0, 1));
    let parts = [Part::Bulk(10), Part::Bulk(9_000), Part::Bulk(8)];
    let second = Script::new(3, &[], &parts).wants(&[want(100), want(100)]);
    assert_eq!(world.round(0, peer, &second), (0, 1), "only the second is long enough");
}

/// Without placement segments, or with placement switched off on either side, bulk data are sent
/// inline in both directions, if they cannot be moved by explicit RDMA either.
pub fn bulk_comes_in_line_where_it_cannot_be_placed<P: Provider>(open: Open<'_, P>) {
    let none = Plan::both(|raw| {
        raw.receive.placement.count = 0;
        raw.explicit.enabled = false;
    });
    let mut serve = Plan::both(|raw| raw.explicit.enabled = false);
    let mut call = serve.clone();
    serve.serve.features.placement = false;
    call.call.features.placement = false;
    for plan in [none, serve, call] {
        let (mut world, peer) = World::pair(open, &plan);
        for len in [1, 1_000, 4_097, 30_003] {
            let script = Script::new(len, &[Part::Bulk(len)], &[Part::Bulk(len)]);
            assert_eq!(world.round(0, peer, &script), (0, 0));
        }
        let stats = [world.clients[0].handle().stats(), world.servers[0].handle().stats()];
        assert!(stats.iter().any(|stats| stats.groups_completed > 0), "continued all the same");
    }
}

/// As many items as a message has are in line where they are short, with padding and without,
/// although no work request gathers so many pieces: in both versions, both ways, and behind a
/// result that is written.
pub fn many_short_items_come_in_line<P: Provider>(open: Open<'_, P>) {
    for (version, explicit) in [("one", true), ("one", false), ("two", true), ("two", false)] {
        let mut plan = explicit::plan(version);
        for raw in [&mut plan.serve, &mut plan.call] {
            raw.explicit.enabled = explicit;
        }
        let (mut world, peer) = World::pair(open, &plan);
        for (seed, (count, len)) in (0..).zip([(5, 101), (8, 4), (8, 96), (8, 101), (7, 0)]) {
            let parts: Vec<Part> = vec![Part::Bulk(len); count];
            let script = Script::new(seed, &parts, &parts).wants(&[]);
            assert_eq!(world.round(0, peer, &script), (0, 0), "{count} of {len} bytes");
        }
        if explicit {
            let parts: Vec<Part> = [5_000].into_iter().chain([99; 7]).map(Part::Bulk).collect();
            let want = [Want { len_min: 0, len_max: 5_000 }];
            let script = Script::new(9, &[], &parts).wants(&want);
            assert_eq!(world.round(0, peer, &script).1, 1, "the others are in line");
        }
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// Where nothing can be placed, what does not fit one transmission is read by the peer; the rest is
/// not worth that.
pub fn bulk_is_read_where_it_cannot_be_placed<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::both(|raw| raw.receive.placement.count = 0));
    for (len, items) in [(1, 0), (1_000, 0), (4_097, 1), (30_003, 1)] {
        let script = Script::new(len, &[Part::Bulk(len)], &[]);
        assert_eq!(world.round(0, peer, &script).0, items, "{len} bytes");
    }
    world.check_nothing_leaked();
}

/// Without explicit RDMA, what no number of transmissions carries is refused with what it would
/// take; the connection continues.
pub fn calls_that_need_explicit_rdma_are_refused<P: Provider>(open: Open<'_, P>) {
    let plan = Plan::both(|raw| {
        raw.connections.request_transmissions_max = 2;
        raw.connections.response_transmissions_max = 2;
        raw.app.bulk.length = "256KiB".into();
        raw.explicit.enabled = false;
    });
    let (mut world, peer) = World::pair(open, &plan);
    let fits = 2 * 4 * SEGMENT;
    // Not even in line: with the leading segments there are 8 KiB more, less the headers.
    let too_long = fits + 8192;
    assert_eq!(world.round(0, peer, &Script::new(1, &[Part::Bulk(fits)], &[])), (1, 0));
    let refused = world.call(0, peer, &Script::new(2, &[Part::Bulk(too_long)], &[]));
    let Err(CallRefused::Protocol(SendError::NeedsExplicitRdma { limit, bulk, .. })) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((limit, bulk), (2, too_long));
    // The server finds that its reply is too long, and the caller gets an error.
    let cookie = world.call(0, peer, &Script::new(3, &[], &[Part::Bulk(too_long)]));
    if let Err(why) = cookie {
        assert!(!is_passing(why), "{why}");
    } else {
        let done = world.finish();
        assert_eq!(
            done[0].result,
            Err(CallError::Rejected(Refusal::BadHeader, Execution::Unknown))
        );
    }
    assert_eq!(world.round(0, peer, &Script::new(4, &[], &[Part::Bulk(fits)])), (0, 1));
    world.check_nothing_leaked();
}

/// A reply longer than its caller said it could be is not sent; the caller gets an error.
pub fn a_reply_longer_than_announced_fails_its_call<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &long_plan());
    let short = [Want { len_min: 0, len_max: SEGMENT }];
    let script = Script::new(1, &[], &[Part::Bulk(5 * SEGMENT)]).wants(&short);
    world.call_when_possible(0, peer, &script);
    let done = world.finish();
    assert_eq!(done[0].result, Err(CallError::Rejected(Refusal::BadHeader, Execution::Unknown)));
    assert_eq!(world.round(0, peer, &Script::new(2, &[], &[Part::Bulk(9)])), (0, 1));
}
