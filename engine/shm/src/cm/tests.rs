//! What the connection manager does as time passes, and when the system has no room.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rpcrdma_provider::{
    CloseOnFork, CmEvent, ConnectId, ConnectionManager, Provider, QueueAttr, Rejection, ShmName,
    Waker,
};
use rpcrdma_testing::denied::Denied;
use rpcrdma_transport::socket_cm::RETRY;
use rustix::net::{RecvFlags, SendFlags};

use super::*;
use crate::Shm;
use crate::handshake::{HANDSHAKE_LEN, Handshake, Kind};
use crate::hostile_peer::HostilePeer;
use crate::socket;

const PARAM: ConnParam<'_> = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
const ATTR: QueueAttr =
    QueueAttr { srq_depth: 32, cq_depth: 256, qp_max: 8, send_depth: 64, send_sge: 4, recv_sge: 3 };
const STAGING: u32 = 4 << 20;

/// A connection manager, and queues.
struct Scene {
    cm: ShmCm,
    queues: ShmQueues,
    waker: Waker,
}

impl Scene {
    fn new() -> Scene {
        Scene::of(&Shm::new().expect("a thread"))
    }

    fn of(device: &Shm) -> Scene {
        let (cm, queues) = (device.open_cm().unwrap(), device.open_queues(&ATTR).unwrap());
        Scene { cm, queues, waker: Waker::new().unwrap() }
    }

    fn listen(&mut self) -> ShmName {
        let at = self.cm.listen("shm:@".parse().unwrap()).unwrap();
        name_of(at).expect("a name")
    }

    fn connect(&mut self, to: ShmName) -> ConnectId {
        use rpcrdma_provider::Queues;
        self.cm.connect(Address::Shm(to), &self.queues.handle(), &PARAM).unwrap()
    }

    fn next(&mut self) -> Option<CmEvent<ShmCm>> {
        self.cm.next(&self.waker, Duration::ZERO)
    }

    /// What is looked for in so many seconds.
    fn look_in(&mut self, seconds: u64) -> Option<Duration> {
        self.cm.look_at_clock(Instant::now() + Duration::from_secs(seconds))
    }
}

/// A listener of no engine, with so many places in its queue.
fn foreign(places: i32) -> (CloseOnFork, ShmName) {
    let listener = socket::open().unwrap();
    let name = socket::listen(&listener, &name_of("shm:@".parse().unwrap()).unwrap()).unwrap();
    rustix::net::listen(&listener, places).unwrap();
    (listener, name)
}

/// Takes a caller and answers its hello, as `change` wants it.
fn answer(listener: &impl AsFd, change: impl FnOnce(&mut Handshake)) -> OwnedFd {
    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
    let caller = rustix::net::accept_with(listener, flags).unwrap();
    let mut bytes = [0; HANDSHAKE_LEN];
    rustix::net::recv(&caller, &mut bytes, RecvFlags::empty()).unwrap();
    let mut answer = Handshake::decode(&bytes).unwrap();
    answer.kind = Kind::Accepted;
    change(&mut answer);
    rustix::net::send(&caller, &answer.encode(), SendFlags::empty()).unwrap();
    caller
}

fn is_open(socket: &impl AsFd) -> bool {
    let read = rustix::net::recv(socket, &mut [0], RecvFlags::DONTWAIT);
    read.is_err_and(|error| error == Errno::AGAIN)
}

/// Sends a hello, with memory of its own.
fn send_hello(caller: &impl AsFd, maps_pools: bool) {
    let dimensions = crate::layout::Dimensions { slots: 16, staging: STAGING };
    let (_memory, file) = crate::memory::Memory::create(dimensions.bytes()).unwrap();
    let hello = Handshake { maps_pools, ..crate::hostile_peer::hello(dimensions) };
    socket::send(caller, &hello, Some(&file)).unwrap();
}

/// A request, and who has made it.
fn request(scene: &mut Scene, maps_pools: bool) -> (ShmRequest, CloseOnFork) {
    let name = scene.listen();
    let caller = socket::open().unwrap();
    socket::connect(&caller, &name).unwrap();
    send_hello(&caller, maps_pools);
    let Some(CmEvent::Request { request, .. }) = scene.next() else { panic!("no request") };
    (request, caller)
}

#[test]
fn no_pools_are_exposed_to_a_caller_of_another_user_whatever_it_states() {
    // Of this thread only.
    let become_user = |uid| {
        let uid = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(None, uid, None)
    };
    let own = rustix::process::geteuid();
    for is_own in [true, false] {
        let options = crate::ShmOptions { map_pools: true, ..crate::ShmOptions::default() };
        let mut scene = Scene::of(&Shm::with_options(options).expect("a thread"));
        if !is_own && become_user(1000).is_err() {
            return;
        }
        let (request, caller) = request(&mut scene, true);
        become_user(own.as_raw()).expect("who it was");
        use rpcrdma_provider::Queues;
        let endpoint = scene.cm.accept(request, &scene.queues.handle(), &PARAM).unwrap();
        let mut bytes = [0; HANDSHAKE_LEN];
        rustix::net::recv(&caller, &mut bytes, RecvFlags::empty()).unwrap();
        let answer = Handshake::decode(&bytes).unwrap();
        let maps_pools = [answer.maps_pools, endpoint.end().0.maps_pools()];
        assert_eq!((answer.kind, maps_pools), (Kind::Accepted, [is_own; 2]));
    }
}

/// Its caller would wait for it until it gives up.
#[test]
fn an_answer_that_cannot_be_sent_is_an_error_and_ends_the_connection() {
    let mut scene = Scene::new();
    let (request, caller) = request(&mut scene, false);
    let denied = Denied { calls: &[libc::SYS_sendmsg], errno: libc::ENOBUFS };
    use rpcrdma_provider::Queues;
    let Scene { cm, queues, .. } = &mut scene;
    let handle = queues.handle();
    let why = denied.run(|| cm.accept(request, &handle, &PARAM).err()).expect("not answered");
    assert!(matches!(why, SetupError::System { call: "sendmsg", .. }), "{why}");
    assert!(!is_open(&caller));
}

#[test]
fn an_attempt_waits_for_a_place_in_the_queue_and_begins_again() {
    let mut scene = Scene::new();
    let (listener, name) = foreign(0);
    let mut others = Vec::new();
    loop {
        let other = socket::open().unwrap();
        match socket::connect(&other, &name) {
            Ok(()) => others.push(other),
            Err(Errno::AGAIN) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let id = scene.connect(name);
    assert!(scene.next().is_none(), "it is not refused");
    assert_eq!(scene.look_in(0), Some(RETRY));
    for _ in &others {
        rustix::net::accept(&listener).unwrap();
    }
    assert_eq!(scene.look_in(0), None, "it has said hello");
    drop(answer(&listener, |_| {}));
    let Some(CmEvent::Connected { id: connected, .. }) = scene.next() else { panic!("no answer") };
    assert_eq!(connected, id);
}

#[test]
fn an_attempt_that_is_cancelled_has_no_event_and_leaves_nothing() {
    let mut scene = Scene::new();
    let (listener, name) = foreign(64);
    for _ in 0..3 * ATTR.qp_max {
        // There are as many queue pairs as one attempt needs, if they come back.
        let id = scene.connect(name);
        assert_eq!(scene.cm.cancel(id), None);
        assert!(scene.cm.sockets() == 0);
        let caller = rustix::net::accept(&listener).unwrap();
        rustix::net::recv(&caller, &mut [0; 8], RecvFlags::empty()).unwrap();
        assert!(!is_open(&caller));
        assert!(scene.next().is_none());
        assert_eq!(scene.cm.cancel(id), None, "a second time");
    }
}

#[test]
fn an_answer_with_other_dimensions_or_of_another_kind_is_no_connection() {
    let mut scene = Scene::new();
    let (listener, name) = foreign(64);
    type Change = fn(&mut Handshake);
    let changes: [(Change, Rejection); 7] = [
        (|answer| answer.dimensions.slots *= 2, Rejection::Unstated),
        (|answer| answer.dimensions.staging /= 2, Rejection::Unstated),
        (|answer| answer.kind = Kind::Hello, Rejection::Unstated),
        (|answer| answer.kind = Kind::Unfit, Rejection::Unfit),
        (
            |answer| (answer.kind, answer.private) = (Kind::Rejected, [0xff; 56].into()),
            Rejection::Unstated,
        ),
        (|answer| answer.kind = Kind::Rejected, Rejection::Unstated),
        (
            |answer| {
                answer.kind = Kind::Rejected;
                answer.private = Rejection::Full.encode().into_iter().collect();
            },
            Rejection::Full,
        ),
    ];
    for (change, why) in changes {
        let id = scene.connect(name);
        let _caller = answer(&listener, change);
        let Some(CmEvent::Refused { id: refused, reason }) = scene.next() else { panic!("none") };
        assert_eq!((refused, reason), (id, ConnectError::Rejected(why)));
    }
}

#[test]
fn a_flood_of_rejections_ends_one_attempt_and_leaves_nothing() {
    let mut scene = Scene::new();
    let (listener, name) = foreign(64);
    for _ in 0..3 * ATTR.qp_max {
        let id = scene.connect(name);
        let mut said = [0; HANDSHAKE_LEN];
        let caller = answer(&listener, |answer| {
            answer.kind = Kind::Rejected;
            answer.private = Rejection::PeerFull.encode().into_iter().collect();
            said = answer.encode();
        });
        // As many as the socket takes.
        while rustix::net::send(&caller, &said, SendFlags::NOSIGNAL).is_ok() {}
        let Some(CmEvent::Refused { id: refused, reason }) = scene.next() else { panic!("none") };
        assert_eq!((refused, reason), (id, ConnectError::Rejected(Rejection::PeerFull)));
        assert!(scene.next().is_none() && scene.cm.sockets() == 0);
    }
}

/// What a peer says later is for the queues: a manager that looked at it would never return.
#[test]
fn the_socket_of_a_connection_is_not_looked_at_any_more() {
    let mut scene = Scene::new();
    let (listener, name) = foreign(64);
    scene.connect(name);
    let peer = answer(&listener, |_| {});
    let Some(CmEvent::Connected { endpoint, .. }) = scene.next() else { panic!("no answer") };
    rustix::net::send(&peer, &[0], SendFlags::empty()).unwrap();
    assert!(scene.next().is_none());
    drop(endpoint);

    let at = scene.listen();
    let peer = HostilePeer::connect(&at, STAGING).unwrap();
    let Some(CmEvent::Request { request, .. }) = scene.next() else { panic!("no request") };
    peer.send(&[0]);
    assert!(scene.next().is_none());
    drop(request);
}
