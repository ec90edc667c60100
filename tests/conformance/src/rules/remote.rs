//! RDMA Write and Read: destinations, time, order, and fences.

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{
    PostError, QueueEvent, Queues, Remote, SendFlags, SendOp, SendWr, WcOpcode, WcStatus, WrId,
};

use crate::host::*;
use crate::open::{BOTH, Open};
use crate::subject::{Options, Subject};

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + seed) as u8).collect()
}

pub(crate) fn a_write_arrives_takes_no_receive_and_gives_the_peer_no_completion<S: Subject>() {
    let mut open = Open::<S>::small();
    for (id, len) in [1_usize, 224, 225, 5000].into_iter().enumerate() {
        let bytes = pattern(len, id);
        open.pair.a.write(0, &bytes);
        open.pair.b.recv(10, 100_000, 64);
        let sgl = [open.pair.a.sge(0, 1), open.pair.a.sge(1, len as u32 - 1)];
        open.write(id as u64, 100, &sgl);
        let mut done = open.pair.a.poll_dry();
        assert!(done.is_empty() || !S::HAS_ACKS, "not before it has arrived");
        assert_eq!(open.pair.b.poll_dry(), []);
        assert_eq!(open.pair.b.read(100, len), bytes);
        assert_eq!(open.pair.b.read(100 + len, 1), [0]);
        done.extend(open.pair.a.poll_dry());
        assert_eq!(brief(&done), [(id as u64, WcStatus::Success)]);
        assert_eq!((done[0].opcode, done[0].byte_len), (WcOpcode::Write, 0));
        open.pair.b.write(0, &[0; 8192]);
    }
}

pub(crate) fn an_inline_write_is_copied_while_it_is_posted<S: Subject>() {
    let mut open = Open::<S>::small();
    open.pair.a.write(0, &[5; 224]);
    let sgl = [Sge { lkey: 0, ..open.pair.a.sge(0, 224) }];
    let op = SendOp::Write(open.remote(0));
    open.post(1, op, &sgl, SendFlags::SIGNALED | SendFlags::INLINE);
    open.pair.a.write(0, &[6; 224]);
    open.pair.b.poll_dry();
    assert_eq!(open.pair.b.read(0, 224), [5; 224]);
}

pub(crate) fn requests_for_no_bytes_succeed_whatever_their_key<S: Subject>() {
    let mut open = Open::<S>::small();
    let nowhere = Remote { addr: 0, rkey: 0x1234_5678 };
    open.post(1, SendOp::Write(nowhere), &[], SendFlags::SIGNALED);
    let nothing = [open.pair.a.sge(0, 0)];
    open.post(2, SendOp::Read(nowhere), &nothing, SendFlags::SIGNALED);
    open.post(3, SendOp::Read(nowhere), &[], SendFlags::SIGNALED);
    let expected = [1, 2, 3].map(|id| (id, WcStatus::Success));
    assert_eq!(brief(&open.poll_until_idle()), expected);
}

pub(crate) fn written_bytes_are_visible_when_a_later_send_arrives<S: Subject>() {
    let mut open = Open::<S>::small();
    for round in 0..50_u64 {
        let bytes = pattern(2000, round as usize);
        open.pair.a.write(0, &bytes);
        open.pair.b.recv(round, 100_000, 64);
        let sgl = [open.pair.a.sge(0, 2000)];
        let op = SendOp::Write(open.remote(0));
        open.post(1, op, &sgl, SendFlags::empty());
        open.pair.a.send(open.pair.qa.qp, 2, b"done").unwrap();
        while open.pair.b.poll().is_empty() {}
        assert_eq!(open.pair.b.read(0, 2000), bytes);
        open.pair.a.poll_dry();
    }
}

pub(crate) fn a_read_copies_the_bytes_and_then_completes<S: Subject>() {
    let mut open = Open::<S>::small();
    for (id, len) in [1_usize, 224, 225, 50_000].into_iter().enumerate() {
        let bytes = pattern(len, id);
        open.pair.b.write(100, &bytes);
        open.pair.a.write(0, &[0xEE; 60_000]);
        let (third, rest) = (len as u32 / 3, len as u32 - len as u32 / 3);
        let sgl = [open.pair.a.sge(0, third), open.pair.a.sge(100_000, rest)];
        open.read(id as u64, 100, &sgl);
        assert_eq!(open.pair.a.poll_dry(), []);
        assert_eq!(open.pair.b.poll_dry(), []);
        let done = open.pair.a.poll_dry();
        assert_eq!(brief(&done), [(id as u64, WcStatus::Success)]);
        assert_eq!(done[0].opcode, WcOpcode::Read);
        let mut got = open.pair.a.read(0, third as usize);
        got.extend(open.pair.a.read(100_000, rest as usize));
        assert!(got == bytes);
        assert_eq!(open.pair.a.read(third as usize, 1), [0xEE]);
    }
}

pub(crate) fn a_read_needs_local_memory_that_may_be_written<S: Subject>() {
    let mut open = Open::<S>::small();
    let region = map::<S>(4096);
    let keys = register(&open.pair.device, &region, Access::empty());
    let addr = region.base().as_ptr() as u64;
    open.read(1, 0, &[Sge { addr, length: 8, lkey: keys.lkey }]);
    open.read(2, 0, &[]);
    let expected = [(1, WcStatus::LocalProtection), (2, WcStatus::Flushed)];
    assert_eq!(brief(&open.poll_until_idle()), expected);
}

pub(crate) fn memory_deregistered_under_a_read_fails_it_at_its_owner<S: Subject>() {
    let mut open = Open::<S>::small();
    let region = map::<S>(4096);
    let keys = register(&open.pair.device, &region, Access::LOCAL_WRITE);
    let sgl = [Sge { addr: region.base().as_ptr() as u64, length: 300, lkey: keys.lkey }];
    open.read(1, 0, &sgl);
    open.pair.device.registrar().deregister(keys).unwrap();
    drop(region);
    assert_eq!(brief(&open.poll_until_idle()), [(1, WcStatus::LocalProtection)]);
}

pub(crate) fn reads_cannot_be_inline_and_local_requests_have_no_bytes<S: Subject>() {
    let mut open = Open::<S>::small();
    let sgl = [open.pair.a.sge(0, 8)];
    let read = SendOp::Read(open.remote(0));
    let invalidate = SendOp::Invalidate { rkey: 1 };
    let qp = open.pair.qa.qp;
    for (op, sgl, flags) in [
        (read, &sgl[..], SendFlags::INLINE),
        (invalidate, &sgl[..], SendFlags::empty()),
        (invalidate, &[][..], SendFlags::INLINE),
    ] {
        let refused = open.pair.a.post_with(qp, 1, op, sgl, flags);
        assert_eq!(refused, Err((0, PostError::Invalid)));
    }
}

pub(crate) fn a_mixed_chain_is_taken_up_to_the_request_that_breaks_a_rule<S: Subject>() {
    let mut open = Open::<S>::small();
    let sgl = [open.pair.a.sge(0, 8)];
    let long = [open.pair.a.sge(0, 8); 5];
    let write = SendOp::Write(open.remote(0));
    let flags = SendFlags::SIGNALED;
    let wr = |id, op, sgl| SendWr { wr_id: WrId(id), op, sgl, flags };
    let chain = [
        wr(0, SendOp::Send, &sgl[..]),
        wr(1, write, &sgl),
        wr(2, SendOp::Send, &sgl),
        wr(3, SendOp::Send, &long),
        wr(4, write, &sgl),
    ];
    let outcome = open.pair.a.send_all(open.pair.qa.qp, &chain);
    assert_eq!(outcome, Err((3, PostError::Invalid)));
    open.pair.b.recv(0, 100_000, 8);
    open.pair.b.recv(1, 100_000, 8);
    let ids: Vec<u64> = open.poll_until_idle().iter().map(|wc| wc.wr_id.0).collect();
    assert_eq!(ids, [0, 1, 2]);
}

pub(crate) fn a_send_queue_counts_requests_of_all_kinds<S: Subject>() {
    let mut open = Open::<S>::small();
    let sgl = [open.pair.a.sge(0, 8)];
    let (write, read) = (SendOp::Write(open.remote(0)), SendOp::Read(open.remote(64)));
    let qp = open.pair.qa.qp;
    for id in 0..64 {
        open.post(id, if id % 2 == 0 { write } else { read }, &sgl, SendFlags::SIGNALED);
    }
    let full = Err((0, PostError::QueueFull));
    assert_eq!(open.pair.a.post_with(qp, 64, write, &sgl, SendFlags::SIGNALED), full);
    assert_eq!(open.pair.a.send_from(qp, 64, &sgl, SendFlags::SIGNALED), full);
    let mut done = Vec::new();
    for _ in 0..20 {
        done.extend(open.poll_until_idle());
    }
    let expected: Vec<_> = (0..64).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(brief(&done), expected);
}

pub(crate) fn without_a_fence_a_later_send_overtakes_the_data_of_a_read<S: Subject>() {
    for (len, is_fenced) in [(64, false), (1000, false), (64, true), (1000, true)] {
        let mut open = Open::<S>::small();
        open.pair.b.write(0, &vec![1; len]);
        open.pair.a.write(0, &vec![0; len]);
        open.pair.b.recv(10, 100_000, 1000);
        let sgl = [open.pair.a.sge(0, len as u32)];
        open.read(1, 0, &sgl);
        let fence = if is_fenced { SendFlags::FENCE } else { SendFlags::empty() };
        open.post(2, SendOp::Send, &sgl, SendFlags::SIGNALED | fence);
        assert_eq!(
            brief(&open.poll_until_idle()),
            [(1, WcStatus::Success), (2, WcStatus::Success)]
        );
        assert_eq!(open.pair.a.read(0, len), vec![1; len]);
        assert_eq!(open.pair.b.read(100_000, len), vec![u8::from(is_fenced); len]);
    }
}

pub(crate) fn without_a_fence_a_later_write_changes_what_a_read_finds<S: Subject>() {
    for is_fenced in [false, true] {
        let mut open = Open::<S>::small();
        open.pair.b.write(0, b"old");
        open.pair.a.write(0, b"new");
        let (from, to) = ([open.pair.a.sge(0, 3)], [open.pair.a.sge(64, 3)]);
        open.read(1, 0, &to);
        let fence = if is_fenced { SendFlags::FENCE } else { SendFlags::empty() };
        let write = SendOp::Write(open.remote(0));
        open.post(2, write, &from, SendFlags::SIGNALED | fence);
        assert_eq!(
            brief(&open.poll_until_idle()),
            [(1, WcStatus::Success), (2, WcStatus::Success)]
        );
        assert_eq!(open.pair.a.read(64, 3), if is_fenced { b"old" } else { b"new" });
    }
}

pub(crate) fn without_a_fence_an_invalidation_overtakes_the_read_before_it<S: Subject>() {
    for is_fenced in [false, true] {
        let mut open = Open::<S>::small();
        let (sgl, rkey) = ([open.pair.a.sge(0, 8)], open.rkey);
        open.pair.b.recv(10, 100_000, 64);
        open.read(1, 0, &sgl);
        let fence = if is_fenced { SendFlags::FENCE } else { SendFlags::empty() };
        let send = SendOp::SendInvalidate { rkey };
        open.post(2, send, &sgl, SendFlags::SIGNALED | fence);
        let done = brief(&open.poll_until_idle());
        if is_fenced {
            assert_eq!(done, [(1, WcStatus::Success), (2, WcStatus::Success)]);
        } else {
            assert_eq!(done, [(1, WcStatus::RemoteAccess), (2, WcStatus::Flushed)]);
        }
    }
}

pub(crate) fn a_fence_delays_later_requests_of_its_queue_pair_only<S: Subject>() {
    let mut open = Open::<S>::small();
    let (qa2, qb2) = open.pair.another();
    open.pair.b.write(0, b"data");
    for id in 10..14 {
        open.pair.b.recv(id, 100_000 + id as usize * 64, 64);
    }
    let sgl = [open.pair.a.sge(0, 4)];
    open.pair.a.poll();
    open.read(1, 0, &sgl);
    open.post(2, SendOp::Send, &sgl, SendFlags::SIGNALED | SendFlags::FENCE);
    open.post(3, SendOp::Send, &sgl, SendFlags::SIGNALED);
    open.pair.a.send(qa2.qp, 4, b"other").unwrap();
    assert_eq!(open.pair.b.poll_dry(), [received(10, qb2, 5)]);
    let done = open.poll_until_idle();
    let ids: Vec<u64> = done.iter().map(|wc| wc.wr_id.0).filter(|id| *id != 4).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(open.pair.b.read(100_000 + 11 * 64, 4), b"data");
    assert_eq!(open.pair.b.read(100_000 + 12 * 64, 4), b"data");
}

pub(crate) fn a_fence_without_reads_waits_for_nothing<S: Subject>() {
    let mut open = Open::<S>::small();
    open.pair.b.recv(10, 100_000, 64);
    let sgl = [open.pair.a.sge(0, 4)];
    open.write(1, 0, &sgl);
    open.post(2, SendOp::Send, &sgl, SendFlags::SIGNALED | SendFlags::FENCE);
    let mut got = open.pair.b.poll();
    got.extend(open.pair.b.poll());
    assert_eq!(got, [received(10, open.pair.qb, 4)]);
}

pub(crate) fn a_device_without_outstanding_reads_is_refused<S: Subject>() {
    for (rd_atomic, is_allowed) in [(0, false), (1, true)] {
        let options = Options { rd_atomic: Some(rd_atomic), ..Options::default() };
        assert_eq!(S::made(&options).is_ok(), is_allowed);
    }
}

pub(crate) fn reads_before_a_refused_request_succeed_and_those_behind_it_are_flushed<S: Subject>() {
    let mut open = Open::<S>::small();
    open.pair.b.write(0, b"good");
    let sgl = [open.pair.a.sge(0, 4)];
    open.read(1, 0, &sgl);
    let bad = Remote { rkey: open.rkey ^ 0x100, ..open.remote(0) };
    open.post(2, SendOp::Read(bad), &sgl, SendFlags::SIGNALED);
    open.read(3, 0, &sgl);
    open.pair.b.recv(10, 100_000, 64);
    open.pair.a.send(open.pair.qa.qp, 4, b"never").unwrap();
    let flushed = WcStatus::Flushed;
    let expected =
        [(1, WcStatus::Success), (2, WcStatus::RemoteAccess), (3, flushed), (4, flushed)];
    assert_eq!(brief(&open.poll_until_idle()), expected);
    assert_eq!(open.pair.a.read(0, 4), b"good");
    assert_eq!(open.pair.b.poll_dry(), [], "nothing behind it is delivered");
}

pub(crate) fn everything_flushes_in_order_when_the_queue_pair_fails<S: Subject>() {
    let mut open = Open::<S>::small();
    let sgl = [open.pair.a.sge(0, 8)];
    let (write, read) = (SendOp::Write(open.remote(0)), SendOp::Read(open.remote(0)));
    let mut window = open.pair.a.queues.open_window().unwrap();
    for round in 0..10_u64 {
        let (bind, rkey) = open.pair.a.binding(&mut window, (0, 64), BOTH);
        let ops = [SendOp::Send, write, read, bind, SendOp::Invalidate { rkey }];
        for (at, op) in ops.into_iter().enumerate() {
            let sgl = if at < 3 { &sgl[..] } else { &[] };
            let fence = if round == 5 { SendFlags::FENCE } else { SendFlags::empty() };
            open.post(round * 5 + at as u64, op, sgl, fence);
        }
    }
    open.pair.a.queues.disconnect(open.pair.qa.qp);
    open.pair.a.write(0, &[0xEE; 8]);
    // Without acks the Send and the Write before the first Read are done, and more may arrive.
    let (first, arriving) = if S::HAS_ACKS { (0, 0) } else { (2, 10) };
    (0..arriving).for_each(|id| open.pair.b.recv(id, 100_000, 8));
    let expected: Vec<_> = (first..50).map(|id| (id, WcStatus::Flushed)).collect();
    assert_eq!(brief(&open.pair.a.poll_dry()), expected);
    open.pair.b.poll_dry();
    assert_eq!(open.pair.a.read(0, 8), [0xEE; 8], "no write follows");
    assert_eq!(open.pair.b.events(), [QueueEvent::Disconnected { qp_num: open.pair.qb.qp_num }]);
}

pub(crate) fn reads_end_when_either_set_of_queues_vanishes<S: Subject>() {
    let Open { pair, rkey } = Open::<S>::small();
    let Pair { mut a, b, qa, .. } = pair;
    let (sgl, addr) = ([a.sge(0, 6)], b.at(0));
    a.post(qa.qp, 1, SendOp::Read(Remote { addr, rkey }), &sgl);
    drop(b);
    assert_eq!(brief(&a.poll_dry()), [(1, WcStatus::Flushed)]);
}

pub(crate) fn a_sleeper_wakes_for_reads_of_its_peer_and_for_its_own<S: Subject>() {
    use rpcrdma_provider::Waker;
    use std::time::Duration;
    let mut open = Open::<S>::small();
    let (waker, long) = (Waker::new().unwrap(), Duration::from_secs(600));
    let sgl = [open.pair.a.sge(0, 6)];
    open.read(1, 0, &sgl);
    open.pair.b.queues.wait(&waker, long).unwrap();
    open.pair.b.poll();
    open.pair.b.queues.wait(&waker, long).unwrap();
    open.pair.b.poll();
    open.pair.a.queues.wait(&waker, long).unwrap();
    assert_eq!(open.pair.a.poll().len(), 1);
}

pub(crate) fn queues_connected_to_themselves_read_and_write<S: Subject>() {
    let device = S::plain();
    let mut host = Host::new(&device, &SMALL);
    let (ours, theirs) = endpoints(&device, &host, &host, 7);
    let one = host.queues.attach(ours).unwrap();
    let other = host.queues.attach(theirs).unwrap();
    let rkey = host.bind(other.qp, (0, 4096), BOTH);
    host.write(8192, b"written");
    let sgl = [host.sge(8192, 7)];
    let addr = host.at(0);
    host.post(one.qp, 1, SendOp::Write(Remote { addr, rkey }), &sgl);
    let sgl = [host.sge(9000, 7)];
    host.post_with(
        one.qp,
        2,
        SendOp::Read(Remote { addr, rkey }),
        &sgl,
        SendFlags::SIGNALED | SendFlags::FENCE,
    )
    .unwrap();
    let done = host.poll_dry();
    assert_eq!(brief(&done), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(host.read(9000, 7), b"written");
}
