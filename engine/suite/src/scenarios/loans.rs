//! Loans: segments that a program takes out of messages, and memory that it sends from.

use rpcrdma::{Loan, Provider, TakeError};

use crate::script::{Order, Part, Script, joined, part_bytes};
use crate::world::{Open, Plan, World};

/// Segments that the handler takes contain the item, belong to it without limit, and return to the
/// pool by every way: given back, dropped here, dropped on another thread.
pub fn taken_segments_are_kept_and_returned<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let lens = [1, 16_384, 16_385, 60_003];
    for round in 0..60 {
        let len = lens[round as usize % lens.len()];
        let script = Script::new(round, &[Part::Bulk(len)], &[]).order(Order::Keep);
        assert_eq!(world.round(0, peer, &script), (1, 0));
        let kept = std::mem::take(&mut world.servers[0].handler().kept);
        let bytes = joined(kept.iter().map(|loan| &loan[..]));
        assert!(bytes == part_bytes(round, 0, len), "{len} bytes");
        // More traffic does not touch what was taken.
        world.round(0, peer, &Script::new(round + 1, &[Part::Bulk(len)], &[]));
        let again = joined(kept.iter().map(|loan| &loan[..]));
        assert!(bytes == again, "a taken segment is the program's alone");
        send_kept(&mut world, kept, round);
    }
    assert_eq!(world.servers[0].handler().not_taken, []);
    world.check_nothing_leaked();
}

fn send_kept<P: Provider>(world: &mut World<P>, kept: Vec<Loan>, way: u32) {
    let now = world.now;
    match way % 3 {
        0 => {
            let mut turn = world.servers[0].turn(now);
            kept.into_iter().for_each(|loan| turn.release(loan));
        }
        1 => drop(kept),
        _ => std::thread::spawn(move || drop(kept)).join().expect("a drop does not panic"),
    }
}

/// When all spares are out, a segment cannot be taken, but can still be read; it can be taken as
/// soon as a spare is free.
pub fn without_spares_nothing_is_taken<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let write = |seed| Script::new(seed, &[Part::Bulk(60_000)], &[]).order(Order::Keep);
    for seed in 0..4 {
        world.round(0, peer, &write(seed));
    }
    assert_eq!(world.servers[0].handler().kept.len(), 16, "receive.spares of them");
    world.round(0, peer, &write(4));
    assert_eq!(world.servers[0].handler().not_taken, [TakeError::NoSpare; 4]);
    assert_eq!(world.servers[0].handle().stats().segments_not_taken, 4);
    world.servers[0].handler().kept.truncate(15);
    world.round(0, peer, &write(5));
    assert_eq!(world.servers[0].handler().kept.len(), 16, "one was returned and taken again");
}

/// A taken segment is sent back without a copy, and returns to its pool afterwards.
pub fn a_taken_segment_is_relayed<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let lens = [1, 2, 3, 4, 4_095, 16_384, 16_385, 49_999, 60_000];
    // Each segment is a piece of what is relayed.
    let lens = if world.gathers_all() { &lens[..] } else { &lens[..7] };
    for &len in lens.iter().cycle().take(45) {
        // What comes back is the call's own item: its stream is that of the call.
        let script = Script::new(len, &[Part::Bulk(len)], &[Part::Bulk(len)]).order(Order::Relay);
        world.call_when_possible(0, peer, &script);
        let done = world.finish();
        let reply = done[0].result.as_ref().expect("a reply");
        assert_eq!(reply.items, [(Some(20), len)], "relayed and placed");
        assert!(reply.stream[12..12 + len as usize] == part_bytes(len, 0, len), "the same bytes");
    }
    assert_eq!(world.servers[0].handler().not_taken, []);
    assert!(world.servers[0].handle().stats().segments_taken >= 45);
    world.quiesce();
    world.check_nothing_leaked();
}

/// A client takes segments out of replies, once each.
pub fn segments_of_a_reply_are_taken<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let script = Script::new(9, &[], &[Part::Bulk(20_000), Part::Inline(4), Part::Bulk(3)]);
    for _ in 0..20 {
        let mut call = world.clients[0].call(peer, 1).expect("a call");
        call.payload().put_fixed(&script.head());
        for want in &script.wants {
            call.want(*want);
        }
        call.submit().expect("a credit");
        let mut taken = Vec::new();
        world.completion(0, |mut done| {
            let reply = done.result_mut().expect("a reply");
            taken.push(reply.take(0, 0).expect("a spare"));
            taken.push(reply.take(0, 1).expect("a spare"));
            taken.push(reply.take(1, 0).expect("a spare"));
            assert_eq!(reply.take(0, 1).err(), Some(TakeError::Taken));
            assert_eq!(reply.take(0, 2).err(), Some(TakeError::NoSuchPiece));
            assert_eq!(reply.take(2, 0).err(), Some(TakeError::NoSuchPiece));
            let left = reply.placed().flat_map(|item| item.segments().map(<[u8]>::len));
            assert_eq!(left.sum::<usize>(), 0, "what was taken is not in the message");
        });
        let bytes = joined(taken[..2].iter().map(|loan| &loan[..]));
        let seed = crate::script::reply_seed(9);
        assert!(bytes == part_bytes(seed, 0, 20_000));
        assert!(taken[2][..] == part_bytes(seed, 2, 3));
        taken.swap(0, 2);
    }
    world.check_nothing_leaked();
}

/// The program's own buffers are sent, in one piece or several, and return when the message was
/// sent or dropped.
pub fn own_buffers_return<P: Provider>(open: Open<'_, P>) {
    let (mut world, peer) = World::pair(open, &Plan::default());
    let now = world.now;
    let whole = |world: &mut World<P>| -> Vec<Loan> {
        let mut turn = world.clients[0].turn(now);
        std::iter::from_fn(|| turn.buffer()).collect()
    };
    let buffers = whole(&mut world);
    let count = buffers.len();
    assert_eq!(count, 7, "app.bulk.count, less the one that the world places from");
    drop(buffers);
    for round in 0..40_u32 {
        let script = Script::new(round, &[Part::Bulk(10_000)], &[]);
        let bytes = part_bytes(round, 0, 10_000);
        let mut pieces = whole(&mut world);
        assert_eq!(pieces.len(), count, "all have returned");
        pieces.truncate(3);
        let cuts = [0..1, 1..5_003, 5_003..10_000];
        for (piece, cut) in pieces.iter_mut().zip(cuts) {
            piece.truncate(cut.len());
            piece.copy_from_slice(&bytes[cut]);
        }
        let mut call = world.clients[0].call(peer, 1).expect("a call");
        call.payload().put_fixed(&script.head());
        call.payload().place_pieces(pieces.into_iter().map(Into::into));
        if round % 2 == 0 {
            drop(call);
        } else {
            call.submit().expect("a credit");
            // The service checks the bytes.
            world.completion(0, |done| {
                done.result().expect("a reply");
            });
        }
        world.quiesce();
    }
    world.check_nothing_leaked();
}
