//! Descriptors that a peer sends unasked: no thread of the engine waits for one to be closed.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_provider::{
    Address, CloseOnFork, CmEvent, ConnParam, ConnectionManager, Provider, QueueEvent, Queues,
    ShmName, Waker,
};

use super::rules::Host;
use crate::Shm;
use crate::hostile_peer::{self, HostilePeer, SLOTS};
use crate::layout::Dimensions;
use crate::memory::Memory;
use crate::{ShmCm, ShmRequest, socket};

const PARAM: ConnParam<'_> = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
const DIMENSIONS: Dimensions = Dimensions { slots: SLOTS, staging: STAGING };
const STAGING: u32 = 4 << 20;
/// How long closing a [`Slow`] takes while its other end is there.
const LINGER: Duration = Duration::from_secs(60);
/// How long a test may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A TCP socket whose last descriptor takes time to be closed.
struct Slow {
    file: OwnedFd,
    other: TcpStream,
}

impl Slow {
    fn new() -> Slow {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a socket");
        let mut file =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (other, _) = listener.accept().expect("connected");
        rustix::net::sockopt::set_socket_send_buffer_size(&file, 4096).expect("a socket");
        file.set_nonblocking(true).expect("a socket");
        while file.write(&[0; 1 << 16]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&file, Some(LINGER)).expect("a socket");
        Slow { file: file.into(), other }
    }
}

/// A listener, and a clock that runs since it was made.
struct Scene {
    device: crate::Shm,
    cm: ShmCm,
    name: ShmName,
    begun: Instant,
    /// The other ends of what was sent.
    others: Vec<TcpStream>,
}

impl Scene {
    fn new() -> Scene {
        Scene::of(Shm::plain())
    }

    fn of(device: crate::Shm) -> Scene {
        let mut cm = device.open_cm().unwrap();
        let Address::Shm(name) = cm.listen(Shm::address()).unwrap() else { panic!("not a name") };
        Scene { device, cm, name, begun: Instant::now(), others: Vec::new() }
    }

    fn caller(&self) -> CloseOnFork {
        let caller = socket::open().unwrap();
        socket::connect(&caller, &self.name).unwrap();
        caller
    }

    /// Sends these bytes with a slow descriptor, behind `before` other ones, and forgets it.
    fn hand(&mut self, to: &impl AsFd, bytes: &[u8], before: &[OwnedFd]) {
        let Slow { file, other } = Slow::new();
        let files: Vec<_> = before.iter().chain([&file]).map(AsFd::as_fd).collect();
        hostile_peer::hand(to, bytes, &files).unwrap();
        self.others.push(other);
    }

    fn request(&mut self) -> ShmRequest {
        let Some(CmEvent::Request { request, .. }) = next(&mut self.cm) else { panic!("none") };
        request
    }

    /// It is in time, and others are served.
    fn assert_unharmed(&mut self) {
        let host = Host::new(&self.device, &SMALL);
        let mut caller = self.device.open_cm().unwrap();
        caller.connect(Address::Shm(self.name), &host.queues.handle(), &PARAM).unwrap();
        drop(self.request());
        assert!(matches!(next(&mut caller), Some(CmEvent::Refused { .. })));
        assert!(self.begun.elapsed() < LIMIT);
    }
}

/// Whether the other end of a socket is closed.
fn is_closed(socket: &impl AsFd) -> bool {
    loop {
        match rustix::net::recv(socket, &mut [0], rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return true,
            // An answer.
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

fn memory() -> OwnedFd {
    Memory::create(DIMENSIONS.bytes()).expect("memory").1
}

#[test]
fn a_hello_with_something_else_than_memory_is_dropped_at_once() {
    let mut scene = Scene::new();
    let hello = hostile_peer::hello(DIMENSIONS).encode();
    let more = || (0..3).map(|_| memory()).collect();
    for before in [Vec::new(), vec![memory()], more()] {
        let caller = scene.caller();
        scene.hand(&caller, &hello, &before);
        assert!(next(&mut scene.cm).is_none(), "{}", before.len());
        assert!(is_closed(&caller));
        scene.assert_unharmed();
    }
}

#[test]
fn something_else_than_a_hello_is_dropped_with_what_it_brings() {
    let mut scene = Scene::new();
    for said in [&b"GET / HTTP/1.1"[..], &[], &[0; 88]] {
        let caller = scene.caller();
        scene.hand(&caller, said, &[]);
        assert!(next(&mut scene.cm).is_none());
        assert!(is_closed(&caller));
        scene.assert_unharmed();
    }
}

#[test]
fn what_lies_in_the_queue_of_a_socket_ends_with_it() {
    for words in [&[][..], &[&b""[..]], &[b"1", b"2", b"", b"3"]] {
        let mut scene = Scene::new();
        // A request that is dropped, and a caller that is not taken.
        let peer = HostilePeer::connect(&scene.name, STAGING).unwrap();
        let request = scene.request();
        let caller = scene.caller();
        for word in words {
            peer.send(word);
            rustix::net::send(&caller, word, rustix::net::SendFlags::empty()).unwrap();
        }
        let (bytes, slow) = (b"and this", Slow::new());
        peer.hand(bytes, &[slow.file.as_fd()]).unwrap();
        drop(slow.file);
        scene.others.push(slow.other);
        scene.hand(&caller, bytes, &[]);
        drop(request);
        scene.cm.unlisten(Address::Shm(scene.name));
        assert!(is_closed(&caller));
        assert!(scene.begun.elapsed() < LIMIT);
    }
}

#[test]
fn a_peer_that_sends_one_loses_its_connection() {
    let mut scene = Scene::new();
    let mut victim = Host::new(&scene.device, &SMALL);
    let peer = HostilePeer::connect(&scene.name, STAGING).unwrap();
    let request = scene.request();
    // Before it is accepted: the system may refuse it afterwards.
    let Slow { file, other } = Slow::new();
    peer.hand(&[0; 12], &[file.as_fd()]).unwrap();
    drop(file);
    let endpoint = scene.cm.accept(request, &victim.queues.handle(), &PARAM).unwrap();
    let qp = victim.queues.attach(endpoint).unwrap();
    // Its socket is looked at when the queues sleep.
    victim.queues.wait(&Waker::new().unwrap(), LIMIT).unwrap();
    victim.poll_dry();
    assert_eq!(victim.events(), [QueueEvent::Disconnected { qp_num: qp.qp_num }]);
    victim.queues.destroy(qp.qp);
    assert!(scene.begun.elapsed() < LIMIT);
    drop(other);
}

/// A socket that waits to be closed is ready for ever.
#[test]
fn queues_sleep_while_the_sockets_of_their_links_wait_to_be_closed() {
    let mut scene = Scene::new();
    let mut victim = Host::new(&scene.device, &SMALL);
    let mut attached = Vec::new();
    for _ in 0..3 {
        let peer = HostilePeer::connect(&scene.name, STAGING).unwrap();
        let request = scene.request();
        let Slow { file, other } = Slow::new();
        peer.hand(&[0; 12], &[file.as_fd()]).unwrap();
        scene.others.push(other);
        let endpoint = scene.cm.accept(request, &victim.queues.handle(), &PARAM).unwrap();
        attached.push(victim.queues.attach(endpoint).unwrap());
    }
    let mut gone = 0;
    while gone < attached.len() {
        assert!(scene.begun.elapsed() < LIMIT);
        victim.poll_dry();
        gone += victim.events().len();
    }
    attached.iter().for_each(|qp| victim.queues.destroy(qp.qp));
    let (waker, limit) = (Waker::new().unwrap(), Duration::from_millis(20));
    let has_slept = (0..20).any(|_| {
        victim.poll_dry();
        let begun = Instant::now();
        victim.queues.wait(&waker, limit).unwrap();
        begun.elapsed() >= limit
    });
    assert!(has_slept);
    assert!(scene.begun.elapsed() < LIMIT);
}

/// It would be ready for ever, and no event would come of it.
#[test]
fn a_connection_manager_goes_on_while_the_sockets_of_its_attempts_wait_to_be_closed() {
    // Others' sockets refuse descriptors, where the system can do that.
    let options = crate::ShmOptions { map_pools: true, ..crate::ShmOptions::default() };
    let mut scene = Scene::of(crate::Shm::with_options(options).unwrap());
    let host = Host::new(&scene.device, &SMALL);
    let listener = socket::open().unwrap();
    let Address::Shm(any) = Shm::address() else { panic!("not a name") };
    let to = Address::Shm(socket::listen(&listener, &any).unwrap());
    for is_cancelled in [false, false, true, true] {
        let id = scene.cm.connect(to, &host.queues.handle(), &PARAM).unwrap();
        let flags = rustix::net::SocketFlags::empty();
        let peer = rustix::net::accept_with(&listener, flags).unwrap();
        scene.hand(&peer, b"no answer", &[]);
        if is_cancelled {
            assert!(scene.cm.cancel(id).is_none());
        } else {
            assert!(matches!(next(&mut scene.cm), Some(CmEvent::Refused { .. })));
        }
        assert!(next(&mut scene.cm).is_none());
    }
    scene.assert_unharmed();
}

/// Makes this thread another user's, if it may. Returns whether it has.
fn become_user(uid: u32) -> bool {
    let uid = rustix::process::Uid::from_raw(uid);
    rustix::thread::set_thread_res_uid(None, uid, None).is_ok()
}

/// Descriptors that cannot be closed are not collected without end, and delay no other connection.
#[test]
fn while_many_of_a_user_wait_to_be_closed_its_callers_are_sent_away_and_no_others() {
    let mut scene = Scene::new();
    let hello = hostile_peer::hello(DIMENSIONS).encode();
    let own = rustix::process::geteuid().as_raw();
    // Only a privileged process can be another user.
    let has_two = become_user(1000);
    let mut callers = Vec::new();
    for _ in 0..150 {
        let caller = scene.caller();
        scene.hand(&caller, &hello, &[]);
        callers.push(caller);
        assert!(next(&mut scene.cm).is_none());
    }
    assert!(callers.iter().all(is_closed));
    let peer = HostilePeer::connect(&scene.name, STAGING).unwrap();
    assert!(next(&mut scene.cm).is_none(), "it is sent away");
    drop(peer);
    if has_two {
        assert!(become_user(own));
        scene.assert_unharmed();
        assert!(become_user(1000));
    }
    // They can be closed now.
    scene.others.clear();
    let until = Instant::now() + LIMIT;
    loop {
        let _peer = HostilePeer::connect(&scene.name, STAGING).unwrap();
        if matches!(next(&mut scene.cm), Some(CmEvent::Request { .. })) {
            break;
        }
        assert!(Instant::now() < until);
    }
    assert!(!has_two || become_user(own));
}
