//! Matching, lengths, keys, depths and completions.

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{
    CqError, PostError, QueueAttr, QueueEvent, Queues, RecvWr, SendFlags, WcBatch, WcOpcode,
    WcStatus,
};

use crate::host::*;
use crate::subject::{Options, Subject};

pub(crate) fn messages_meet_receives_in_the_order_of_posting<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 64);
    pair.b.recv(11, 64, 64);
    pair.a.send(pair.qa.qp, 1, b"first").unwrap();
    pair.a.send(pair.qa.qp, 2, b"second!").unwrap();
    let got = pair.b.poll_dry();
    assert_eq!(got, [received(10, pair.qb, 5), received(11, pair.qb, 7)]);
    assert_eq!(pair.b.read(0, 5), b"first");
    assert_eq!(pair.b.read(64, 7), b"second!");
}

pub(crate) fn an_unsignaled_send_completes_silently<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 64);
    let sgl = [pair.a.sge(0, 8)];
    pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::INLINE).unwrap();
    assert_eq!(pair.b.poll_dry().len(), 1);
    assert_eq!(pair.a.poll_dry(), []);
}

pub(crate) fn the_acks_of_a_reply_complete_the_call<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.a.recv(20, 0, 64);
    pair.b.recv(10, 0, 64);
    pair.a.send(pair.qa.qp, 1, b"call").unwrap();
    assert_eq!(pair.b.poll().len(), 1);
    pair.b.send(pair.qb.qp, 2, b"reply").unwrap();
    // One idle poll is enough: no ack line had to be written.
    assert_eq!(brief(&pair.a.poll()), [(20, WcStatus::Success)]);
    assert_eq!(brief(&pair.a.poll()), [(1, WcStatus::Success)]);
}

pub(crate) fn inline_bytes_are_copied_at_posting_even_when_the_ring_is_full<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let sgl = [pair.a.sge(0, 1)];
    for byte in 0..40 {
        pair.a.write(0, &[byte]);
        pair.a.send_from(pair.qa.qp, byte.into(), &sgl, SendFlags::INLINE).unwrap();
    }
    pair.a.write(0, &[0xFF]);
    let mut seen = Vec::new();
    while seen.len() < 40 {
        pair.b.recv(0, 0, 1);
        pair.a.poll();
        if !pair.b.poll().is_empty() {
            seen.extend(pair.b.read(0, 1));
        }
    }
    assert_eq!(seen, (0..40).collect::<Vec<u8>>());
}

pub(crate) fn a_long_message_is_gathered_from_and_scattered_to_its_lists_in_order<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let bytes: Vec<u8> = (0..3000_u32).map(|i| (i * 7) as u8).collect();
    pair.a.write(0, &bytes[..1000]);
    pair.a.write(8192, &bytes[1000..]);
    let to = [pair.b.sge(0, 1), pair.b.sge(4096, 2500), pair.b.sge(20_000, 4096)];
    pair.b.recv_at(10, &to).unwrap();
    let from = [pair.a.sge(0, 1000), pair.a.sge(0, 0), pair.a.sge(8192, 2000)];
    pair.a.send_from(pair.qa.qp, 1, &from, SendFlags::SIGNALED).unwrap();
    assert_eq!(pair.b.poll(), [received(10, pair.qb, 3000)]);
    let mut got = pair.b.read(0, 1);
    got.extend(pair.b.read(4096, 2500));
    got.extend(pair.b.read(20_000, 499));
    assert!(got == bytes);
    assert_eq!(pair.b.read(20_499, 1), [0]);
}

pub(crate) fn a_message_of_exactly_the_room_fits_and_one_byte_more_fails_both_sides<S: Subject>() {
    for len in [32_u32, 33] {
        let mut pair = Pair::<S>::small();
        pair.b.recv_at(10, &[pair.b.sge(0, 16), pair.b.sge(100, 16)]).unwrap();
        let sgl = [pair.a.sge(0, len)];
        pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::empty()).unwrap();
        let (at_b, at_a) = (brief(&pair.b.poll_dry()), brief(&pair.a.poll_dry()));
        if len == 32 {
            assert_eq!((at_b.as_slice(), at_a.len()), (&[(10, WcStatus::Success)][..], 0));
            assert_eq!((pair.a.events(), pair.b.events()), (vec![], vec![]));
            continue;
        }
        assert_eq!(at_b, [(10, WcStatus::LocalLength)]);
        let refused = [(1, WcStatus::RemoteInvalidRequest)];
        assert_eq!(at_a, if S::HAS_ACKS { &refused[..] } else { &[] });
        assert_eq!(pair.a.events(), [QueueEvent::Disconnected { qp_num: pair.qa.qp_num }]);
        assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: pair.qb.qp_num }]);
        pair.a.send(pair.qa.qp, 2, b"x").unwrap();
        pair.b.send(pair.qb.qp, 2, b"x").unwrap();
        let flushed = [(2, WcStatus::Flushed)];
        assert_eq!(brief(&pair.a.poll_dry()), flushed);
        assert_eq!(brief(&pair.b.poll_dry()), flushed);
    }
}

pub(crate) fn other_queue_pairs_continue_when_one_fails<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (qa2, qb2) = pair.another();
    pair.b.recv(10, 0, 4);
    pair.b.recv(11, 64, 64);
    pair.a.send(pair.qa.qp, 1, b"too long").unwrap();
    pair.a.send(qa2.qp, 2, b"fine").unwrap();
    let got = pair.b.poll_dry();
    assert_eq!(brief(&got), [(10, WcStatus::LocalLength), (11, WcStatus::Success)]);
    assert_eq!((got[0].qp_num, got[1].qp_num), (pair.qb.qp_num, qb2.qp_num));
    let done = pair.a.poll_dry();
    let refused = sent_or::<S>(WcStatus::RemoteInvalidRequest);
    assert_eq!(brief(&done), [(1, refused), (2, WcStatus::Success)]);
    assert_eq!(pair.a.events(), [QueueEvent::Disconnected { qp_num: pair.qa.qp_num }]);
}

pub(crate) fn a_wrong_gather_key_fails_its_request_after_those_before_it<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 64);
    let good = [pair.a.sge(0, 8)];
    let bad = [Sge { lkey: pair.a.keys.lkey ^ 0x4000, ..good[0] }];
    pair.a.send_from(pair.qa.qp, 1, &good, SendFlags::SIGNALED).unwrap();
    pair.a.send_from(pair.qa.qp, 2, &bad, SendFlags::empty()).unwrap();
    pair.a.send_from(pair.qa.qp, 3, &good, SendFlags::empty()).unwrap();
    let mut done = brief(&pair.a.poll());
    pair.b.poll_dry();
    done.extend(brief(&pair.a.poll_dry()));
    assert_eq!(done[1..], [(2, WcStatus::LocalProtection), (3, WcStatus::Flushed)]);
    assert_eq!(done[0].0, 1);
    assert_eq!(pair.b.poll_dry(), []);
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: pair.qb.qp_num }]);
}

pub(crate) fn gathering_beyond_a_region_is_a_protection_error_up_to_the_last_byte<S: Subject>() {
    for (offset, len, status) in [
        ((256 << 10) - 300, 300, WcStatus::Success),
        ((256 << 10) - 300, 301, WcStatus::LocalProtection),
        (256 << 10, 1, WcStatus::LocalProtection),
    ] {
        let mut pair = Pair::<S>::small();
        pair.b.recv(10, 0, 4096);
        let sgl = [pair.a.sge(offset, len)];
        pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
        pair.b.poll_dry();
        assert_eq!(brief(&pair.a.poll_dry()), [(1, status)]);
    }
}

pub(crate) fn an_inline_send_needs_no_key<S: Subject>() {
    let mut pair = Pair::<S>::small();
    pair.b.recv(10, 0, 64);
    let bytes = *b"from the stack";
    let addr = bytes.as_ptr().expose_provenance() as u64;
    let sgl = [Sge { addr, length: bytes.len() as u32, lkey: 0 }];
    pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::INLINE).unwrap();
    assert_eq!(pair.b.poll(), [received(10, pair.qb, 14)]);
    assert_eq!(pair.b.read(0, 14), bytes);
}

pub(crate) fn a_receive_with_a_wrong_key_or_without_the_right_to_write_fails_both_sides<
    S: Subject,
>() {
    let mut pair = Pair::<S>::small();
    let region = map::<S>(4096);
    let read_only = register(&pair.device, &region, Access::empty());
    let addr = region.base().as_ptr() as u64;
    for lkey in [read_only.lkey, pair.b.keys.lkey, 0x7777_0000] {
        let (qa, qb) = pair.another();
        pair.b.recv_at(10, &[Sge { addr, length: 64, lkey }]).unwrap();
        pair.a.send(qa.qp, 1, b"x").unwrap();
        let got = pair.b.poll_dry();
        assert_eq!(brief(&got), [(10, WcStatus::LocalProtection)]);
        assert_eq!(got[0].qp_num, qb.qp_num);
        let refused = sent_or::<S>(WcStatus::Other(11));
        assert_eq!(brief(&pair.a.poll_dry()), [(1, refused)]);
        assert_eq!(pair.a.events(), [QueueEvent::Disconnected { qp_num: qa.qp_num }]);
        pair.a.queues.destroy(qa.qp);
        pair.b.queues.destroy(qb.qp);
    }
    pair.device.registrar().deregister(read_only).unwrap();
}

pub(crate) fn a_deregistered_key_is_invalid_after_its_place_is_reused<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (one, other) = (map::<S>(4096), map::<S>(4096));
    let registrar = pair.device.registrar();
    let stale = register(&pair.device, &one, Access::LOCAL_WRITE);
    registrar.deregister(stale).unwrap();
    registrar.deregister(stale).unwrap();
    let fresh = register(&pair.device, &other, Access::LOCAL_WRITE);
    assert_ne!(stale, fresh);
    let addr = other.base().as_ptr() as u64;
    let sgl = [Sge { addr, length: 300, lkey: fresh.lkey }];
    pair.b.recv(10, 0, 4096);
    pair.a.send_from(pair.qa.qp, 1, &sgl, SendFlags::SIGNALED).unwrap();
    assert_eq!(pair.b.poll_dry().len(), 1);
    assert_eq!(brief(&pair.a.poll_dry()), [(1, WcStatus::Success)]);
    let sgl = [Sge { lkey: stale.lkey, ..sgl[0] }];
    pair.a.send_from(pair.qa.qp, 2, &sgl, SendFlags::SIGNALED).unwrap();
    assert_eq!(brief(&pair.a.poll_dry()), [(2, WcStatus::LocalProtection)]);
    pair.device.registrar().deregister(fresh).unwrap();
}

pub(crate) fn the_shared_receive_queue_takes_its_depth_and_says_how_many<S: Subject>() {
    let mut pair = Pair::<S>::small();
    for id in 0..32 {
        pair.b.recv(id, 0, 16);
    }
    let sgl = [pair.b.sge(0, 16)];
    assert_eq!(pair.b.recv_at(32, &sgl), Err((0, PostError::QueueFull)));
    pair.a.send(pair.qa.qp, 1, b"x").unwrap();
    assert_eq!(pair.b.poll().len(), 1);
    pair.b.recv_at(32, &sgl).unwrap();
    let four = [sgl[0]; 4];
    assert_eq!(pair.b.recv_at(33, &four), Err((0, PostError::Invalid)));
}

pub(crate) fn a_send_queue_takes_its_depth_whether_the_ring_is_full_or_not<S: Subject>() {
    let attr = QueueAttr { send_depth: 40, ..SMALL };
    let options = FEW;
    let mut pair = Pair::<S>::with(options, &attr, 7);
    pair.a.poll();
    for id in 0..40 {
        pair.a.send(pair.qa.qp, id, &[id as u8]).unwrap();
    }
    assert_eq!(pair.a.send(pair.qa.qp, 40, b"x"), Err((0, PostError::QueueFull)));
    let mut got = 0;
    let mut done = Vec::new();
    for round in 0..200 {
        pair.b.recv(round, 0, 16);
        got += pair.b.poll().len();
        done.extend(brief(&pair.a.poll()));
        if got == 40 {
            break;
        }
    }
    pair.b.poll_dry();
    done.extend(brief(&pair.a.poll_dry()));
    let expected: Vec<_> = (0..40).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(done, expected);
    pair.a.send(pair.qa.qp, 41, b"x").unwrap();
}

pub(crate) fn unsignaled_sends_keep_their_places_until_a_signaled_one_completes<S: Subject>() {
    let attr = QueueAttr { send_depth: 4, ..SMALL };
    let mut pair = Pair::<S>::with(Options::default(), &attr, 7);
    let sgl = [pair.a.sge(0, 8)];
    for id in 0..6 {
        pair.b.recv(id, 0, 64);
    }
    for id in 0..3 {
        pair.a.send_from(pair.qa.qp, id, &sgl, SendFlags::INLINE).unwrap();
    }
    assert_eq!(pair.a.poll_dry(), []);
    assert_eq!(pair.b.poll_dry().len(), 3);
    pair.a.poll_dry();
    // All three were taken, but no completion has said so.
    pair.a.send(pair.qa.qp, 3, b"x").unwrap();
    assert_eq!(pair.a.send(pair.qa.qp, 4, b"x"), Err((0, PostError::QueueFull)));
    pair.b.poll_dry();
    assert_eq!(brief(&pair.a.poll_dry()), [(3, WcStatus::Success)]);
    for id in 4..8 {
        pair.a.send(pair.qa.qp, id, b"x").unwrap();
    }
}

pub(crate) fn requests_beyond_the_limits_of_the_device_are_invalid<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let five = [pair.a.sge(0, 1); 5];
    let invalid = Err((0, PostError::Invalid));
    assert_eq!(pair.a.send_from(pair.qa.qp, 1, &five, SendFlags::empty()), invalid);
    let inline_len = pair.device.caps().inline_len;
    let sgl = [pair.a.sge(0, inline_len)];
    pair.a.send_from(pair.qa.qp, 2, &sgl, SendFlags::INLINE).unwrap();
    let sgl = [pair.a.sge(0, inline_len + 1)];
    assert_eq!(pair.a.send_from(pair.qa.qp, 3, &sgl, SendFlags::INLINE), invalid);
    let huge = [pair.a.sge(0, 1 << 30), pair.a.sge(0, 1)];
    assert_eq!(pair.a.send_from(pair.qa.qp, 4, &huge, SendFlags::empty()), invalid);
}

pub(crate) fn a_poll_appends_no_more_than_there_is_room_for<S: Subject>() {
    let mut pair = Pair::<S>::small();
    for id in 0..4 {
        pair.b.recv(id, 0, 64);
        pair.a.send(pair.qa.qp, id, b"x").unwrap();
    }
    let mut out = WcBatch::new();
    while out.remaining_capacity() > 1 {
        out.push(received(99, pair.qb, 0));
    }
    pair.b.queues.poll_cq(&mut out).unwrap();
    assert!(out.is_full());
    pair.b.queues.poll_cq(&mut out).unwrap();
    assert_eq!(pair.b.poll_dry().len(), 3);
}

pub(crate) fn more_waiting_completions_than_entries_are_an_overrun<S: Subject>() {
    for (cq_depth, expected) in [(20, Ok(())), (19, Err(CqError::Overrun))] {
        let attr = QueueAttr { cq_depth, ..SMALL };
        let mut pair = Pair::<S>::with(Options::default(), &attr, 7);
        for id in 0..20 {
            pair.b.recv(id, 0, 64);
            pair.a.send(pair.qa.qp, id, b"x").unwrap();
        }
        pair.b.poll_dry();
        let mut full = WcBatch::new();
        while !full.is_full() {
            full.push(received(99, pair.qa, 0));
        }
        assert_eq!(pair.a.queues.poll_cq(&mut full), expected);
        assert_eq!(pair.a.queues.poll_cq(&mut WcBatch::new()), expected);
    }
}

pub(crate) fn several_queue_pairs_are_polled_in_turn<S: Subject>() {
    let device = S::plain();
    let mut server = Host::new(&device, &SMALL);
    let mut clients: Vec<_> = (0..3).map(|_| Host::new(&device, &SMALL)).collect();
    let qps: Vec<_> =
        clients.iter_mut().map(|client| connect(&device, client, &mut server, 7)).collect();
    for (client, (qp, _)) in clients.iter_mut().zip(&qps) {
        for id in 0..32 {
            client.send(qp.qp, id, b"x").unwrap();
        }
    }
    for id in 0..32 {
        server.recv(id, 0, 16);
    }
    if S::HAS_ACKS {
        assert_eq!(server.poll().len(), 3, "the first of each queue pair");
    }
    let got = server.poll();
    for (_, qp) in &qps {
        let share = got.iter().filter(|wc| wc.qp_num == qp.qp_num).count();
        assert_eq!(share, 8, "each queue pair gets its turn");
    }
}

pub(crate) fn queues_connected_to_themselves_carry_messages_both_ways<S: Subject>() {
    let device = S::plain();
    let mut host = Host::new(&device, &SMALL);
    let (ours, theirs) = endpoints(&device, &host, &host, 7);
    let one = host.queues.attach(ours).unwrap();
    let other = host.queues.attach(theirs).unwrap();
    host.recv(10, 0, 64);
    host.recv(11, 64, 64);
    host.send(one.qp, 1, b"to the other").unwrap();
    host.send(other.qp, 2, b"to the one").unwrap();
    let got = host.poll_dry();
    let receives: Vec<_> =
        got.iter().filter(|wc| wc.opcode == WcOpcode::Recv).map(|wc| wc.qp_num).collect();
    assert_eq!(receives.len(), 2);
    assert!(receives.contains(&one.qp_num) && receives.contains(&other.qp_num));
    assert_eq!(got.len(), 4);
    assert!(got.iter().all(|wc| wc.status == WcStatus::Success));
}

pub(crate) fn a_short_message_is_not_written_to_memory_that_is_no_longer_registered<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let keys = pair.b.register(&pair.device, Access::LOCAL_WRITE);
    let lkey = keys.lkey;
    let recvs = [10, 11].map(|id| {
        let at = 64 * id as usize;
        pair.b.described(id, &[Sge { lkey, ..pair.b.sge(at, 64) }])
    });
    pair.b.recv_again(&recvs).unwrap();
    pair.a.send(pair.qa.qp, 1, b"before").unwrap();
    assert_eq!(pair.b.poll_dry(), [received(10, pair.qb, 6)]);
    pair.device.registrar().deregister(keys).unwrap();
    pair.a.send(pair.qa.qp, 2, b"behind").unwrap();
    assert_eq!(brief(&pair.b.poll_dry()), [(11, WcStatus::LocalProtection)]);
    assert_eq!(pair.b.read(64 * 11, 6), [0; 6]);
}

pub(crate) fn the_receives_of_a_post_that_are_taken_receive<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let mut recvs: Vec<_> = (0..33)
        .map(|id| {
            let sgl = [pair.b.sge(64 * id, 64)];
            pair.b.described(id as u64, &sgl)
        })
        .collect();
    let unknown = RecvWr { buffer: 1000, ..recvs[2] };
    let post = [recvs[0], recvs[1], unknown, recvs[2]];
    assert_eq!(pair.b.recv_again(&post), Err((2, PostError::Invalid)));
    assert_eq!(pair.b.recv_again(&recvs[2..]), Err((30, PostError::QueueFull)));
    for id in 0..33 {
        pair.a.send(pair.qa.qp, id, b"x").unwrap();
    }
    let poll = |pair: &mut Pair<S>| {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.extend(pair.b.poll_dry().iter().map(|wc| wc.wr_id.0));
            pair.a.poll_dry();
        }
        all
    };
    assert_eq!(poll(&mut pair), (0..32).collect::<Vec<_>>());
    // A list that is too long makes the buffer one that cannot be posted.
    let last = recvs.pop().unwrap();
    let long = [pair.b.sge(0, 8); 4];
    pair.b.described_again(last, &long);
    assert_eq!(pair.b.recv_again(&[last]), Err((0, PostError::Invalid)));
    pair.b.described_again(last, &long[..3]);
    pair.b.recv_again(&[last]).unwrap();
    assert_eq!(poll(&mut pair), [32]);
}
