//! The virtual network against what TCP promises.

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::*;
use crate::calls::{Calls, Failed};

const AT: &str = "127.0.0.1:2049";

fn network(seed: u64, cut_percent: u8) -> Network {
    Network::new(NetworkPlan { seed, cut_percent })
}

/// Two sockets that are connected.
fn pair(network: &Network) -> [VirtualSocket; 2] {
    let (listener, here) = (network.socket(), network.socket());
    listener.listen(&AT.parse().unwrap()).unwrap();
    if !here.connect(&AT.parse().unwrap()).unwrap() {
        while !here.is_connected().unwrap() {
            network.step();
        }
    }
    let (there, from) = listener.accept().unwrap();
    assert!(from.ip().is_loopback());
    [here, there]
}

/// All that comes until the end, and how that is.
fn read_all(network: &Network, socket: &VirtualSocket) -> (Vec<u8>, Result<usize, Errno>) {
    let (mut all, mut some) = (Vec::new(), [0; 700]);
    for _ in 0..100_000 {
        match socket.recv(&mut some) {
            Ok(len @ 1..) => all.extend(&some[..len]),
            Err(Errno::AGAIN) => network.step(),
            end => return (all, end),
        }
    }
    panic!("no end comes");
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn all_bytes_come_in_order_and_then_the_end() {
    let mut counts = NetworkCounts::default();
    for seed in 0..60 {
        let network = network(seed, 0);
        let [here, there] = pair(&network);
        let sent = bytes(5_000);
        let (mut left, mut received) = (&sent[..], Vec::new());
        let mut some = [0; 700];
        while !left.is_empty() {
            match here.send(left) {
                Ok(len) => left = &left[len..],
                Err(error) => assert_eq!(error, Errno::AGAIN),
            }
            network.step();
            let len = there.recv(&mut some).unwrap_or(0);
            received.extend(&some[..len]);
        }
        here.shutdown(Shutdown::Write);
        assert_eq!(here.send(b"more"), Err(Errno::PIPE));
        let (rest, end) = read_all(&network, &there);
        received.extend(rest);
        assert_eq!((received == sent, end), (true, Ok(0)), "seed {seed}");
        assert_eq!(there.send(b"the other direction"), Ok(19));
        drop(there);
        assert_eq!(read_all(&network, &here), (b"the other direction".to_vec(), Ok(0)));
        assert_eq!(network.counts().cuts(), 0);
        counts.splits += network.counts().splits;
        counts.full += network.counts().full;
    }
    assert!(counts.splits > 500 && counts.full > 50, "{counts:?}");
}

#[test]
fn a_cut_leaves_the_first_bytes() {
    let mut ends = Vec::new();
    for seed in 0..200 {
        let network = network(seed, 100);
        let [here, there] = pair(&network);
        let sent = bytes(1_000);
        assert_eq!(here.send(&sent), Ok(1_000));
        here.shutdown(Shutdown::Write);
        let (received, end) = read_all(&network, &there);
        assert!(sent.starts_with(&received), "seed {seed}");
        let is_whole = network.counts().cuts() == 0;
        assert_eq!(
            received == sent && end == Ok(0),
            is_whole || received.len() == 1_000 && end == Ok(0)
        );
        ends.push((is_whole, end));
    }
    for wanted in [(true, Ok(0)), (false, Ok(0)), (false, Err(Errno::CONNRESET))] {
        assert!(ends.contains(&wanted), "{wanted:?}");
    }
}

#[test]
fn bytes_for_a_closed_socket_reset_the_sender() {
    for is_unread in [false, true] {
        let network = network(1, 0);
        let [here, there] = pair(&network);
        if is_unread {
            here.send(b"not read").unwrap();
            while !there.has_more() {
                network.step();
            }
        } else {
            there.send(b"read all the same").unwrap();
        }
        drop(there);
        let said = if is_unread { &b""[..] } else { b"read all the same" };
        if is_unread {
            assert_eq!(read_all(&network, &here), (said.to_vec(), Err(Errno::CONNRESET)));
        } else {
            assert_eq!(read_all(&network, &here), (said.to_vec(), Ok(0)));
            here.send(b"too late").unwrap();
            (0..100).for_each(|_| network.step());
            assert_eq!(here.send(b"later"), Err(Errno::CONNRESET));
        }
        assert_eq!(here.send(b"latest"), Err(Errno::PIPE));
    }
}

#[test]
fn a_set_names_edges_once_and_levels_as_long_as_they_last() {
    let network = network(3, 0);
    let [here, there] = pair(&network);
    let (edges, levels) = (network.ready_set().unwrap(), network.ready_set().unwrap());
    let all = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    edges.add(&there, 5, all).unwrap();
    let look = |set: &VirtualSet| {
        let mut seen = Vec::new();
        set.look(8, |number, flags| seen.push((number, flags)));
        seen
    };
    assert_eq!(look(&edges), [(5, EventFlags::OUT)], "how it is at the beginning");
    assert_eq!(look(&edges), []);
    here.send(b"x").unwrap();
    (0..100).for_each(|_| network.step());
    assert_eq!(look(&edges), [(5, EventFlags::IN | EventFlags::OUT)]);
    assert_eq!(look(&edges), [], "it was said");
    edges.remove(&there).unwrap();
    assert_eq!(edges.remove(&there), Err(Errno::NOENT));
    levels.add(&there, 6, EventFlags::IN).unwrap();
    assert_eq!(levels.add(&there, 7, EventFlags::IN), Err(Errno::EXIST));
    for _ in 0..3 {
        assert_eq!(look(&levels), [(6, EventFlags::IN)]);
    }
    assert_eq!(there.recv(&mut [0; 2]), Ok(1));
    assert_eq!(look(&levels), []);
    levels.modify(&there, 8, EventFlags::OUT).unwrap();
    assert_eq!(look(&levels), [(8, EventFlags::OUT)]);
}

#[test]
fn who_listens_nowhere_is_not_reached() {
    let network = network(4, 0);
    let [one, other] = [(); 2].map(|()| network.socket());
    let at = one.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(other.listen(&at), Err(Failed { call: "bind", errno: Errno::ADDRINUSE }));
    drop(one);
    let mut outcome = other.connect(&at);
    while outcome == Ok(false) {
        network.step();
        outcome = other.is_connected();
    }
    assert_eq!(outcome, Err(Failed { call: "connect", errno: Errno::CONNREFUSED }));
    assert_eq!(other.recv(&mut [0]), Err(Errno::NOTCONN));
}
