//! A thread that sleeps wakes for what comes, for room, and for the end of a connection: with one
//! connection and with many.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{Attached, QueueEvent, Queues, SendFlags, Waker, WcStatus, WorkCompletion};
use rustix::net::sockopt;

use super::raw::{self, *};
use super::rules::{Host, Qp};
use crate::Tcp;

/// A host with connections to peers.
struct Scene {
    host: Host,
    peers: Vec<(Raw, Attached<Qp>)>,
}

impl Scene {
    fn new(count: usize) -> Scene {
        let device = Tcp::new().unwrap();
        let attr = rpcrdma_provider::QueueAttr { qp_max: 128, ..SMALL };
        let mut host = Host::new(&device, &attr);
        let peers = (0..count).map(|_| Raw::connect(&device, &mut host, PLAIN)).collect();
        Scene { host, peers }
    }

    /// All peers have begun.
    fn begun(count: usize) -> Scene {
        let mut scene = Scene::new(count);
        scene.peers.iter_mut().for_each(|(raw, _)| raw.send(&[&[]; 1]));
        assert_eq!(scene.host.poll_dry(), []);
        scene
    }

    /// Sleeps until something completes or happens, while a peer does something later.
    fn while_peer(&mut self, which: usize, act: impl FnOnce(&mut Raw) + Send) -> Woken {
        let Scene { host, peers } = self;
        let raw = &mut peers[which].0;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(LATER);
                act(raw);
            });
            sleep(host)
        })
    }
}

/// What a sleeper has woken for.
#[derive(Debug, PartialEq, Eq)]
struct Woken(Vec<WorkCompletion>, Vec<QueueEvent>);

/// Sleeps until something completes or happens.
fn sleep(host: &mut Host) -> Woken {
    let (waker, began) = (Waker::new().unwrap(), Instant::now());
    for _ in 0..ROUNDS {
        host.queues.wait(&waker, LONG).unwrap();
        assert!(began.elapsed() < LONG, "it has not woken");
        let woken = Woken(host.poll(), host.events());
        if woken != Woken(vec![], vec![]) {
            return woken;
        }
    }
    panic!("it does not sleep");
}

#[test]
fn a_sleeper_wakes_for_a_message_and_for_its_last_byte() {
    for count in COUNTS {
        let mut scene = Scene::begun(count);
        for which in 0..count {
            for number in 1..3 {
                scene.host.recv(10, 0, 64);
                let fpdu = scene.peers[which].0.fpdu(&send(number, b"hello"));
                let (first, last) = fpdu.split_at(31);
                scene.peers[which].0.send_bytes(first);
                let woken = scene.while_peer(which, |raw| raw.send_bytes(last));
                assert_eq!(woken, Woken(vec![received(10, scene.peers[which].1, 5)], vec![]));
            }
        }
    }
}

#[test]
fn a_sleeper_wakes_for_the_end_of_a_connection() {
    for count in COUNTS {
        for ending in 0..4 {
            let mut scene = Scene::begun(count);
            let woken = scene.while_peer(count - 1, |raw| match ending {
                0 => raw.stream.shutdown(Shutdown::Write).unwrap(),
                1 => {
                    sockopt::set_socket_linger(&raw.stream, Some(Duration::ZERO)).unwrap();
                    raw.stream.shutdown(Shutdown::Both).unwrap();
                }
                2 => raw.send(&[terminate(1, &[0x01, 0, 0, 0])]),
                _ => raw.send(&[send(9, b"a wrong number")]),
            });
            let qp_num = scene.peers[count - 1].1.qp_num;
            assert_eq!(woken, Woken(vec![], vec![QueueEvent::Disconnected { qp_num }]));
        }
    }
}

#[test]
fn the_end_is_noticed_that_came_with_the_last_message() {
    for count in COUNTS {
        for does_reset in [false, true] {
            let mut scene = Scene::begun(count);
            scene.host.recv(10, 0, 64);
            // Something that the peer does not read makes its end a reset.
            if does_reset {
                scene.host.send(scene.peers[0].1.qp, 1, b"unread").unwrap();
                assert_eq!(brief(&scene.host.poll_dry()), [(1, WcStatus::Success)]);
            }
            let (mut raw, qp) = scene.peers.remove(0);
            raw.send(&[send(1, b"last words")]);
            drop(raw);
            // Both are there when the host looks.
            assert_eq!(sleep(&mut scene.host).0, [received(10, qp, 10)]);
            let lost = QueueEvent::Disconnected { qp_num: qp.qp_num };
            assert_eq!(sleep(&mut scene.host), Woken(vec![], vec![lost]));
        }
    }
}

#[test]
fn a_message_sent_before_a_failure_of_sending_is_received() {
    for count in COUNTS {
        let mut scene = Scene::begun(count);
        scene.host.recv(10, 0, 64);
        scene.host.send(scene.peers[0].1.qp, 1, b"unread").unwrap();
        assert_eq!(brief(&scene.host.poll_dry()), [(1, WcStatus::Success)]);
        let (mut raw, qp) = scene.peers.remove(0);
        raw.send(&[send(1, b"last words")]);
        drop(raw);
        // The peer is gone, and the host finds out when it sends.
        scene.host.send(qp.qp, 2, b"unseen").unwrap();
        scene.host.send(qp.qp, 3, b"unseen").unwrap();
        let mut done = scene.host.poll_dry();
        let position = done.iter().position(|wc| wc.wr_id.0 == 10).expect("it is received");
        assert_eq!(done.remove(position), received(10, qp, 10));
        let flushed = [(2, WcStatus::Flushed), (3, WcStatus::Flushed)];
        assert_eq!(brief(&done), flushed);
        assert_eq!(scene.host.events(), [QueueEvent::Disconnected { qp_num: qp.qp_num }]);
    }
}

#[test]
fn a_sleeper_wakes_when_the_peer_begins_and_sends_what_has_waited() {
    for count in COUNTS {
        let mut scene = Scene::new(count);
        let qp = scene.peers[count - 1].1.qp;
        for id in 0..3 {
            scene.host.send(qp, id, &[id as u8; 4]).unwrap();
        }
        assert_eq!(scene.host.poll_dry(), [], "the peer sends first");
        let woken = scene.while_peer(count - 1, |raw| raw.send(&[&[]; 1]));
        let mut done = woken.0;
        done.extend(scene.host.poll_dry());
        let expected = [0, 1, 2].map(|id| (id, WcStatus::Success));
        assert_eq!(brief(&done), expected);
        for number in 1..4 {
            let expected = send(number, &[number as u8 - 1; 4]);
            assert_eq!(scene.peers[count - 1].0.receive(), Some(expected));
        }
    }
}

#[test]
fn a_sleeper_wakes_when_there_is_room() {
    for count in COUNTS {
        let mut scene = Scene::begun(count);
        let qp = scene.peers[count - 1].1.qp;
        let sgl = [scene.host.sge(0, 250_000)];
        for id in 0..64 {
            scene.host.send_from(qp, id, &sgl, SendFlags::SIGNALED).unwrap();
        }
        let mut done = scene.host.poll_dry().len();
        assert!(done < 63, "TCP does not take all");
        let Scene { host, peers } = &mut scene;
        let raw = &mut peers[count - 1].0;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(LATER);
                for _ in 0..64 * 250_000_usize.div_ceil(65_516) {
                    raw.receive().expect("a segment");
                }
            });
            while done < 64 {
                let Woken(completions, events) = sleep(host);
                assert!(events.is_empty() && !completions.is_empty());
                done += completions.len();
            }
        });
    }
}

#[test]
fn a_sleeper_wakes_when_there_is_room_for_a_response() {
    for count in COUNTS {
        let mut scene = Scene::begun(count);
        let len = MEMORY as u32;
        let rkey = scene.host.expose(&scene.host.sge(0, len), Access::REMOTE_READ).unwrap();
        let source = (rkey, scene.host.at(0));
        let mut number = 0;
        let raw = &mut scene.peers[count - 1].0;
        // Until neither TCP nor the host has room.
        for _ in 0..4 {
            let reads: Vec<_> = (0..16)
                .map(|_| {
                    number += 1;
                    raw::read(number, (5, 0), len, source)
                })
                .collect();
            raw.send(&reads);
            scene.host.poll_dry();
            if scene.host.queues.transport().carriers().any(|end| end.0.out().pending() > 0) {
                break;
            }
        }
        let Scene { host, peers } = &mut scene;
        let raw = &mut peers[count - 1].0;
        let is_received = std::sync::atomic::AtomicBool::new(false);
        let (waker, began) = (Waker::new().unwrap(), Instant::now());
        std::thread::scope(|scope| {
            let (received, ring) = (&is_received, &waker);
            scope.spawn(move || {
                std::thread::sleep(LATER);
                for _ in 0..number as usize * MEMORY.div_ceil(65_520) {
                    raw.receive().expect("a Response");
                }
                received.store(true, std::sync::atomic::Ordering::Release);
                ring.ring();
            });
            while !is_received.load(std::sync::atomic::Ordering::Acquire) {
                host.queues.wait(&waker, LONG).unwrap();
                assert_eq!((host.poll(), host.events()), (vec![], vec![]));
                assert!(began.elapsed() < LONG, "it has not woken");
            }
        });
    }
}

#[test]
fn a_hundred_connections_are_served_by_one_thread() {
    let mut scene = Scene::begun(100);
    for round in 1..4 {
        // All at once, more than a look notes.
        for batch in 0..5 {
            (0..20).for_each(|id| scene.host.recv(id, 64 * id as usize, 64));
            for index in 0..20 {
                scene.peers[20 * batch + index].0.send(&[send(round, b"call")]);
            }
            let mut left: Vec<u32> =
                (0..20).map(|index| scene.peers[20 * batch + index].1.qp_num).collect();
            while !left.is_empty() {
                for completion in sleep(&mut scene.host).0 {
                    let at = left.iter().position(|num| *num == completion.qp_num);
                    left.swap_remove(at.expect("each once"));
                }
            }
        }
    }
    for (raw, qp) in &mut scene.peers {
        scene.host.send(qp.qp, 1, b"bye").unwrap();
        assert_eq!(raw.receive(), Some(send(1, b"bye")));
    }
    let Scene { host, peers } = &mut scene;
    host.poll_dry();
    // All end at once, too.
    peers.iter().for_each(|(raw, _)| raw.stream.shutdown(Shutdown::Write).unwrap());
    let mut lost = 0;
    while lost < 100 {
        let Woken(completions, events) = sleep(host);
        assert_eq!(completions, []);
        lost += events.len();
    }
    peers.iter().for_each(|(_, qp)| host.queues.destroy(qp.qp));
    assert!(peers.iter_mut().all(|(raw, _)| raw.receive().is_none()));
}

/// Numbers of connections: one is not looked for in the set of sockets.
const COUNTS: [usize; 2] = [1, 3];
/// Returns of a sleep that finds nothing: each may receive a part of a message.
const ROUNDS: usize = 200;
/// When a sleeper sleeps for sure.
const LATER: Duration = Duration::from_millis(20);
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(20);
