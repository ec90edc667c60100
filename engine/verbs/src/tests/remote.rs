//! RDMA Write and Read, memory windows, registrations for one call, and invalidated keys.

use rpcrdma_mempool::Access;
use rpcrdma_provider::{
    PostError, Provider, Queues, Remote, SendFlags, SendOp, SendWr, WcOpcode, WcStatus, WindowId,
    WrId,
};

use super::rig::{Pair, SMALL, device};

const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;

/// Opens bytes of B through a window, on its queue pair to A.
fn open(pair: &mut Pair, (offset, len): (usize, u32), access: Access) -> (Remote, u32) {
    let mut window = pair.b.queues.open_window().expect("a window");
    let (bind, rkey) = pair.b.binding(&mut window, (offset, len), access);
    pair.b.post(pair.qb.qp, 100, bind, &[]);
    let done = pair.b.poll(1)[0];
    assert_eq!(
        (done.wr_id, done.status, done.opcode),
        (WrId(100), WcStatus::Success, WcOpcode::Bind)
    );
    (Remote { addr: pair.b.at(offset), rkey }, rkey)
}

/// How a request of A to memory of B ends.
fn outcome(pair: &mut Pair, op: SendOp, (offset, len): (usize, u32)) -> WcStatus {
    let sgl = [pair.a.sge(offset, len)];
    pair.a.post(pair.qa.qp, 77, op, &sgl);
    pair.a.poll(1)[0].status
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_peer_writes_and_reads_through_a_window_as_long_as_it_is_bound() {
    let mut pair = Pair::new();
    let (remote, rkey) = open(&mut pair, (8192, 70_000), WRITE | READ);
    pair.a.write(0, &[7; 70_000]);
    assert_eq!(outcome(&mut pair, SendOp::Write(remote), (0, 70_000)), WcStatus::Success);
    assert_eq!(pair.b.read(8192, 70_000), [7; 70_000]);
    assert_eq!(pair.b.read(8191, 1), [0]);
    pair.b.write(8192, &[9; 70_000]);
    assert_eq!(outcome(&mut pair, SendOp::Read(remote), (200_000, 70_000)), WcStatus::Success);
    assert_eq!(pair.a.read(200_000, 70_000), [9; 70_000]);
    pair.b.post(pair.qb.qp, 101, SendOp::Invalidate { rkey }, &[]);
    let done = pair.b.poll(1)[0];
    assert_eq!((done.status, done.opcode), (WcStatus::Success, WcOpcode::Invalidate));
    pair.a.write(0, &[1; 8]);
    assert_eq!(outcome(&mut pair, SendOp::Write(remote), (0, 8)), WcStatus::RemoteAccess);
    assert_eq!(pair.b.read(8192, 8), [9; 8], "a dead key opens nothing");
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_window_gives_only_the_rights_it_was_bound_with() {
    for (access, op) in [(READ, "write"), (WRITE, "read")] {
        let mut pair = Pair::new();
        let (remote, _) = open(&mut pair, (0, 64), access);
        let op = if op == "write" { SendOp::Write(remote) } else { SendOp::Read(remote) };
        assert_eq!(outcome(&mut pair, op, (0, 8)), WcStatus::RemoteAccess, "{op:?}");
        // A region has no remote rights of its own.
        let mut pair = Pair::new();
        let remote = Remote { addr: pair.b.at(0), rkey: pair.b.keys.rkey };
        let op = if access == READ { SendOp::Write(remote) } else { SendOp::Read(remote) };
        assert_eq!(outcome(&mut pair, op, (0, 8)), WcStatus::RemoteAccess, "{op:?}");
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn the_key_that_a_send_invalidates_is_reported_and_dead() {
    let mut pair = Pair::new();
    let (remote, rkey) = open(&mut pair, (4096, 64), WRITE);
    pair.b.recvs(5..6, 0, 64);
    assert_eq!(outcome(&mut pair, SendOp::SendInvalidate { rkey }, (0, 8)), WcStatus::Success);
    let came = pair.b.poll(1)[0];
    assert_eq!((came.opcode, came.status, came.byte_len), (WcOpcode::Recv, WcStatus::Success, 8));
    assert_eq!(came.invalidated, Some(rkey), "it is named");
    assert_eq!(outcome(&mut pair, SendOp::Write(remote), (0, 8)), WcStatus::RemoteAccess);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_window_is_bound_again_and_again_with_another_key_each_time() {
    let mut pair = Pair::new();
    let mut window = pair.b.queues.open_window().unwrap();
    for round in 0..300_u32 {
        // Bound, used and invalidated in one chain.
        let (bind, rkey) = pair.b.binding(&mut window, (0, 64), READ);
        pair.b.write(0, &round.to_be_bytes());
        pair.b.post(pair.qb.qp, 1, bind, &[]);
        assert_eq!(pair.b.outcomes(1), [(1, WcStatus::Success)], "round {round}");
        let remote = Remote { addr: pair.b.at(0), rkey };
        assert_eq!(outcome(&mut pair, SendOp::Read(remote), (0, 4)), WcStatus::Success);
        assert_eq!(pair.a.read(0, 4), round.to_be_bytes());
        pair.b.post(pair.qb.qp, 2, SendOp::Invalidate { rkey }, &[]);
        assert_eq!(pair.b.outcomes(1), [(2, WcStatus::Success)]);
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn binding_and_invalidating_one_window_twice_in_a_chain_works() {
    let mut pair = Pair::new();
    let mut window = pair.b.queues.open_window().unwrap();
    let (first, dead) = pair.b.binding(&mut window, (0, 64), READ);
    let (second, rkey) = pair.b.binding(&mut window, (0, 64), READ);
    let (kill, flags) = (SendOp::Invalidate { rkey: dead }, SendFlags::SIGNALED);
    let wrs = [first, kill, second].map(|op| SendWr { wr_id: WrId(1), op, sgl: &[], flags });
    pair.b.post_all(pair.qb.qp, &wrs).unwrap();
    assert_eq!(pair.b.outcomes(3), [(1, WcStatus::Success); 3]);
    let remote = Remote { addr: pair.b.at(0), rkey };
    assert_eq!(outcome(&mut pair, SendOp::Read(remote), (0, 4)), WcStatus::Success);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn windows_of_a_failed_queue_pair_are_renewed_and_bound_on_another() {
    let mut pair = Pair::new();
    let [qa2, qb2] = pair.another();
    let mut window = pair.b.queues.open_window().unwrap();
    for round in 0..3 {
        let (bind, _) = pair.b.binding(&mut window, (0, 64), WRITE | READ);
        pair.b.post(pair.qb.qp, 1, bind, &[]);
        assert_eq!(pair.b.outcomes(1), [(1, WcStatus::Success)]);
        pair.b.queues.disconnect(pair.qb.qp);
        let mut renewed = pair.b.queues.renew_window(window.id).unwrap().expect("a window");
        assert_eq!(renewed.id, window.id);
        pair.b.queues.destroy(pair.qb.qp);
        // Bound on the other connection it opens what it is bound to now, and by its new key alone.
        let (bind, rkey) = pair.b.binding(&mut renewed, (64, 64), WRITE);
        pair.b.post(qb2.qp, 2, bind, &[]);
        assert_eq!(pair.b.outcomes(1), [(2, WcStatus::Success)]);
        let sgl = [pair.a.sge(0, 8)];
        let remote = Remote { addr: pair.b.at(64), rkey };
        pair.a.write(0, &[round; 8]);
        pair.a.post(qa2.qp, 3, SendOp::Write(remote), &sgl);
        assert_eq!(pair.a.outcomes(1), [(3, WcStatus::Success)]);
        assert_eq!(pair.b.read(64, 8), [round; 8]);
        pair.b.post(qb2.qp, 4, SendOp::Invalidate { rkey }, &[]);
        assert_eq!(pair.b.outcomes(1), [(4, WcStatus::Success)]);
        pair.a.queues.disconnect(pair.qa.qp);
        pair.a.queues.destroy(pair.qa.qp);
        window = renewed;
        [pair.qa, pair.qb] = pair.another();
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_window_or_a_region_that_is_not_there_is_not_bound() {
    let mut pair = Pair::new();
    let mut window = pair.b.queues.open_window().unwrap();
    let (bind, _) = pair.b.binding(&mut window, (0, 64), READ);
    let SendOp::Bind(bind) = bind else { panic!("it is a binding") };
    let mut wrong = [bind; 2];
    wrong[0].window = WindowId(7);
    wrong[1].lkey ^= 0x5500;
    for wrong in wrong {
        let wr = SendWr {
            wr_id: WrId(1),
            op: SendOp::Bind(wrong),
            sgl: &[],
            flags: SendFlags::SIGNALED,
        };
        let outcome = pair.b.post_all(pair.qb.qp, &[wr]);
        assert_eq!(outcome, Err((0, PostError::Invalid)));
    }
    assert!(pair.b.queues.renew_window(WindowId(7)).is_err());
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_registration_for_one_call_opens_its_bytes_until_it_is_concealed() {
    let device = device();
    let mut pair = Pair::with(&device, &SMALL, 7);
    // In the middle of a page, and not to its end.
    let sge = pair.b.sge(5000, 3000);
    let rkey = pair.b.expose(&sge, WRITE).unwrap();
    let remote = Remote { addr: pair.b.at(5000), rkey };
    pair.a.write(0, &[3; 3000]);
    assert_eq!(outcome(&mut pair, SendOp::Write(remote), (0, 3000)), WcStatus::Success);
    assert_eq!(pair.b.read(5000, 3000), [3; 3000]);
    pair.b.queues.conceal(rkey).unwrap();
    assert_eq!(outcome(&mut pair, SendOp::Write(remote), (0, 8)), WcStatus::RemoteAccess);
    // Another connection of the same queues is as good as this one, with another key.
    let [qa, _] = pair.another();
    let rkey = pair.b.expose(&sge, READ).unwrap();
    let sgl = [pair.a.sge(9000, 3000)];
    pair.a.post(qa.qp, 1, SendOp::Read(Remote { addr: remote.addr, rkey }), &sgl);
    assert_eq!(pair.a.outcomes(1), [(1, WcStatus::Success)]);
    assert_eq!(pair.a.read(9000, 3000), [3; 3000]);
    // Beyond its bytes there is nothing.
    pair.a.post(qa.qp, 2, SendOp::Read(Remote { addr: remote.addr + 1, rkey }), &sgl);
    assert_eq!(pair.a.outcomes(1), [(2, WcStatus::RemoteAccess)]);
    drop(device);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_read_scatters_its_bytes_and_fenced_requests_see_them() {
    let mut pair = Pair::new();
    let (remote, _) = open(&mut pair, (0, 4096), READ);
    let to = [pair.a.sge(10_000, 1000), pair.a.sge(100, 3000)];
    pair.b.recvs(5..6, 20_000, 64);
    for round in 0..50_u8 {
        pair.b.write(0, &[round; 4000]);
        let send = [pair.a.sge(3000, 8)];
        let read = SendWr {
            wr_id: WrId(1),
            op: SendOp::Read(remote),
            sgl: &to,
            flags: SendFlags::empty(),
        };
        let fenced = SendWr::send(WrId(2), &send, SendFlags::SIGNALED | SendFlags::FENCE);
        pair.a.post_all(pair.qa.qp, &[read, fenced]).unwrap();
        assert_eq!(pair.a.outcomes(1), [(2, WcStatus::Success)]);
        assert_eq!(pair.b.outcomes(1), [(5, WcStatus::Success)]);
        assert_eq!(pair.b.read(20_000, 8), [round; 8], "what the Read brought");
        assert_eq!(pair.a.read(10_000, 1000), [round; 1000]);
        assert_eq!(pair.a.read(100, 3000), [round; 3000]);
        pair.b.recvs(5..6, 20_000, 64);
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_deregistered_region_is_unknown() {
    let device = device();
    let mut pair = Pair::with(&device, &SMALL, 7);
    let (remote, rkey) = open(&mut pair, (0, 64), READ);
    pair.b.post(pair.qb.qp, 1, SendOp::Invalidate { rkey }, &[]);
    assert_eq!(pair.b.outcomes(1), [(1, WcStatus::Success)]);
    device.registrar().deregister(pair.b.keys).expect("no window is bound");
    let mut window = pair.b.queues.open_window().unwrap();
    let (bind, _) = pair.b.binding(&mut window, (0, 64), READ);
    let wr = SendWr { wr_id: WrId(1), op: bind, sgl: &[], flags: SendFlags::SIGNALED };
    assert_eq!(pair.b.post_all(pair.qb.qp, &[wr]), Err((0, PostError::Invalid)));
    assert_eq!(outcome(&mut pair, SendOp::Read(remote), (0, 8)), WcStatus::RemoteAccess);
}
