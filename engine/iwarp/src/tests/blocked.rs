//! Peers that do not read, and a host without Receives: what each holds has a bound, others go on,
//! and who sleeps wakes when there is room.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_conformance::host::*;
use rpcrdma_mempool::Access;
use rpcrdma_provider::{QueueEvent, Queues, SendFlags, WC_BATCH, WcStatus};
use rustix::net::sockopt;

use super::raw::{self, *};
use super::rules::Host;
use crate::calls::Calls;
use crate::link::Link;

/// A connection to a peer that reads little, and one to another.
fn narrow(crc: bool) -> Scene {
    let mut scene = Scene::new(crc);
    let link = link(&mut scene.host, 0);
    let stream = &scene.raw.stream;
    for set in [sockopt::set_socket_send_buffer_size, sockopt::set_socket_recv_buffer_size] {
        set(link.socket.fd().as_fd(), BUFFER).unwrap();
        set(stream.as_fd(), BUFFER).unwrap();
    }
    scene
}

impl Scene {
    /// Fills the connection with long Sends. Returns the number of those that are not completed.
    fn fill(&mut self) -> usize {
        for index in 0..MESSAGE as usize / 4 {
            self.host.write(4 * index, &(index as u32).to_be_bytes());
        }
        let sgl = [self.host.sge(0, MESSAGE)];
        for id in 0..64 {
            self.host.send_from(self.qp.qp, id, &sgl, SendFlags::SIGNALED).unwrap();
        }
        64 - self.host.poll_dry().len()
    }

    /// The payload of the Send that comes next, whose number is given. The host polls meanwhile, and
    /// completes the requests that follow `done`.
    fn message(&mut self, number: u32, done: &mut usize) -> Vec<u8> {
        let mut payload = Vec::new();
        let Scene { host, raw, .. } = self;
        loop {
            let ulpdu = raw.receive_while(|| {
                for completion in host.poll() {
                    let expected = (*done as u64, WcStatus::Success);
                    assert_eq!((completion.wr_id.0, completion.status), expected);
                    *done += 1;
                }
            });
            let ulpdu = ulpdu.expect("a segment");
            let control = u16::from_be_bytes([ulpdu[0], ulpdu[1]]);
            assert_eq!(control & !LAST, SEND);
            assert_eq!(ulpdu[10..14], number.to_be_bytes());
            assert_eq!(ulpdu[14..18], (payload.len() as u32).to_be_bytes());
            payload.extend(&ulpdu[18..]);
            if control & LAST != 0 {
                return payload;
            }
        }
    }
}

fn link(host: &mut Host, index: usize) -> Arc<Link> {
    Arc::clone(&host.queues.transport().carriers().nth(index).expect("a connection").0)
}

/// The last `left` of the requests of [`Scene::fill`] are flushed, each once and in order. TCP may
/// have taken some more.
fn are_flushed(done: &[(u64, WcStatus)], left: usize) {
    let ids: Vec<u64> = done.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (64 - left as u64..64).collect::<Vec<_>>());
    let taken = done.iter().take_while(|(_, status)| *status == WcStatus::Success).count();
    assert!(taken < left && done[taken..].iter().all(|(_, status)| *status == WcStatus::Flushed));
}

/// What each message of [`Scene::fill`] is.
fn pattern() -> Vec<u8> {
    (0..MESSAGE / 4).flat_map(u32::to_be_bytes).collect()
}

/// Bytes that wait for TCP.
fn pending(host: &mut Host) -> u64 {
    link(host, 0).out().pending()
}

#[test]
fn a_peer_that_does_not_read_fills_its_own_connection_and_room_comes_back() {
    for crc in [false, true] {
        let mut scene = narrow(crc);
        let left = scene.fill();
        assert!(left > 8, "{left} are not taken");
        assert!(pending(&mut scene.host) < (1 << 20) + 2 * u64::from(MESSAGE));
        scene.other_goes_on(1);
        let pattern = pattern();
        let mut done = 64 - left;
        // What is read makes room for more.
        scene.raw.stream.set_nonblocking(true).unwrap();
        for number in 1..=64 {
            assert!(scene.message(number, &mut done) == pattern, "message {number}");
        }
        done += scene.host.poll_dry().len();
        assert_eq!(done, 64);
        scene.other_goes_on(2);
    }
}

#[test]
fn reads_of_a_peer_that_does_not_read_are_answered_as_there_is_room() {
    let mut scene = narrow(false);
    let len = 200_000;
    let key = scene.host.expose(&scene.host.sge(0, len), Access::REMOTE_READ).unwrap();
    let source = (key, scene.host.at(0));
    scene.host.write(0, &[1; 200_000]);
    let reads: Vec<_> = (1..=16).map(|number| raw::read(number, (5, 0), len, source)).collect();
    scene.raw.send(&reads);
    scene.host.poll_dry();
    assert!(pending(&mut scene.host) < (1 << 20) + 300_000, "{}", pending(&mut scene.host));
    scene.other_goes_on(1);
    let Scene { host, raw, .. } = &mut scene;
    raw.stream.set_nonblocking(true).unwrap();
    for number in 1..=16 {
        let mut got = 0;
        while got < len as usize {
            let ulpdu = raw.receive_while(|| assert_eq!(host.poll(), [])).expect("a Response");
            assert_eq!(ulpdu[6..14], (got as u64).to_be_bytes(), "Read {number}");
            got += ulpdu.len() - 14;
            assert_eq!(ulpdu[0] & 0x40 != 0, got == len as usize);
        }
    }
    assert_eq!(scene.host.events(), []);
}

#[test]
fn a_violation_of_a_peer_that_does_not_read_is_answered_behind_what_was_begun() {
    for crc in [false, true] {
        let mut scene = narrow(crc);
        let left = scene.fill();
        scene.raw.send(&[send(7, b"wrong number")]);
        are_flushed(&brief(&scene.host.poll_dry()), left);
        assert_eq!(scene.host.events(), [QueueEvent::Disconnected { qp_num: scene.qp.qp_num }]);
        // The memory is the program's again.
        scene.host.write(0, &[0xee; MEMORY]);
        let pattern = pattern();
        let destroyed = std::thread::scope(|scope| {
            let Scene { host, raw, qp, .. } = &mut scene;
            let reader = scope.spawn(move || {
                let (mut messages, mut payload) = (0, Vec::<u8>::new());
                loop {
                    let ulpdu = raw.receive().expect("a Terminate message comes");
                    if ulpdu[1] == 0x47 {
                        assert!(payload.is_empty(), "behind whole messages");
                        assert_eq!(ulpdu[18..20], [0x12, 3]);
                        assert_eq!(raw.receive(), None);
                        return messages;
                    }
                    payload.extend(&ulpdu[18..]);
                    if ulpdu[0] & 0x40 != 0 {
                        assert!(payload == pattern);
                        (messages, payload) = (messages + 1, Vec::new());
                    }
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(50));
            host.queues.destroy(qp.qp);
            reader.join().expect("it receives the end")
        });
        assert!((64 - left..64).contains(&destroyed), "{destroyed}");
        scene.other_goes_on(1);
    }
}

/// Fills TCP, and has a long Write of the peer refused.
fn has_long_write_refused(scene: &mut Scene) {
    let left = scene.fill();
    let fpdu = scene.raw.fpdu(&tagged(WRITE | LAST, 0x8765_4321, 0, &[1; 60_000]));
    scene.raw.send_bytes(&fpdu);
    are_flushed(&brief(&scene.host.poll_dry()), left);
    assert_eq!(scene.host.events(), [QueueEvent::Disconnected { qp_num: scene.qp.qp_num }]);
}

#[test]
fn a_long_write_that_is_refused_is_answered_as_there_is_room() {
    for crc in [false, true] {
        let mut scene = narrow(crc);
        has_long_write_refused(&mut scene);
        let Scene { host, raw, .. } = &mut scene;
        raw.stream.set_nonblocking(true).unwrap();
        let (mut polls, mut whole) = (0, true);
        let reason = loop {
            let ulpdu = raw.receive_while(|| {
                assert_eq!(host.poll(), []);
                polls += 1;
                assert!(polls < 1_000_000, "nothing comes");
            });
            let ulpdu = ulpdu.expect("a Terminate message");
            if ulpdu[1] == 0x47 {
                break [ulpdu[18], ulpdu[19]];
            }
            whole = ulpdu[0] & 0x40 != 0;
        };
        assert_eq!((whole, reason), (true, [0x11, 0]), "behind whole messages");
        raw.stream.set_nonblocking(false).unwrap();
        assert_eq!(raw.receive(), None);
        scene.other_goes_on(1);
    }
}

#[test]
fn what_comes_behind_a_long_write_that_is_refused_is_in_the_way_of_no_other() {
    for crc in [false, true] {
        let mut scene = narrow(crc);
        has_long_write_refused(&mut scene);
        scene.raw.send_bytes(&[0; 10_000]);
        assert_eq!(scene.host.poll_dry(), []);
        scene.other_goes_on(1);
    }
}

#[test]
fn a_peer_that_leaves_before_it_has_received_why_its_long_write_was_refused_is_gone() {
    for crc in [true, false] {
        let mut scene = narrow(crc);
        has_long_write_refused(&mut scene);
        // It has not read all: it is reset.
        sockopt::set_socket_linger(&scene.raw.stream, Some(Duration::ZERO)).unwrap();
        scene.raw.stream = scene.other.stream.try_clone().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while scene.host.queues.transport().carriers().count() > 1 {
            assert!(Instant::now() < until, "crc {crc}: the connection is not over");
            scene.host.poll_dry();
        }
        scene.other_goes_on(1);
    }
}

#[test]
fn a_send_that_tcp_has_not_taken_when_a_terminate_message_comes_is_flushed() {
    let mut scene = narrow(false);
    let left = scene.fill();
    scene.raw.send(&[terminate(1, &[0x12, 3, 0, 0])]);
    are_flushed(&brief(&scene.host.poll_dry()), left);
    assert_eq!(scene.host.events(), [QueueEvent::Disconnected { qp_num: scene.qp.qp_num }]);
    scene.other_goes_on(1);
}

#[test]
fn a_flush_needs_no_help_from_a_peer_that_does_not_read() {
    let mut scene = narrow(false);
    let left = scene.fill();
    scene.host.queues.disconnect(scene.qp.qp);
    let mut done = brief(&scene.host.poll());
    assert_eq!(done.len(), left.min(WC_BATCH));
    done.extend(brief(&scene.host.poll_dry()));
    are_flushed(&done, left);
    // The memory is the program's again: what the peer reads later is not from there.
    scene.host.write(0, &[0xee; MEMORY]);
    scene.raw.stream.set_nonblocking(false).unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut scene.raw.stream, &mut bytes).unwrap();
    assert!(!bytes.windows(64).any(|bytes| bytes == [0xee; 64]));
    assert_eq!(scene.host.events(), [], "who disconnects knows");
    scene.other_goes_on(1);
}

#[test]
fn without_a_receive_a_connection_is_not_read() {
    for crc in [false, true] {
        let mut scene = narrow(crc);
        let payload = vec![3; 16_384];
        scene.raw.stream.set_nonblocking(true).unwrap();
        let (mut sent, mut rest) = (0, Vec::new());
        loop {
            if rest.is_empty() {
                sent += 1;
                rest = scene.raw.fpdu(&send(sent, &payload));
            }
            match std::io::Write::write(&mut scene.raw.stream, &rest) {
                Ok(len) => drop(rest.drain(..len)),
                Err(_) if scene.host.poll_dry().is_empty() => break,
                Err(_) => panic!("nothing is received"),
            }
            assert!(sent < 100, "the peer is stopped");
        }
        assert!(sent > 8, "TCP has buffers");
        scene.raw.stream.set_nonblocking(false).unwrap();
        let Scene { host, raw, qp, .. } = &mut scene;
        std::thread::scope(|scope| {
            // Its rest comes when there is room.
            scope.spawn(|| raw.send_bytes(&rest));
            for id in 0..u64::from(sent) {
                host.recv(id, 0, 16_384);
                let got = std::iter::repeat_with(|| host.poll()).find(|got| !got.is_empty());
                assert_eq!(got, Some(vec![received(id, *qp, 16_384)]));
            }
        });
        assert_eq!(scene.host.read(0, 16_384), payload);
        scene.other_goes_on(1);
    }
}

/// What a Read was answered with is what was there then, whatever the program writes there
/// when the peer has no right to it any more.
#[test]
fn an_answer_that_waits_for_tcp_does_not_change() {
    for crc in [false, true] {
        let mut scene = narrow(crc);
        let len = 200_000;
        let key = scene.host.expose(&scene.host.sge(0, len), Access::REMOTE_READ).unwrap();
        let source = (key, scene.host.at(0));
        scene.host.write(0, &[1; 200_000]);
        let reads = [1, 2, 3, 4].map(|number| raw::read(number, (5, 0), len, source));
        scene.raw.send(&reads);
        scene.host.poll_dry();
        assert!(pending(&mut scene.host) > 500_000, "they wait");
        scene.host.queues.conceal(key).unwrap();
        scene.host.write(0, &[9; 200_000]);
        let Scene { host, raw, .. } = &mut scene;
        raw.stream.set_nonblocking(true).unwrap();
        for number in 1..=4 {
            let mut got = 0;
            while got < len as usize {
                let ulpdu = raw.receive_while(|| assert_eq!(host.poll(), [])).expect("a Response");
                assert!(ulpdu[14..].iter().all(|byte| *byte == 1), "Read {number} at {got}");
                got += ulpdu.len() - 14;
            }
        }
    }
}

/// The system closes a socket that has unread bytes by a reset, which destroys what is under way.
#[test]
fn what_tcp_has_taken_arrives_though_this_side_has_not_read_all() {
    let mut scene = narrow(false);
    let left = scene.fill();
    scene.raw.send(&[send(1, &[9; 1000])]);
    scene.host.queues.destroy(scene.qp.qp);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut scene.raw.stream, &mut bytes).expect("no reset");
    assert!(bytes.len() > (64 - left) * MESSAGE as usize, "{}", bytes.len());
    scene.other_goes_on(1);
}

/// As of a program that is stopped, whose system answers that there is no room.
#[test]
fn a_peer_that_takes_nothing_for_too_long_loses_its_connection() {
    let mut scene = narrow(false);
    let limit = Some(Duration::from_millis(1));
    link(&mut scene.host, 0).socket.set_silence_max(limit).unwrap();
    let left = scene.fill();
    let until = Instant::now() + Duration::from_secs(20);
    let mut done = Vec::new();
    while done.len() < left {
        assert!(Instant::now() < until, "{} of {left} are over", done.len());
        done.extend(brief(&scene.host.poll()));
    }
    are_flushed(&done, left);
    assert_eq!(scene.host.events(), [QueueEvent::Disconnected { qp_num: scene.qp.qp_num }]);
    scene.other_goes_on(1);
}

const BUFFER: usize = 64 << 10;
const MESSAGE: u32 = 100_000;
