//! Messages: lengths, chains, limits, missing Receives, and errors.

use rpcrdma_provider::{
    PostError, Provider, QueueAttr, Queues, SendFlags, SendOp, SendWr, WcOpcode, WcStatus, WrId,
};

use super::rig::{Host, Pair, SMALL, device};

/// Bytes that say where they stand.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_device_reports_its_limits() {
    let device = device();
    let caps = device.caps();
    assert!(caps.send_sge >= 4 && caps.recv_sge >= 3 && caps.read_sge >= 1, "{caps:?}");
    assert!(caps.srq_depth >= 1024 && caps.cq_depth >= 1024 && caps.send_depth >= 64, "{caps:?}");
    assert!(caps.message_len >= 1 << 20 && caps.rd_atomic >= 1, "{caps:?}");
    println!("{caps:?}");
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn messages_of_lengths_around_every_limit_arrive_unchanged() {
    let device = device();
    let inline = device.caps().inline_len as usize;
    let Pair { mut a, mut b, qa, .. } = Pair::with(&device, &SMALL, 7);
    let mut lengths = vec![0, 1, 3, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 4097, 70_000];
    lengths.extend([inline.saturating_sub(1), inline, inline + 1]);
    for (id, len) in (0..).zip(lengths) {
        b.write(0, &vec![0xee; len + 8]);
        b.recvs(id..id + 1, 0, len as u32);
        let message = pattern(len, id as u8);
        a.write(0, &message);
        let sgl = [a.sge(0, len as u32)];
        let inline_flag = if len <= inline { SendFlags::INLINE } else { SendFlags::empty() };
        let flags = SendFlags::SIGNALED | inline_flag;
        a.post_all(qa.qp, &[SendWr::send(WrId(id), &sgl, flags)]).unwrap();
        if len <= inline {
            // The bytes were copied: the program may write the memory again.
            a.write(0, &vec![0xaa; len]);
        }
        let came = b.poll(1)[0];
        assert_eq!((came.wr_id, came.byte_len as usize), (WrId(id), len));
        assert_eq!((came.opcode, came.status), (WcOpcode::Recv, WcStatus::Success));
        assert_eq!(came.invalidated, None);
        assert_eq!(b.read(0, len), message, "{len} bytes");
        assert_eq!(b.read(len, 8), [0xee; 8], "and nothing behind them");
        let left = a.poll(1)[0];
        assert_eq!((left.wr_id, left.qp_num), (WrId(id), qa.qp_num));
        assert_eq!((left.opcode, left.status), (WcOpcode::Send, WcStatus::Success));
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn pieces_are_gathered_and_scattered_in_order() {
    let Pair { mut a, mut b, qa, .. } = Pair::new();
    a.write(0, b"one two three four");
    let from = [a.sge(8, 6), a.sge(0, 4), a.sge(4, 4), a.sge(14, 4)];
    let to = [b.sge(100, 7), b.sge(50, 1), b.sge(0, 64)];
    b.recv_at(1, &to).unwrap();
    a.post(qa.qp, 2, SendOp::Send, &from);
    assert_eq!(b.poll(1)[0].byte_len, 18);
    assert_eq!([b.read(100, 7), b.read(50, 1), b.read(0, 10)].concat(), b"three one two four");
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_chain_that_is_longer_than_a_doorbell_goes_out_in_order_and_completes_by_its_last() {
    let attr = QueueAttr { srq_depth: 256, send_depth: 256, ..SMALL };
    let Pair { mut a, mut b, qa, .. } = Pair::with(&device(), &attr, 7);
    let count = 100_u64;
    b.recvs(0..count, 0, 64);
    let sges: Vec<_> = (0..count as usize).map(|at| [a.sge(at * 8, 8)]).collect();
    let wrs: Vec<_> = (0..count)
        .map(|id| {
            let is_last = id == count - 1;
            let flags = if is_last { SendFlags::SIGNALED } else { SendFlags::empty() };
            SendWr::send(WrId(id), &sges[id as usize], flags)
        })
        .collect();
    (0..count).for_each(|id| a.write(id as usize * 8, &id.to_be_bytes()));
    a.post_all(qa.qp, &wrs).unwrap();
    let came = b.poll(count as usize);
    for (id, came) in (0..).zip(came) {
        assert_eq!((came.wr_id, came.byte_len), (WrId(id), 8));
        assert_eq!(b.read(id as usize * 64, 8), id.to_be_bytes());
    }
    assert_eq!(a.outcomes(1), [(count - 1, WcStatus::Success)], "one completion for all");
    assert_eq!(a.poll_once(), []);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_full_send_queue_reports_how_many_it_took_and_takes_more_after_completions() {
    let Pair { mut a, mut b, qa, .. } = Pair::new();
    // They are not taken: they stay in the queue.
    let sgl = [a.sge(0, 8)];
    let wrs: Vec<_> =
        (0..600).map(|id| SendWr::send(WrId(id), &sgl, SendFlags::SIGNALED)).collect();
    let Err((taken, PostError::QueueFull)) = a.post_all(qa.qp, &wrs) else {
        panic!("a queue of 64 has no room for 600");
    };
    assert!((64..600).contains(&taken), "{taken}");
    let mut done = 0;
    while done < taken {
        let some = (taken - done).min(60);
        b.recvs(0..some as u64, 0, 64);
        assert!(b.poll(some).iter().all(|came| came.status == WcStatus::Success));
        done += some;
    }
    let numbers: Vec<u64> = a.outcomes(taken).into_iter().map(|done| done.0).collect();
    assert_eq!(numbers, (0..taken as u64).collect::<Vec<_>>());
    b.recvs(0..1, 0, 64);
    a.post_all(qa.qp, &wrs[..1]).unwrap();
    assert_eq!(a.outcomes(1), [(0, WcStatus::Success)]);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_request_that_breaks_a_limit_is_refused_and_those_before_it_are_posted() {
    let device = device();
    let inline = device.caps().inline_len;
    let Pair { mut a, mut b, qa, .. } = Pair::with(&device, &SMALL, 7);
    b.recvs(0..1, 0, 64);
    let (short, long) = ([a.sge(0, 8)], [a.sge(0, inline + 1)]);
    let many = [a.sge(0, 1); 5];
    for bad in [
        SendWr::send(WrId(2), &long, SendFlags::INLINE),
        SendWr::send(WrId(2), &many, SendFlags::empty()),
        SendWr {
            op: SendOp::Invalidate { rkey: 5 },
            ..SendWr::send(WrId(2), &short, SendFlags::empty())
        },
    ] {
        let good = SendWr::send(WrId(1), &short, SendFlags::SIGNALED);
        let outcome = a.post_all(qa.qp, &[good, bad, good]);
        assert_eq!(outcome, Err((1, PostError::Invalid)), "{bad:?}");
        assert_eq!(a.outcomes(1), [(1, WcStatus::Success)]);
        assert_eq!(b.outcomes(1), [(0, WcStatus::Success)]);
        b.recvs(0..1, 0, 64);
    }
    let many = [b.sge(0, 1); 4];
    assert_eq!(b.recv_at(9, &many), Err((0, PostError::Invalid)));
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_message_waits_for_its_receive() {
    let Pair { mut a, mut b, qa, .. } = Pair::new();
    a.write(0, b"patient");
    a.send(qa.qp, 1, 0, 7);
    for _ in 0..1000 {
        assert_eq!(b.poll_once(), []);
        assert_eq!(a.poll_once(), []);
    }
    b.recvs(5..6, 0, 64);
    assert_eq!(b.outcomes(1), [(5, WcStatus::Success)]);
    assert_eq!(a.outcomes(1), [(1, WcStatus::Success)]);
    assert_eq!(b.read(0, 7), b"patient");
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_message_without_a_receive_fails_after_its_retries_and_flushes_later_requests() {
    let Pair { mut a, qa, b: _b, .. } = Pair::with(&device(), &SMALL, 1);
    a.send(qa.qp, 1, 0, 7);
    a.send(qa.qp, 2, 0, 7);
    let expected = [(1, WcStatus::RnrRetryExceeded), (2, WcStatus::Flushed)];
    assert_eq!(a.outcomes(2), expected);
    // The queue pair takes requests still, and flushes them.
    a.send(qa.qp, 3, 0, 0);
    assert_eq!(a.outcomes(1), [(3, WcStatus::Flushed)]);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn a_message_that_is_longer_than_its_receive_fails_both_ends() {
    let Pair { mut a, mut b, qa, .. } = Pair::new();
    b.recvs(5..6, 0, 63);
    a.send(qa.qp, 1, 0, 64);
    let (id, status) = b.outcomes(1)[0];
    // Soft-RoCE says that the operation failed, and not why.
    assert!(matches!(status, WcStatus::LocalLength | WcStatus::LocalOperation), "{status:?}");
    assert_eq!(id, 5);
    let (id, status) = a.outcomes(1)[0];
    assert!(matches!(status, WcStatus::RemoteInvalidRequest | WcStatus::Other(_)), "{status:?}");
    assert_eq!(id, 1);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn memory_of_no_region_is_not_sent() {
    let Pair { mut a, mut b, qa, .. } = Pair::new();
    b.recvs(5..6, 0, 64);
    let mut sge = a.sge(0, 8);
    sge.lkey ^= 0x5500;
    a.post(qa.qp, 1, SendOp::Send, &[sge]);
    let (id, status) = a.outcomes(1)[0];
    // Soft-RoCE of Linux 6.12 flushes the request, and does not say why.
    let [protection, other, flushed] =
        [WcStatus::LocalProtection, WcStatus::LocalOperation, WcStatus::Flushed];
    assert!([protection, other, flushed].contains(&status), "{status:?}");
    assert_eq!(id, 1);
}

#[test]
#[ignore = "needs an RDMA device: tests/run vm"]
fn both_directions_and_several_connections_share_the_receives() {
    let mut pair = Pair::new();
    let [qa2, qb2] = pair.another();
    let Pair { mut a, mut b, qa, qb } = pair;
    let hosts: [&mut Host; 2] = [&mut a, &mut b];
    for host in hosts {
        host.recvs(0..8, 0, 64);
    }
    for (at, qp) in [qa, qa2, qa, qa2].into_iter().enumerate() {
        a.write(4096, &[at as u8; 8]);
        a.send(qp.qp, at as u64 | 1 << 63, 4096, 8);
        let came = b.poll(1)[0];
        let expected = if at % 2 == 0 { qb.qp_num } else { qb2.qp_num };
        assert_eq!((came.qp_num, came.wr_id), (expected, WrId(at as u64)));
        assert_eq!(b.read(at * 64, 8), [at as u8; 8]);
        assert_eq!(a.outcomes(1), [(at as u64 | 1 << 63, WcStatus::Success)]);
        b.send(if at % 2 == 0 { qb.qp } else { qb2.qp }, 99, 4096, 8);
        assert_eq!(
            (b.outcomes(1), a.poll(1)[0].wr_id),
            (vec![(99, WcStatus::Success)], WrId(at as u64))
        );
    }
    assert!(a.queues.next_event().is_none() && b.queues.next_event().is_none());
}
