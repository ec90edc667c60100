//! Tickets that are dropped: their calls are answered all the same.

use rpcrdma::{Fabric, Ticket};
use rpcrdma_suite::script::{Order, Part, Script, is_system_error};
use rpcrdma_suite::world::{Plan, World};

#[test]
fn a_dropped_ticket_answers_its_call_with_system_err() {
    for version in ["one", "two"] {
        let fabric = Fabric::new();
        let plan = Plan::both(|raw| raw.protocol.version = version.into());
        let (mut world, peer) = World::pair(&|| fabric.clone(), &plan);
        world.round(0, peer, &Script::new(0, &[], &[]));
        let call = Script::new(1, &[], &[Part::Inline(4)]).order(Order::Never);
        for _ in 0..3 {
            world.call(0, peer, &call).expect("a credit");
        }
        world.until("they are there", |world| world.servers[0].handler().never.len() == 3);
        // In another order, and one of them by another thread.
        let mut tickets: Vec<Ticket> = world.servers[0].handler().never.drain(..).rev().collect();
        let other = tickets.pop().expect("there are three");
        std::thread::spawn(move || drop(other)).join().expect("it only drops");
        drop(tickets);
        let done = world.finish();
        assert_eq!(done.len(), 3);
        for done in done {
            let reply = done.result.expect("a reply");
            assert!(is_system_error(&reply.stream), "{reply:?}");
        }
        let stats = world.servers[0].handle().stats();
        let refusals = (stats.refusals_sent, stats.refusals_dropped, stats.refusals_unsent);
        assert_eq!((refusals, stats.replies_sent), ((3, 3, 0), 1));
        world.round(0, peer, &Script::new(2, &[], &[]));
        world.check_nothing_leaked();
    }
}
