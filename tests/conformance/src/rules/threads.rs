//! Two threads: every message arrives once, unchanged and in order, also with sleeping and waking.

use std::thread;
use std::time::Duration;

use rpcrdma_provider::{Attached, PostError, Queues, SendFlags, Waker, WcOpcode, WcStatus};

use crate::host::*;
use crate::subject::Subject;

const MESSAGES: u64 = if cfg!(miri) { 60 } else { 60_000 };
const BUFFERS: u64 = 24;
const LEN_MAX: u32 = 1024;

/// Sends numbered messages of all lengths and checks those of the peer.
fn run<Q: Queues>(mut host: Host<Q>, qps: &[Attached<Q::Qp>], sleeps: bool) {
    let waker = Waker::new().unwrap();
    let send_at = |id: u64| (BUFFERS * 1024 + (id % 64) * 1024) as usize;
    for buffer in 0..BUFFERS {
        host.recv(buffer, buffer as usize * 1024, LEN_MAX);
    }
    let (mut sent, mut done, mut seen) = (0, vec![0_u64; qps.len()], vec![0_u64; qps.len()]);
    let mut total = 0;
    // Each queue pair completes its own in order: the oldest message that may still be read.
    let oldest = |done: &[u64]| {
        let next = done.iter().enumerate().map(|(at, done)| done * qps.len() as u64 + at as u64);
        next.min().unwrap_or(0)
    };
    while total < MESSAGES || oldest(&done) < MESSAGES {
        while sent < MESSAGES && sent - oldest(&done) < 60 {
            let which = (sent as usize) % qps.len();
            let len = 16 + (sent * 37 % 1000) as u32;
            let sgl = [host.sge(send_at(sent), len)];
            let number = sent / qps.len() as u64;
            host.write(send_at(sent), &number.to_le_bytes());
            host.write(send_at(sent) + len as usize - 8, &number.to_le_bytes());
            match host.send_from(qps[which].qp, sent, &sgl, SendFlags::SIGNALED) {
                Ok(()) => sent += 1,
                Err((_, PostError::QueueFull)) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        let some = host.poll();
        if some.is_empty() {
            if sleeps {
                host.queues.wait(&waker, Duration::from_secs(600)).unwrap();
            } else {
                // The peer may wait for this processor: other tests poll as well.
                thread::yield_now();
            }
        }
        for wc in some {
            assert_eq!(wc.status, WcStatus::Success);
            if wc.opcode == WcOpcode::Send {
                let which = qps.iter().position(|qp| qp.qp_num == wc.qp_num).unwrap();
                done[which] += 1;
                continue;
            }
            let which = qps.iter().position(|qp| qp.qp_num == wc.qp_num).unwrap();
            let offset = wc.wr_id.0 as usize * 1024;
            let number = seen[which].to_le_bytes();
            assert_eq!(host.read(offset, 8), number);
            assert_eq!(host.read(offset + wc.byte_len as usize - 8, 8), number);
            seen[which] += 1;
            total += 1;
            host.recv(wc.wr_id.0, offset, LEN_MAX);
        }
    }
    // What the peer still waits for goes out before the queues do.
    host.queues.wait(&waker, Duration::ZERO).unwrap();
}

fn two_threads<S: Subject>(sleeps: bool) {
    let mut pair = Pair::<S>::small();
    let (qa2, qb2) = pair.another();
    let Pair { a, b, qa, qb, .. } = pair;
    thread::scope(|scope| {
        scope.spawn(move || run(a, &[qa, qa2], sleeps));
        scope.spawn(move || run(b, &[qb, qb2], sleeps));
    });
}

pub(crate) fn polling_threads_lose_and_change_nothing<S: Subject>() {
    two_threads::<S>(false);
}

pub(crate) fn sleeping_threads_are_always_woken<S: Subject>() {
    two_threads::<S>(true);
}
