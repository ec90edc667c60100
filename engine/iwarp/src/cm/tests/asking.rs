//! The side that connects.

use super::*;
use crate::calls::Calls;
use crate::terms::{First, ReadyToReceive, Terms};

#[test]
fn what_the_system_reports_of_an_address_is_passed_on() {
    let mut scene = Scene::new();
    // A multicast address has no host.
    let attempt = scene.connect("224.0.0.1:7".parse().unwrap());
    assert_eq!(scene.refused(attempt), ConnectError::NoRoute);
}

#[test]
fn the_request_has_the_parameters_of_this_side_byte_for_byte() {
    let (listener, at) = foreign();
    let mut scene = Scene::new();
    scene.connect(at);
    let (stream, request) = take(&mut scene, &listener);
    assert_eq!(request, OWN_REQUEST);
    assert!(is_open(&stream), "and no more");
    let mut scene = Scene::with(TcpOptions { crc: true, rd_atomic: 1, ..TcpOptions::default() });
    scene.connect(at);
    let (_stream, request) = take(&mut scene, &listener);
    assert_eq!(request, b"MPA ID Req Frame\x50\x02\x00\x09\x80\x01\xc0\x01hello");
}

#[test]
fn every_legal_reply_is_taken_however_it_is_cut() {
    let mut scene = Scene::new();
    let (listener, at) = foreign();
    let cases: [(&[u8], Terms); 5] = [
        (OWN_REPLY, terms(16, 16, Some(ReadyToReceive::Write))),
        (
            b"MPA ID Rep Frame\x10\x02\x00\x09\x80\x04\x40\x08hello",
            terms(8, 4, Some(ReadyToReceive::Read)),
        ),
        // Not peer-to-peer.
        (b"MPA ID Rep Frame\x10\x02\x00\x09\x00\x04\x00\x08hello", terms(8, 4, None)),
        (b"MPA ID Rep Frame\x00\x02\x00\x05hello", terms(16, 16, None)),
        (b"MPA ID Rep Frame\x00\x01\x00\x05hello", terms(16, 16, None)),
    ];
    for (reply, terms) in cases {
        for is_slow in [false, true] {
            let attempt = scene.connect(at);
            let (mut stream, _) = take(&mut scene, &listener);
            let (last, bytes) = reply.split_last().unwrap();
            for part in bytes.chunks(if is_slow { 1 } else { bytes.len() }) {
                stream.write_all(part).unwrap();
                assert!(scene.is_quiet());
            }
            // What is behind it stays there.
            stream.write_all(&[*last, b'+']).unwrap();
            let (endpoint, private) = scene.connected(attempt);
            assert_eq!(private.as_slice(), b"hello");
            let link = &endpoint.end().0;
            assert_eq!((link.terms, link.end.side), (terms, 0));
            assert!(link.socket.has_more());
        }
    }
}

/// Of a side that does not want CRCs.
fn terms(ird: u32, ord: u32, ready: Option<ReadyToReceive>) -> Terms {
    Terms { checks_crc: false, ird, ord, first: First::Ours { ready } }
}

#[test]
fn a_reply_that_rejects_says_why() {
    let mut scene = Scene::new();
    let (listener, at) = foreign();
    let full = Rejection::Full.encode();
    let unstated = ConnectError::Rejected(Rejection::Unstated);
    let cases: [(&[u8], &[u8], ConnectError); 4] = [
        (b"\x30\x02\x00\x0c\x00\x00\x00\x00", &full, ConnectError::Rejected(Rejection::Full)),
        (b"\x20\x01\x00\x08", &full, ConnectError::Rejected(Rejection::Full)),
        (b"\x30\x02\x00\x00", b"", unstated),
        (b"\x30\x02\x00\x08\xff\xff\xff\xff", b"what", unstated),
    ];
    for (head, private, reason) in cases {
        let attempt = scene.connect(at);
        let (mut stream, _) = take(&mut scene, &listener);
        stream.write_all(&[b"MPA ID Rep Frame", head, private].concat()).unwrap();
        assert_eq!(scene.refused(attempt), reason);
    }
}

#[test]
fn a_peer_that_goes_without_a_reply_has_rejected() {
    let mut scene = Scene::new();
    let (listener, at) = foreign();
    for len in 0..OWN_REPLY.len() {
        let attempt = scene.connect(at);
        let (mut stream, _) = take(&mut scene, &listener);
        stream.write_all(&OWN_REPLY[..len]).unwrap();
        drop(stream);
        assert_eq!(scene.refused(attempt), ConnectError::Rejected(Rejection::Unstated));
    }
    // One that does not read the request resets the connection.
    let attempt = scene.connect(at);
    let (stream, _) = listener.accept().unwrap();
    assert!(scene.is_quiet());
    drop(stream);
    assert_eq!(scene.refused(attempt), ConnectError::Rejected(Rejection::Unstated));
}

#[test]
fn a_peer_that_speaks_something_else_is_distinguished_from_one_that_rejects() {
    let mut scene = Scene::new();
    let (listener, at) = foreign();
    let cases: [(&[u8], &str); 6] = [
        (b"SSH-2.0-OpenSSH\r\n", "what listens at the address does not speak iWARP"),
        (OWN_REQUEST, "what listens at the address does not speak iWARP"),
        (b"MPA ID Rep Frame\x10\x03\x00\x04\x80\x10\x80\x10", "does not speak iWARP"),
        (b"MPA ID Rep Frame\x90\x02\x00\x04\x80\x10\x80\x10", "the peer wants MPA markers"),
        (b"MPA ID Rep Frame\x10\x02\x00\x04\xc0\x10\x00\x10", "no ready-to-receive message"),
        (b"MPA ID Rep Frame\x10\x02\x00\x04\x80\x10\x80\x11", "more RDMA Reads under way"),
    ];
    for (reply, why) in cases {
        let attempt = scene.connect(at);
        let (mut stream, _) = take(&mut scene, &listener);
        stream.write_all(reply).unwrap();
        let reason = scene.refused(attempt).to_string();
        assert!(reason.starts_with("the start of MPA failed") && reason.contains(why), "{reason}");
        assert!(has_ended(&mut stream));
    }
}

#[test]
fn an_attempt_that_is_cancelled_has_no_event_and_leaves_nothing() {
    let mut scene = Scene::new();
    let (listener, at) = foreign();
    for round in 0..3 * ATTR.qp_max {
        // There are as many queue pairs as one attempt needs, if they come back.
        let attempt = scene.connect(at);
        if round % 2 == 0 {
            assert!(scene.is_quiet());
        }
        assert_eq!(scene.cm.cancel(attempt), None);
        assert!(scene.cm.sockets() == 0);
        let (mut stream, _) = listener.accept().unwrap();
        let said = if round % 2 == 0 { OWN_REQUEST.len() } else { 0 };
        assert_eq!(read(&mut stream, said), OWN_REQUEST[..said]);
        assert!(has_ended(&mut stream));
        assert!(scene.is_quiet());
        assert_eq!(scene.cm.cancel(attempt), None, "a second time");
    }
}
