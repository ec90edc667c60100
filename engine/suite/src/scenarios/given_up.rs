//! Calls that end before their reply, by a deadline or cancellation; and repeated calls.

use rpcrdma::shard::audit::PeerAudit;
use rpcrdma::{
    CallBuilder, CallError, CallHandle, CallRefused, CloseReason, ConnectionId, Execution,
    Finished, Loan, Provider, Sink, Ticket, Want,
};
use rpcrdma_proto::SendError;

use super::explicit::{self, VERSIONS};
use super::owned::check_owned;
use crate::script::{Order, POISON, Part, Place, Script, joined, part_bytes, reply_seed};
use crate::world::{Open, Plan, World};

/// Nanoseconds that a call may take here: less than any other deadline.
pub(super) const TIME: u64 = 20_000_000_000;
/// Bytes of a result that takes one piece of memory.
const RESULT: u32 = 9_000;
/// The call whose key has the low byte of the first.
const LAST: u32 = 257;

/// A call whose reply is late ends at its deadline. Memory that its peer may still use stays
/// reserved until the reply arrives and is dropped; then all of it is free.
pub fn a_deadline_ends_a_call_and_its_late_reply_is_dropped<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    let free = book(&mut world);
    let call = Script::new(1, &[Part::Inline(30)], &[Part::Inline(4)]).order(Order::Elsewhere);
    let until = world.now + TIME;
    let other = world.call(0, peer, &call).expect("a call without a deadline");
    let (late, handle) = world
        .call_with(0, peer, &call, |call| Ok(call.deadline(until).handle()))
        .expect("a call with one");
    world.until("they are there", |world| world.servers[0].handler().elsewhere.len() == 2);
    world.quiesce();
    assert_eq!(world.open_calls(), 2, "there is time");
    world.now = world.now.max(until);
    world.until("one is over", |world| world.open_calls() == 1);
    let done = world.done.pop().expect("the one with a deadline");
    assert_eq!(done.cookie, late);
    assert_eq!(done.result, Err(CallError::DeadlineExceeded(Execution::Unknown)));
    assert!(!world.clients[0].cancel(handle), "it is over");
    let held = book(&mut world);
    assert_eq!((held.calls, held.credits_held, held.replies_held), (2, 2, 2), "its peer has it");
    let stats = world.clients[0].handle().stats();
    assert_eq!((stats.call_deadlines, stats.calls_failed, stats.replies_late), (1, 1, 0));
    let counts = world.clients[0].shard().inspect().counts();
    assert_eq!((counts.calls_failed, counts.failed_deadline), (1, 1));
    answer_all(&mut world);
    world.until("the other is answered", |world| world.open_calls() == 0);
    assert_eq!(world.done.pop().map(|done| (done.check(), done.cookie).1), Some(other));
    world.until("the late reply is here", |world| {
        world.clients[0].handle().stats().replies_late == 1
    });
    let back = book(&mut world);
    assert_eq!((back.calls, back.credits_held, back.credits_in_flight), (0, 0, 0));
    assert_eq!((back.replies_held, back.id), (free.replies_held, free.id));
    // No deadline of an earlier call is that of a later one in its place.
    for seed in 2..20 {
        world.round(0, peer, &Script::new(seed, &[], &[]));
        world.now += TIME;
    }
    let stats = world.clients[0].handle().stats();
    assert_eq!((stats.call_deadlines, stats.calls_sent, stats.calls_completed), (1, 21, 21));
    assert_eq!(world.clients[0].handle().connections(), 1);
    world.check_nothing_leaked();
}

/// Cancelled calls keep their credits: the peer may still send all their replies.
pub fn cancelled_calls_keep_their_credits<P: Provider>(open: Open<'_, P>) {
    let plan = Plan::both(|raw| {
        raw.connections.credits = 4;
        raw.connections.request_transmissions_max = 4;
    });
    let (mut world, peer) = World::pair(open, &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let call = Script::new(1, &[], &[Part::Inline(4)]).order(Order::Elsewhere);
    let handles: Vec<CallHandle> = (0..4)
        .map(|_| world.call_with(0, peer, &call, |call| Ok(call.handle())).expect("a credit").1)
        .collect();
    world.until("they are there", |world| world.servers[0].handler().elsewhere.len() == 4);
    for handle in &handles {
        assert!(world.clients[0].cancel(*handle) && world.clients[0].cancel(*handle));
    }
    let done = world.finish();
    let cancelled = CallError::Cancelled(Execution::Unknown);
    assert!(done.iter().all(|done| done.result == Err(cancelled)) && done.len() == 4);
    assert!(handles.iter().all(|handle| !world.clients[0].cancel(*handle)), "they are over");
    let refused = CallRefused::Protocol(SendError::NotEnoughCredits { need: 1, have: 0 });
    assert_eq!(world.call(0, peer, &call), Err(refused));
    let used = CallRefused::Protocol(SendError::XidInUse { xid: handles[0].xid() });
    let again = world.clients[0].call(peer, 0).expect("a slot").xid(handles[0].xid()).err();
    assert_eq!(again, Some(used), "nor another call for their xids");
    for answered in 1..=4 {
        answer_one(&mut world);
        world.until("a late reply is here", |world| {
            world.clients[0].handle().stats().replies_late == answered
        });
        let now = world.now;
        assert_eq!(world.clients[0].turn(now).credits(peer), answered as u32);
    }
    world.round(0, peer, &Script::new(2, &[], &[]));
    assert_eq!(world.clients[0].handle().stats().calls_cancelled, 4);
    world.check_nothing_leaked();
}

/// A call that was not sent is withdrawn: its peer does not receive it, it was not executed, and
/// all its resources are free at once.
pub fn a_call_that_was_not_sent_is_withdrawn<P: Provider>(open: Open<'_, P>) {
    let plans = [Plan::default(), explicit::plan("two"), explicit::plan("one")];
    for plan in plans {
        let (mut world, peer) = World::pair(open, &plan);
        world.lends = true;
        world.round(0, peer, &Script::new(0, &[], &[]));
        let want = [Want { len_min: 0, len_max: 9_000 }];
        let shapes = [
            Script::new(1, &[], &[]),
            Script::new(2, &[Part::Inline(9_000)], &[]),
            Script::new(3, &[Part::Inline(5), Part::Bulk(9_000)], &[]),
            Script::new(4, &[], &[Part::Bulk(9_000)]).wants(&want).place(Place::Into(2)),
            Script::new(5, &[Part::Bulk(9_000)], &[Part::Inline(9_000)]),
        ];
        // Short ones, and items that leave together with them.
        let batch = [
            Script::new(1, &[], &[]),
            Script::new(2, &[Part::Inline(5), Part::Bulk(4_001)], &[]),
            Script::new(3, &[Part::Inline(50)], &[]),
            Script::new(4, &[Part::Bulk(9_000)], &[]),
            Script::new(5, &[Part::Inline(8)], &[]),
        ];
        for shapes in [&shapes, &batch] {
            let bulk = world.clients[0].shard().audit().bulk;
            for gone in 0..shapes.len() {
                take_back(&mut world, peer, shapes, gone);
            }
            let back = world.clients[0].shard().audit().bulk;
            assert_eq!(back.free + back.returning, bulk.free + bulk.returning);
        }
        assert_eq!(world.clients[0].handle().connections(), 1);
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// A connection that ends takes with it what was not sent: those calls were not executed. What was
/// sent may have been.
pub fn a_call_lost_before_it_was_sent_was_not_executed<P: Provider>(open: Open<'_, P>) {
    let plans = [Plan::default(), explicit::plan("two"), explicit::plan("one")];
    for plan in plans {
        let (mut world, peer) = World::pair(open, &plan);
        world.lends = true;
        world.round(0, peer, &Script::new(0, &[], &[]));
        let sent = Script::new(1, &[], &[]).order(Order::Never);
        let (sent, ()) = world.call_with(0, peer, &sent, |_| Ok(())).expect("a credit");
        world.until("it is there", |world| world.servers[0].handler().never.len() == 1);
        let calls = world.servers[0].handler().calls;
        let shapes = [
            Script::new(2, &[], &[]),
            Script::new(3, &[Part::Inline(9_000)], &[]),
            Script::new(4, &[Part::Inline(5), Part::Bulk(9_000)], &[]),
            Script::new(5, &[Part::Bulk(9_000)], &[Part::Inline(9_000)]),
        ];
        for script in &shapes {
            world.call(0, peer, script).expect("there is room for all");
        }
        assert!(world.clients[0].handle().close(peer), "the order is taken");
        let done = world.finish();
        assert_eq!(done.len(), 5);
        for done in done {
            let was_sent = done.cookie == sent;
            let execution = if was_sent { Execution::Unknown } else { Execution::NotExecuted };
            let lost = CallError::ConnectionLost(CloseReason::Local, execution);
            assert_eq!(done.result, Err(lost), "call {}", done.cookie);
        }
        world.quiesce();
        assert_eq!(world.servers[0].handler().calls, calls, "the server received none of them");
        world.servers[0].handler().never.clear();
        world.check_nothing_leaked();
    }
}

/// Makes all of these calls and takes one back before anything leaves.
fn take_back<P: Provider>(
    world: &mut World<P>,
    peer: ConnectionId,
    shapes: &[Script],
    gone: usize,
) {
    let calls = world.servers[0].handler().calls;
    let mut made = Vec::new();
    for script in shapes {
        let named = world.call_with(0, peer, script, |call| Ok(call.handle()));
        made.push(named.expect("there is room for all"));
    }
    let (cookie, handle) = made[gone];
    let before = book(world);
    check_owned(&world.clients[0].shard().audit());
    assert!(world.clients[0].cancel(handle));
    world.turn_client(0);
    check_owned(&world.clients[0].shard().audit());
    let [done] = world.done.as_slice() else { panic!("{} are over", world.done.len()) };
    assert_eq!(done.cookie, cookie);
    assert_eq!(done.result, Err(CallError::Cancelled(Execution::NotExecuted)));
    assert_eq!(done.check_sinks(), 0);
    world.done.clear();
    let after = book(world);
    assert_eq!((before.calls, after.calls), (5, 4));
    assert!(after.credits_held < before.credits_held, "{before:?} {after:?}");
    assert_eq!(after.credits_held, after.credits_in_flight);
    for done in world.finish() {
        done.check();
    }
    world.quiesce();
    assert_eq!(world.servers[0].handler().calls, calls + 4, "the server did not receive it");
}

/// What a call has exposed is the program's again when its peer cannot reach it any more. A peer
/// that answers then writes to a dead key, and loses its connection; the memory is as the program
/// left it.
pub fn memory_returns_when_no_peer_can_write_to_it<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &explicit::plan(version));
        world.round(0, peer, &Script::new(0, &[], &[]));
        let script = Script::new(3, &[], &[Part::Bulk(9_000)]).order(Order::Elsewhere);
        let (now, until) = (world.now, world.now + TIME);
        let mut piece = world.clients[0].turn(now).buffer().expect("a buffer");
        piece.truncate(9_000);
        piece.fill(POISON);
        let mut call = world.clients[0].call(peer, 77).expect("a slot");
        call.payload().put_fixed(&script.head());
        call.want_into(Want { len_min: 0, len_max: 9_000 }, Sink::from(piece));
        call.reply_payload_max(script.reply_payload_max()).deadline(until);
        let xid = call.handle().xid();
        call.submit().expect("there is room");
        world.until("it is there", |world| world.servers[0].handler().elsewhere.len() == 1);
        assert!(world.clients[0].shard().audit().exposures == 1);
        world.now = until;
        let mut sink = None;
        world.completion(0, |mut done| {
            let why = CallError::DeadlineExceeded(Execution::Unknown);
            assert_eq!((done.cookie(), done.xid()), (77, xid));
            assert_eq!(done.result().err(), Some(why));
            sink = done.take_sink(0);
        });
        let mut memory: Vec<_> = sink.expect("its memory").into_pieces().collect();
        memory[0].fill(0x11);
        assert_eq!(world.clients[0].shard().audit().exposures, 0);
        let held = book(&mut world);
        assert_eq!((held.calls, held.credits_held), (1, 1), "its reply may still come");
        let (ticket, finished) = world.servers[0].handler().elsewhere.pop().expect("a ticket");
        assert_eq!(finished.bulk.len(), 1);
        world.servers[0].handle().finish(ticket, finished).expect("there is room");
        world.until("the connection is lost", |world| {
            world.clients[0].handle().connections() + world.servers[0].handle().connections() == 0
        });
        assert!(memory[0].iter().all(|byte| *byte == 0x11), "it was not written");
        drop(memory);
        let again = world.connect(0);
        world.round(0, again, &Script::new(5, &[], &[]));
        world.check_all_returned();
        world.check_nothing_leaked();
    }
}

/// A call that is already ending keeps its first outcome.
pub fn a_call_that_is_ending_is_not_cancelled<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &explicit::plan("two"));
    world.round(0, peer, &Script::new(0, &[], &[]));
    let want = [Want { len_min: 0, len_max: RESULT }];
    let call = Script::new(1, &[], &[Part::Bulk(RESULT)]).wants(&want).place(Place::Into(1));
    let until = world.now + TIME;
    let with = |call: &mut CallBuilder<'_>| Ok(call.deadline(until).handle());
    let (_, handle) = world.call_with(0, peer, &call.order(Order::Never), with).expect("a call");
    world.until("it is there", |world| world.servers[0].handler().never.len() == 1);
    world.now = world.now.max(until);
    world.turn_client(0);
    // A registration ends within the turn.
    assert!(world.done.is_empty() || world.caps.windows == 0, "its memory is closed first");
    assert!(!world.clients[0].cancel(handle), "its time is over");
    let done = world.finish();
    assert_eq!(done[0].result, Err(CallError::DeadlineExceeded(Execution::Unknown)));
    let stats = world.clients[0].handle().stats();
    assert_eq!((stats.call_deadlines, stats.calls_cancelled), (1, 0));
    world.check_nothing_leaked();
}

/// A peer that answers a cancelled call writes with an old key. No other call has that key by then,
/// however many were made since, although the keys of a window come round.
pub fn a_late_result_reaches_no_other_call<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let windows = usize::from(open.open().caps().windows > 0);
        a_late_result_is_written_to_nothing(open, explicit::plan(version), windows);
    }
}

/// The same where every call registers its memory, of a device whose keys are reserved as well.
pub fn a_late_result_reaches_no_other_registration<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let mut plan = explicit::plan(version);
        plan.call.explicit.exposure = "registration".into();
        a_late_result_is_written_to_nothing(open, plan, 0);
    }
}

/// A late result, after enough calls that the low byte of its key has wrapped, while other windows
/// are reserved.
fn a_late_result_is_written_to_nothing<P: Provider>(
    open: Open<'_, P>,
    mut plan: Plan,
    reserved: usize,
) {
    // Or the answers of others would take the key away.
    plan.serve.interop.remote_invalidation = false;
    let (mut world, peer) = World::pair(open, &plan);
    world.round(0, peer, &Script::new(0, &[], &[]));
    let now = world.now;
    let mut piece = world.clients[0].turn(now).buffer().expect("a buffer");
    piece.truncate(RESULT as usize);
    let mut memory = vec![piece];
    let (first, handle) = ask_for(&mut world, peer, 1, &mut memory);
    assert!(world.clients[0].cancel(handle));
    world.completion(0, |mut done| {
        assert_eq!(done.result().err(), Some(CallError::Cancelled(Execution::Unknown)));
        memory.extend(done.take_sink(0).into_iter().flat_map(Sink::into_pieces));
    });
    let held = world.clients[0].shard().audit().windows.held;
    assert_eq!(held, reserved, "its peer has not answered");
    for seed in 2..=LAST {
        let (answer, _) = ask_for(&mut world, peer, seed, &mut memory);
        finish(&mut world, answer.0, answer.1);
        if seed < LAST {
            take_result(&mut world, seed, &mut memory);
        }
    }
    finish(&mut world, first.0, first.1);
    take_result(&mut world, LAST, &mut memory);
    drop(memory);
    world.until("the connection is lost", |world| {
        world.clients[0].handle().connections() + world.servers[0].handle().connections() == 0
    });
    assert_eq!(world.clients[0].shard().audit().windows.held, 0);
    world.check_all_returned();
    world.check_nothing_leaked();
}

/// Windows that are reserved because of a cancelled call are used again when its peer has answered
/// it.
pub fn windows_are_reused_after_the_late_answer<P: Provider>(open: Open<'_, P>) {
    for version in VERSIONS {
        let (mut world, peer) = World::pair(open, &explicit::plan(version));
        let now = world.now;
        let mut piece = world.clients[0].turn(now).buffer().expect("a buffer");
        piece.truncate(RESULT as usize);
        let mut memory = vec![piece];
        let ((ticket, _), handle) = ask_for(&mut world, peer, 1, &mut memory);
        assert!(world.clients[0].cancel(handle));
        world.completion(0, |done| assert!(done.result().is_err()));
        let windows = usize::from(world.caps.windows > 0);
        assert_eq!(world.clients[0].shard().audit().windows.held, windows);
        // Its caller gets an error: there will be no answer.
        drop(ticket);
        world.until("it is known", |world| world.clients[0].handle().stats().replies_late == 1);
        world.until("they are free", |world| world.clients[0].shard().audit().windows.held == 0);
        assert_eq!(world.clients[0].handle().connections(), 1);
        world.round(0, peer, &Script::new(2, &[], &[]));
        world.check_nothing_leaked();
    }
}

/// Makes a call whose result is written to this memory. Returns the server's ticket and answer when
/// the call has arrived.
fn ask_for<P: Provider>(
    world: &mut World<P>,
    peer: ConnectionId,
    seed: u32,
    memory: &mut Vec<Loan>,
) -> ((Ticket, Finished), CallHandle) {
    let script = Script::new(seed, &[], &[Part::Bulk(RESULT)]).order(Order::Elsewhere);
    let mut call = world.clients[0].call(peer, u64::from(seed)).expect("a slot");
    call.payload().put_fixed(&script.head());
    let sink = Sink::from(memory.pop().expect("a piece"));
    call.want_into(Want { len_min: 0, len_max: RESULT }, sink);
    call.reply_payload_max(script.reply_payload_max());
    let handle = call.handle();
    call.submit().expect("there is room");
    world.until("it is there", |world| !world.servers[0].handler().elsewhere.is_empty());
    (world.servers[0].handler().elsewhere.pop().expect("a ticket"), handle)
}

fn finish<P: Provider>(world: &mut World<P>, ticket: Ticket, finished: Finished) {
    world.servers[0].handle().finish(ticket, finished).expect("there is room for every ticket");
}

/// Takes the result of a call, which is that of no other.
fn take_result<P: Provider>(world: &mut World<P>, seed: u32, memory: &mut Vec<Loan>) {
    world.completion(0, |mut done| {
        assert_eq!(done.cookie(), u64::from(seed));
        let reply = match done.result() {
            Ok(reply) => reply,
            // What is late may be faster, and ends the connection.
            Err(CallError::ConnectionLost(..)) if seed == LAST => return,
            Err(why) => panic!("{seed}: {why}"),
        };
        let placed = reply.placed().next().expect("the result");
        let bytes = joined(placed.segments());
        assert!(bytes == part_bytes(reply_seed(seed), 0, RESULT), "the result of another call");
        memory.extend(done.take_sink(0).into_iter().flat_map(Sink::into_pieces));
    });
}

/// A call that is repeated on another connection has the XID of the first; and calls with XIDs
/// chosen by the program are found like all others.
pub fn a_call_is_repeated_with_its_xid<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let other = world.connect(0);
    world.round(0, peer, &Script::new(0, &[], &[]));
    world.round(0, other, &Script::new(0, &[], &[]));
    let first = Script::new(1, &[], &[]).order(Order::Never);
    let (cookie, handle) =
        world.call_with(0, peer, &first, |call| Ok(call.handle())).expect("a call");
    world.until("it is there", |world| world.servers[0].handler().never.len() == 1);
    assert!(world.clients[0].cancel(handle));
    assert_eq!(world.finish().iter().map(|done| done.cookie).collect::<Vec<_>>(), [cookie]);
    let again = Script::new(2, &[Part::Inline(6_000)], &[Part::Bulk(6_000)]);
    let mut xids = vec![handle.xid()];
    xids.extend([16, 17, 0x7fff_ffff, 0x1234_5678]);
    for xid in xids {
        let with = |call: &mut CallBuilder<'_>| Ok(call.xid(xid)?.handle());
        let mut before = None;
        for _twice in 0..2 {
            let (_, again) =
                world.call_with(0, other, &again, with).expect("its XID is free there");
            assert_eq!(again.xid(), xid);
            let is_cancelled = before.replace(again).is_some_and(|it| world.clients[0].cancel(it));
            assert!(!is_cancelled, "the call that had the XID before is over");
            let used = CallRefused::Protocol(SendError::XidInUse { xid });
            assert_eq!(world.call_with(0, other, &first, with).err(), Some(used));
            for done in world.finish() {
                done.check();
            }
        }
    }
    for xid in [0, 15, 1 << 31, u32::MAX] {
        let (min, max) = (16, 0x7fff_ffff);
        let why = CallRefused::Protocol(SendError::XidNotOurs { xid, min, max });
        let refused = world.clients[0].call(peer, 0).expect("a slot").xid(xid).err();
        assert_eq!(refused, Some(why));
    }
    world.round(0, peer, &Script::new(3, &[], &[]));
    assert_eq!(world.clients[0].handle().connections(), 2);
}

/// The client's state of its oldest connection.
pub(super) fn book<P: Provider>(world: &mut World<P>) -> PeerAudit {
    world.clients[0].shard().audit().peers[0]
}

pub(super) fn answer_all<P: Provider>(world: &mut World<P>) {
    while !world.servers[0].handler().elsewhere.is_empty() {
        answer_one(world);
    }
}

pub(super) fn answer_one<P: Provider>(world: &mut World<P>) {
    let (ticket, finished) = world.servers[0].handler().elsewhere.pop().expect("a ticket");
    world.servers[0].handle().finish(ticket, finished).expect("there is room for every ticket");
}
