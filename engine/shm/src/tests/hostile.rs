//! Peers that follow no rule: they have the memory of a link and the socket, and write anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{
    Attached, CmEvent, ConnParam, ConnectionManager, Provider, QueueEvent, Queues, Remote, SendOp,
    Waker, WcStatus, WorkCompletion,
};
use rpcrdma_transport::body::{
    OP_DISCONNECT, OP_READ, OP_SEND, OP_SEND_INVALIDATE, OP_WRITE, Refusal,
};

use super::rules::{Host, Qp};
use crate::handshake::Handshake;
use crate::hostile_peer::{HostilePeer, SLOTS};
use crate::staged::{IN_SLOT, STAGED, UNREADABLE};
use crate::{Shm, ShmOptions};

/// The peer, and its queue pair at the victim.
struct Guest {
    peer: HostilePeer,
    qp: Attached<Qp>,
}

/// A request as the hostile peer writes it.
#[derive(Debug, Clone, Copy)]
struct Request {
    op: u8,
    pieces: u8,
    byte_len: u32,
    rkey: u32,
    dst: u32,
    acks: u64,
    piece: (u32, u32, u64),
}

/// A victim with an honest connection to another host, and any number of hostile peers.
struct Scene {
    device: Shm,
    victim: Host,
    honest: Host,
    /// The queue pairs of the honest connection, at the honest side and at the victim.
    link: (Attached<Qp>, Attached<Qp>),
    sent: u64,
}

const STAGING: u32 = 65536;
/// Receives of the victim, by their numbers.
const RECEIVES: u64 = 16;
/// Bytes of each.
const BUFFER: u32 = 512;

impl Request {
    const SEND: Request =
        Request { op: OP_SEND, pieces: 0, byte_len: 4, rkey: 0, dst: 0, acks: 0, piece: (0, 0, 0) };

    fn staged(byte_len: u32, offset: u64) -> Request {
        Request { pieces: 1, byte_len, piece: (STAGED, byte_len, offset), ..Request::SEND }
    }

    fn words(self) -> [u64; 3] {
        let second = u64::from(self.dst) | u64::from(self.op) << 32 | u64::from(self.pieces) << 40;
        [self.acks, second, u64::from(self.byte_len) | u64::from(self.rkey) << 32]
    }
}

impl Guest {
    fn publish(&mut self, request: Request) {
        let (key, len, offset) = request.piece;
        let piece = [&key.to_ne_bytes()[..], &len.to_ne_bytes(), &offset.to_ne_bytes()].concat();
        self.peer.publish(request.words(), &piece);
    }
}

impl Scene {
    fn new() -> Scene {
        let options = ShmOptions { staging: STAGING, ..ShmOptions::default() };
        let device = Shm::with_options(options).expect("allowed");
        let (mut victim, mut honest) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
        let (ours, theirs) = connect(&device, &mut honest, &mut victim, 7);
        let mut scene = Scene { device, victim, honest, link: (ours, theirs), sent: 0 };
        (0..RECEIVES).for_each(|at| scene.victim.recv(at, at as usize * BUFFER as usize, BUFFER));
        scene
    }

    /// A peer with a connection that the victim has accepted.
    fn guest(&mut self) -> Guest {
        self.guest_with(|_| {})
    }

    /// As [`Scene::guest`], with a hello that `change` has changed.
    fn guest_with(&mut self, change: impl FnOnce(&mut Handshake)) -> Guest {
        let mut cm = self.device.open_cm().expect("a connection manager");
        let at = cm.listen(Shm::address()).expect("a free name");
        let rpcrdma_provider::Address::Shm(name) = at else { panic!("{at} is not a name") };
        let mut peer = HostilePeer::connect_with(&name, STAGING, change).expect("a listener");
        let Some(CmEvent::Request { request, .. }) = next(&mut cm) else { panic!("no request") };
        let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
        let endpoint = cm.accept(request, &self.victim.queues.handle(), &param).expect("accepted");
        assert!(peer.is_accepted());
        let qp = self.victim.queues.attach(endpoint).expect("attached");
        Guest { peer, qp }
    }

    /// The honest connection carries messages both ways, with the right bytes.
    fn assert_unharmed(&mut self) {
        for _ in 0..3 {
            self.sent += 1;
            let id = self.sent;
            let text = format!("message {id} of the honest peer");
            self.honest.send(self.link.0.qp, id, text.as_bytes()).expect("room");
            let got = self.victim.poll_dry();
            let ours: Vec<_> = got.iter().filter(|wc| wc.qp_num == self.link.1.qp_num).collect();
            assert_eq!(ours.len(), 1, "{got:?}");
            assert_eq!((ours[0].status, ours[0].byte_len), (WcStatus::Success, text.len() as u32));
            let at = ours[0].wr_id.0 as usize * BUFFER as usize;
            assert_eq!(self.victim.read(at, text.len()), text.as_bytes());
            self.post_again(&got);
            assert_eq!(brief(&self.honest.poll_dry()), [(id, WcStatus::Success)]);
        }
        assert!(self.honest.events().is_empty());
    }

    /// Posts the Receives again that have completed.
    fn post_again(&mut self, got: &[WorkCompletion]) {
        for id in got.iter().map(|wc| wc.wr_id.0).filter(|id| *id < RECEIVES) {
            self.victim.recv(id, id as usize * BUFFER as usize, BUFFER);
        }
    }

    /// Polls the victim and posts again what was received. Returns what came from `qp`.
    fn take(&mut self, qp: Attached<Qp>) -> Vec<(WcStatus, u32)> {
        let got = self.victim.poll_dry();
        self.post_again(&got);
        got.iter().filter(|wc| wc.qp_num == qp.qp_num).map(|wc| (wc.status, wc.byte_len)).collect()
    }
}

#[test]
fn a_hostile_peer_that_behaves_is_served() {
    let mut scene = Scene::new();
    let mut guest = scene.guest();
    guest.publish(Request::SEND);
    guest.publish(Request::staged(300, 64));
    assert_eq!(scene.take(guest.qp), [(WcStatus::Success, 4), (WcStatus::Success, 300)]);
    scene.assert_unharmed();
}

#[test]
fn a_message_for_the_queue_pair_of_another_is_from_its_own() {
    let mut scene = Scene::new();
    let mut guest = scene.guest();
    for op in [OP_SEND, OP_DISCONNECT] {
        guest.publish(Request { dst: scene.link.1.qp_num, op, ..Request::SEND });
    }
    assert_eq!(scene.take(guest.qp), [(WcStatus::Success, 4)]);
    let gone = QueueEvent::Disconnected { qp_num: guest.qp.qp_num };
    assert_eq!(scene.victim.events(), [gone]);
    scene.assert_unharmed();
}

#[test]
fn a_length_without_its_bytes_ends_the_connection_and_delivers_nothing() {
    let end = u64::from(STAGING);
    let staged = |byte_len, piece| Request { pieces: 1, byte_len, piece, ..Request::SEND };
    let lies = [
        ("longer than the slot", Request { byte_len: 225, ..Request::SEND }),
        ("much longer than the slot", Request { byte_len: u32::MAX, ..Request::SEND }),
        ("behind the staging area", Request::staged(300, end - 299)),
        ("far behind the staging area", Request::staged(300, end)),
        ("wrapping", Request::staged(300, u64::MAX - 100)),
        ("a shorter piece", staged(300, (STAGED, 299, 0))),
        ("a longer piece", staged(300, (STAGED, 301, 0))),
        ("an unknown key", staged(300, (7, 300, 0))),
        ("in a slot that is too short", staged(300, (IN_SLOT, 300, 0))),
        ("what could not be read", staged(300, (UNREADABLE, 300, 0))),
        ("many pieces", Request { pieces: 255, ..Request::staged(300, 0) }),
        ("longer than the Receive", Request::staged(BUFFER + 1, 0)),
        ("an unknown operation", Request { op: 77, ..Request::SEND }),
        ("no operation", Request { op: 0, ..Request::SEND }),
        (
            "an invalidation of nothing",
            Request { op: OP_SEND_INVALIDATE, rkey: 5, ..Request::SEND },
        ),
        ("a Write without a key", Request { op: OP_WRITE, ..Request::SEND }),
        ("a Read without a key", Request { op: OP_READ, ..Request::staged(4, 0) }),
    ];
    let mut scene = Scene::new();
    for (what, request) in lies {
        let mut guest = scene.guest();
        guest.publish(request);
        guest.publish(Request::SEND);
        let got = scene.take(guest.qp);
        let is_success = |(status, _): &(WcStatus, u32)| *status == WcStatus::Success;
        if what == "many pieces" {
            // Only the first piece counts; what the others say is not looked at.
            assert!(got.len() <= 2, "{what}: {got:?}");
        } else {
            assert!(!got.iter().any(is_success), "{what}: {got:?}");
            let gone = QueueEvent::Disconnected { qp_num: guest.qp.qp_num };
            assert_eq!(scene.victim.events(), [gone], "{what}");
        }
        scene.assert_unharmed();
        scene.victim.queues.disconnect(guest.qp.qp);
        scene.victim.queues.destroy(guest.qp.qp);
        scene.victim.events();
    }
}

#[test]
fn a_slot_of_another_lap_is_not_published() {
    let mut scene = Scene::new();
    let mut guest = scene.guest();
    let turn = &guest.peer.out.slot(0).turn;
    for other in [2, u64::from(SLOTS) + 1, u64::MAX] {
        turn.store(other, Ordering::Release);
        assert_eq!(scene.take(guest.qp), []);
    }
    guest.publish(Request::SEND);
    assert_eq!(scene.take(guest.qp), [(WcStatus::Success, 4)]);
    scene.assert_unharmed();
}

#[test]
fn acks_of_slots_that_were_never_published_free_nothing() {
    let mut scene = Scene::new();
    for acks in [u64::MAX, 1 << 40, 3, 1] {
        let mut guest = scene.guest();
        guest.peer.acknowledge(acks, 0);
        guest.publish(Request { acks, ..Request::SEND });
        assert_eq!(scene.take(guest.qp).len(), 1);
        for id in 0..40 {
            // The send queue fills up, or the acks are within what was published.
            let _ = scene.victim.send(guest.qp.qp, 1000 + id, b"to a liar");
            guest.publish(Request { acks: acks.wrapping_add(id), ..Request::SEND });
            scene.take(guest.qp);
        }
        scene.assert_unharmed();
        scene.victim.queues.destroy(guest.qp.qp);
        scene.victim.events();
    }
}

#[test]
fn a_peer_that_closes_its_socket_and_goes_on_publishing_is_gone() {
    let mut scene = Scene::new();
    for per_poll in [0, 1, 3] {
        let mut guest = scene.guest();
        for _ in 0..8 {
            guest.publish(Request::SEND);
        }
        guest.peer.hang_up().expect("a socket");
        let mut taken = 0;
        let until = Instant::now() + Duration::from_secs(10);
        let gone = QueueEvent::Disconnected { qp_num: guest.qp.qp_num };
        while !scene.victim.events().contains(&gone) {
            let got = scene.victim.poll();
            scene.post_again(&got);
            taken += got.iter().filter(|wc| wc.status == WcStatus::Success).count();
            assert!(Instant::now() < until, "{per_poll}: still there, {taken} messages later");
            (0..per_poll).for_each(|_| guest.publish(Request::SEND));
        }
        assert!(taken >= 8, "what it has published before is delivered");
        scene.victim.queues.destroy(guest.qp.qp);
        scene.assert_unharmed();
    }
}

/// With a Receive for each poll there is always one more message in its ring.
#[test]
fn a_peer_that_is_gone_and_keeps_its_ring_full_has_one_more_lap() {
    let mut scene = Scene::new();
    let mut guest = scene.guest();
    (0..SLOTS).for_each(|_| guest.publish(Request::SEND));
    let taken = scene.victim.poll_dry();
    assert_eq!(taken.len(), RECEIVES as usize, "no Receive is left");
    scene.post_again(&taken[..1]);
    (0..SLOTS).for_each(|_| guest.publish(Request::SEND));
    guest.peer.hang_up().expect("a socket");
    let until = Instant::now() + Duration::from_secs(10);
    let gone = QueueEvent::Disconnected { qp_num: guest.qp.qp_num };
    while !scene.victim.events().contains(&gone) {
        let got = scene.victim.poll();
        scene.post_again(&got);
        got.iter().for_each(|_| guest.publish(Request::SEND));
        assert!(Instant::now() < until, "it is still there");
    }
}

/// What it does not do itself is not done for it, and costs no one else his sleep.
#[test]
fn a_peer_without_barriers_lets_its_server_sleep() {
    let mut scene = Scene::new();
    let _guest = scene.guest_with(|hello| hello.has_fences = false);
    scene.victim.poll_dry();
    let waker = Waker::new().expect("a descriptor");
    let (begun, limit) = (Instant::now(), Duration::from_millis(50));
    scene.victim.queues.wait(&waker, limit).expect("it sleeps");
    assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
}

#[test]
fn outcomes_and_counters_may_be_anything() {
    let mut scene = Scene::new();
    let guest = scene.guest();
    scene.victim.poll();
    let remote = Remote { addr: 0x1000, rkey: 7 };
    let sgl = [scene.victim.sge(100_000, 300)];
    for id in 0..4 {
        scene.victim.post(guest.qp.qp, 500 + id, SendOp::Read(remote), &sgl);
    }
    for (position, outcome) in [(0, 0xff), (1, 0), (2, 77), (3, 6)] {
        guest.peer.set_outcome(position, outcome);
    }
    guest.peer.acknowledge(4, u64::MAX);
    scene.victim.poll_dry();
    scene.assert_unharmed();
}

/// More under way than there are slots are refused: `lies.rs` of the transport.
#[test]
fn reads_without_a_look_at_their_answers_are_all_executed() {
    let mut scene = Scene::new();
    let mut guest = scene.guest();
    let rkey = scene.victim.bind(guest.qp.qp, (0, 4096), Access::REMOTE_READ);
    let addr = scene.victim.at(0);
    for position in 0..u64::from(SLOTS) {
        guest.peer.out.target(position).store(addr, Ordering::Relaxed);
    }
    const COUNT: u64 = 1000;
    for _ in 0..COUNT {
        guest.publish(Request { op: OP_READ, rkey, ..Request::staged(64, 0) });
        scene.victim.poll();
    }
    scene.victim.poll_dry();
    for position in COUNT - u64::from(SLOTS)..COUNT {
        let result = guest.peer.out.outcome(position);
        assert_eq!(result.turn.load(Ordering::Acquire), position + 1);
        let outcome = Refusal::outcome_of(result.outcome.load(Ordering::Relaxed));
        assert_eq!(outcome, Some(Ok(())), "{position}");
    }
    assert!(scene.victim.events().is_empty());
    scene.assert_unharmed();
}

#[test]
fn a_peer_that_writes_over_everything_spoils_only_its_own() {
    let seeds =
        std::env::var("RPCRDMA_CORRUPTIONS").map_or(60, |count| count.parse().expect("a number"));
    let mut scene = Scene::new();
    for seed in 0..seeds {
        let mut guest = scene.guest();
        let mut random = Random(seed);
        for _ in 0..64 {
            match random.below(8) {
                0 => guest.publish(Request {
                    op: random.below(8) as u8,
                    pieces: random.below(3) as u8,
                    byte_len: random.next() as u32,
                    rkey: random.next() as u32,
                    dst: random.next() as u32,
                    acks: random.next(),
                    piece: (STAGED, random.next() as u32, random.next() % 70_000),
                }),
                1 => drop(scene.victim.send(guest.qp.qp, 900, b"to a corrupter")),
                2 => {
                    guest.peer.send(&[0; 100]);
                }
                _ => corrupt(&guest, &mut random),
            }
            scene.take(guest.qp);
        }
        scene.assert_unharmed();
        scene.victim.queues.disconnect(guest.qp.qp);
        scene.victim.queues.destroy(guest.qp.qp);
        scene.victim.poll_dry();
        scene.victim.events();
    }
}

#[test]
fn a_peer_that_writes_while_it_is_polled_spoils_only_its_own() {
    let rounds =
        std::env::var("RPCRDMA_CORRUPTIONS").map_or(6, |count| count.parse().expect("a number"));
    let mut scene = Scene::new();
    for seed in 0..rounds {
        let mut guest = scene.guest();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let qp = guest.qp;
            let (guest, is_over) = (&mut guest, &is_over);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let staged = Request::staged(random.below(600) as u32, random.next() % 70_000);
                    let (op, byte_len) = (random.below(6) as u8, random.below(600) as u32);
                    guest.publish(if random.below(2) == 0 {
                        staged
                    } else {
                        Request { op, byte_len, ..Request::SEND }
                    });
                    corrupt(guest, &mut random);
                }
            });
            for _ in 0..20 {
                scene.take(qp);
                scene.assert_unharmed();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scene.victim.queues.disconnect(guest.qp.qp);
        scene.victim.queues.destroy(guest.qp.qp);
        scene.victim.poll_dry();
        scene.victim.events();
    }
}

/// Writes random bytes to a random place of the link's memory: more often where words are.
fn corrupt(guest: &Guest, random: &mut Random) {
    let len = guest.peer.memory_len() as u64;
    let span = if random.below(2) == 0 { len.min(16 << 10) } else { len };
    let (at, count) = (random.below(span) as usize, random.below(64) as usize);
    let bytes: Vec<u8> =
        (0..count).map(|_| if random.below(4) == 0 { 0xff } else { random.next() as u8 }).collect();
    guest.peer.corrupt(at, &bytes);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
