//! What calls that were given up keep, until their late replies or the ends of their connections.

use rpcrdma::{CallBuilder, CallRefused, Provider};
use rpcrdma_proto::SendError;

use super::given_up::{TIME, answer_all, answer_one, book};
use crate::script::{Order, Part, Script};
use crate::world::{Open, Plan, World};

/// A call of several transmissions holds all its credits, and its xid, until its late reply has
/// come; then another call on the connection may have the xid.
pub fn a_late_reply_returns_all_credits_and_the_xid<P: Provider>(open: Open<'_, P>) {
    let plan = Plan::both(|raw| {
        raw.connections.request_transmissions_max = 4;
        raw.receive.placement.count = 1;
        raw.explicit.enabled = false;
    });
    let (mut world, peer) = World::pair(open, &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let free = book(&mut world);
    let call = Script::new(1, &[Part::Bulk(60_000)], &[Part::Bulk(30_000)]);
    let other = Script::new(2, &[Part::Inline(40)], &[Part::Inline(7)]);
    for is_late in [false, true] {
        let until = world.now + TIME;
        let with = |call: &mut CallBuilder<'_>| match is_late {
            true => Ok(call.deadline(until).handle()),
            false => Ok(call.handle()),
        };
        let sent = world.call_with(0, peer, &call.clone().order(Order::Elsewhere), with);
        let (_, handle) = sent.expect("there are credits");
        world.until("it is there", |world| world.servers[0].handler().elsewhere.len() == 1);
        let held = book(&mut world);
        assert_eq!((held.credits_held, held.replies_held), (4, 2));
        match is_late {
            true => world.now = world.now.max(until),
            false => assert!(world.clients[0].cancel(handle)),
        }
        assert!(world.finish()[0].result.is_err());
        let kept = book(&mut world);
        assert_eq!((kept.credits_held, kept.replies_held), (held.credits_held, held.replies_held));
        let xid = handle.xid();
        let with = |call: &mut CallBuilder<'_>| Ok(call.xid(xid)?.handle());
        let used = CallRefused::Protocol(SendError::XidInUse { xid });
        assert_eq!(world.call_with(0, peer, &other, with).err(), Some(used));
        answer_one(&mut world);
        let late = 1 + u64::from(is_late);
        world.until("the late reply is here", |world| {
            world.clients[0].handle().stats().replies_late == late
        });
        let back = book(&mut world);
        assert_eq!((back.calls, back.credits_held, back.credits_in_flight), (0, 0, 0));
        assert_eq!(back.replies_held, free.replies_held);
        let (cookie, again) = world.call_with(0, peer, &other, with).expect("the xid is free");
        assert_eq!(again.xid(), xid);
        assert!(!world.clients[0].cancel(handle), "that call is over");
        let done = world.finish();
        assert_eq!(done.iter().map(|done| (done.check(), done.cookie).1).sum::<u64>(), cookie);
    }
    world.check_nothing_leaked();
}

/// The end of the connection returns what given up calls hold, and completes none of them again.
pub fn the_end_of_a_connection_frees_given_up_calls<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    let call = Script::new(1, &[Part::Inline(30)], &[Part::Inline(4)]).order(Order::Elsewhere);
    let until = world.now + TIME;
    let late = |call: &mut CallBuilder<'_>| Ok(call.deadline(until).handle());
    for _ in 0..4 {
        world.call_with(0, peer, &call, late).expect("a credit");
    }
    let named = |call: &mut CallBuilder<'_>| Ok(call.handle());
    let handles = [(); 4].map(|()| world.call_with(0, peer, &call, named).expect("a credit").1);
    world.until("they are there", |world| world.servers[0].handler().elsewhere.len() == 8);
    assert!(handles.iter().all(|handle| world.clients[0].cancel(*handle)));
    world.now = world.now.max(until);
    assert_eq!(world.finish().len(), 8);
    assert_eq!((book(&mut world).calls, book(&mut world).abandoned), (8, 8));
    assert!(world.clients[0].handle().close(peer));
    world.until("it is closed", |world| {
        world.clients[0].handle().connections() + world.servers[0].handle().connections() == 0
    });
    assert!(world.done.is_empty(), "they are over");
    answer_all(&mut world);
    world.quiesce();
    let audit = world.clients[0].shard().audit();
    assert_eq!((audit.calls, audit.abandoned, audit.reply_reserved), (0, 0, 0));
    assert_eq!((audit.messages.held, audit.send.free), (0, audit.send.total));
    let stats = world.clients[0].handle().stats();
    assert_eq!((stats.call_deadlines, stats.calls_cancelled, stats.replies_late), (4, 4, 0));
    let again = world.connect(0);
    let with = |call: &mut CallBuilder<'_>| Ok(call.xid(handles[0].xid())?.handle());
    let other = Script::new(2, &[], &[]);
    world.call_with(0, again, &other, with).expect("its xid is free");
    world.finish()[0].check();
    world.check_nothing_leaked();
}
