//! Explicit RDMA: arguments that the server reads, results that it writes, messages that are
//! fetched or written as a whole.

use rpcrdma::{Provider, Want};
use rpcrdma_config::Raw;

use crate::script::{Order, Part, Place, Random, Script};
use crate::world::{Open, Plan, World, large};

/// Bytes of a RDMA buffer in these scenarios.
pub const RDMA_BUFFER: u32 = 16 << 10;
/// Bytes of a message that needs no more than one Send.
const INLINE: u32 = 4 << 10;

/// Both versions can do what these scenarios do.
pub const VERSIONS: [&str; 2] = ["two", "one"];

/// A plan in which nothing is placed by Send and nothing is continued.
pub fn plan(version: &str) -> Plan {
    let mut plan = Plan { serve: large(1 << 20), call: large(1 << 20), ..Plan::default() };
    for raw in [&mut plan.serve, &mut plan.call] {
        only_base(raw);
        raw.protocol.version = version.into();
        raw.app.bulk.count = 24;
    }
    plan
}

/// Switches off what would make explicit RDMA superfluous.
pub fn only_base(raw: &mut Raw) {
    raw.features.placement = false;
    raw.features.continuation = false;
    raw.receive.placement.count = 0;
    raw.explicit.buffers.count = 72;
    raw.explicit.buffers.length = format!("{RDMA_BUFFER}B").as_str().into();
}

/// With more chunks in a message than the narrowest implementations take.
fn generous(version: &str) -> Plan {
    let mut plan = plan(version);
    for raw in [&mut plan.serve, &mut plan.call] {
        raw.interop.read_chunks_max = 8;
        raw.interop.write_chunks_max = 8;
        raw.interop.long_call_with_chunks = true;
        raw.interop.write_with_reply = true;
    }
    plan
}

/// Lengths at every edge: of words, of a Send, of RDMA buffers.
fn edges() -> impl Iterator<Item = u32> {
    let near = |edge: u32, by: u32| edge - by..=edge + by;
    let buffers = [1, 2, 3, 7, 15].into_iter().flat_map(move |count| near(count * RDMA_BUFFER, 2));
    (0..=9).chain(near(INLINE - 64, 76)).chain(near(INLINE, 9)).chain(buffers)
}

/// A WRITE of every length arrives: in line as long as it fits, else fetched.
pub fn a_write_of_every_length_is_fetched<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &plan(version));
        for len in edges() {
            let script = Script::new(len, &[Part::Inline(24), Part::Bulk(len)], &[Part::Inline(8)]);
            let (placed, _) = world.round(0, peer, &script);
            assert!(placed == 1 || len < INLINE, "{len} bytes");
        }
        let stats = world.servers[0].handle().stats();
        assert!(stats.rdma_reads > 0 && stats.groups_completed == 0);
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// A READ of every length is written to its sink, in however many pieces that is.
pub fn a_read_of_every_length_is_written_to_its_sink<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &plan(version));
        for (len, pieces) in edges().zip([1, 2, 3, 7].into_iter().cycle()) {
            let script = Script::new(len, &[Part::Inline(8)], &[Part::Bulk(len), Part::Inline(5)]);
            let cookie = world.call_when_possible(0, peer, &script.place(Place::Into(pieces)));
            let done = world.finish();
            assert_eq!((done.len(), done[0].cookie), (1, cookie));
            let items = usize::from(len > 0);
            assert_eq!(
                (done[0].check(), done[0].check_sinks()),
                ((0, items), items),
                "{len} bytes"
            );
        }
        assert!(world.servers[0].handle().stats().rdma_writes > 0);
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// The result of a READ without a sink of the program arrives in buffers of the engine.
pub fn a_read_without_a_sink_arrives_in_a_buffer_of_the_engine<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &plan(version));
        for len in edges() {
            let script = Script::new(len, &[], &[Part::Inline(7), Part::Bulk(len)]);
            let (_, items) = world.round(0, peer, &script);
            assert!(items == 1 || len < INLINE, "{len} bytes");
        }
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// What may be written or sent is written if it must be; by size it is written when it is long.
pub fn a_read_is_placed_as_requested<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &plan(version));
        for len in
            [1, 2, 3, 999, 1_000, 1_001, 3_000, 5_000, RDMA_BUFFER - 1, RDMA_BUFFER + 1, 70_000]
        {
            let script = Script::new(len, &[], &[Part::Bulk(len), Part::Inline(2)]);
            world.call_when_possible(0, peer, &script.clone().place(Place::Either(1)));
            let done = world.finish().remove(0);
            done.check();
            assert_eq!(done.check_sinks(), usize::from(len > INLINE - 100), "either: {len} bytes");
            world.call_when_possible(0, peer, &script.place(Place::BySize(1_000)));
            let done = world.finish().remove(0);
            done.check();
            assert_eq!(done.check_sinks(), usize::from(len > 1_000), "by size: {len} bytes");
        }
        world.check_all_returned();
    }
}

/// A call whose payload does not fit a Send is fetched, with or without items in it.
pub fn a_long_call_is_fetched_as_a_whole<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        for plan in [plan(version), generous(version)] {
            let (mut world, peer) = World::pair(open, &plan);
            world.lends = true;
            for len in edges().filter(|len| *len <= 8 * RDMA_BUFFER).step_by(3) {
                world.round(0, peer, &Script::new(len, &[Part::Inline(len)], &[Part::Inline(3)]));
                let parts = [Part::Inline(len), Part::Bulk(len + 1), Part::Inline(2)];
                world.round(0, peer, &Script::new(len, &parts, &[Part::Inline(3)]));
            }
            world.check_all_returned();
            world.check_nothing_leaked();
        }
    }
}

/// A reply whose payload does not fit a Send comes in the Reply chunk, with or without items in it.
pub fn a_long_reply_arrives_in_its_chunk<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        for plan in [plan(version), generous(version)] {
            let (mut world, peer) = World::pair(open, &plan);
            for len in edges().filter(|len| *len <= 7 * RDMA_BUFFER).step_by(3) {
                world.round(0, peer, &Script::new(len, &[], &[Part::Inline(len)]));
                let parts = [Part::Inline(len), Part::Bulk(len / 2), Part::Inline(2)];
                for place in [Place::Anywhere, Place::Into(2), Place::Either(1), Place::BySize(99)]
                {
                    world.round(0, peer, &Script::new(len, &[], &parts).place(place));
                }
            }
            world.check_all_returned();
            world.check_nothing_leaked();
        }
    }
}

/// Results that would take more pieces of memory than one call exposes, one by one, come together.
pub fn results_of_too_many_pieces_arrive_in_the_reply_chunk<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let mut plan = generous(version);
        for raw in [&mut plan.serve, &mut plan.call] {
            raw.interop.segments_max = 64;
        }
        let (mut world, peer) = World::pair(open, &plan);
        // Three buffers for each of eight, and ten for the rest; or 26 for all.
        let items = [Part::Bulk(2 * RDMA_BUFFER + 1); 8];
        let parts = [&items[..], &[Part::Inline(10 * RDMA_BUFFER - 200)]].concat();
        let script = Script::new(1, &[], &parts);
        assert_eq!(world.round(0, peer, &script).1, 0, "nothing is apart");
        assert_eq!(world.clients[0].handle().stats().exposures, 26);
        world.check_all_returned();
    }
}

/// Both at once, also deferred.
pub fn a_long_call_gets_a_long_reply<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        for plan in [plan(version), generous(version)] {
            let (mut world, peer) = World::pair(open, &plan);
            world.lends = true;
            for len in [3_900, 4_096, 4_500, RDMA_BUFFER, 40_001] {
                let parts = [Part::Inline(len), Part::Bulk(3), Part::Bulk(len), Part::Inline(1)];
                for order in [Order::Answer, Order::Later] {
                    let script = Script::new(len, &parts, &parts).order(order);
                    world.round(0, peer, &script.place(Place::Into(1)));
                }
            }
            world.check_all_returned();
        }
    }
}

/// As many items as the peer takes are moved; the others stay in the stream.
pub fn several_items_are_sent_in_the_form_the_peer_supports<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        for (plan, most) in [(plan(version), 1), (generous(version), 8)] {
            let (mut world, peer) = World::pair(open, &plan);
            world.lends = true;
            for count in 1..=4 {
                let mut parts = vec![Part::Inline(3)];
                for index in 0..count {
                    parts.push(Part::Bulk(4_501 + index * 2_500));
                    parts.push(Part::Inline(index * 37));
                }
                let all = count as usize;
                let (placed, items) =
                    world.round(0, peer, &Script::new(count, &parts, &parts[..2]));
                assert_eq!(items, 1);
                // What does not fit in line beside one that is read is fetched with all the rest.
                let expected = if count == 1 || most > 1 { count } else { 0 };
                assert_eq!(placed, expected, "{count} arguments");
                let script = Script::new(count, &[], &parts).place(Place::Into(1));
                let (_, items) = world.round(0, peer, &script);
                let expected = if all == 1 || most > 1 { all } else { 0 };
                assert_eq!(items, expected, "{count} results");
            }
            world.check_all_returned();
            world.check_nothing_leaked();
        }
    }
}

/// An item of no bytes is never taken out of the stream, but it uses up what was offered for it.
pub fn items_without_bytes_use_up_their_sinks<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        for plan in [plan(version), generous(version)] {
            let (mut world, peer) = World::pair(open, &plan);
            let parts = [Part::Bulk(0), Part::Inline(3), Part::Bulk(0)];
            let wants = [Want { len_min: 0, len_max: 9_000 }; 3];
            for place in [Place::Anywhere, Place::Into(1), Place::Either(1), Place::BySize(5)] {
                let none = Script::new(1, &parts, &parts).wants(&wants[..2]).place(place);
                assert_eq!(world.round(0, peer, &none).1, 0);
                let mixed = [Part::Bulk(0), Part::Bulk(7_000), Part::Bulk(0)];
                let script = Script::new(2, &mixed, &mixed).wants(&wants).place(place);
                assert_eq!(world.round(0, peer, &script).0, 1);
            }
            world.check_all_returned();
        }
    }
}

/// A result that is shorter than its sink leaves the rest of it as it was; so does one that does
/// not come at all.
pub fn short_results_do_not_change_the_rest_of_their_sinks<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &plan(version));
        for len in [0, 1, 4, 4_097, RDMA_BUFFER, 3 * RDMA_BUFFER + 1] {
            for pieces in [1, 3, 8] {
                let want = [Want { len_min: 0, len_max: len + 60_000 }];
                let script = Script::new(len, &[], &[Part::Bulk(len), Part::Inline(9)]);
                world.round(0, peer, &script.wants(&want).place(Place::Into(pieces)));
                let nothing = Script::new(len, &[], &[Part::Inline(9)]);
                world.round(0, peer, &nothing.wants(&want).place(Place::Into(pieces)));
            }
            // Without a sink, too.
            let want = [Want { len_min: 0, len_max: len + 60_000 }];
            world.round(0, peer, &Script::new(len, &[], &[Part::Bulk(len)]).wants(&want));
        }
        world.check_all_returned();
    }
}

/// The same with three items each way at most: all of them with their padding can be gathered.
fn few_items(script: &Script) -> Script {
    let few = |parts: &[Part]| {
        let mut left = 3;
        let one = |part: &Part| match *part {
            Part::Bulk(len) if left == 0 => Part::Inline(len % 512),
            part => {
                left -= usize::from(matches!(part, Part::Bulk(_)));
                part
            }
        };
        parts.iter().map(one).collect::<Vec<_>>()
    };
    Script::new(script.seed, &few(&script.call), &few(&script.reply))
}

/// Messages of any mixture arrive as they were sent, several at a time.
pub fn any_mixture_arrives_by_explicit_rdma<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        for plan in [plan(version), generous(version)] {
            let (mut world, peer) = World::pair(open, &plan);
            world.lends = true;
            let mut random = Random(0x5eed);
            let places = [
                Place::Anywhere,
                Place::Into(1),
                Place::Into(2),
                Place::Either(1),
                Place::BySize(700),
            ];
            let mut checked = 0;
            for count in 1..=300 {
                let mut script = few_items(&random.script(48 << 10)).place(random.choose(&places));
                if random.below(3) == 0 {
                    script = script.order(Order::Later);
                }
                // The sinks of the script are in few buffers, and many calls want some.
                if script.wants.len() * script.place.pieces() as usize > 6 {
                    script = script.place(Place::Anywhere);
                }
                world.call_when_possible(0, peer, &script);
                checked += world.check_done();
                if count % 50 == 0 {
                    checked += world.check_all();
                    world.check_all_returned();
                }
            }
            assert_eq!(checked, 300);
            let stats = world.servers[0].handle().stats();
            assert!(
                stats.rdma_reads > 50 && stats.rdma_writes > 50,
                "{} and {}",
                stats.rdma_reads,
                stats.rdma_writes
            );
            world.check_nothing_leaked();
        }
    }
}

/// What was fetched can be taken, kept, and sent back, as what was received.
pub fn fetched_memory_is_taken_and_relayed<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &plan(version));
        for len in [5_000, RDMA_BUFFER, RDMA_BUFFER + 1, 5 * RDMA_BUFFER - 3] {
            for place in [Place::Anywhere, Place::Into(1)] {
                // The service answers with the argument, whose pattern is that of the call.
                let script = Script::new(len, &[Part::Inline(5), Part::Bulk(len)], &[]);
                let want = [Want { len_min: 0, len_max: len }];
                let script = script.order(Order::Relay).wants(&want).place(place);
                world.call_when_possible(0, peer, &script);
                let done = world.finish().remove(0);
                let reply = done.result.as_ref().expect("it was relayed");
                assert_eq!(reply.items.iter().map(|(_, len)| *len).collect::<Vec<_>>(), [len]);
                let sent = crate::script::part_bytes(len, 1, len);
                assert!(reply.stream[12..12 + len as usize] == sent[..], "{len} bytes");
                done.check_sinks();
            }
            world.round(0, peer, &Script::new(len, &[Part::Bulk(len)], &[]).order(Order::Keep));
            let kept = core::mem::take(&mut world.servers[0].handler().kept);
            assert_eq!(kept.len(), len.div_ceil(RDMA_BUFFER) as usize);
            assert!(world.servers[0].handler().not_taken.is_empty());
        }
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// Where it is agreed that the answer takes a right back the caller need not; where it is not, it
/// does.
pub fn rights_are_invalidated_by_the_agreed_side<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        for (calls, serves) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut plan = plan(version);
            plan.call.interop.remote_invalidation = calls;
            plan.serve.interop.remote_invalidation = serves;
            let (mut world, peer) = World::pair(open, &plan);
            world.round(0, peer, &Script::new(0, &[], &[]));
            // A registration is not taken back by an answer, and is no window that the caller
            // invalidates.
            let has_windows = world.caps.windows > 0;
            let by_answers = calls && serves && has_windows;
            let by_us = |exposed| if has_windows { exposed } else { 0 };
            for count in 1..=20 {
                world.round(0, peer, &Script::new(count, &[Part::Bulk(9_000)], &[]));
                let stats = world.clients[0].handle().stats();
                assert_eq!(stats.exposures, u64::from(count), "one piece each");
                let expected = if by_answers { 0 } else { by_us(u64::from(count)) };
                assert_eq!(stats.invalidations, expected, "{calls} {serves}");
            }
            // With more than one piece the answer takes none, or one.
            let script = Script::new(0, &[Part::Bulk(9_000)], &[Part::Bulk(9_000)]);
            let before = world.clients[0].handle().stats();
            world.round(0, peer, &script.place(Place::Into(3)));
            let after = world.clients[0].handle().stats();
            let exposed = after.exposures - before.exposures;
            let taken = after.invalidations - before.invalidations;
            assert_eq!(exposed, 4);
            assert!(taken == by_us(exposed) || taken + 1 == exposed && by_answers);
            world.check_all_returned();
        }
    }
}

/// Where placement by Send is to be had, but not for so much, the extension moves items by explicit
/// RDMA.
pub fn items_of_the_extension_are_moved_where_limits_are_small<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { serve: large(1 << 20), call: large(1 << 20), ..Plan::default() };
    for raw in [&mut plan.serve, &mut plan.call] {
        raw.connections.request_transmissions_max = 2;
        raw.connections.response_transmissions_max = 2;
        raw.app.bulk.count = 24;
    }
    let (mut world, peer) = World::pair(open, &plan);
    world.lends = true;
    for (len, place) in
        [(200_000, Place::Into(3)), (150_001, Place::Either(1)), (9, Place::Into(1))]
    {
        let parts = [Part::Inline(7), Part::Bulk(len), Part::Inline(3)];
        for script in [Script::new(len, &parts, &[]), Script::new(len, &[], &parts).place(place)] {
            let (placed, items) = world.round(0, peer, &script);
            assert!(placed as usize + items == 1 || len < 100, "{len} bytes");
        }
        world.round(0, peer, &Script::new(len, &parts, &parts).place(place).order(Order::Later));
    }
    let stats = world.servers[0].handle().stats();
    assert!(
        stats.rdma_reads > 0 && stats.rdma_writes > 0,
        "{} and {}",
        stats.rdma_reads,
        stats.rdma_writes
    );
    world.check_all_returned();
    world.check_nothing_leaked();
}
