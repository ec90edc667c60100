//! Fault injection: each fault alone, and equal faults for equal seeds.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::{QpOf, Subject};
use rpcrdma_provider::{
    Attached, CmEvent, ConnParam, ConnectError, ConnectionManager, CqError, PostError, Provider,
    QueueEvent, Queues, SendFlags, SendWr, Waker, WcBatch, WcStatus, WrId,
};

use rpcrdma_testing::fabric::Rings;
use rpcrdma_testing::fault::{FaultPlan, Faulty, FaultyProvider};

const ALWAYS: u32 = 1_000_000;

/// A plain sender and a receiver with faults.
struct Rig {
    a: Host<<Rings as Provider>::Queues>,
    b: Host<Faulty<<Rings as Provider>::Queues>>,
    qa: Attached<QpOf<Rings>>,
    qb: Attached<QpOf<Rings>>,
    device: Rings,
}

impl Rig {
    fn new(plan: FaultPlan) -> Rig {
        let device = Rings::plain();
        let mut a = Host::new(&device, &SMALL);
        let queues = Faulty::new(device.open_queues(&SMALL).unwrap(), plan);
        let mut b = Host::wrap(&device, queues);
        let (qa, qb) = connect(&device, &mut a, &mut b, 7);
        Rig { a, b, qa, qb, device }
    }
}

#[test]
fn without_probabilities_no_fault_occurs() {
    let mut rig = Rig::new(FaultPlan::default());
    for id in 0..20 {
        rig.b.recv(id, id as usize * 64, 64);
        rig.a.send(rig.qa.qp, id, b"x").unwrap();
    }
    let got = rig.b.poll_dry();
    assert_eq!(got, (0..20).map(|id| received(id, rig.qb, 1)).collect::<Vec<_>>());
    assert_eq!(rig.b.events(), []);
}

#[test]
fn posts_are_refused() {
    let plan =
        FaultPlan { send_refused_ppm: ALWAYS, recv_refused_ppm: ALWAYS, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    let full = Err((0, PostError::QueueFull));
    assert_eq!(rig.b.send(rig.qb.qp, 1, b"x"), full);
    let sgl = [rig.b.sge(0, 64)];
    assert_eq!(rig.b.recv_at(1, &sgl), full);
    assert_eq!(rig.a.poll_dry(), []);
}

#[test]
fn posts_are_taken_in_part() {
    let plan = FaultPlan { send_cut_ppm: ALWAYS, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    let sgl = [rig.b.sge(0, 8)];
    let flags = SendFlags::INLINE;
    let wr: Vec<_> = (0..5).map(|id| SendWr::send(WrId(id), &sgl, flags)).collect();
    let taken = rig.b.send_all(rig.qb.qp, &wr).unwrap_err().0;
    assert!((1..5).contains(&taken));
    for id in 0..5 {
        rig.a.recv(id, 0, 64);
    }
    assert_eq!(rig.a.poll_dry().len(), taken);
}

#[test]
fn every_outcome_of_a_post_occurs_and_the_reported_count_is_posted() {
    let plan = FaultPlan::default();
    let plans = [
        (FaultPlan { send_failed_ppm: ALWAYS, recv_failed_ppm: ALWAYS, ..plan }, &[3][..]),
        (FaultPlan { send_gone_ppm: ALWAYS, recv_gone_ppm: ALWAYS, ..plan }, &[0, 1, 2, 3]),
        // The error is not reported: the number alone shows a full queue.
        (FaultPlan { send_silent_ppm: ALWAYS, recv_silent_ppm: ALWAYS, ..plan }, &[0, 1, 2]),
    ];
    for (plan, expected) in plans {
        let is_gone = plan.send_gone_ppm > 0;
        let why = if is_gone { PostError::QpGone } else { PostError::QueueFull };
        let (mut sent, mut received) = ([0; 4], [0; 4]);
        for seed in 0..40 {
            let mut rig = Rig::new(FaultPlan { seed, ..plan });
            let sgl = [rig.b.sge(0, 8)];
            (0..3).for_each(|id| rig.a.recv(id, id as usize * 64, 64));
            let wr = [0, 1, 2].map(|id| SendWr::send(WrId(id), &sgl, SendFlags::INLINE));
            let (taken, error) = rig.b.send_all(rig.qb.qp, &wr).unwrap_err();
            assert_eq!((rig.a.poll_dry().len(), error), (taken, why));
            sent[taken] += 1;
            let wr = [0, 1, 2].map(|id| (id, &sgl[..]));
            let (taken, error) = rig.b.recv_all(&wr).unwrap_err();
            (0..3).for_each(|id| rig.a.send(rig.qa.qp, id, b"x").unwrap());
            assert_eq!((rig.b.poll_dry().len(), error), (taken, why));
            received[taken] += 1;
        }
        for seen in [sent, received] {
            let drawn: Vec<usize> = (0..4).filter(|taken| seen[*taken] > 0).collect();
            assert_eq!(drawn, expected);
        }
    }
}

#[test]
fn refused_requests_complete_too() {
    let plan = FaultPlan { seed: 1, polls_late_max: 3, ..FaultPlan::default() };
    let mut rig = Rig::new(FaultPlan {
        send_refused_ppm: ALWAYS,
        send_ghost_ppm: ALWAYS,
        recv_refused_ppm: ALWAYS,
        recv_ghost_ppm: ALWAYS,
        ..plan
    });
    rig.b.send(rig.qb.qp, 7, b"x").unwrap_err();
    rig.b.recv_at(8, &[rig.b.sge(0, 64)]).unwrap_err();
    let mut ids: Vec<u64> = rig.b.poll_dry().iter().map(|wc| wc.wr_id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [7, 8]);
    assert_eq!(rig.a.poll_dry(), [], "nothing has left");
}

#[test]
fn the_refused_request_of_a_post_taken_in_part_completes_too() {
    let plan = FaultPlan { seed: 1, polls_late_max: 3, ..FaultPlan::default() };
    let mut rig = Rig::new(FaultPlan {
        send_cut_ppm: ALWAYS,
        send_ghost_ppm: ALWAYS,
        recv_cut_ppm: ALWAYS,
        recv_ghost_ppm: ALWAYS,
        ..plan
    });
    rig.b.poll();
    rig.a.recv(1, 0, 64);
    let sgl = [rig.b.sge(0, 64)];
    let wr = [7, 8].map(|id| SendWr::send(WrId(id), &sgl, SendFlags::empty()));
    assert_eq!(rig.b.send_all(rig.qb.qp, &wr), Err((1, PostError::QueueFull)));
    let refused = rig.b.recv_all(&[(17, &sgl), (18, &sgl)]);
    assert_eq!(refused, Err((1, PostError::QueueFull)));
    assert_eq!(rig.a.poll_dry().len(), 1, "one has left");
    let mut ids: Vec<u64> = rig.b.poll_dry().iter().map(|wc| wc.wr_id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [8, 18]);
}

#[test]
fn withheld_receives_are_handed_on_later_and_in_order() {
    let plan = FaultPlan { recv_withheld_ppm: ALWAYS, polls_late_max: 3, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    rig.b.recv(10, 0, 64);
    rig.b.recv(11, 64, 64);
    rig.a.send(rig.qa.qp, 1, b"x").unwrap();
    rig.a.send(rig.qa.qp, 2, b"yy").unwrap();
    assert_eq!(rig.b.poll(), [], "at least one poll late");
    let got = rig.b.poll_dry();
    assert_eq!(got, [received(10, rig.qb, 1), received(11, rig.qb, 2)]);
}

#[test]
fn late_completions_keep_the_order_of_their_queue_pair() {
    let plan = FaultPlan {
        seed: 3,
        completion_delayed_ppm: ALWAYS / 2,
        polls_late_max: 8,
        ..FaultPlan::default()
    };
    let mut rig = Rig::new(plan);
    let second = connect(&rig.device, &mut rig.a, &mut rig.b, 7);
    let mut got = Vec::new();
    for id in 0..200 {
        let qp = if id % 2 == 0 { rig.qa } else { second.0 };
        rig.b.recv(id, 0, 64);
        rig.a.send(qp.qp, id, b"x").unwrap();
        got.extend(rig.b.poll());
        rig.a.poll();
    }
    got.extend(rig.b.poll_dry());
    let ids: Vec<u64> = got.iter().map(|wc| wc.wr_id.0).collect();
    assert_eq!(ids.len(), 200);
    assert!(!ids.is_sorted(), "they overtake each other between queue pairs");
    for parity in 0..2 {
        assert!(ids.iter().filter(|id| *id % 2 == parity).is_sorted());
    }
}

/// B writes to and reads from A, and sends, one after the other.
fn explicit(rig: &mut Rig, id: u64) {
    use rpcrdma_mempool::Access;
    use rpcrdma_provider::{Remote, SendOp};
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let rkey = rig.a.bind(rig.qa.qp, (0, 64), access);
    let remote = Remote { addr: rig.a.at(0), rkey };
    let sgl = [rig.b.sge(0, 64)];
    rig.a.recv(id, 128, 64);
    for (at, op) in
        [SendOp::Write(remote), SendOp::Read(remote), SendOp::Send].into_iter().enumerate()
    {
        rig.b.post(rig.qb.qp, id + at as u64, op, &sgl);
    }
}

/// Polls both sides, and returns what B has seen.
fn poll_both(rig: &mut Rig) -> Vec<(u64, WcStatus)> {
    let mut seen = Vec::new();
    for _ in 0..3 {
        rig.a.poll_dry();
        seen.extend(brief(&rig.b.poll_dry()));
    }
    seen
}

#[test]
fn completions_of_all_kinds_are_late_and_in_order() {
    let plan = FaultPlan {
        seed: 5,
        completion_delayed_ppm: ALWAYS / 2,
        polls_late_max: 6,
        ..FaultPlan::default()
    };
    let mut rig = Rig::new(plan);
    for round in 0..10 {
        explicit(&mut rig, round * 3);
    }
    let expected: Vec<_> = (0..30).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(poll_both(&mut rig), expected);
}

#[test]
fn a_withheld_completion_is_reported_when_the_queue_pair_fails_or_never() {
    let plan = FaultPlan { completion_withheld_ppm: ALWAYS, ..FaultPlan::default() };
    let expected = [(0, WcStatus::Success), (1, WcStatus::Success), (2, WcStatus::Success)];
    for ending in 0..4 {
        let mut rig = Rig::new(plan);
        explicit(&mut rig, 0);
        assert_eq!(poll_both(&mut rig), [], "nor what is behind it");
        match ending {
            0 => rig.b.queues.disconnect(rig.qb.qp),
            1 => rig.a.queues.disconnect(rig.qa.qp),
            2 => rig.b.queues.destroy(rig.qb.qp),
            _ => {
                let nothing = [rig.b.sge(0, 1 << 20)];
                rig.b.send_from(rig.qb.qp, 3, &nothing, SendFlags::empty()).unwrap();
            }
        }
        let mut seen = poll_both(&mut rig);
        rig.b.events();
        seen.extend(poll_both(&mut rig));
        match ending {
            2 => assert_eq!(seen, []),
            3 => assert_eq!(seen, [&expected[..], &[(3, WcStatus::LocalProtection)]].concat()),
            _ => assert_eq!(seen, expected),
        }
    }
}

#[test]
fn connections_are_lost_on_both_sides() {
    let plan = FaultPlan { disconnect_ppm: ALWAYS, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    rig.b.poll();
    assert_eq!(rig.b.events(), [QueueEvent::Disconnected { qp_num: rig.qb.qp_num }]);
    rig.a.poll();
    assert_eq!(rig.a.events(), [QueueEvent::Disconnected { qp_num: rig.qa.qp_num }]);
    rig.b.send(rig.qb.qp, 1, b"x").unwrap();
    assert_eq!(brief(&rig.b.poll()), [(1, WcStatus::Flushed)]);
    assert_eq!(rig.b.events(), [], "no queue pair is left to be lost");
}

#[test]
fn a_failing_queue_pair_flushes_before_the_program_learns_of_it() {
    let plan = FaultPlan { flush_ppm: ALWAYS, polls_late_max: 3, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    rig.b.poll();
    assert_eq!(rig.b.events(), [], "not yet");
    rig.b.send(rig.qb.qp, 1, b"x").unwrap();
    assert_eq!(brief(&rig.b.poll()), [(1, WcStatus::Flushed)]);
    (0..3).for_each(|_| drop(rig.b.poll()));
    assert_eq!(rig.b.events(), [QueueEvent::Disconnected { qp_num: rig.qb.qp_num }]);
}

#[test]
fn a_queue_pair_that_is_given_up_is_reported_to_both_sides() {
    let plan = FaultPlan { qp_failed_ppm: ALWAYS, polls_late_max: 1, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    rig.b.poll();
    assert_eq!(rig.b.events(), [QueueEvent::Failed { qp_num: rig.qb.qp_num }]);
    rig.a.poll();
    assert_eq!(rig.a.events(), [QueueEvent::Disconnected { qp_num: rig.qa.qp_num }]);
    rig.b.send(rig.qb.qp, 1, b"x").unwrap();
    assert_eq!(brief(&rig.b.poll()), [(1, WcStatus::Flushed)]);
}

#[test]
fn a_destroyed_queue_pair_has_no_events() {
    let plan = FaultPlan { flush_ppm: ALWAYS, polls_late_max: 3, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    rig.b.poll();
    rig.b.queues.destroy(rig.qb.qp);
    (0..4).for_each(|_| drop(rig.b.poll()));
    assert_eq!(rig.b.events(), []);
}

#[test]
fn a_device_reports_its_failure() {
    let plan =
        FaultPlan { device_lost_ppm: ALWAYS, port_changed_ppm: ALWAYS, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    rig.b.poll();
    assert_eq!(rig.b.events(), [QueueEvent::DeviceLost, QueueEvent::PortDown]);
    rig.b.poll();
    assert_eq!(rig.b.events(), [QueueEvent::DeviceLost, QueueEvent::PortUp]);
}

#[test]
fn a_failed_completion_queue_stays_failed() {
    let plan = FaultPlan { cq_failed_ppm: ALWAYS, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    for _ in 0..2 {
        let mut batch = WcBatch::new();
        assert_eq!(rig.b.queues.poll_cq(&mut batch), Err(CqError::Device(libc::EIO)));
        rig.b.queues.hooks_mut().set_plan(FaultPlan::default());
    }
}

#[test]
fn faults_are_counted_until_they_are_ended() {
    let plan =
        FaultPlan { send_refused_ppm: ALWAYS, bytes_changed_ppm: ALWAYS, ..FaultPlan::default() };
    let device = Rings::plain();
    let provider = FaultyProvider::new(device.clone(), plan);
    let log = provider.hooks().log();
    let [mut a, mut b] = [0, 1].map(|_| {
        let queues = provider.open_queues(&SMALL).unwrap();
        Host::wrap(&device, queues)
    });
    let (qa, qb) = connect(&device, &mut a, &mut b, 7);
    assert!(a.send(qa.qp, 1, b"x").is_err());
    assert_eq!(log.sends_refused.load(Ordering::Relaxed), 1);
    log.end();
    b.recv(1, 0, 64);
    a.send(qa.qp, 1, b"x").unwrap();
    assert_eq!(b.poll_dry(), [received(1, qb, 1)]);
    assert_eq!(*log.changed.lock().unwrap(), []);
    log.begin();
    assert!(a.send(qa.qp, 2, b"x").is_err());
}

#[test]
fn an_overrun_stays() {
    let mut rig = Rig::new(FaultPlan { overrun_ppm: ALWAYS, ..FaultPlan::default() });
    let mut out = WcBatch::new();
    assert_eq!(rig.b.queues.poll_cq(&mut out), Err(CqError::Overrun));
    rig.b.queues.hooks_mut().set_plan(FaultPlan::default());
    assert_eq!(rig.b.queues.poll_cq(&mut out), Err(CqError::Overrun));
}

#[test]
fn bytes_change_only_within_the_header() {
    let plan = FaultPlan { bytes_changed_ppm: ALWAYS, header_len: 28, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    let bytes = [0x5A; 100];
    for id in 0..32 {
        rig.b.recv_at(id, &[rig.b.sge(0, 10), rig.b.sge(64, 90)]).unwrap();
        rig.a.send(rig.qa.qp, id, &bytes).unwrap();
        assert_eq!(rig.b.poll().len(), 1);
        rig.a.poll();
        let mut got = rig.b.read(0, 10);
        got.extend(rig.b.read(64, 90));
        let changed: Vec<_> = (0..100).filter(|i| got[*i] != bytes[*i]).collect();
        assert!(changed.len() <= 4 && changed.iter().all(|i| *i < 28));
    }
}

#[test]
fn a_receive_of_a_dead_queue_pair_completes_flushed_without_a_queue_pair() {
    for chance in [ALWAYS, 0] {
        let plan =
            FaultPlan { recv_withheld_ppm: ALWAYS, polls_late_max: 3, ..FaultPlan::default() };
        let mut rig = Rig::new(FaultPlan { recv_taken_along_ppm: chance, ..plan });
        rig.b.recv(1, 0, 64);
        rig.b.recv(2, 64, 64);
        rig.b.queues.disconnect(rig.qb.qp);
        rig.b.queues.destroy(rig.qb.qp);
        let polled = rig.b.poll();
        let completions: Vec<_> =
            polled.iter().map(|wc| (wc.wr_id, wc.qp_num, wc.status)).collect();
        let flushed = (WrId(1), 0, WcStatus::Flushed);
        assert_eq!(completions, if chance > 0 { vec![flushed] } else { vec![] });
    }
}

#[test]
fn a_sleeper_with_something_kept_back_returns_at_once() {
    let plan = FaultPlan { recv_withheld_ppm: ALWAYS, ..FaultPlan::default() };
    let mut rig = Rig::new(plan);
    rig.b.recv(1, 0, 64);
    rig.b.queues.wait(&Waker::new().unwrap(), Duration::from_secs(600)).unwrap();
    // Also one that has an event to report.
    let mut rig = Rig::new(FaultPlan { device_lost_ppm: ALWAYS, ..FaultPlan::default() });
    rig.b.queues.poll_cq(&mut WcBatch::new()).unwrap();
    rig.b.queues.wait(&Waker::new().unwrap(), Duration::from_secs(600)).unwrap();
}

/// Drives both sides in a fixed order and writes down what is seen.
fn trace(seed: u64) -> Vec<String> {
    let mut rig = Rig::new(FaultPlan {
        seed,
        send_refused_ppm: 50_000,
        send_cut_ppm: 50_000,
        send_failed_ppm: 20_000,
        send_gone_ppm: 20_000,
        send_silent_ppm: 20_000,
        send_ghost_ppm: 300_000,
        recv_refused_ppm: 50_000,
        recv_cut_ppm: 0,
        recv_failed_ppm: 20_000,
        recv_gone_ppm: 20_000,
        recv_silent_ppm: 20_000,
        recv_ghost_ppm: 300_000,
        recv_withheld_ppm: 50_000,
        recv_taken_along_ppm: 0,
        window_lost_ppm: 0,
        window_kept_ppm: 0,
        expose_refused_ppm: 0,
        conceal_failed_ppm: 0,
        completion_delayed_ppm: 100_000,
        polls_late_max: 5,
        completion_withheld_ppm: 0,
        disconnect_ppm: 2_000,
        flush_ppm: 1_000,
        overrun_ppm: 0,
        cq_failed_ppm: 0,
        qp_failed_ppm: 500,
        device_lost_ppm: 1_000,
        port_changed_ppm: 1_000,
        bytes_changed_ppm: 100_000,
        header_len: 28,
    });
    let mut seen = Vec::new();
    for id in 0..300 {
        let sgl = [rig.b.sge(0, 64)];
        seen.push(format!("{:?}", rig.b.recv_at(id, &sgl)));
        seen.push(format!("{:?}", rig.a.send(rig.qa.qp, id, &[1; 40])));
        seen.push(format!("{:?}", rig.b.send(rig.qb.qp, id, b"back")));
        seen.push(format!("{:?} {:?}", brief(&rig.b.poll()), rig.b.events()));
        seen.push(format!("{:?}", rig.b.read(0, 40)));
        seen.push(format!("{:?} {:?}", brief(&rig.a.poll()), rig.a.events()));
    }
    seen
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn queues_of_a_provider_have_faults_of_their_own() {
    let plan = FaultPlan { port_changed_ppm: ALWAYS / 2, ..FaultPlan::default() };
    let provider = FaultyProvider::new(Rings::plain(), plan);
    let [first, second] = [0, 1].map(|which| {
        let mut queues = provider.open_queues(&SMALL).unwrap();
        provider.hooks().log().inject_event(which, QueueEvent::DeviceLost);
        assert_eq!(
            queues.next_event(),
            Some(QueueEvent::DeviceLost),
            "queues are found by their number"
        );
        let changes = (0..64).map(|_| {
            queues.poll_cq(&mut WcBatch::new()).unwrap();
            queues.next_event().is_some()
        });
        changes.collect::<Vec<_>>()
    });
    assert_ne!(first, second);
}

#[test]
fn a_provider_wraps_its_queues_and_its_connection_manager() {
    let plan = FaultPlan { completion_delayed_ppm: ALWAYS / 2, ..FaultPlan::default() };
    let provider = FaultyProvider::new(Rings::plain(), plan);
    let device = Rings::plain();
    assert_eq!(provider.caps(), device.caps());
    let mut queues = [0, 1].map(|_| provider.open_queues(&SMALL).unwrap());
    let mut cm = provider.open_cm().unwrap();
    let waker = Waker::new().unwrap();
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    let at = cm.listen(Rings::address()).unwrap();
    cm.connect(Rings::nowhere(), &queues[0].handle(), &param).unwrap();
    let refused = cm.next(&waker, Duration::ZERO);
    assert!(matches!(refused, Some(CmEvent::Refused { reason: ConnectError::NoListener, .. })));
    cm.connect(at, &queues[0].handle(), &param).unwrap();
    let Some(CmEvent::Request { request, .. }) = cm.next(&waker, Duration::ZERO) else { panic!() };
    let theirs = cm.accept(request, &queues[1].handle(), &param).unwrap();
    let Some(CmEvent::Connected { endpoint, .. }) = cm.next(&waker, Duration::ZERO) else {
        panic!()
    };
    let qp = queues[0].attach(endpoint).unwrap();
    let peer = queues[1].attach(theirs).unwrap();
    queues[1].disconnect(peer.qp);
    let mut out = WcBatch::new();
    queues[0].poll_cq(&mut out).unwrap();
    assert_eq!(queues[0].next_event(), Some(QueueEvent::Disconnected { qp_num: qp.qp_num }));
    queues[0].destroy(qp.qp);
    cm.connect(at, &queues[0].handle(), &param).unwrap();
    let Some(CmEvent::Request { request, .. }) = cm.next(&waker, Duration::ZERO) else { panic!() };
    cm.reject(request, &[]);
}
