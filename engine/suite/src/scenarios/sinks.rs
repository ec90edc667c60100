//! Sinks: result buffers are returned, whatever the outcome of the call.

use rpcrdma::{CallError, Execution, Provider, Want};
use rpcrdma_proto::Refusal;

use super::explicit::{VERSIONS, plan};
use crate::script::{Order, Part, Place, Script};
use crate::world::{Open, Plan, World};

/// The sinks of a failed call are returned once, with the error.
pub fn sinks_of_failed_calls_are_returned<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &plan(version));
        for pieces in [1, 2] {
            for len in [10, 5_000, 60_000] {
                let script = Script::new(len, &[Part::Bulk(len)], &[Part::Bulk(len)]);
                let script = script.order(Order::Refuse).place(Place::Into(pieces));
                world.call_when_possible(0, peer, &script);
                let done = world.finish().remove(0);
                assert_eq!(
                    done.result,
                    Err(CallError::Rejected(Refusal::BadHeader, Execution::Unknown))
                );
                assert_eq!(done.check_sinks(), 0, "nothing was written");
            }
            // A result that is longer than its sink: the server cannot answer.
            let short = [Want { len_min: 0, len_max: 5_000 }];
            let script = Script::new(1, &[], &[Part::Bulk(20_000)]).wants(&short);
            world.call_when_possible(0, peer, &script.place(Place::Into(pieces)));
            let done = world.finish().remove(0);
            assert_eq!(
                done.result,
                Err(CallError::Rejected(Refusal::BadHeader, Execution::Unknown))
            );
            done.check_sinks();
        }
        let caller = world.servers[0].handler().connected[0];
        let script = Script::new(1, &[Part::Bulk(9_000)], &[Part::Bulk(9_000)]).order(Order::Never);
        world.call_when_possible(0, peer, &script.place(Place::Into(2)));
        world.until("it is there", |world| world.servers[0].handler().never.len() == 1);
        assert!(world.servers[0].handle().close(caller));
        let done = world.finish().remove(0);
        assert!(matches!(done.result, Err(CallError::ConnectionLost(..))));
        assert_eq!(done.check_sinks(), 0, "nothing was written");
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// If a result does not arrive in its sink, the sink is returned unchanged: a program can reuse its
/// memory in any case.
pub fn unused_sinks_are_returned<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let mut without = Plan::default();
        without.serve.explicit.enabled = false;
        for plan in [Plan::default(), without, plan(version)] {
            let (mut world, peer) = World::pair(open, &plan);
            for place in [Place::Into(1), Place::Either(2), Place::BySize(3_000)] {
                for len in [0, 20, 900, 20_000] {
                    let want = [Want { len_min: 2, len_max: len }; 2];
                    let parts = [Part::Bulk(len), Part::Inline(9), Part::Bulk(len)];
                    let script = Script::new(len, &[], &parts).wants(&want).place(place);
                    world.round(0, peer, &script);
                    world.call_when_possible(0, peer, &script.order(Order::Refuse));
                    world.finish()[0].check_sinks();
                }
            }
            world.check_all_returned();
            world.check_nothing_leaked();
        }
    }
}

/// Whichever side ends a connection, and whenever: each call completes once, with its sinks, and
/// all memory returns.
pub fn a_connection_lost_at_any_step_returns_every_sink<P: Provider>(open: Open<'_, P>) {
    for (version, by_client) in [("two", true), ("two", false), ("one", true), ("one", false)] {
        for steps in 0..20 {
            let (mut world, peer) = World::pair(open, &plan(version));
            world.lends = true;
            world.round(0, peer, &Script::new(0, &[], &[]));
            let (bulk, long) = ([Part::Inline(4), Part::Bulk(40_000)], [Part::Inline(9_000)]);
            let calls = [
                Script::new(1, &bulk, &[]),
                Script::new(2, &[], &bulk).place(Place::Into(3)),
                Script::new(3, &long, &long),
                Script::new(4, &bulk, &bulk).place(Place::Into(1)).order(Order::Later),
                Script::new(5, &bulk, &bulk).place(Place::Into(1)).order(Order::Never),
            ];
            let mut made = 0;
            for script in &calls {
                made += usize::from(world.call(0, peer, script).is_ok());
            }
            assert!(made > 0 || version == "one");
            (0..steps).for_each(|_| world.turn());
            let caller = world.servers[0].handler().connected[0];
            match by_client {
                true => assert!(world.clients[0].handle().close(peer)),
                false => assert!(world.servers[0].handle().close(caller)),
            }
            let done = world.finish();
            assert_eq!(done.len(), made, "each call is over once");
            for done in &done {
                done.check_sinks();
                if done.result.is_ok() {
                    done.check();
                }
            }
            world.until("both have forgotten it", |world| {
                world.servers[0].handle().connections() + world.clients[0].handle().connections()
                    == 0
            });
            world.check_all_returned();
            world.check_nothing_leaked();
        }
    }
}
