//! Memory windows: valid bindings, the access of a key, and its end.

use rpcrdma_mempool::Access;
use rpcrdma_provider::{
    Bind, PostError, QueueEvent, Queues, Remote, SendFlags, SendOp, WcOpcode, WcStatus, Window,
    WindowId, WorkCompletion, WrId,
};

use crate::host::*;
use crate::subject::{Options, Subject};

pub(super) const READ: Access = Access::REMOTE_READ;
pub(super) const WRITE: Access = Access::REMOTE_WRITE;

fn seeded<S: Subject>(key_seed: u64, windows: u32) -> S {
    let options = Options { key_seed: Some(key_seed), windows: Some(windows), ..FEW };
    S::made(&options).unwrap()
}

/// A writes to B under a key, and how that ends at A.
pub(super) fn write<S: Subject>(pair: &mut Pair<S>, rkey: u32, addr: u64, len: u32) -> WcStatus {
    let sgl = [pair.a.sge(0, len)];
    pair.a.post(pair.qa.qp, 77, SendOp::Write(Remote { addr, rkey }), &sgl);
    outcome(pair)
}

/// How the request 77 of A ends. Without acks its connection ends if it is refused.
pub(super) fn outcome<S: Subject>(pair: &mut Pair<S>) -> WcStatus {
    let status = status_of(pair, 77);
    if S::HAS_ACKS || status != WcStatus::Success {
        return status;
    }
    pair.a.post(pair.qa.qp, 78, SendOp::Write(Remote { addr: 0, rkey: 0 }), &[]);
    match status_of(pair, 78) {
        WcStatus::Flushed => WcStatus::RemoteAccess,
        status => status,
    }
}

fn status_of<S: Subject>(pair: &mut Pair<S>, id: u64) -> WcStatus {
    let mut done = Vec::new();
    for _ in 0..3 {
        pair.b.poll_dry();
        done.extend(pair.a.poll_dry());
    }
    done.iter().find(|wc| wc.wr_id.0 == id).expect("it completes").status
}

pub(super) fn read<S: Subject>(pair: &mut Pair<S>, rkey: u32, addr: u64, len: u32) -> WcStatus {
    let sgl = [pair.a.sge(0, len)];
    pair.a.post(pair.qa.qp, 77, SendOp::Read(Remote { addr, rkey }), &sgl);
    outcome(pair)
}

pub(crate) fn a_bound_window_opens_its_bytes_and_not_one_more<S: Subject>() {
    let inside = [(4096, 64), (4096, 1), (4159, 1), (4100, 0), (0, 0)];
    let outside = [(4095, 1), (4096, 65), (4160, 1), (4159, 2), (0, 64)];
    let all = inside.map(|range| (range, true)).into_iter();
    for ((offset, len), is_allowed) in all.chain(outside.map(|range| (range, false))) {
        let mut pair = Pair::<S>::small();
        let rkey = pair.b.bind(pair.qb.qp, (4096, 64), READ | WRITE);
        let addr = pair.b.at(offset);
        let expected = if is_allowed { WcStatus::Success } else { WcStatus::RemoteAccess };
        assert_eq!(write(&mut pair, rkey, addr, len), expected, "{len} bytes at {offset}");
        let mut pair = Pair::<S>::small();
        let rkey = pair.b.bind(pair.qb.qp, (4096, 64), READ | WRITE);
        let addr = pair.b.at(offset);
        assert_eq!(read(&mut pair, rkey, addr, len), expected, "{len} bytes at {offset}");
    }
}

pub(crate) fn a_range_that_wraps_around_is_outside<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let rkey = pair.b.bind(pair.qb.qp, (0, 64), WRITE);
    assert_eq!(write(&mut pair, rkey, u64::MAX - 3, 8), WcStatus::RemoteAccess);
}

pub(crate) fn a_key_gives_the_bound_rights_only<S: Subject>() {
    for (access, reads, writes) in
        [(READ, true, false), (WRITE, false, true), (READ | WRITE, true, true)]
    {
        let status =
            |is_allowed| if is_allowed { WcStatus::Success } else { WcStatus::RemoteAccess };
        let mut pair = Pair::<S>::small();
        let rkey = pair.b.bind(pair.qb.qp, (0, 64), access);
        let addr = pair.b.at(0);
        assert_eq!(read(&mut pair, rkey, addr, 64), status(reads));
        let mut pair = Pair::<S>::small();
        let rkey = pair.b.bind(pair.qb.qp, (0, 64), access);
        let addr = pair.b.at(0);
        assert_eq!(write(&mut pair, rkey, addr, 64), status(writes));
    }
}

pub(crate) fn a_wrong_key_ends_both_queue_pairs_and_no_others<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (qa2, qb2) = pair.another();
    let rkey = pair.b.bind(pair.qb.qp, (0, 64), WRITE);
    pair.b.write(0, b"untouched");
    let addr = pair.b.at(0);
    pair.a.write(0, b"overwrite");
    assert_eq!(write(&mut pair, rkey ^ 0x100, addr, 9), WcStatus::RemoteAccess);
    assert_eq!(pair.b.read(0, 9), b"untouched");
    assert_eq!(pair.a.events(), [QueueEvent::Disconnected { qp_num: pair.qa.qp_num }]);
    assert_eq!(pair.b.events(), [QueueEvent::Disconnected { qp_num: pair.qb.qp_num }]);
    pair.b.recv(10, 64, 64);
    pair.a.send(qa2.qp, 1, b"fine").unwrap();
    assert_eq!(pair.b.poll_dry(), [received(10, qb2, 4)]);
}

pub(crate) fn a_key_of_another_queue_pair_gives_no_access<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (_, qb2) = pair.another();
    let rkey = pair.b.bind(qb2.qp, (0, 64), READ | WRITE);
    let addr = pair.b.at(0);
    assert_eq!(write(&mut pair, rkey, addr, 8), WcStatus::RemoteAccess);
}

pub(crate) fn a_send_behind_a_bind_carries_a_valid_key<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let mut window = pair.b.queues.open_window().unwrap();
    let (bind, rkey) = pair.b.binding(&mut window, (0, 64), READ);
    pair.b.write(0, b"bound");
    pair.a.recv(20, 128, 64);
    pair.b.post(pair.qb.qp, 1, bind, &[]);
    pair.b.send(pair.qb.qp, 2, &rkey.to_le_bytes()).unwrap();
    assert_eq!(pair.a.poll_dry(), [received(20, pair.qa, 4)]);
    let addr = pair.b.at(0);
    assert_eq!(read(&mut pair, rkey, addr, 5), WcStatus::Success);
    assert_eq!(pair.a.read(0, 5), b"bound");
}

pub(crate) fn a_bind_completes_without_the_peer_and_behind_what_was_sent_before<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let mut window = pair.a.queues.open_window().unwrap();
    let (bind, rkey) = pair.a.binding(&mut window, (0, 64), READ);
    pair.a.post(pair.qa.qp, 1, bind, &[]);
    let bound = |wr_id, opcode| WorkCompletion {
        wr_id: WrId(wr_id),
        qp_num: pair.qa.qp_num,
        status: WcStatus::Success,
        opcode,
        byte_len: 0,
        invalidated: None,
    };
    assert_eq!(pair.a.poll(), [bound(1, WcOpcode::Bind)]);
    pair.a.send(pair.qa.qp, 2, b"before").unwrap();
    pair.a.post(pair.qa.qp, 3, SendOp::Invalidate { rkey }, &[]);
    let mut done = pair.a.poll_dry();
    assert!(done.is_empty() || !S::HAS_ACKS, "the Send comes first");
    pair.b.recv(10, 0, 64);
    pair.b.poll_dry();
    done.extend(pair.a.poll_dry());
    assert_eq!(done, [bound(2, WcOpcode::Send), bound(3, WcOpcode::Invalidate)]);
    pair.a.send(pair.qa.qp, 4, b"x").unwrap();
}

pub(crate) fn local_requests_free_their_places_and_complete_in_order_among_all_others<
    S: Subject,
>() {
    let mut pair = Pair::<S>::small();
    let mut window = pair.a.queues.open_window().unwrap();
    let mut id = 0;
    for round in 0..40_u64 {
        pair.b.recv(round, 1024, 64);
        let mut flags = SendFlags::SIGNALED;
        flags.set(SendFlags::SIGNALED, round % 3 != 0);
        let (bind, rkey) = pair.a.binding(&mut window, (0, 64), READ);
        let sgl = [pair.a.sge(512, 8)];
        for (op, sgl) in
            [(bind, &[][..]), (SendOp::Send, &sgl[..]), (SendOp::Invalidate { rkey }, &[][..])]
        {
            pair.a.post_with(pair.qa.qp, id, op, sgl, flags).unwrap();
            id += 1;
        }
        if round % 8 == 7 {
            pair.b.poll_dry();
            let done = pair.a.poll_dry();
            let ids: Vec<u64> = done.iter().map(|wc| wc.wr_id.0).collect();
            let expected = (id - 24..id).filter(|id| (id / 3) % 3 != 0);
            assert_eq!(ids, expected.collect::<Vec<_>>());
            let opcodes = [WcOpcode::Bind, WcOpcode::Send, WcOpcode::Invalidate];
            assert!(done.iter().all(|wc| wc.opcode == opcodes[wc.wr_id.0 as usize % 3]));
        }
    }
}

/// Posts a Bind that breaks a rule: it fails behind what was posted before it.
fn fails<S: Subject>(pair: &mut Pair<S>, op: SendOp) {
    let Pair { a, b, qa, qb, .. } = pair;
    b.recv(10, 0, 64);
    a.send(qa.qp, 1, b"before").unwrap();
    a.post_with(qa.qp, 2, op, &[], SendFlags::empty()).unwrap();
    a.send(qa.qp, 3, b"behind").unwrap();
    assert_eq!(b.poll_dry(), [received(10, *qb, 6)]);
    let done = brief(&a.poll_dry());
    let bind = WcStatus::MemoryWindowBind;
    assert_eq!(done, [(1, WcStatus::Success), (2, bind), (3, WcStatus::Flushed)]);
    b.poll_dry();
    assert_eq!(b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
    assert_eq!(a.events(), [QueueEvent::Disconnected { qp_num: qa.qp_num }]);
}

pub(crate) fn every_rule_of_binding_fails_its_request_and_the_queue_pair<S: Subject>() {
    let size = 256_u64 << 10;
    let broken: [fn(&mut Bind); 8] = [
        |bind| bind.window = WindowId(1),
        |bind| bind.rkey = bind.rkey.wrapping_add(0x100),
        |bind| bind.rkey = bind.rkey.wrapping_sub(1),
        |bind| bind.lkey ^= 0x4000,
        |bind| bind.addr -= 1,
        |bind| bind.len += 1,
        |bind| bind.len = 0,
        |bind| bind.access |= Access::LOCAL_WRITE,
    ];
    for rule in 0..=broken.len() {
        let mut pair = Pair::<S>::small();
        let mut window = pair.a.queues.open_window().unwrap();
        let (op, _) = pair.a.binding(&mut window, (0, size as u32), READ);
        let SendOp::Bind(mut bind) = op else { unreachable!() };
        match broken.get(rule) {
            Some(break_it) => {
                break_it(&mut bind);
                fails(&mut pair, SendOp::Bind(bind));
            }
            // The whole region is not too much.
            None => {
                pair.a.post(pair.qa.qp, 1, op, &[]);
                assert_eq!(brief(&pair.a.poll()), [(1, WcStatus::Success)]);
            }
        }
    }
}

pub(crate) fn a_window_that_is_bound_is_not_bound_again_before_it_was_invalidated<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let mut window = pair.a.queues.open_window().unwrap();
    let (bind, rkey) = pair.a.binding(&mut window, (0, 64), READ);
    pair.a.post(pair.qa.qp, 1, bind, &[]);
    pair.a.post(pair.qa.qp, 2, SendOp::Invalidate { rkey }, &[]);
    let (bind, _) = pair.a.binding(&mut window, (0, 64), READ);
    pair.a.post(pair.qa.qp, 3, bind, &[]);
    let success = WcStatus::Success;
    assert_eq!(brief(&pair.a.poll_dry()), [(1, success), (2, success), (3, success)]);
    let (again, _) = pair.a.binding(&mut window, (0, 64), READ);
    fails(&mut pair, again);
}

pub(crate) fn a_region_is_bound_only_as_it_was_registered<S: Subject>() {
    let rules = [
        (Access::MW_BIND, READ, true),
        (Access::MW_BIND, WRITE, false),
        (Access::MW_BIND | Access::LOCAL_WRITE, WRITE, true),
        (Access::LOCAL_WRITE, READ, false),
        (Access::LOCAL_WRITE | READ, READ, false),
    ];
    for (registered, wanted, is_allowed) in rules {
        let mut pair = Pair::<S>::small();
        let region = map::<S>(4096);
        let keys = register(&pair.device, &region, registered);
        let mut window = pair.a.queues.open_window().unwrap();
        let (op, _) = pair.a.binding(&mut window, (0, 64), wanted);
        let SendOp::Bind(bind) = op else { unreachable!() };
        let addr = region.base().as_ptr() as u64;
        let op = SendOp::Bind(Bind { lkey: keys.lkey, addr, ..bind });
        if is_allowed {
            pair.a.post(pair.qa.qp, 1, op, &[]);
            assert_eq!(brief(&pair.a.poll()), [(1, WcStatus::Success)]);
        } else {
            fails(&mut pair, op);
        }
        pair.device.registrar().deregister(keys).unwrap();
    }
}

pub(crate) fn a_window_on_a_deregistered_region_gives_no_access<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let region = map::<S>(4096);
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let keys = register(&pair.device, &region, access);
    let mut window = pair.b.queues.open_window().unwrap();
    let (op, rkey) = pair.b.binding(&mut window, (0, 64), WRITE);
    let SendOp::Bind(bind) = op else { unreachable!() };
    let addr = region.base().as_ptr() as u64;
    pair.b.post(pair.qb.qp, 1, SendOp::Bind(Bind { lkey: keys.lkey, addr, ..bind }), &[]);
    pair.device.registrar().deregister(keys).unwrap();
    drop(region);
    assert_eq!(write(&mut pair, rkey, addr, 8), WcStatus::RemoteAccess);
}

pub(crate) fn an_invalidated_key_stays_invalid_for_all_later_bindings<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let mut window = pair.b.queues.open_window().unwrap();
    let (bind, stale) = pair.b.binding(&mut window, (0, 64), WRITE);
    pair.b.post(pair.qb.qp, 1, bind, &[]);
    pair.b.post(pair.qb.qp, 2, SendOp::Invalidate { rkey: stale }, &[]);
    let (bind, fresh) = pair.b.binding(&mut window, (0, 64), WRITE);
    pair.b.post(pair.qb.qp, 3, bind, &[]);
    assert_eq!(pair.b.poll().len(), 3);
    let addr = pair.b.at(0);
    assert_eq!(write(&mut pair, fresh, addr, 8), WcStatus::Success);
    assert_eq!(write(&mut pair, stale, addr, 8), WcStatus::RemoteAccess);
}

pub(crate) fn a_request_in_flight_when_its_key_is_invalidated_accesses_nothing<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let rkey = pair.b.bind(pair.qb.qp, (0, 64), WRITE);
    pair.b.write(0, &[1; 64]);
    pair.a.write(0, &[2; 64]);
    let (sgl, addr) = ([pair.a.sge(0, 64)], pair.b.at(0));
    pair.a.post(pair.qa.qp, 77, SendOp::Write(Remote { addr, rkey }), &sgl);
    pair.b.post(pair.qb.qp, 1, SendOp::Invalidate { rkey }, &[]);
    assert_eq!(brief(&pair.b.poll())[0], (1, WcStatus::Success));
    assert_eq!(outcome(&mut pair), WcStatus::RemoteAccess);
    assert_eq!(pair.b.read(0, 64), [1; 64]);
}

pub(crate) fn only_a_key_of_its_own_queue_pair_can_be_invalidated<S: Subject>() {
    for which in 0..5 {
        let mut pair = Pair::<S>::small();
        let (qa2, _) = pair.another();
        let rkey = match which {
            0 => 0x8765_4321,
            1 => pair.a.keys.rkey,
            2 => pair.a.bind(qa2.qp, (0, 64), READ),
            3 => pair.a.queues.open_window().unwrap().rkey,
            _ => pair.a.expose(&pair.a.sge(0, 64), READ).unwrap(),
        };
        fails(&mut pair, SendOp::Invalidate { rkey });
    }
}

pub(crate) fn a_send_that_invalidates_kills_the_key_before_its_receive_completes<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let mut window = pair.b.queues.open_window().unwrap();
    let (bind, rkey) = pair.b.binding(&mut window, (0, 64), READ | WRITE);
    pair.b.post_with(pair.qb.qp, 0, bind, &[], SendFlags::empty()).unwrap();
    pair.b.recv(10, 64, 64);
    let sgl = [pair.a.sge(0, 8)];
    pair.a.post(pair.qa.qp, 1, SendOp::SendInvalidate { rkey }, &sgl);
    let got = pair.b.poll_dry();
    assert_eq!(got, [WorkCompletion { invalidated: Some(rkey), ..received(10, pair.qb, 8) }]);
    assert_eq!(brief(&pair.a.poll_dry()), [(1, WcStatus::Success)]);
    // The window is bound to nothing again.
    let (bind, fresh) = pair.b.binding(&mut window, (0, 64), READ | WRITE);
    pair.b.post(pair.qb.qp, 2, bind, &[]);
    assert_eq!(brief(&pair.b.poll()), [(2, WcStatus::Success)]);
    let addr = pair.b.at(0);
    assert_eq!(write(&mut pair, fresh, addr, 8), WcStatus::Success);
    assert_eq!(write(&mut pair, rkey, addr, 8), WcStatus::RemoteAccess);
}

pub(crate) fn a_send_with_a_foreign_or_dead_key_takes_no_receive_and_ends_the_connection<
    S: Subject,
>() {
    for which in 0..4 {
        let mut pair = Pair::<S>::small();
        let (_, qb2) = pair.another();
        let rkey = match which {
            0 => 0x8765_4321,
            1 => pair.b.bind(qb2.qp, (0, 64), READ),
            2 => pair.b.queues.open_window().unwrap().rkey,
            _ => pair.b.expose(&pair.b.sge(0, 64), READ).unwrap(),
        };
        pair.b.recv(10, 64, 64);
        let sgl = [pair.a.sge(0, 8)];
        pair.a.post(pair.qa.qp, 77, SendOp::SendInvalidate { rkey }, &sgl);
        assert_eq!(pair.b.poll_dry(), []);
        assert_eq!(outcome(&mut pair), WcStatus::RemoteAccess);
        assert_eq!(pair.b.events().len(), 1);
    }
}

pub(crate) fn a_send_that_waits_for_a_receive_has_not_invalidated_yet<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let rkey = pair.b.bind(pair.qb.qp, (0, 64), READ);
    let sgl = [pair.a.sge(0, 8)];
    pair.a.post(pair.qa.qp, 1, SendOp::SendInvalidate { rkey }, &sgl);
    assert_eq!(pair.b.poll_dry(), []);
    // Otherwise this would fail.
    pair.b.post(pair.qb.qp, 2, SendOp::Invalidate { rkey }, &[]);
    assert_eq!(brief(&pair.b.poll_dry()), [(2, WcStatus::Success)]);
    pair.b.recv(10, 64, 64);
    assert_eq!(pair.b.poll_dry(), [], "but now the key is unknown");
    assert_eq!(brief(&pair.a.poll_dry()), [(1, sent_or::<S>(WcStatus::RemoteAccess))]);
    assert_eq!(pair.a.events(), [QueueEvent::Disconnected { qp_num: pair.qa.qp_num }]);
}

pub(crate) fn the_windows_of_a_lost_queue_pair_are_closed_and_after_its_destruction_free<
    S: Subject,
>() {
    let mut pair = Pair::<S>::small();
    let mut window = pair.b.queues.open_window().unwrap();
    let (bind, rkey) = pair.b.binding(&mut window, (0, 64), WRITE);
    pair.b.post(pair.qb.qp, 1, bind, &[]);
    pair.b.write(0, &[1; 64]);
    pair.a.write(0, &[2; 64]);
    let (sgl, addr) = ([pair.a.sge(0, 64)], pair.b.at(0));
    pair.a.post(pair.qa.qp, 77, SendOp::Write(Remote { addr, rkey }), &sgl);
    pair.b.queues.disconnect(pair.qb.qp);
    pair.b.poll_dry();
    assert_eq!(pair.b.read(0, 64), [1; 64], "nothing arrives at a failed queue pair");
    let (_, qb2) = pair.another();
    pair.b.queues.destroy(pair.qb.qp);
    let (bind, _) = pair.b.binding(&mut window, (0, 64), WRITE);
    pair.b.post(qb2.qp, 2, bind, &[]);
    assert_eq!(brief(&pair.b.poll_dry()), [(2, WcStatus::Success)]);
}

pub(crate) fn a_window_of_a_failed_queue_pair_is_renewed_with_another_key<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (_, qb2) = pair.another();
    let mut window = pair.b.queues.open_window().unwrap();
    let (bind, rkey) = pair.b.binding(&mut window, (0, 64), WRITE);
    pair.b.post(pair.qb.qp, 1, bind, &[]);
    pair.b.queues.disconnect(pair.qb.qp);
    pair.b.poll_dry();
    let mut renewed = pair.b.queues.renew_window(window.id).unwrap().unwrap();
    assert_eq!(renewed.id, window.id);
    assert_ne!(renewed.rkey, rkey, "the old key is detected");
    let (bind, _) = pair.b.binding(&mut renewed, (0, 64), WRITE);
    pair.b.post(qb2.qp, 2, bind, &[]);
    assert_eq!(brief(&pair.b.poll_dry()), [(2, WcStatus::Success)], "bound to nothing it was");
    pair.b.queues.destroy(pair.qb.qp);
    // That of another queue pair is left alone.
    let (again, _) = pair.b.binding(&mut renewed, (0, 64), WRITE);
    pair.b.post(qb2.qp, 3, again, &[]);
    let failed = (3, WcStatus::MemoryWindowBind);
    assert_eq!(brief(&pair.b.poll_dry())[0], failed, "it is bound already");
}

pub(crate) fn a_window_that_was_never_opened_is_not_renewed<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let window = pair.b.queues.open_window().unwrap();
    assert!(pair.b.queues.renew_window(WindowId(window.id.0 + 1)).is_err());
    // A registration is no window.
    let sge = pair.b.sge(0, 64);
    pair.b.expose(&sge, Access::REMOTE_READ).unwrap();
    assert!(pair.b.queues.renew_window(WindowId(window.id.0 + 1)).is_err());
}

pub(crate) fn a_window_of_a_failed_queue_pair_is_taken_until_it_is_destroyed<S: Subject>() {
    let mut pair = Pair::<S>::small();
    let (qa2, _) = pair.another();
    let mut window = pair.a.queues.open_window().unwrap();
    let (bind, _) = pair.a.binding(&mut window, (0, 64), WRITE);
    pair.a.post_with(qa2.qp, 1, bind, &[], SendFlags::empty()).unwrap();
    pair.a.queues.disconnect(qa2.qp);
    pair.b.poll_dry();
    assert_eq!(pair.b.events().len(), 1);
    let (bind, _) = pair.a.binding(&mut window, (0, 64), WRITE);
    fails(&mut pair, bind);
}

pub(crate) fn the_number_of_windows_is_limited_and_dropped_queues_return_theirs<S: Subject>() {
    let device = seeded::<S>(1, 3);
    assert_eq!(device.caps().windows, 3);
    let mut one = Host::new(&device, &SMALL);
    let mut other = Host::new(&device, &SMALL);
    one.queues.open_window().unwrap();
    other.queues.open_window().unwrap();
    one.queues.open_window().unwrap();
    assert!(one.queues.open_window().is_err());
    drop(one);
    other.queues.open_window().unwrap();
    other.queues.open_window().unwrap();
    assert!(other.queues.open_window().is_err());
}

pub(crate) fn a_device_without_windows_reports_none<S: Subject>() {
    let device = seeded::<S>(1, 0);
    assert_eq!(device.caps().windows, 0);
    let (mut a, mut b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let (qa, _) = connect(&device, &mut a, &mut b, 7);
    assert!(a.queues.open_window().is_err());
    let (op, _) = a.binding(&mut Window { id: WindowId(0), rkey: 0 }, (0, 64), READ);
    let refused = a.post_with(qa.qp, 1, op, &[], SendFlags::SIGNALED);
    assert_eq!(refused, Err((0, PostError::Invalid)));
}

pub(crate) fn keys_depend_on_the_seed_and_differ_between_queues<S: Subject>() {
    let keys = |device: &S| {
        let mut host = Host::new(device, &SMALL);
        [(); 3].map(|()| host.queues.open_window().unwrap().rkey)
    };
    assert_eq!(keys(&seeded::<S>(1, 16)), keys(&seeded::<S>(1, 16)));
    assert_ne!(keys(&seeded::<S>(1, 16)), keys(&seeded::<S>(2, 16)));
    let device = seeded::<S>(1, 16);
    assert_ne!(keys(&device), keys(&device), "two sets of queues");
    let of_chance = [(); 4].map(|()| keys(&S::plain()));
    assert!(of_chance.iter().any(|keys| *keys != of_chance[0]));
}
