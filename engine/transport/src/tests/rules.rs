//! The rules that the transport keeps whatever its carrier is: keys, bounds, rights, lengths,
//! order, acks, depths.
#![expect(unsafe_code, reason = "requests are posted by hand")]

use rpcrdma_mempool::{Access, Sge};
use rpcrdma_provider::{PostError, QueueEvent, Remote, SendFlags, SendOp, SendWr, WcStatus, WrId};

use super::staging::*;

const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;
/// What a key opens: so many bytes, from the tenth kibibyte of the memory on.
const OPEN: usize = 300;
const AT: usize = 10 << 10;

/// A request of the first side for memory of the second one.
#[derive(Clone, Copy)]
struct Request {
    op: fn(Remote) -> SendOp,
    /// What the key permits.
    access: Access,
    /// Bytes between the first that the key opens and the first of the request.
    skip: i64,
    len: u32,
}

/// One of each kind, which its key permits.
const BOTH: [Request; 2] = [
    Request { op: SendOp::Write, access: WRITE, skip: 0, len: 8 },
    Request { op: SendOp::Read, access: READ, skip: 0, len: 8 },
];

/// How a request ends, under a key that `key` has changed.
fn outcome(request: Request, key: impl FnOnce(&mut Side, u32) -> u32) -> WcStatus {
    let Request { op, access, skip, len } = request;
    let mut pair = pair();
    let [a, b] = &mut pair;
    let opened = b.sge(AT, OPEN as u32);
    let rkey = b.transport.expose(&opened, access).unwrap();
    let remote = Remote { addr: opened.addr.wrapping_add_signed(skip), rkey: key(b, rkey) };
    b.bytes(0, MEMORY).fill(7);
    a.bytes(0, MEMORY).fill(9);
    let own = a.sge(0, len);
    a.post(1, op(remote), &[own]);
    let [of_a, of_b] = poll_until_idle(&mut pair);
    let [a, b] = &mut pair;
    assert_eq!((of_a.len(), of_b.len()), (1, 0));
    let (status, nums) = (of_a[0].status, [a.num, b.num]);
    let is_done = status == WcStatus::Success;
    for (side, qp_num) in [a, b].into_iter().zip(nums) {
        let ended = [QueueEvent::Disconnected { qp_num }];
        assert_eq!(side.events(), if is_done { &[][..] } else { &ended }, "{status:?}");
    }
    let [a, b] = &mut pair;
    let (is_read, len) = (matches!(op(remote), SendOp::Read(_)), len as usize);
    let (copied, kept) = if is_read { (a.bytes(0, MEMORY), 9) } else { (b.bytes(0, MEMORY), 7) };
    let there = if is_read { 0 } else { (AT as i64 + skip) as usize };
    let written = copied.iter().enumerate().filter(|(_, byte)| **byte != kept);
    let written: Vec<usize> = written.map(|(at, _)| at).collect();
    let expected = if is_done { (there..there + len).collect() } else { vec![] };
    assert!(written == expected, "{status:?}: {} bytes are written", written.len());
    status
}

fn same(_: &mut Side, rkey: u32) -> u32 {
    rkey
}

#[test]
fn a_request_stays_within_the_bytes_that_its_key_opens() {
    let all = OPEN as u32;
    for request in BOTH {
        for (skip, len) in [(0, 0), (0, 1), (0, all), (1, all - 1), (299, 1), (300, 0)] {
            let status = outcome(Request { skip, len, ..request }, same);
            assert_eq!(status, WcStatus::Success, "{skip} {len}");
        }
        let low = -(1_i64 << 62);
        for (skip, len) in [(0, all + 1), (1, all), (-1, 1), (-1, all), (300, 1), (low, 1)] {
            let status = outcome(Request { skip, len, ..request }, same);
            assert_eq!(status, WcStatus::RemoteAccess, "{skip} {len}");
        }
    }
}

#[test]
fn a_key_permits_what_it_was_made_for_as_long_as_it_is_exposed() {
    for request in BOTH {
        let other = (READ | WRITE).difference(request.access);
        assert_eq!(outcome(Request { access: READ | WRITE, ..request }, same), WcStatus::Success);
        assert_eq!(outcome(Request { access: other, ..request }, same), WcStatus::RemoteAccess);
        let concealed = |side: &mut Side, rkey| {
            side.transport.conceal(rkey);
            rkey
        };
        assert_eq!(outcome(request, concealed), WcStatus::RemoteAccess);
        for bit in 0..32 {
            let changed = |_: &mut Side, rkey| rkey ^ 1 << bit;
            assert_eq!(outcome(request, changed), WcStatus::RemoteAccess, "{bit}");
        }
        let own = |side: &mut Side, _| side.keys.rkey;
        assert_eq!(outcome(request, own), WcStatus::RemoteAccess);
    }
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides_and_one_as_long_does_not() {
    for (len, room) in [(8, 8), (9, 8), (224, 224), (225, 224), (3000, 3000), (3001, 3000)] {
        let mut pair = pair();
        let [a, b] = &mut pair;
        a.bytes(0, 4000).fill(9);
        let to = [b.sge(0, room - 4), b.sge(8000, 4)];
        b.recv(7, &to);
        let from = a.sge(0, len);
        a.post(1, SendOp::Send, &[from]);
        let [of_a, of_b] = poll_until_idle(&mut pair);
        let fits = len <= room;
        let expected = if fits { WcStatus::Success } else { WcStatus::LocalLength };
        assert_eq!(brief(&of_b), [(7, expected)], "{len} in {room}");
        assert_eq!(of_a[0].status == WcStatus::Success, fits, "{len} in {room}");
        for side in &mut pair {
            assert_eq!(side.events().is_empty(), fits);
        }
        let beyond = pair[1].bytes(room as usize - 4, 4000);
        assert!(beyond.iter().all(|byte| *byte == 0), "{len} in {room}");
    }
}

#[test]
fn memory_that_is_not_registered_is_not_sent() {
    let end = MEMORY as u64;
    for (skip, is_foreign, status) in [
        (0, false, WcStatus::Success),
        (end - 8, false, WcStatus::Success),
        (end - 7, false, WcStatus::LocalProtection),
        (u64::MAX, false, WcStatus::LocalProtection),
        (0, true, WcStatus::LocalProtection),
    ] {
        let mut pair = pair();
        let [a, b] = &mut pair;
        let to = b.sge(0, 8);
        b.recv(7, &[to]);
        let whole = a.sge(0, 8);
        let lkey = if is_foreign { b.keys.lkey } else { whole.lkey };
        let from = Sge { addr: whole.addr.wrapping_add(skip), lkey, ..whole };
        a.post(1, SendOp::Send, &[from]);
        let [of_a, of_b] = poll_until_idle(&mut pair);
        assert_eq!(brief(&of_a), [(1, status)], "{skip}, foreign {is_foreign}");
        assert_eq!(of_b.len(), usize::from(status == WcStatus::Success), "{skip}");
    }
}

#[test]
fn a_request_is_done_when_it_was_taken_and_not_before() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let (from, to) = (a.sge(0, 8), b.sge(0, 8));
    for id in 0..3 {
        a.post(id, SendOp::Send, &[from]);
    }
    (0..100).for_each(|_| assert!(a.poll().is_empty(), "nothing is taken"));
    for id in 0..3 {
        pair[1].recv(100 + id, &[to]);
        let [of_a, of_b] = poll_until_idle(&mut pair);
        assert_eq!(brief(&of_b), [(100 + id, WcStatus::Success)]);
        assert_eq!(brief(&of_a), [(id, WcStatus::Success)]);
    }
}

/// Places in the queue, not slots of the carrier, of which there are fewer.
#[test]
fn a_queue_takes_as_many_requests_as_it_is_deep_and_more_when_some_are_done() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let from = [a.sge(0, 8)];
    let (op, flags) = (SendOp::Send, SendFlags::SIGNALED);
    let wr = |id: u32| SendWr { wr_id: WrId(id.into()), op, sgl: &from, flags };
    let depth = u64::from(ATTR.send_depth);
    // SAFETY: the region lives as long as the side, and is let be.
    let taken = unsafe { a.transport.post_send(a.num, (0..20_u32).map(wr)) };
    assert_eq!(taken.of(20), (depth as usize, Some(PostError::QueueFull)));
    for id in 0..depth + 1 {
        let to = b.sge(0, 8);
        b.recv(100 + id, &[to]);
    }
    let [of_a, _] = poll_until_idle(&mut pair);
    assert!(brief(&of_a) == (0..depth).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
    pair[0].post(depth, SendOp::Send, &from);
    let [of_a, of_b] = poll_until_idle(&mut pair);
    assert_eq!(brief(&of_a), [(depth, WcStatus::Success)]);
    assert_eq!(brief(&of_b), [(100 + depth, WcStatus::Success)]);
}

#[test]
fn what_is_posted_behind_the_end_of_a_connection_is_flushed_in_order() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let (from, to) = (a.sge(0, 8), b.sge(0, 8));
    b.recv(100, &[to]);
    for id in 0..3 {
        a.post(id, SendOp::Send, &[from]);
    }
    b.transport.disconnect(b.num);
    a.post(3, SendOp::Send, &[from]);
    let [of_a, of_b] = poll_until_idle(&mut pair);
    assert!(of_b.is_empty(), "its Receive is for other connections");
    let flushed = |id| (id, WcStatus::Flushed);
    assert_eq!(brief(&of_a), [0, 1, 2, 3].map(flushed));
    pair[0].post(4, SendOp::Send, &[from]);
    let [of_a, _] = poll_until_idle(&mut pair);
    assert_eq!(brief(&of_a), [flushed(4)]);
    let gone = pair[0].num;
    pair[0].transport.destroy(gone);
    let wr =
        [SendWr { wr_id: WrId(5), op: SendOp::Send, sgl: &[from], flags: SendFlags::SIGNALED }];
    // SAFETY: nothing is taken.
    let taken = unsafe { pair[0].transport.post_send(gone, wr.into_iter()) };
    assert_eq!(taken.of(1), (0, Some(PostError::QpGone)));
}
