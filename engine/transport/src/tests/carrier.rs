//! The transport over a carrier whose sides share neither memory nor keys: what it owes to no
//! carrier, decision 0016.

use rpcrdma_mempool::{Access, Registrar};
use rpcrdma_provider::{QueueEvent, Remote, SendOp, WcStatus};

use super::staging::*;
use crate::carrier::Outgoing;
use crate::conn::Conn;

const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;

#[test]
fn short_and_long_messages_are_staged_and_scattered() {
    for len in [0, 1, 224, 225, 5000] {
        let mut pair = pair();
        let [a, b] = &mut pair;
        let (head, tail) = (len / 3, len - len / 3);
        let sent = pattern(len, 1);
        a.bytes(0, head).copy_from_slice(&sent[..head]);
        a.bytes(9000, tail).copy_from_slice(&sent[head..]);
        let to = [b.sge(100, 200), b.sge(1000, 6000)];
        b.recv(7, &to);
        let from = [a.sge(0, head as u32), a.sge(9000, tail as u32)];
        a.post(1, SendOp::Send, &from);
        let [of_a, of_b] = poll_until_idle(&mut pair);
        assert_eq!(brief(&of_a), [(1, WcStatus::Success)]);
        assert_eq!(brief(&of_b), [(7, WcStatus::Success)]);
        assert_eq!(of_b[0].byte_len as usize, len);
        let mut got = pair[1].bytes(100, len.min(200)).to_vec();
        got.extend_from_slice(pair[1].bytes(1000, len.saturating_sub(200)));
        assert!(got == sent, "{len} bytes");
    }
}

#[test]
fn memory_is_written_and_read_under_keys_of_its_own_side() {
    for len in [8_usize, 3000] {
        let mut pair = pair();
        let [a, b] = &mut pair;
        a.bytes(0, len).copy_from_slice(&pattern(len, 2));
        b.bytes(20_000, len).copy_from_slice(&pattern(len, 3));
        let (into, from) = (b.sge(10_000, len as u32), b.sge(20_000, len as u32));
        let write = Remote { addr: into.addr, rkey: b.transport.expose(&into, WRITE).unwrap() };
        let read = Remote { addr: from.addr, rkey: b.transport.expose(&from, READ).unwrap() };
        let (out, back) = (a.sge(0, len as u32), a.sge(30_000, len as u32));
        a.post(1, SendOp::Write(write), &[out]);
        a.post(2, SendOp::Read(read), &[back]);
        let [of_a, of_b] = poll_until_idle(&mut pair);
        assert_eq!(brief(&of_a), [(1, WcStatus::Success), (2, WcStatus::Success)]);
        assert!(of_b.is_empty());
        assert!(pair[1].bytes(10_000, len) == pattern(len, 2));
        assert!(pair[0].bytes(30_000, len) == pattern(len, 3));
    }
}

#[test]
fn requests_wait_for_the_credits_of_the_carrier_and_keep_their_order() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    for id in 0..12 {
        let (from, to) = (a.sge(0, 8), b.sge(0, 8));
        b.recv(100 + id, &[to]);
        a.post(id, SendOp::Send, &[from]);
    }
    assert_eq!(a.transport.ends().unwrap().0.head(), SLOTS, "there is no room for more");
    let [of_a, of_b] = poll_until_idle(&mut pair);
    assert!(brief(&of_a) == (0..12).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
    assert!(brief(&of_b) == (100..112).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
}

#[test]
fn an_ack_waits_sixteen_idle_polls_for_an_answer_that_carries_it_unless_there_are_many() {
    for (messages, is_acked_at) in [(1, 17), (SLOTS / 4, 2)] {
        let mut pair = pair();
        let [a, b] = &mut pair;
        for id in 0..messages {
            let (from, to) = (a.sge(0, 8), b.sge(0, 8));
            b.recv(id, &[to]);
            a.post(id, SendOp::Send, &[from]);
        }
        let acked_at = (1..100).find(|_| {
            b.poll();
            a.transport.ends().unwrap().0.acks().taken() == messages
        });
        assert_eq!(acked_at, Some(is_acked_at), "{messages}");
    }
}

#[test]
fn a_wrong_key_is_refused_and_ends_both_sides() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let (from, to) = (a.sge(0, 3000), b.sge(0, 3000));
    let rkey = b.transport.expose(&to, READ).unwrap();
    a.post(1, SendOp::Write(Remote { addr: to.addr, rkey }), &[from]);
    a.post(2, SendOp::Send, &[a.sge(0, 8)]);
    let [of_a, of_b] = poll_until_idle(&mut pair);
    assert_eq!(brief(&of_a), [(1, WcStatus::RemoteAccess), (2, WcStatus::Flushed)]);
    assert!(of_b.is_empty());
    for side in &mut pair {
        let qp_num = side.num;
        assert_eq!(side.events(), [QueueEvent::Disconnected { qp_num }]);
    }
}

#[test]
fn a_withdrawn_message_takes_no_receive() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let from = a.sge(0, 3000);
    a.post(1, SendOp::Send, &[from]);
    assert!(b.poll().is_empty(), "it waits for a Receive");
    a.transport.disconnect(a.num);
    let to = b.sge(0, 3000);
    b.recv(9, &[to]);
    let [of_a, of_b] = poll_until_idle(&mut pair);
    assert_eq!(brief(&of_a), [(1, WcStatus::Flushed)]);
    assert!(of_b.is_empty());
    let qp_num = pair[1].num;
    assert_eq!(pair[1].events(), [QueueEvent::Disconnected { qp_num }]);
}

#[test]
fn dropping_one_side_flushes_the_other() {
    let [mut a, b] = pair();
    let from = a.sge(0, 3000);
    a.post(1, SendOp::Send, &[from]);
    drop(b);
    let mut done = Vec::new();
    (0..40).for_each(|_| done.extend(a.poll()));
    assert_eq!(brief(&done), [(1, WcStatus::Flushed)]);
    assert_eq!(a.events(), [QueueEvent::Disconnected { qp_num: a.num }]);
}

#[test]
fn a_message_of_a_peer_that_has_left_waits_for_its_receive_whatever_came_before() {
    let mut pair = pair();
    let laps = 3 * SLOTS;
    for _ in 0..laps / 4 {
        let [a, b] = &mut pair;
        let (from, to) = (a.sge(0, 8), b.sge(0, 8));
        (0..4).for_each(|id| b.recv(id, &[to]));
        (0..4).for_each(|id| a.post(id, SendOp::Send, &[from]));
        assert_eq!(poll_until_idle(&mut pair)[1].len(), 4);
    }
    let [mut a, mut b] = pair;
    let from = a.sge(0, 8);
    a.post(9, SendOp::Send, &[from]);
    drop(a);
    (0..40).for_each(|_| assert!(b.poll().is_empty(), "there is no Receive"));
    assert_eq!(b.events(), []);
    let to = b.sge(0, 8);
    b.recv(7, &[to]);
    let done: Vec<_> = (0..40).flat_map(|_| b.poll()).collect();
    assert_eq!(brief(&done), [(7, WcStatus::Success)]);
    assert_eq!(b.events(), [QueueEvent::Disconnected { qp_num: b.num }]);
}

#[test]
fn a_long_message_waits_for_room_for_its_bytes_and_short_ones_behind_it() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let lens = [3000_u32, 5000, 8, 225, 8, 8000, 8];
    let sent = pattern(8000, 5);
    a.bytes(0, 8000).copy_from_slice(&sent);
    for (at, len) in lens.into_iter().enumerate() {
        let (from, to) = (a.sge(0, len), b.sge(at * 8192, len));
        b.recv(100 + at as u64, &[to]);
        a.post(at as u64, SendOp::Send, &[from]);
    }
    assert_eq!(3000 + 5000, ROOM, "the first two take all of it");
    assert_eq!(a.transport.ends().unwrap().0.head(), 3, "there is a slot, and no room");
    assert!(a.transport.sleep_limit().is_some(), "it depends on the peer");
    let [of_a, of_b] = poll_until_idle(&mut pair);
    assert!(brief(&of_a) == (0..7).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
    assert!(brief(&of_b) == (100..107).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
    for (at, len) in lens.into_iter().enumerate() {
        assert!(*pair[1].bytes(at * 8192, len as usize) == sent[..len as usize], "message {at}");
    }
}

#[test]
fn a_message_that_waits_for_room_is_not_passed_by_those_of_other_queue_pairs() {
    let [mut a, mut b] = pair();
    let (conn, nums) = (Conn::new(), [a.num + 1, b.num + 1]);
    a.attach((1, 0), None, &conn, nums);
    b.attach((1, 1), None, &conn, [nums[1], nums[0]]);
    for at in 0..5 {
        let to = b.sge(0, 8000);
        b.recv(at, &[to]);
    }
    let (short, long) = (a.sge(0, 3000), a.sge(0, 8000));
    for (num, sge) in
        [(a.num, short), (a.num, long), (nums[0], short), (nums[0], short), (a.num, short)]
    {
        a.post_to(num, 1, SendOp::Send, &[sge]);
    }
    let [of_a, of_b] = poll_until_idle(&mut [a, b]);
    assert_eq!(of_a.len(), 5);
    let got: Vec<u32> = of_b.iter().map(|wc| wc.byte_len).collect();
    assert_eq!(got, [3000, 8000, 3000, 3000, 3000]);
}

#[test]
fn the_data_of_a_read_arrive_with_its_completion() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    b.bytes(0, 3000).copy_from_slice(&pattern(3000, 6));
    let (from, to) = (b.sge(0, 3000), a.sge(0, 3000));
    let rkey = b.transport.expose(&from, READ).unwrap();
    a.post(1, SendOp::Read(Remote { addr: from.addr, rkey }), &[to]);
    (0..40).for_each(|_| assert!(b.poll().is_empty()));
    assert_eq!(a.bytes(0, 3000), [0; 3000], "they wait on the way");
    let [of_a, _] = poll_until_idle(&mut pair);
    assert_eq!(brief(&of_a), [(1, WcStatus::Success)]);
    assert!(*pair[0].bytes(0, 3000) == pattern(3000, 6));
}

#[test]
fn a_peer_that_sleeps_is_woken_when_its_read_is_executed() {
    let there = Way::new();
    let [mut a, mut b] = pair_over([&there, &Way::new()]);
    let (from, to) = (b.sge(0, 8), a.sge(0, 8));
    let rkey = b.transport.expose(&from, READ).unwrap();
    a.post(1, SendOp::Read(Remote { addr: from.addr, rkey }), &[to]);
    let wakes = (0..9).find_map(|_| {
        there.wakes.set(0);
        b.poll();
        there.slot(0).outcome.get().map(|_| there.wakes.get())
    });
    assert!(wakes > Some(0), "{wakes:?}");
    (0..40).for_each(|_| drop(b.poll()));
    there.wakes.set(0);
    (0..40).for_each(|_| drop(b.poll()));
    assert_eq!(there.wakes.get(), 0, "nothing else has happened");
}

#[test]
fn a_read_whose_own_memory_is_gone_fails_and_its_peer_is_disconnected() {
    let mut pair = pair();
    let [a, b] = &mut pair;
    let (from, to) = (b.sge(0, 3000), a.sge(0, 3000));
    let rkey = b.transport.expose(&from, READ).unwrap();
    a.post(1, SendOp::Read(Remote { addr: from.addr, rkey }), &[to]);
    a.table.deregister(a.keys).unwrap();
    let [of_a, _] = poll_until_idle(&mut pair);
    assert_eq!(brief(&of_a), [(1, WcStatus::LocalProtection)]);
    assert_eq!(pair[0].bytes(0, 3000), [0; 3000]);
    for side in &mut pair {
        let qp_num = side.num;
        assert_eq!(side.events(), [QueueEvent::Disconnected { qp_num }]);
    }
}
