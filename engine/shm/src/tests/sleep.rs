//! Sleepers: what wakes them, and what does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_provider::{
    Attached, CmEvent, ConnParam, ConnectionManager, Provider, QueueEvent, Queues, Waker,
};
use rpcrdma_testing::denied::Denied;
use rpcrdma_transport::body::OP_SEND;
use rpcrdma_transport::port::Port as _;

use super::rules::{Host, Qp};
use crate::Shm;
use crate::hostile_peer::HostilePeer;

const STAGING: u32 = 4 << 20;
/// What a sleeper sleeps if nothing wakes it.
const SLEEP: Duration = Duration::from_millis(50);
/// What no sleeper sleeps.
const LONG: Duration = Duration::from_secs(20);

/// Queues with a peer that does what a test wants.
struct Scene {
    device: Shm,
    host: Host,
    peer: HostilePeer,
    qp: Attached<Qp>,
    waker: Waker,
}

impl Scene {
    fn new() -> Scene {
        let device = Shm::plain();
        let mut host = Host::new(&device, &SMALL);
        let (peer, qp) = Scene::connect(&device, &mut host);
        host.poll_dry();
        Scene { device, host, peer, qp, waker: Waker::new().unwrap() }
    }

    fn connect(device: &Shm, host: &mut Host) -> (HostilePeer, Attached<Qp>) {
        let mut cm = device.open_cm().unwrap();
        let at = cm.listen(Shm::address()).unwrap();
        let rpcrdma_provider::Address::Shm(name) = at else { panic!("{at} is not a name") };
        let mut peer = HostilePeer::connect(&name, STAGING).unwrap();
        let Some(CmEvent::Request { request, .. }) = next(&mut cm) else { panic!("no request") };
        let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
        let endpoint = cm.accept(request, &host.queues.handle(), &param).unwrap();
        assert!(peer.is_accepted());
        (peer, host.queues.attach(endpoint).unwrap())
    }

    /// How long it sleeps, at most `limit`.
    fn sleep(&mut self, limit: Duration) -> Duration {
        let begun = Instant::now();
        self.host.queues.wait(&self.waker, limit).unwrap();
        begun.elapsed()
    }

    /// Whether the sleeper's word says so.
    fn is_asleep(&self, side: usize) -> bool {
        self.peer.layout.side(side).asleep.0.load(Ordering::Relaxed) != 0
    }
}

#[test]
fn a_ring_ends_one_sleep() {
    let mut scene = Scene::new();
    assert!(scene.sleep(SLEEP) >= SLEEP);
    for rings in [1, 3] {
        (0..rings).for_each(|_| scene.peer.send(&[0]));
        assert!(scene.sleep(LONG) < LONG);
        assert!(scene.sleep(SLEEP) >= SLEEP, "{rings} were read");
    }
}

/// It is published after the last poll, by a sender that cannot see yet that this side sleeps.
#[test]
fn a_message_that_comes_while_its_receiver_falls_asleep_is_not_slept_over() {
    let mut scene = Scene::new();
    scene.peer.publish([0, u64::from(OP_SEND) << 32, 4], b"late");
    let port = scene.host.queues.handle();
    assert_eq!(port.arm(scene.host.queues.transport()), None);
}

#[test]
fn who_is_awake_says_so() {
    let mut scene = Scene::new();
    scene.sleep(SLEEP);
    assert!(!scene.is_asleep(1));
}

#[test]
fn a_sleeping_peer_is_rung_for_once() {
    let mut scene = Scene::new();
    scene.host.send(scene.qp.qp, 1, b"awake").unwrap();
    assert!(!scene.peer.is_rung());
    scene.peer.layout.side(0).asleep.0.store(1, Ordering::SeqCst);
    scene.host.send(scene.qp.qp, 2, b"asleep").unwrap();
    assert!(!scene.is_asleep(0), "it is going to wake up");
    scene.host.send(scene.qp.qp, 3, b"still asleep").unwrap();
    assert!(scene.peer.is_rung());
    assert!(!scene.peer.is_rung());
}

#[test]
fn a_ring_that_fails_is_repeated_with_the_next_message_or_before_this_side_sleeps() {
    let denied = Denied { calls: &[libc::SYS_sendto], errno: libc::ENOBUFS };
    let mut scene = Scene::new();
    let asleep = |scene: &Scene| scene.peer.layout.side(0).asleep.0.store(1, Ordering::SeqCst);
    let arm = |host: &mut Host| host.queues.handle().arm(host.queues.transport());
    asleep(&scene);
    let (host, qp) = (&mut scene.host, scene.qp.qp);
    denied.run(|| host.send(qp, 1, b"not rung")).unwrap();
    assert!(scene.is_asleep(0) && !scene.peer.is_rung());
    scene.host.send(qp, 2, b"rung").unwrap();
    assert!(!scene.is_asleep(0) && scene.peer.is_rung());
    asleep(&scene);
    let host = &mut scene.host;
    let sleep = denied.run(|| {
        host.send(qp, 3, b"not rung").unwrap();
        arm(host)
    });
    assert!(sleep.is_some_and(|sleep| sleep < SLEEP), "it tries again soon: {sleep:?}");
    assert!(!scene.peer.is_rung());
    assert_eq!(arm(&mut scene.host), Some(Duration::MAX));
    assert!(!scene.is_asleep(0) && scene.peer.is_rung());
}

/// A host that spins or backs off never falls asleep.
#[test]
fn a_ring_that_fails_is_repeated_by_the_next_poll() {
    let denied = Denied { calls: &[libc::SYS_sendto], errno: libc::ENOBUFS };
    let mut scene = Scene::new();
    scene.peer.layout.side(0).asleep.0.store(1, Ordering::SeqCst);
    let (host, qp) = (&mut scene.host, scene.qp.qp);
    denied.run(|| {
        host.send(qp, 1, b"not rung").unwrap();
        host.poll_dry();
    });
    assert!(scene.is_asleep(0) && !scene.peer.is_rung());
    scene.host.poll_dry();
    assert!(!scene.is_asleep(0) && scene.peer.is_rung());
}

/// What it has not read wakes it: to try again and again would help only a peer that does harm.
#[test]
fn a_peer_that_reads_no_rings_is_rung_as_often_as_its_socket_takes() {
    let mut scene = Scene::new();
    let sent = 5_000;
    for id in 1..=sent {
        scene.peer.layout.side(0).asleep.0.store(1, Ordering::SeqCst);
        scene.host.send(scene.qp.qp, id, b"").unwrap();
        assert!(!scene.is_asleep(0), "no later message rings for message {id}");
        scene.peer.acknowledge(id, 0);
        scene.host.poll_dry();
    }
    let port = scene.host.queues.handle();
    assert_eq!(port.arm(scene.host.queues.transport()), Some(Duration::MAX));
    let rings = std::iter::from_fn(|| scene.peer.is_rung().then_some(())).count();
    assert!((1..sent as usize).contains(&rings), "its socket was full: {rings} rings");
}

#[test]
fn a_peer_that_goes_wakes_the_sleeper_and_then_lets_it_sleep() {
    let mut scene = Scene::new();
    for _ in 0..20 {
        scene.peer.hang_up().unwrap();
        let gone = QueueEvent::Disconnected { qp_num: scene.qp.qp_num };
        let begun = Instant::now();
        while !scene.host.events().contains(&gone) {
            scene.sleep(LONG);
            scene.host.poll_dry();
            assert!(begun.elapsed() < LONG, "it was not woken");
        }
        // Its socket stays until the queue pair is destroyed. What is still rung for the end itself
        // ends a sleep or two.
        assert!((0..3).any(|_| scene.sleep(SLEEP) >= SLEEP));
        scene.host.queues.destroy(scene.qp.qp);
        (scene.peer, scene.qp) = Scene::connect(&scene.device, &mut scene.host);
        scene.host.poll_dry();
    }
}

/// What waits for the death of a peer is forgotten with the connection.
#[test]
fn nothing_holds_the_queues_when_their_connections_are_gone() {
    let mut scene = Scene::new();
    let handle = scene.host.queues.handle();
    scene.host.queues.destroy(scene.qp.qp);
    let held = Arc::strong_count(&handle);
    for _ in 0..5 {
        let (peer, qp) = Scene::connect(&scene.device, &mut scene.host);
        assert!(Arc::strong_count(&handle) > held);
        scene.host.queues.destroy(qp.qp);
        drop(peer);
        assert_eq!(Arc::strong_count(&handle), held);
    }
}
