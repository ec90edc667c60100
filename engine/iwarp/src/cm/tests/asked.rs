//! The side that is connected to.

use rpcrdma_testing::denied::Denied;
use rustix::net::sockopt;

use super::*;
use crate::terms::{First, ReadyToReceive, Terms};

#[test]
fn two_sides_connect_with_their_private_data() {
    for (at, own) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        if own == "::1" && !has_ipv6() {
            continue;
        }
        let (mut a, mut b) = (Scene::new(), Scene::new());
        let to = b.listen_at(at);
        assert!(to.port() != 0 && to.ip().to_string() == own);
        let attempt = a.connect(to);
        a.work_until(1);
        assert!(a.is_quiet());
        let (request, from, private) = b.request();
        assert_eq!(from.as_ip().unwrap().ip().to_string(), own);
        assert_eq!(private.as_slice(), PARAM.private);
        let theirs = b.accept(request);
        let (ours, private) = a.connected(attempt);
        assert_eq!(private.as_slice(), PARAM.private);
        let ready = Some(ReadyToReceive::Write);
        let terms = Terms { checks_crc: false, ird: 16, ord: 16, first: First::Ours { ready } };
        assert_eq!(ours.end().0.terms, terms);
        assert_eq!(theirs.end().0.terms, Terms { first: First::Theirs, ..terms });
        assert_eq!((ours.end().0.end.side, theirs.end().0.end.side), (0, 1));
        for endpoint in [&ours, &theirs] {
            let socket = endpoint.end().0.socket.fd();
            assert!(rustix::net::sockopt::tcp_nodelay(socket).unwrap());
            assert!(
                rustix::io::fcntl_getfd(socket).unwrap().contains(rustix::io::FdFlags::CLOEXEC)
            );
        }
        assert_eq!((a.cm.sockets(), b.cm.sockets()), (0, 1), "the listener");
    }
}

#[test]
fn silence_is_limited_on_both_sides_as_the_parameters_say() {
    for (limit, expected) in [
        (None, (0, 30, 15)),
        (Some(Duration::from_millis(1)), (1_000, 2, 1)),
        (Some(Duration::from_secs(4)), (4_000, 2, 1)),
        (Some(Duration::from_secs(30)), (30_000, 16, 8)),
        (Some(Duration::from_secs(3600)), (3_600_000, 1800, 900)),
    ] {
        let param = ConnParam { send_timeout: limit, ..PARAM };
        let (mut a, mut b) = (Scene::new(), Scene::new());
        let to = Address::Ip(b.listen());
        let attempt = a.cm.connect(to, &a.queues.handle(), &param).unwrap();
        a.is_quiet();
        let request = b.request().0;
        let theirs = b.cm.accept(request, &b.queues.handle(), &param).unwrap();
        let (ours, _) = a.connected(attempt);
        for endpoint in [ours, theirs] {
            let socket = endpoint.end().0.socket.fd();
            assert!(sockopt::socket_keepalive(socket).unwrap());
            let [idle, interval] = [sockopt::tcp_keepidle, sockopt::tcp_keepintvl]
                .map(|option| option(socket).unwrap().as_secs());
            let in_flight = sockopt::tcp_user_timeout(socket).unwrap();
            assert_eq!((in_flight, idle, interval), expected, "{limit:?}");
        }
    }
}

/// Its caller would wait for it until it gives up.
#[test]
fn a_reply_that_cannot_be_sent_is_an_error_and_ends_the_connection() {
    let mut scene = Scene::new();
    let mut stream = caller(scene.listen());
    stream.write_all(OWN_REQUEST).unwrap();
    let request = scene.request().0;
    let denied = Denied { calls: &[libc::SYS_sendto], errno: libc::ENOBUFS };
    let Scene { cm, queues, .. } = &mut scene;
    let handle = queues.handle();
    let why = denied.run(|| cm.accept(request, &handle, &PARAM).err()).expect("not answered");
    assert!(matches!(why, SetupError::System { call: "send", .. }), "{why}");
    assert!(has_ended(&mut stream));
}

#[test]
fn either_side_may_want_crcs_and_fewer_reads() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let with =
            |crc, rd_atomic| Scene::with(TcpOptions { crc, rd_atomic, ..TcpOptions::default() });
        let (mut a, mut b) = (with(ours, 3), with(theirs, 5));
        let to = b.listen();
        let attempt = a.connect(to);
        a.is_quiet();
        let request = b.request().0;
        let theirs_end = b.accept(request);
        let (ours_end, _) = a.connected(attempt);
        for endpoint in [&ours_end, &theirs_end] {
            let Terms { checks_crc, ird, ord, .. } = endpoint.end().0.terms;
            assert_eq!((checks_crc, ird, ord), (ours || theirs, 3, 3));
        }
    }
}

#[test]
fn a_request_that_is_rejected_or_dropped_is_refused_there() {
    let (mut a, mut b) = (Scene::new(), Scene::new());
    let to = b.listen();
    for why in [Rejection::PeerFull, Rejection::Refused { code: 7 }, Rejection::Unstated] {
        let attempt = a.connect(to);
        a.is_quiet();
        let request = b.request().0;
        match why {
            Rejection::Unstated => drop(request),
            why => b.cm.reject(request, &why.encode()),
        }
        assert_eq!(a.refused(attempt), ConnectError::Rejected(why));
    }
}

#[test]
fn an_ipv4_peer_of_an_ipv6_listener_has_an_ipv4_address() {
    if !has_ipv6() {
        return;
    }
    let (mut a, mut b) = (Scene::new(), Scene::new());
    let to = b.listen_at("[::]:0");
    a.connect(SocketAddr::new("127.0.0.1".parse().unwrap(), to.port()));
    a.work_until(1);
    a.is_quiet();
    let (_request, from, _) = b.request();
    assert_eq!(from.as_ip().unwrap().ip().to_string(), "127.0.0.1");
}

#[test]
fn the_reply_to_a_request_is_that_of_its_revision_byte_for_byte() {
    let mut scene = Scene::new();
    let at = scene.listen();
    let cases: [(&[u8], &[u8]); 4] = [
        (OWN_REQUEST, OWN_REPLY),
        // RFC 5044's start, with CRC.
        (b"MPA ID Req Frame\x40\x01\x00\x05hello", b"MPA ID Rep Frame\x40\x01\x00\x05hello"),
        // siw: IRD 128, ORD 2; not peer-to-peer.
        (
            b"MPA ID Req Frame\x10\x02\x00\x09\x00\x80\x00\x02hello",
            b"MPA ID Rep Frame\x10\x02\x00\x09\x00\x02\x00\x10hello",
        ),
        // The ready-to-receive message is an RDMA Read.
        (
            b"MPA ID Req Frame\x10\x02\x00\x09\x80\x01\x40\x00hello",
            b"MPA ID Rep Frame\x10\x02\x00\x09\x80\x01\x40\x01hello",
        ),
    ];
    for (request, reply) in cases {
        // One byte at a time, all at once, and in two parts.
        let mut cuts = vec![(1..request.len()).collect(), vec![]];
        cuts.extend((1..request.len()).map(|at| vec![at]));
        for cuts in cuts {
            let (mut stream, mut sent) = (caller(at), 0);
            for cut in cuts {
                stream.write_all(&request[sent..cut]).unwrap();
                sent = cut;
                assert!(scene.is_quiet());
            }
            stream.write_all(&request[sent..]).unwrap();
            let (asked, from, private) = scene.request();
            assert_eq!(from.as_ip(), Some(stream.local_addr().unwrap()));
            assert_eq!(private.as_slice(), b"hello");
            let _endpoint = scene.accept(asked);
            assert_eq!(read(&mut stream, reply.len()), reply);
            assert!(is_open(&stream), "and no more");
        }
    }
}

#[test]
fn what_is_no_request_is_dropped_and_what_cannot_be_served_is_rejected() {
    let mut scene = Scene::new();
    let at = scene.listen();
    let own = |index: usize, byte: u8| {
        let mut bytes = OWN_REQUEST.to_vec();
        bytes[index] = byte;
        bytes
    };
    let wrong = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 20],
        vec![0xff; 600],
        OWN_REPLY.to_vec(),
        own(15, b'f'),
        // An unknown revision; more than 512 bytes of private data; no room for the words.
        own(17, 3),
        own(18, 2),
        own(19, 3),
        // It sends more than it may.
        [OWN_REQUEST, b"!"].concat(),
    ];
    for request in wrong {
        let mut stream = caller(at);
        stream.write_all(&request).unwrap();
        assert!(scene.is_quiet(), "{request:?}");
        scene.work_until(1);
        assert!(has_ended(&mut stream), "{request:?}");
    }
    let markers: [(u8, &[u8]); 2] = [
        (0x90, b"MPA ID Rep Frame\x30\x02\0\x04\0\0\0\0"),
        (0xd0, b"MPA ID Rep Frame\x70\x02\0\x04\0\0\0\0"),
    ];
    for (flags, reply) in markers {
        let mut stream = caller(at);
        stream.write_all(&own(16, flags)).unwrap();
        assert!(scene.is_quiet());
        assert_eq!(read(&mut stream, reply.len()), reply, "markers");
        assert!(has_ended(&mut stream));
    }
    assert_eq!(scene.cm.sockets(), 1, "the listener");
}

#[test]
fn a_caller_that_goes_in_the_middle_leaves_nothing() {
    let mut scene = Scene::new();
    let at = scene.listen();
    for len in 0..OWN_REQUEST.len() {
        let mut stream = caller(at);
        stream.write_all(&OWN_REQUEST[..len]).unwrap();
        if len % 2 == 0 {
            assert!(scene.is_quiet());
        }
        drop(stream);
        assert!(scene.is_quiet());
        scene.work_until(1);
    }
    // One that goes when its request is there is noticed by its queues.
    let mut stream = caller(at);
    stream.write_all(OWN_REQUEST).unwrap();
    let (request, ..) = scene.request();
    drop(stream);
    let _endpoint = scene.accept(request);
    assert!(scene.is_quiet());
}

/// Linux hands out what came before a reset. The address decides which peers may connect.
#[test]
fn a_caller_that_resets_before_it_is_taken_is_known_by_its_address() {
    let mut scene = Scene::new();
    let at = scene.listen();
    let mut stream = caller(at);
    let own = stream.local_addr().unwrap();
    stream.write_all(OWN_REQUEST).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    let (_request, from, _) = scene.request();
    assert_eq!(from.as_ip(), Some(own));
}

#[test]
fn private_data_that_do_not_fit_are_cut_as_padding() {
    let mut scene = Scene::new();
    let at = scene.listen();
    for len in [0, 8, 55, 56, 57, 148, 508] {
        let private: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let mut stream = caller(at);
        stream.write_all(b"MPA ID Req Frame\x10\x02").unwrap();
        stream.write_all(&(len as u16 + 4).to_be_bytes()).unwrap();
        stream.write_all(&[0x80, 1, 0xc0, 1]).unwrap();
        stream.write_all(&private).unwrap();
        let (_request, _, given) = scene.request();
        assert_eq!(given.as_slice(), &private[..private.len().min(56)]);
    }
}

#[test]
fn who_does_not_listen_any_more_is_not_reached() {
    let (mut a, mut b) = (Scene::new(), Scene::new());
    let to = b.listen();
    b.cm.unlisten(Address::Ip(SocketAddr::new(to.ip(), 1)));
    assert_eq!(b.cm.sockets(), 1, "another address");
    // It waits in the backlog.
    let waiting = a.connect(to);
    assert!(a.is_quiet());
    b.cm.unlisten(Address::Ip(to));
    assert!(b.cm.sockets() == 0);
    let reason = a.refused(waiting);
    assert!(matches!(reason, ConnectError::Rejected(Rejection::Unstated) | ConnectError::Lost));
    let late = a.connect(to);
    assert_eq!(a.refused(late), ConnectError::NoListener);
    // The address is free at once.
    assert_eq!(b.listen_at(&to.to_string()), to);
}

#[test]
fn the_socket_of_a_connection_is_not_looked_at_any_more() {
    let mut scene = Scene::new();
    let at = scene.listen();
    let mut stream = caller(at);
    stream.write_all(OWN_REQUEST).unwrap();
    let (request, ..) = scene.request();
    let endpoint = scene.accept(request);
    stream.write_all(b"FPDUs").unwrap();
    assert!(scene.is_quiet());
    let mut there = [0; 8];
    let flags = rustix::net::RecvFlags::empty();
    let (len, _) = rustix::net::recv(endpoint.end().0.socket.fd(), &mut there, flags).unwrap();
    assert_eq!(&there[..len], b"FPDUs", "it is all there");
}

#[test]
fn an_address_of_another_kind_is_refused_with_those_that_are_taken() {
    let mut scene = Scene::new();
    let at: Address = "shm:/run/it.sock".parse().unwrap();
    let listening = scene.cm.listen(at).expect_err("no IP address").to_string();
    assert_eq!(listening, format!("cannot listen on {at}: {TAKES}"));
    let connecting = scene.cm.connect(at, &scene.queues.handle(), &PARAM);
    let connecting = connecting.expect_err("no IP address").to_string();
    assert!(connecting.ends_with(TAKES), "{connecting}");
    let process = Address::Process(rpcrdma_provider::Credentials { pid: 1, uid: 1, gid: 1 });
    scene.cm.listen(process).expect_err("no IP address");
}
