//! Explicit RDMA with scarce resources: calls wait or are rejected, and none waits for ever.

use rpcrdma::{CallError, CallRefused, Provider, Want};

use super::explicit::{RDMA_BUFFER, only_base, plan};
use crate::script::{Order, Part, Place, Script};
use crate::world::{Open, Plan, World, is_passing};

/// A call without a free window fails with a transient error, releases its resources, and succeeds
/// later.
pub fn calls_wait_for_windows<P: Provider>(open: Open<'_, P>) {
    let mut plan = plan("two");
    plan.call.explicit.windows = "5".into();
    let (mut world, peer) = World::pair(open, &plan);
    let script = |seed| {
        let parts = [Part::Bulk(9_000)];
        Script::new(seed, &parts, &parts).place(Place::Into(1)).order(Order::Later)
    };
    world.round(0, peer, &Script::new(0, &[], &[]));
    let mut refused = 0;
    let mut checked = 0;
    for seed in 0..60 {
        while let Err(why) = world.call(0, peer, &script(seed)) {
            assert!(is_passing(why), "{why}");
            refused += 1;
            world.step();
            checked += world.check_done();
        }
        let audit = world.clients[0].shard().audit();
        let is_few = audit.windows.held <= 4 && audit.exposures <= 2;
        assert!(is_few || world.caps.windows == 0, "two at a time");
    }
    checked += world.check_all();
    assert_eq!(checked, 60);
    assert!(refused > 0 || world.caps.windows == 0, "two calls use up the windows");
    world.check_all_returned();
    world.check_nothing_leaked();
}

/// Two clients that each need all RDMA buffers of a server get them one after the other; other
/// calls are not delayed.
pub fn calls_wait_for_rdma_buffers_without_a_deadlock<P: Provider>(open: Open<'_, P>) {
    let mut plan = Plan { clients: 3, ..plan("two") };
    plan.serve.connections.max = 3;
    // Half of them are for the calls of peers.
    plan.serve.explicit.buffers.count = 8;
    let mut world = World::new(open, &plan);
    let peers = [0, 1, 2].map(|client| world.connect(client));
    let all = [Part::Bulk(4 * RDMA_BUFFER)];
    let mut checked = 0;
    for seed in 0..40 {
        for (client, peer) in peers[..2].iter().enumerate() {
            let script = Script::new(seed, &all, &[]).order(Order::Later);
            world.call_when_possible(client, *peer, &script);
        }
        world.call_when_possible(2, peers[2], &Script::new(seed, &[Part::Inline(9)], &[]));
        checked += world.check_done();
    }
    checked += world.check_all();
    assert_eq!(checked, 120);
    // A call that needs more than the server has is rejected at once.
    let script = Script::new(1, &[Part::Bulk(4 * RDMA_BUFFER + 1)], &[]);
    world.call_when_possible(0, peers[0], &script);
    let done = world.finish().remove(0);
    assert!(matches!(done.result, Err(CallError::Rejected(..))), "{:?}", done.result);
    world.round(1, peers[1], &Script::new(1, &all, &[]));
    world.check_all_returned();
    world.check_nothing_leaked();
}

/// As many calls are fetched at a time as the configuration says; the others follow.
pub fn one_call_is_fetched_at_a_time<P: Provider>(open: Open<'_, P>) {
    let mut plan = plan("two");
    plan.serve.explicit.fetches = 1;
    let (mut world, peer) = World::pair(open, &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let mut checked = 0;
    for seed in 0..100 {
        let script = Script::new(seed, &[Part::Bulk(5_000 + seed)], &[Part::Bulk(seed)]);
        world.call_when_possible(0, peer, &script);
        checked += world.check_done();
    }
    checked += world.check_all();
    assert_eq!(checked, 100);
    world.check_all_returned();
}

/// A call that needs more than the shard has fails with a permanent error: repeating it would never
/// help.
pub fn calls_that_never_fit_are_refused_permanently<P: Provider>(open: Open<'_, P>) {
    // Too few windows for the pieces of one sink.
    let mut few_windows = plan("two");
    few_windows.call.explicit.windows = "2".into();
    let (mut world, peer) = World::pair(open, &few_windows);
    let script = Script::new(1, &[], &[Part::Bulk(9_000)]);
    if world.caps.windows > 0 {
        let refused = world.call(0, peer, &script.clone().place(Place::Into(3)));
        assert!(refused.is_err_and(|why| !is_passing(why)), "{refused:?}");
    }
    world.round(0, peer, &script.place(Place::Into(2)));
    world.check_all_returned();
    // Too few RDMA buffers.
    let mut few_buffers = plan("two");
    few_buffers.call.explicit.buffers.count = 4;
    let (mut world, peer) = World::pair(open, &few_buffers);
    let fits = Script::new(1, &[], &[Part::Bulk(2 * RDMA_BUFFER)]);
    world.round(0, peer, &fits);
    let refused = world.call(0, peer, &Script::new(1, &[], &[Part::Bulk(2 * RDMA_BUFFER + 1)]));
    assert!(refused.is_err_and(|why| !is_passing(why)), "{refused:?}");
    let refused = world.call(0, peer, &Script::new(1, &[Part::Inline(3 * RDMA_BUFFER)], &[]));
    assert!(refused.is_err_and(|why| !is_passing(why)), "{refused:?}");
    let refused = world.call(0, peer, &Script::new(1, &[], &[Part::Inline(3 * RDMA_BUFFER)]));
    assert!(refused.is_err_and(|why| !is_passing(why)), "{refused:?}");
    world.round(0, peer, &fits);
    world.check_all_returned();
    // More pieces of memory than one call exposes.
    let mut pieces = plan("two");
    for raw in [&mut pieces.serve, &mut pieces.call] {
        raw.app.bulk.count = 64;
        raw.app.bulk.length = "8KiB".into();
        raw.interop.write_chunks_max = 8;
    }
    let (mut world, peer) = World::pair(open, &pieces);
    for (pieces, wants) in [(16, 1), (16, 2), (1, 8), (11, 3), (8, 4), (15, 3)] {
        let want = [Want { len_min: 0, len_max: 4_000 }; 8];
        let script = Script::new(1, &[], &[Part::Bulk(3_000)]).wants(&want[..wants]);
        match world.call(0, peer, &script.place(Place::Into(pieces))) {
            Ok(_) => {
                let done = world.finish().remove(0);
                assert!(done.result.is_ok(), "{pieces} {wants}: {:?}", done.result);
                done.check_sinks();
            }
            Err(why) => assert_eq!(why, CallRefused::TooManyPieces, "{pieces} {wants}"),
        }
    }
    world.check_all_returned();
}

/// With a peer without explicit RDMA, calls that do not need it succeed; others fail with an error
/// that states the lengths.
pub fn a_peer_without_explicit_rdma_is_not_asked_for_it<P: Provider>(open: Open<'_, P>) {
    for (calls, serves) in [(false, true), (false, false)] {
        let mut plan = Plan::both(only_base);
        plan.call.explicit.enabled = calls;
        plan.serve.explicit.enabled = serves;
        let (mut world, peer) = World::pair(open, &plan);
        let parts = [Part::Bulk(1_500)];
        assert_eq!(world.round(0, peer, &Script::new(1, &parts, &parts)), (0, 0));
        let long = [Part::Bulk(9_000)];
        for script in [Script::new(1, &long, &[]), Script::new(1, &[], &long)] {
            let refused = world.call(0, peer, &script);
            assert!(matches!(refused, Err(CallRefused::Protocol(_))), "{refused:?}");
            assert!(refused.is_err_and(|why| !is_passing(why)), "{refused:?}");
        }
        world.round(0, peer, &Script::new(1, &parts, &parts));
        assert_eq!(world.clients[0].handle().stats().exposures, 0);
    }
    // The caller has it and cannot know: the answer states it.
    let mut plan = Plan::both(only_base);
    plan.serve.explicit.enabled = false;
    let (mut world, peer) = World::pair(open, &plan);
    for (call, reply) in [(9_000, 4), (4, 9_000)] {
        let script = Script::new(1, &[Part::Bulk(call)], &[Part::Bulk(reply)]);
        world.call_when_possible(0, peer, &script.place(Place::Into(1)));
        let done = world.finish().remove(0);
        assert!(matches!(done.result, Err(CallError::Rejected(..))), "{:?}", done.result);
        done.check_sinks();
        world.round(0, peer, &Script::new(1, &[Part::Inline(20)], &[Part::Inline(20)]));
    }
    world.check_all_returned();
}

/// Long calls and long replies of a shard that has buffers for one of them at a time.
pub fn calls_that_need_most_of_the_buffers_take_turns<P: Provider>(open: Open<'_, P>) {
    let mut plan = plan("two");
    for raw in [&mut plan.call, &mut plan.serve] {
        raw.explicit.buffers.count = 6;
    }
    let (mut world, peer) = World::pair(open, &plan);
    let mut checked = 0;
    for seed in 0..60 {
        let parts = [Part::Inline(2 * RDMA_BUFFER)];
        let script = Script::new(seed, &parts[..(seed % 2) as usize], &parts).order(Order::Later);
        match world.call(0, peer, &script) {
            Ok(_) => {}
            Err(why) if is_passing(why) => {
                world.step();
                world.call_when_possible(0, peer, &Script::new(seed, &parts, &[]));
            }
            Err(_) => {
                world.call_when_possible(0, peer, &Script::new(seed, &parts, &[]));
            }
        }
        checked += world.check_done();
    }
    checked += world.check_all();
    assert_eq!(checked, 60);
    world.check_all_returned();
}

/// Memory may be exposed by other means than windows.
pub fn other_modes_of_exposure_work<P: Provider>(open: Open<'_, P>) {
    for way in ["windows", "registration"] {
        if way == "windows" && open.open().caps().windows == 0 {
            continue;
        }
        let mut plan = plan("two");
        plan.call.explicit.exposure = way.into();
        let (mut world, peer) = World::pair(open, &plan);
        for len in [1, 5_000, RDMA_BUFFER, 3 * RDMA_BUFFER + 5] {
            world.rounds_that_expose(0, peer, len);
        }
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}
