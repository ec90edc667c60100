//! What messages cost the device and this side: doorbells, signals, gather entries, and slots.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rpcrdma::provider::interposed::{Hooks, Interposed, Promised, QueueHooks};
use rpcrdma::provider::{PostError, Provider, QueueAttr, Queues, Requests, SendWr, Taken};
use rpcrdma::{CallError, CloseReason, Fabric, Snapshot};
use rpcrdma_suite::script::{Part, Script, part_offset};
use rpcrdma_suite::world::{Plan, World};

fn counted(world: &World<Fabric>) -> Snapshot {
    world.clients[0].handle().stats()
}

/// Enough slots that none is short, and one placement segment in each receive buffer.
fn plan() -> Plan {
    Plan::both(|raw| {
        raw.send.slots = 512;
        raw.send.signal_every = 8;
        raw.receive.placement.count = 1;
        raw.connections.call_transmissions_max = 8;
        raw.connections.request_transmissions_max = 8;
    })
}

#[test]
fn the_messages_of_a_turn_have_a_doorbell_for_each_run_to_one_peer() {
    let fabric = Fabric::new();
    let mut world = World::new(&|| fabric.clone(), &Plan::default());
    let peers = [0, 0].map(|client| world.connect(client));
    let short = Script::new(1, &[Part::Inline(8)], &[Part::Inline(8)]);
    for peer in peers {
        world.round(0, peer, &short);
    }
    let before = counted(&world);
    for at in [0, 0, 1, 0] {
        world.call(0, peers[at], &short).expect("a credit");
    }
    world.turn_client(0);
    let after = counted(&world);
    assert_eq!(after.doorbells - before.doorbells, 3, "their order is kept over all peers");
    let sent = [
        after.transmissions_sent - before.transmissions_sent,
        after.transmissions_sent_inline - before.transmissions_sent_inline,
    ];
    assert_eq!((sent, world.check_all()), ([4, 4], 4));
}

#[test]
fn only_sends_that_a_message_waits_for_are_signaled_out_of_turn() {
    // In one Send, and in four.
    for (len, sends) in [(4_000, 1), (60_000, 4)] {
        for lends in [false, true] {
            let fabric = Fabric::new();
            let (mut world, peer) = World::pair(&|| fabric.clone(), &plan());
            world.lends = lends;
            world.round(0, peer, &Script::new(0, &[], &[]));
            let before = counted(&world);
            for seed in 0..64 {
                let script = Script::new(seed, &[Part::Inline(5), Part::Bulk(len)], &[]);
                assert_eq!(world.round(0, peer, &script), (1, 0), "it is placed");
            }
            let after = counted(&world);
            let arrived = after.transmissions_received - before.transmissions_received;
            let signaled = after.completions - before.completions - arrived;
            assert_eq!(after.transmissions_sent - before.transmissions_sent, 64 * sends);
            // The program waits for its loans, not for registered bytes.
            let expected = if lends { 64 } else { 64 * sends / 8 };
            assert!(signaled.abs_diff(expected) <= 1, "{signaled} of {sends} for each: {lends}");
        }
    }
}

#[test]
fn an_item_in_several_segments_takes_no_slot_but_that_of_its_payload() {
    for (parts, headers) in [(&[60_000][..], 0), (&[50_000, 10_000], 1)] {
        let fabric = Fabric::new();
        let (mut world, peer) = World::pair(&|| fabric.clone(), &plan());
        world.round(0, peer, &Script::new(0, &[], &[]));
        let parts: Vec<Part> = parts.iter().map(|len| Part::Bulk(*len)).collect();
        world.call(0, peer, &Script::new(1, &parts, &[])).expect("there are credits");
        let audit = world.clients[0].shard().audit();
        assert_eq!((audit.messages.held, audit.peers[0].pending), (1, 1), "it is to leave");
        assert_eq!((audit.send.held, audit.headers.held), (1, headers), "{parts:?}");
        assert_eq!(world.check_all(), 1);
    }
}

/// A device that notes what it is given, and once takes only a part of it.
#[derive(Clone)]
struct Device(Arc<Seen>);

#[derive(Default)]
struct Seen {
    /// The longest gather list.
    longest: AtomicUsize,
    /// What the next post takes, and its error.
    next: Mutex<Option<(usize, PostError)>>,
}

impl Hooks<Fabric> for Device {
    type Queues = Noted;
    type Cm = ();

    fn queue_hooks(&self, _: &Fabric, _: &QueueAttr) -> Noted {
        Noted(Arc::clone(&self.0))
    }

    fn cm_hooks(&self, _: &Fabric) {}
}

/// The hooks of a set of queues.
struct Noted(Arc<Seen>);

impl<Q: Queues> QueueHooks<Q> for Noted {
    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        let longest = wrs.requests().map(|wr| wr.sgl.len()).max();
        self.0.longest.fetch_max(longest.unwrap_or(0), Ordering::Relaxed);
        match self.0.next.lock().expect("one thread").take() {
            None => wrs.post_send(inner, qp),
            Some((count, why)) => {
                let (taken, _) = wrs.first(count).post_send(inner, qp).of(count);
                assert_eq!(taken, count, "the fabric has room");
                Taken::with_error(count, why)
            }
        }
    }
}

#[test]
fn pieces_are_copied_only_if_they_are_more_than_the_device_gathers() {
    const LEN: u32 = 3_000;
    let (fabric, seen) = (Fabric::new(), Arc::new(Seen::default()));
    let gathered = fabric.caps().send_sge as usize;
    let open = || Interposed::<_, Device>::new(fabric.clone(), Device(Arc::clone(&seen)));
    let (mut world, peer) = World::pair(&open, &Plan::default());
    world.round(0, peer, &Script::new(0, &[], &[]));
    // Two items, of which only the first has several pieces.
    let script = Script::new(1, &[Part::Bulk(LEN), Part::Bulk(40)], &[]);
    let start = part_offset(script.seed, 0);
    let mut longest = Vec::new();
    for pieces in 1..=gathered {
        seen.longest.store(0, Ordering::Relaxed);
        let source = world.source(0);
        let at = |piece: usize| piece * LEN as usize / pieces;
        let of_first =
            |piece| source.slice_at(start + at(piece), (at(piece + 1) - at(piece)) as u32);
        let first: Vec<_> = (0..pieces).map(of_first).collect();
        let second = source.slice(script.seed, 1, 40);
        let mut call = world.clients[0].call(peer, 7).expect("a slot");
        call.payload().put_fixed(&script.head());
        call.payload().place_pieces(first.into_iter().map(Into::into));
        call.payload().place(second);
        call.submit().expect("there is room");
        world.completion(0, |done| assert!(done.result().is_ok()));
        longest.push(seen.longest.load(Ordering::Relaxed));
    }
    assert_eq!(longest.iter().max(), Some(&gathered), "{longest:?}");
    assert!(longest[gathered - 1] < gathered, "more pieces are copied together: {longest:?}");
}

/// Makes this number of calls of one turn, of which a post takes some and returns an error; their
/// results, in the order in which they ended.
fn after_error(calls: u32, taken: usize, why: PostError) -> Vec<Result<(), CallError>> {
    let (fabric, seen) = (Fabric::new(), Arc::new(Seen::default()));
    let open = || Interposed::<_, Device>::new(fabric.clone(), Device(Arc::clone(&seen)));
    let (mut world, peer) = World::pair(&open, &Plan::default());
    let script = |seed| Script::new(seed, &[Part::Inline(8)], &[Part::Inline(8)]);
    world.round(0, peer, &script(0));
    let made: Vec<u64> = (0..calls)
        .map(|seed| world.call(0, peer, &script(seed)).expect("there are credits"))
        .collect();
    *seen.next.lock().expect("one thread") = Some((taken, why));
    world.turn_client(0);
    assert!(seen.next.lock().expect("one thread").is_none(), "it was posted");
    let done = world.finish();
    let answered = done.iter().filter(|done| done.result.is_ok());
    answered.for_each(|done| _ = done.check());
    let ended: Vec<u64> = done.iter().map(|done| done.cookie).collect();
    assert_eq!(ended, made);
    world.quiesce();
    let executed = world.servers[0].handler().calls - 1;
    assert!(executed <= u64::from(calls), "none of them twice");
    world.check_nothing_leaked();
    done.into_iter().map(|done| done.result.map(drop)).collect()
}

#[test]
fn what_a_post_did_not_take_is_sent_once_behind_the_rest() {
    for calls in [1, 3] {
        for taken in 0..=calls {
            let done = after_error(calls, taken as usize, PostError::QueueFull);
            assert_eq!(done, vec![Ok(()); calls as usize], "{taken} of {calls}");
        }
    }
}

#[test]
fn an_error_of_a_post_ends_the_connection_however_much_was_taken() {
    for (calls, taken) in [(1, 1), (2, 0), (2, 1), (2, 2)] {
        for result in after_error(calls, taken, PostError::QpGone) {
            let lost = matches!(result, Err(CallError::ConnectionLost(CloseReason::PeerGone, _)));
            assert!(lost, "{taken} of {calls}: {result:?}");
        }
    }
    // The only message, which was not taken: another attempt shows it.
    assert_eq!(after_error(1, 0, PostError::QpGone), [Ok(())]);
}
