//! Keys between two threads: a key is valid exactly from its binding to its invalidation, and the
//! memory of a flushed Read is not written.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rpcrdma_mempool::{Access, Keys, Sge};
use rpcrdma_provider::{
    Provider, QueueAttr, Queues, Remote, SendFlags, SendOp, WcOpcode, WcStatus,
};

use crate::host::*;
use crate::subject::{Options, Subject};

const ROUNDS: usize = if cfg!(miri) { 2 } else { 60 };
const LEN: u32 = 4096;

/// Two hosts, their device, and their connections.
type Hosts<S> = (Host<<S as Provider>::Queues>, Host<<S as Provider>::Queues>, S, Vec<Ends<S>>);

/// Two hosts with a connection for each round.
fn hosts<S: Subject>(options: Options) -> Hosts<S> {
    let attr = QueueAttr { qp_max: 64, ..SMALL };
    let mut pair = Pair::<S>::with(Options { slots: FEW.slots, ..options }, &attr, 7);
    let mut qps = vec![(pair.qa, pair.qb)];
    qps.extend((1..ROUNDS).map(|_| pair.another()));
    pair.a.poll();
    pair.b.poll();
    (pair.a, pair.b, pair.device, qps)
}

pub(crate) fn writes_under_a_dead_key_change_nothing<S: Subject>() {
    let (mut a, mut b, _, qps) = hosts::<S>(Options::default());
    let (key, round) = (AtomicU32::new(0), AtomicUsize::new(0));
    let addr = b.at(0);
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            for (at, (qp, _)) in qps.iter().enumerate() {
                while round.load(Ordering::Acquire) <= at {
                    a.poll();
                }
                let remote = Remote { addr, rkey: key.load(Ordering::Acquire) };
                let sgl = [a.sge(0, LEN)];
                let mut is_lost = false;
                while !is_lost {
                    let write = SendOp::Write(remote);
                    let _ = a.post_with(qp.qp, 1, write, &sgl, SendFlags::SIGNALED);
                    is_lost = a.poll().iter().any(|wc| wc.status != WcStatus::Success);
                }
                let ending = a.poll();
                assert!(ending.iter().all(|wc| wc.status == WcStatus::Flushed));
            }
        });
        for (at, (_, qp)) in qps.iter().enumerate() {
            let rkey = b.bind(qp.qp, (0, LEN), Access::REMOTE_WRITE);
            key.store(rkey, Ordering::Release);
            round.store(at + 1, Ordering::Release);
            for _ in 0..at * 7 {
                assert_eq!(b.poll(), []);
            }
            b.post(qp.qp, 5, SendOp::Invalidate { rkey }, &[]);
            let mut done = Vec::new();
            while done.is_empty() {
                done = b.poll();
            }
            assert_eq!((done[0].opcode, done[0].status), (WcOpcode::Invalidate, WcStatus::Success));
            // It is the program's again.
            b.write(0, &[0xEE; LEN as usize]);
            while b.events().is_empty() {
                b.poll();
            }
            assert_eq!(b.read(0, LEN as usize), [0xEE; LEN as usize]);
        }
        peer.join().expect("its thread does not panic");
    });
}

pub(crate) fn reads_bring_whole_messages_across_threads<S: Subject>() {
    let (mut a, mut b, _, qps) = hosts::<S>(Options::default());
    let (qa, qb) = qps[0];
    let bytes: Vec<u8> = (0..LEN).map(|i| (i * 31) as u8).collect();
    b.write(0, &bytes);
    let rkey = b.bind(qb.qp, (0, LEN), Access::REMOTE_READ);
    let (addr, is_over) = (b.at(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            for id in 0..if cfg!(miri) { 4 } else { 2000_u32 } {
                let len = 1 + (id * 37) % LEN;
                a.write(0, &[0; LEN as usize]);
                let sgl = [a.sge(0, len)];
                a.post(qa.qp, id.into(), SendOp::Read(Remote { addr, rkey }), &sgl);
                let mut done = a.poll();
                while done.is_empty() {
                    std::thread::yield_now();
                    done = a.poll();
                }
                assert_eq!(brief(&done), [(id.into(), WcStatus::Success)]);
                assert_eq!(a.read(0, len as usize), bytes[..len as usize]);
            }
            is_over.store(1, Ordering::Release);
        });
        while is_over.load(Ordering::Acquire) == 0 {
            b.poll();
            std::thread::yield_now();
        }
        peer.join().expect("its thread does not panic");
    });
}

pub(crate) fn a_flushed_read_no_longer_uses_its_memory<S: Subject>() {
    for delay_ns in [0, 2_000] {
        let (mut a, mut b, _, qps) = hosts::<S>(Options { delay_ns, ..Options::default() });
        b.write(0, &[1; 64 << 10]);
        let rkey = b.expose(&b.sge(0, 64 << 10), Access::REMOTE_READ).unwrap();
        let (addr, is_over, start) = (b.at(0), AtomicUsize::new(0), Barrier::new(2));
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                start.wait();
                for (at, (qp, _)) in qps.iter().enumerate() {
                    let sgl = [a.sge(0, 64 << 10)];
                    for id in 0..4 {
                        a.post(qp.qp, id, SendOp::Read(Remote { addr, rkey }), &sgl);
                    }
                    for _ in 0..at * 5 {
                        a.poll();
                    }
                    if at % 2 == 0 {
                        a.queues.disconnect(qp.qp);
                    } else {
                        a.queues.destroy(qp.qp);
                    }
                    a.write(0, &[0xEE; 64 << 10]);
                    for _ in 0..50 {
                        a.poll();
                    }
                    assert!(a.read(0, 64 << 10).iter().all(|byte| *byte == 0xEE));
                }
                is_over.store(1, Ordering::Release);
            });
            start.wait();
            while is_over.load(Ordering::Acquire) == 0 {
                b.poll();
            }
            peer.join().expect("its thread does not panic");
        });
    }
}

pub(crate) fn memory_that_is_registered_while_the_peer_copies_can_be_sent_from<S: Subject>() {
    const BIG: u32 = 64 << 10;
    for _ in 0..ROUNDS {
        let mut pair = Pair::<S>::with(Options::default(), &SMALL, 7);
        let fresh = Host::new(&pair.device, &SMALL);
        pair.a.poll();
        pair.b.poll();
        let Pair { device, mut a, mut b, qa, .. } = pair;
        b.recv(1, 0, 64);
        b.recv(2, 0, BIG);
        b.recv(3, 0, BIG);
        b.recv(4, BIG as usize, 4096);
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| {
                let mut count = 0;
                while count < 4 && b.events().is_empty() {
                    count += b.poll().len();
                    taken.store(count, Ordering::Release);
                }
                b.poll_dry();
            });
            a.send(qa.qp, 1, b"first").unwrap();
            let sgl = [a.sge(0, BIG)];
            a.send_from(qa.qp, 2, &sgl, SendFlags::SIGNALED).unwrap();
            a.send_from(qa.qp, 3, &sgl, SendFlags::SIGNALED).unwrap();
            // The next poll takes both, and whatever comes meanwhile.
            while taken.load(Ordering::Acquire) < 1 {
                std::hint::spin_loop();
            }
            let keys = fresh.register(&device, Access::LOCAL_WRITE);
            let sgl = [Sge { addr: fresh.at(0), length: 1000, lkey: keys.lkey }];
            a.send_from(qa.qp, 4, &sgl, SendFlags::SIGNALED).unwrap();
            let mut done = Vec::new();
            while done.len() < 4 {
                done.extend(brief(&a.poll()));
            }
            assert_eq!(done, [1, 2, 3, 4].map(|id| (id, WcStatus::Success)));
            peer.join().expect("its thread does not panic");
        });
    }
}

pub(crate) fn deregistered_memory_is_not_written<S: Subject>() {
    let (mut a, mut b, device, qps) = hosts::<S>(Options::default());
    let mut memory = Host::new(&device, &SMALL);
    let (start, is_over) = (Barrier::new(2), AtomicUsize::new(0));
    let len = MEMORY as u32;
    let mut touched = Vec::new();
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            start.wait();
            while is_over.load(Ordering::Acquire) == 0 {
                b.poll();
            }
        });
        start.wait();
        for (at, (qp, _)) in qps.iter().enumerate() {
            let rkey = memory.register(&device, Access::LOCAL_WRITE | Access::REMOTE_WRITE).rkey;
            let write = SendOp::Write(Remote { addr: memory.at(0), rkey });
            for id in 0..12 {
                a.post(qp.qp, id, write, &[a.sge(0, len)]);
            }
            for _ in 0..at * 200 {
                std::hint::spin_loop();
            }
            device.registrar().deregister(Keys { lkey: rkey, rkey }).unwrap();
            // It is the program's again.
            memory.write(0, &vec![0xEE; len as usize]);
            let mut done = 0;
            while done < 12 {
                done += a.poll().len();
            }
            touched.push(memory.read(0, len as usize).iter().any(|byte| *byte != 0xEE));
        }
        is_over.store(1, Ordering::Release);
        peer.join().expect("its thread does not panic");
    });
    assert_eq!(touched, [false; ROUNDS]);
}
