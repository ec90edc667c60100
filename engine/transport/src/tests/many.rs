//! Many paths: idle ones cost a poll little, and each is visited.

use std::collections::BTreeSet;
use std::rc::Rc;

use rpcrdma_provider::{QueueAttr, QueueEvent, SendOp, WcStatus};

use super::staging::*;
use crate::body::{Body, Header, INLINE_LEN, OP_SEND};
use crate::conn::{Conn, Progress};
use crate::rounds::COLD_VISITS;

/// Queues with a queue pair on each of many paths, whose other ends the test plays.
struct Many {
    side: Side,
    /// To and from each peer.
    ways: Vec<[Rc<Way>; 2]>,
    published: Vec<u64>,
}

impl Many {
    fn new(paths: u32) -> Many {
        let attr = QueueAttr { qp_max: paths, srq_depth: 64, ..ATTR };
        let mut it = Many {
            side: Side::new(0, FIRST, &attr),
            ways: Vec::new(),
            published: vec![0; paths as usize],
        };
        for path in 0..paths {
            let (there, back, conn) = (Way::with(SLOTS_ALL), Way::with(SLOTS_ALL), Conn::new());
            let nums = [FIRST + path, path];
            it.side.attach((path.into(), 0), Some([&there, &back]), &conn, nums);
            conn.set(1, Progress::Attached);
            it.ways.push([there, back]);
        }
        it
    }

    /// As many, all of which are cold.
    fn cold(paths: u32) -> Many {
        let mut it = Many::new(paths);
        (0..COOLING).for_each(|_| assert!(it.poll().is_empty()));
        it
    }

    /// Polls once: the paths that it visits.
    fn visits(&mut self) -> BTreeSet<usize> {
        self.looked();
        assert!(self.poll().is_empty());
        self.looked()
    }

    /// The paths that were looked at since the last call.
    fn looked(&mut self) -> BTreeSet<usize> {
        let ways = self.ways.iter().enumerate();
        ways.filter(|(_, [_, back])| back.looks.take() > 0).map(|(path, _)| path).collect()
    }

    /// Receives completed by one poll.
    fn poll(&mut self) -> Vec<(u64, WcStatus)> {
        brief(&self.side.poll())
    }

    /// The peer sends a short message, for which there is a Receive.
    fn message(&mut self, path: usize) {
        self.message_of(path, 8);
    }

    /// The peer sends a message of `len` bytes, for which there is a Receive.
    fn message_of(&mut self, path: usize, len: usize) {
        let to = self.side.sge(0, len as u32);
        self.side.recv(path as u64, &[to]);
        let outside = if len > INLINE_LEN { len } else { 0 };
        let (dst, byte_len, pieces) = (FIRST + path as u32, len as u32, u8::from(outside > 0));
        let header = Header { dst, op: OP_SEND, byte_len, pieces, ..Header::empty() };
        let slot = Slot::new(Body { header, bytes: [7; INLINE_LEN] }, vec![7; outside]);
        self.ways[path][1].publish(self.published[path], slot);
        self.published[path] += 1;
    }

    fn send(&mut self, path: usize) {
        let from = self.side.sge(0, 8);
        self.side.post_to(FIRST + path as u32, 1, SendOp::Send, &[from]);
    }
}

/// The number of the first queue pair: the next ones follow.
const FIRST: u32 = 0x10_000;
/// Slots of each way.
const SLOTS_ALL: usize = 16;
/// Polls after which a path without work is cold, and a few more.
const COOLING: usize = 100;
/// Paths that no poll could visit all.
const PATHS: u32 = 1000;
/// Polls that visit each of them.
const LAP: usize = (PATHS as usize).div_ceil(COLD_VISITS);

#[test]
fn of_a_thousand_cold_paths_a_poll_visits_sixteen_and_a_lap_visits_each() {
    let mut it = Many::cold(PATHS);
    for _ in 0..3 {
        let visits: Vec<BTreeSet<usize>> = (0..LAP).map(|_| it.visits()).collect();
        assert!(visits.iter().all(|paths| paths.len() <= 16));
        assert_eq!(visits.into_iter().flatten().collect::<BTreeSet<_>>().len(), 1000);
    }
}

#[test]
fn few_paths_are_all_visited_by_every_poll() {
    let mut it = Many::cold(COLD_VISITS as u32);
    assert_eq!(it.visits().len(), COLD_VISITS);
    it.send(3);
    assert_eq!(it.visits().len(), COLD_VISITS);
    let mut it = Many::cold(COLD_VISITS as u32 + 1);
    assert_eq!(it.visits().len(), COLD_VISITS);
}

#[test]
fn a_message_arrives_within_a_lap_and_the_next_ones_at_the_next_poll() {
    let mut it = Many::cold(PATHS);
    for path in [0, 500, 999] {
        it.message(path);
        assert!(it.side.transport.has_work(), "its thread does not sleep");
        let polls = (1..=LAP).find(|_| !it.poll().is_empty());
        assert!(polls.is_some(), "path {path}");
        for _ in 0..3 {
            (0..50).for_each(|_| assert!(it.poll().is_empty()));
            it.message(path);
            assert_eq!(it.poll(), [(path as u64, WcStatus::Success)]);
        }
        it.looked();
        (0..COOLING).for_each(|_| drop(it.poll()));
        assert!(!(0..2).all(|_| it.visits().contains(&path)), "it is cold again");
    }
}

#[test]
fn a_path_with_a_request_in_flight_is_visited_by_every_poll() {
    // However often they were visited since they are cold.
    for laps in 0..3 {
        let mut it = Many::cold(PATHS);
        (0..laps * LAP).for_each(|_| assert!(it.poll().is_empty()));
        for path in [0, 700] {
            it.send(path);
            for _ in 0..2 * LAP {
                let visits = it.visits();
                assert!(visits.contains(&path) && visits.len() <= 18);
            }
        }
    }
    let mut it = Many::cold(PATHS);
    it.send(700);
    for _ in 0..3 * LAP {
        let visits = it.visits();
        assert!(visits.contains(&700) && visits.len() <= 17);
    }
    it.ways[700][0].acked.set(1);
    assert_eq!(it.poll(), [(1, WcStatus::Success)]);
    (0..COOLING).for_each(|_| assert!(it.poll().is_empty()));
    assert!(!(0..2).all(|_| it.visits().contains(&700)), "it is cold again");
    it.side.transport.disconnect(FIRST + 700);
    assert!((0..3 * LAP).all(|_| it.visits().contains(&700)), "a disconnect is on its way");
}

#[test]
fn messages_of_hot_paths_do_not_keep_polls_from_cold_ones() {
    let mut it = Many::cold(100);
    for path in 0..8 {
        it.send(path);
    }
    for _ in 0..7 {
        (0..8).for_each(|path| it.message(path));
    }
    it.message(99);
    let got: Vec<_> = (0..7).flat_map(|_| it.poll()).collect();
    assert!(got.contains(&(99, WcStatus::Success)), "within a lap");
}

#[test]
fn a_poll_takes_eight_messages_of_a_path_whatever_their_lengths() {
    let mut it = Many::new(2);
    it.message(0);
    assert_eq!(it.poll().len(), 1, "the first after an idle poll is reported alone");
    it.message_of(0, 300);
    (0..10).for_each(|_| it.message(0));
    assert_eq!([it.poll().len(), it.poll().len()], [8, 3]);
}

/// Each look is a read of a line that the peer writes.
#[test]
fn short_messages_that_come_together_are_looked_at_once_each() {
    let mut it = Many::new(2);
    (0..9).for_each(|_| it.message(0));
    assert_eq!(it.poll().len(), 1);
    it.looked();
    assert_eq!(it.poll().len(), 8);
    assert_eq!(it.ways[0][1].looks.get(), 9, "and one whether there are any");
}

#[test]
fn dead_paths_are_not_visited() {
    let mut it = Many::cold(PATHS);
    for path in [3, 400] {
        it.ways[path][0].is_abandoned.set(true);
        it.ways[path][1].is_closed.set(true);
    }
    it.send(400);
    (0..2 * LAP).for_each(|_| drop(it.poll()));
    let events = it.side.events();
    let is_reported = |path| events.contains(&QueueEvent::Disconnected { qp_num: FIRST + path });
    assert!(events.len() == 2 && is_reported(3) && is_reported(400));
    let visits: BTreeSet<usize> = (0..LAP).flat_map(|_| it.visits()).collect();
    assert_eq!(visits.len(), 998);
    assert!(!visits.contains(&3) && !visits.contains(&400));
}

#[test]
fn a_path_whose_place_is_used_again_is_visited() {
    let mut it = Many::cold(PATHS);
    it.ways[3][0].is_abandoned.set(true);
    it.ways[3][1].is_closed.set(true);
    (0..LAP).for_each(|_| drop(it.poll()));
    it.side.transport.destroy(FIRST + 3);
    let (there, back, conn) = (Way::with(SLOTS_ALL), Way::with(SLOTS_ALL), Conn::new());
    let num = FIRST + 3 + PATHS.next_power_of_two();
    it.side.attach((PATHS.into(), 0), Some([&there, &back]), &conn, [num, 3]);
    it.ways[3] = [there, back];
    assert!((0..30).all(|_| it.visits().contains(&3)));
    let visits: BTreeSet<usize> = (0..COOLING + LAP).flat_map(|_| it.visits()).collect();
    assert_eq!(visits.len(), 1000);
}

#[test]
fn a_request_that_waited_for_its_peer_is_sent_when_the_peer_is_there() {
    let mut it = Many::new(PATHS);
    let (there, back, conn) = (Way::with(SLOTS_ALL), Way::with(SLOTS_ALL), Conn::new());
    let num = FIRST + PATHS;
    it.side.attach((PATHS.into(), 0), Some([&there, &back]), &conn, [num, 3]);
    it.side.post_to(num, 1, SendOp::Send, &[]);
    (0..COOLING).for_each(|_| assert!(it.poll().is_empty()));
    conn.set(1, Progress::Attached);
    assert!(!there.is_published(0), "not before");
    (0..2).for_each(|_| assert!(it.poll().is_empty()));
    assert!(there.is_published(0), "at the next poll");
}
