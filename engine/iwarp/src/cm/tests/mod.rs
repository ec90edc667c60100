//! The connection manager against itself, against peers that a test plays by hand, and as time
//! passes.

mod asked;
mod asking;
mod many_callers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rpcrdma_provider::{
    CmEvent, ConnectId, ConnectionManager, PrivateBytes, Provider, QueueAttr, Queues, Rejection,
    Waker,
};

use super::*;
use crate::Tcp;
use crate::options::TcpOptions;

const PARAM: ConnParam<'_> = ConnParam { private: b"hello", rnr_retry: 7, send_timeout: None };
const ATTR: QueueAttr =
    QueueAttr { srq_depth: 32, cq_depth: 256, qp_max: 8, send_depth: 64, send_sge: 4, recv_sge: 3 };

/// A connection manager, and queues.
struct Scene {
    cm: TcpCm,
    queues: TcpQueues,
    waker: Waker,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(TcpOptions::default())
    }

    fn with(options: TcpOptions) -> Scene {
        let device = Tcp::with_options(options).expect("allowed");
        let (cm, queues) = (device.open_cm().unwrap(), device.open_queues(&ATTR).unwrap());
        Scene { cm, queues, waker: Waker::new().unwrap() }
    }

    fn listen(&mut self) -> SocketAddr {
        self.listen_at("127.0.0.1:0")
    }

    fn listen_at(&mut self, at: &str) -> SocketAddr {
        let at = self.cm.listen(at.parse().unwrap()).unwrap();
        at.as_ip().expect("an IP address")
    }

    fn connect(&mut self, to: SocketAddr) -> ConnectId {
        self.cm.connect(Address::Ip(to), &self.queues.handle(), &PARAM).unwrap()
    }

    fn accept(&mut self, request: TcpRequest) -> TcpEndpoint {
        self.cm.accept(request, &self.queues.handle(), &PARAM).unwrap()
    }

    /// The next event, which comes.
    fn event(&mut self) -> CmEvent<TcpCm> {
        self.cm.next(&self.waker, LONG).expect("an event")
    }

    fn request(&mut self) -> (TcpRequest, Address, PrivateBytes) {
        match self.event() {
            CmEvent::Request { request, from, private } => (request, from, private),
            _ => panic!("another event"),
        }
    }

    fn connected(&mut self, attempt: ConnectId) -> (TcpEndpoint, PrivateBytes) {
        match self.event() {
            CmEvent::Connected { id, endpoint, private } => {
                assert_eq!(id, attempt);
                (endpoint, private)
            }
            CmEvent::Refused { reason, .. } => panic!("{reason}"),
            CmEvent::Request { .. } => panic!("a request"),
        }
    }

    fn refused(&mut self, attempt: ConnectId) -> ConnectError {
        match self.event() {
            CmEvent::Refused { id, reason } => {
                assert_eq!(id, attempt);
                reason
            }
            _ => panic!("another event"),
        }
    }

    /// No event comes.
    fn is_quiet(&mut self) -> bool {
        self.cm.next(&self.waker, SHORT).is_none()
    }

    /// What is looked for in so many seconds.
    fn look_in(&mut self, seconds: u64) -> Option<Duration> {
        self.cm.look_at_clock(Instant::now() + Duration::from_secs(seconds))
    }

    /// Works until so many sockets are waited for.
    fn work_until(&mut self, sockets: usize) {
        let until = Instant::now() + LONG;
        while self.cm.sockets() != sockets {
            assert!(self.is_quiet(), "an event");
            assert!(Instant::now() < until, "{} sockets", self.cm.sockets());
        }
    }
}

/// A host may be without IPv6.
fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

/// A peer that connects, and sends what a test wants.
fn caller(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// A listener of no engine.
fn foreign() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// Takes the caller of a scene, and its request.
fn take(scene: &mut Scene, listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert!(scene.is_quiet());
    let mut request = vec![0; OWN_REQUEST.len()];
    stream.read_exact(&mut request).unwrap();
    (stream, request)
}

/// So many bytes that the peer sends.
fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// The peer has ended the connection, and sends nothing more.
fn has_ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn is_open(stream: &TcpStream) -> bool {
    let read = rustix::net::recv(stream, &mut [0], rustix::net::RecvFlags::DONTWAIT);
    read.is_err_and(|error| error == Errno::AGAIN)
}

/// The request of a [`Scene`]: revision 2, depths of 16, peer-to-peer by an RDMA Write or Read.
const OWN_REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x09\x80\x10\xc0\x10hello";
/// Its reply to that.
const OWN_REPLY: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x09\x80\x10\x80\x10hello";
/// How long to wait for what comes.
const LONG: Duration = Duration::from_secs(60);
/// How long to wait for what does not.
const SHORT: Duration = Duration::from_millis(2);
