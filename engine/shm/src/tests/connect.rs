//! Connecting by Unix sockets: who may not, what is left behind, and what a listener survives.
#![expect(unsafe_code, reason = "leases of files have no safe interface")]

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};

use libc::c_int;
use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectError, ConnectionManager, Provider, QueueEvent, Queues,
    Rejection, SetupError, ShmName, WcStatus,
};
use rpcrdma_testing::denied::Denied;
use rustix::fs::{FlockOperation, flock};

use super::rules::Host;
use crate::Shm;
use crate::{ShmCm, socket};

const PARAM: ConnParam<'_> = ConnParam { private: b"hello", rnr_retry: 7, send_timeout: None };

/// A folder of one test, removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("rpcrdma-shm-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn socket(&self) -> (PathBuf, Address) {
        let path = self.0.join("it.sock");
        let address = format!("shm:{}", path.display()).parse().expect("an address");
        (path, address)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn name_of(address: Address) -> ShmName {
    let Address::Shm(name) = address else { panic!("{address} is not a name") };
    name
}

fn is_requested(cm: &mut ShmCm) -> bool {
    matches!(next(cm), Some(CmEvent::Request { .. }))
}

#[test]
fn a_listener_has_a_file_as_long_as_it_listens() {
    let (folder, device) = (Folder::new("file"), Shm::plain());
    let (path, at) = folder.socket();
    let mut cm = device.open_cm().unwrap();
    assert_eq!(cm.listen(at).unwrap(), at);
    assert!(path.exists());
    let again = device.open_cm().unwrap().listen(at);
    assert!(matches!(again, Err(SetupError::Listen { .. })), "it is in use");
    assert!(path.exists(), "and stays so");
    cm.unlisten(at);
    assert!(!path.exists());
    cm.listen(at).unwrap();
    drop(cm);
    assert!(!path.exists());
}

#[test]
fn an_address_of_another_kind_is_refused_with_those_that_are_taken() {
    let device = Shm::plain();
    let host = Host::new(&device, &SMALL);
    let mut cm = device.open_cm().unwrap();
    let at: Address = "10.0.0.1:7".parse().unwrap();
    let taken = "shared memory takes only Unix sockets (shm:/PATH or shm:@NAME)";
    let listening = cm.listen(at).expect_err("no socket").to_string();
    assert_eq!(listening, format!("cannot listen on 10.0.0.1:7: {taken}"));
    let connecting = cm.connect(at, &host.queues.handle(), &PARAM).expect_err("no socket");
    assert!(connecting.to_string().ends_with(taken), "{connecting}");
}

#[test]
fn a_socket_that_a_dead_process_has_left_is_used_again_and_nothing_else_is_removed() {
    let (folder, device) = (Folder::new("left"), Shm::plain());
    let (path, at) = folder.socket();
    // As kill -9 leaves it: bound, without a listener.
    let dead = socket::open().unwrap();
    socket::listen(&dead, &name_of(at)).unwrap();
    drop(dead);
    assert!(path.exists());
    let mut cm = device.open_cm().unwrap();
    cm.listen(at).unwrap();
    drop(cm);
    std::fs::write(&path, b"not a socket").unwrap();
    let refused = device.open_cm().unwrap().listen(at);
    assert!(matches!(refused, Err(SetupError::Listen { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"not a socket");
}

/// Each sees the dead socket; one replaces it, and no other takes it away.
#[test]
fn of_many_that_replace_a_dead_socket_at_once_one_does() {
    let (folder, device) = (Folder::new("race"), Shm::plain());
    let (path, at) = folder.socket();
    let start = Barrier::new(4);
    for round in 0..200 {
        let dead = socket::open().unwrap();
        socket::listen(&dead, &name_of(at)).unwrap();
        drop(dead);
        let listen = || {
            let mut cm = device.open_cm().unwrap();
            start.wait();
            let outcome = cm.listen(at);
            (cm, outcome)
        };
        let mut winners = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..4).map(|_| scope.spawn(listen)).collect();
            let outcomes = racers.into_iter().map(|racer| racer.join().unwrap());
            let winners = outcomes.filter(|(_, outcome)| match outcome {
                Ok(name) => *name == at,
                Err(why) => {
                    let why = why.to_string();
                    assert!(why.contains("the address is in use"), "{why}");
                    false
                }
            });
            winners.map(|(cm, _)| cm).collect::<Vec<_>>()
        });
        assert_eq!(winners.len(), 1, "round {round}");
        let host = Host::new(&device, &SMALL);
        let mut caller = device.open_cm().unwrap();
        caller.connect(at, &host.queues.handle(), &PARAM).unwrap();
        assert!(is_requested(&mut winners[0]), "round {round}");
        drop(winners);
        assert!(!path.exists() && std::fs::read_dir(&folder.0).unwrap().next().is_none());
    }
}

/// Every process that may read the folder can do that.
#[test]
fn who_locks_the_folder_of_a_socket_is_not_in_the_way() {
    let (folder, device) = (Folder::new("locked"), Shm::plain());
    let (_, at) = folder.socket();
    let lock = std::fs::File::open(&folder.0).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    device.open_cm().unwrap().listen(at).unwrap();
}

#[test]
fn a_lock_that_is_held_is_not_waited_for_without_end_and_one_that_is_left_is_used() {
    let (folder, device) = (Folder::new("lock"), Shm::plain());
    let (path, at) = folder.socket();
    let name = path.with_extension("sock.lock");
    let held = std::fs::File::create(&name).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let mut cm = device.open_cm().unwrap();
    let why = cm.listen(at).expect_err("locked").to_string();
    assert!(
        why.ends_with("another process of this user holds the lock, which is the file PATH.lock")
    );
    assert!(name.exists(), "it is not taken from who holds it");
    drop(held);
    cm.listen(at).unwrap();
    assert!(!name.exists());
}

#[test]
fn a_lock_of_another_user_or_a_link_is_not_used() {
    let (folder, device) = (Folder::new("lock-of"), Shm::plain());
    let (path, at) = folder.socket();
    let (name, other) = (path.with_extension("sock.lock"), folder.0.join("other"));
    let listen = || device.open_cm().unwrap().listen(at).expect_err("not ours").to_string();
    std::fs::write(&other, "").unwrap();
    std::os::unix::fs::symlink(&other, &name).unwrap();
    assert!(listen().ends_with("the file PATH.lock is a link"));
    std::fs::remove_file(&name).unwrap();
    std::fs::create_dir(&name).unwrap();
    assert!(listen().ends_with("the file PATH.lock is not this user's"));
    std::fs::remove_dir(&name).unwrap();
    std::fs::write(&name, "").unwrap();
    // Only a privileged user can give files away.
    if std::os::unix::fs::chown(&name, Some(1), None).is_ok() {
        assert!(listen().ends_with("the file PATH.lock is not this user's"));
        assert!(name.exists() && !path.exists());
    }
}

#[test]
fn connecting_is_refused_where_there_is_no_socket_or_a_dead_one() {
    let (folder, device) = (Folder::new("no-listener"), Shm::plain());
    let (_, at) = folder.socket();
    let host = Host::new(&device, &SMALL);
    let mut cm = device.open_cm().unwrap();
    for is_left in [false, true] {
        if is_left {
            let dead = socket::open().unwrap();
            socket::listen(&dead, &name_of(at)).unwrap();
        }
        let id = cm.connect(at, &host.queues.handle(), &PARAM).unwrap();
        let Some(CmEvent::Refused { id: refused, reason }) = next(&mut cm) else { panic!("none") };
        assert_eq!((refused, reason), (id, ConnectError::NoListener));
    }
    // Its queue pairs are free again.
    for _ in 0..3 * SMALL.qp_max {
        cm.connect(at, &host.queues.handle(), &PARAM).unwrap();
    }
}

#[test]
fn a_request_comes_with_its_process_and_its_private_data_and_may_be_rejected() {
    let device = Shm::plain();
    let (a, b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let (mut caller, mut listener) = (device.open_cm().unwrap(), device.open_cm().unwrap());
    let at = listener.listen(Shm::address()).unwrap();
    for way in 0..3 {
        let id = caller.connect(at, &a.queues.handle(), &PARAM).unwrap();
        let Some(CmEvent::Request { request, from, private }) = next(&mut listener) else {
            panic!("no request")
        };
        let Address::Process(process) = from else { panic!("{from}") };
        assert_eq!((process.pid, private.as_slice()), (std::process::id(), PARAM.private));
        match way {
            0 => listener.reject(request, &Rejection::PeerFull.encode()),
            1 => drop(request),
            _ => drop(listener.accept(request, &b.queues.handle(), &PARAM).unwrap()),
        }
        match next(&mut caller) {
            Some(CmEvent::Refused { id: refused, reason }) if way < 2 => {
                let why = [Rejection::PeerFull, Rejection::Unstated][way];
                assert_eq!((refused, reason), (id, ConnectError::Rejected(why)));
            }
            Some(CmEvent::Connected { id: connected, private, .. }) if way == 2 => {
                assert_eq!((connected, private.as_slice()), (id, PARAM.private));
            }
            _ => panic!("another event"),
        }
    }
}

#[test]
fn who_says_something_else_or_nothing_is_not_a_peer() {
    let device = Shm::plain();
    let mut listener = device.open_cm().unwrap();
    let at = listener.listen(Shm::address()).unwrap();
    let mut silent = Vec::new();
    for said in [&b""[..], b"GET / HTTP/1.1", &[0; 88], &[0xff; 200]] {
        let socket = socket::open().unwrap();
        socket::connect(&socket, &name_of(at)).unwrap();
        if !said.is_empty() {
            rustix::net::send(&socket, said, rustix::net::SendFlags::empty()).unwrap();
        }
        silent.push(socket);
        assert!(next(&mut listener).is_none());
    }
    // It still takes others.
    let host = Host::new(&device, &SMALL);
    let mut caller = device.open_cm().unwrap();
    caller.connect(at, &host.queues.handle(), &PARAM).unwrap();
    assert!(is_requested(&mut listener));
}

/// More than may be waited for: the others wait outside, and the listener does not spin.
#[test]
fn very_many_callers_that_send_nothing_end_nothing() {
    let device = Shm::plain();
    let mut listener = device.open_cm().unwrap();
    let at = listener.listen(Shm::address()).unwrap();
    let mut callers = Vec::new();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let count = files.map_or(2000, |files| (files as usize / 3).min(2000));
    while callers.len() < count {
        let socket = socket::open().unwrap();
        match socket::connect(&socket, &name_of(at)) {
            Ok(()) => callers.push(socket),
            Err(_) => break,
        }
        if callers.len().is_multiple_of(100) {
            assert!(next(&mut listener).is_none());
        }
    }
    assert!(next(&mut listener).is_none(), "it returns");
    drop(callers);
    let host = Host::new(&device, &SMALL);
    let mut caller = device.open_cm().unwrap();
    caller.connect(at, &host.queues.handle(), &PARAM).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_requested(&mut listener) {
        assert!(next(&mut caller).is_none() && std::time::Instant::now() < until);
    }
}

/// A connection that both sides have destroyed, or one side and the other's death, is nowhere any
/// more: neither its memory nor its socket.
#[test]
fn nothing_is_left_of_a_connection_that_is_destroyed() {
    let device = Shm::plain();
    let (mut a, mut b) = (Host::new(&device, &SMALL), Host::new(&device, &SMALL));
    let mut others = Vec::new();
    for round in 0..20 {
        let (ours, theirs) = endpoints(&device, &a, &b, 7);
        let links = [&ours, &theirs].map(|endpoint| Arc::downgrade(&endpoint.end().0));
        let (qa, qb) = (a.queues.attach(ours).unwrap(), b.queues.attach(theirs).unwrap());
        b.recv(round, 0, 64);
        a.send(qa.qp, round, b"hello").unwrap();
        assert_eq!(b.poll_dry(), [received(round, qb, 5)]);
        if round % 5 == 4 {
            // It stays, and what is beside it goes.
            assert_eq!(brief(&a.poll_dry()), [(round, WcStatus::Success)]);
            others.push((qa, qb));
            continue;
        }
        a.queues.disconnect(qa.qp);
        a.queues.destroy(qa.qp);
        assert!(links[0].upgrade().is_none(), "this side's");
        b.poll_dry();
        assert_eq!(b.events(), [QueueEvent::Disconnected { qp_num: qb.qp_num }]);
        b.queues.destroy(qb.qp);
        assert!(links[1].upgrade().is_none(), "the other side's");
        for (at, (qa, qb)) in others.iter().enumerate() {
            let id = 1000 + at as u64;
            b.recv(id, 0, 64);
            a.send(qa.qp, id, b"still").unwrap();
            assert_eq!(b.poll_dry(), [received(id, *qb, 5)]);
            assert_eq!(brief(&a.poll_dry()).last(), Some(&(id, WcStatus::Success)));
        }
    }
    assert_eq!(others.len(), 4);
}

#[test]
fn a_lock_that_cannot_be_looked_at_is_not_taken_for_a_host_without_memory() {
    let (folder, device) = (Folder::new("stat"), Shm::plain());
    let (_, at) = folder.socket();
    let denied = Denied { calls: &[libc::SYS_fstat], errno: libc::EIO };
    let why = denied.run(|| device.open_cm().unwrap().listen(at).err()).expect("it fails");
    let SetupError::System { call: "fstat", hint, .. } = why else { panic!("{why}") };
    assert_eq!(hint, "check the path of the socket, and its file system");
}

/// Not in `libc`.
const F_SETSIG: c_int = 10;

/// A file on a file system that does not answer, as far as open(2) is concerned: another process has
/// a lease of it.
#[test]
fn a_lock_that_is_opened_for_long_delays_no_fork_and_no_other_socket() {
    let (folder, device) = (Folder::new("slow"), Shm::plain());
    let (path, at) = folder.socket();
    let name = path.with_extension("sock.lock");
    let leased = std::fs::File::create(&name).unwrap();
    let lease = |command: c_int, value: c_int| {
        // SAFETY: integers alone.
        unsafe { libc::fcntl(leased.as_raw_fd(), command, value) }
    };
    // The signal that asks for its end is one that is ignored.
    assert_eq!(lease(F_SETSIG, libc::SIGURG), 0);
    if lease(libc::F_SETLEASE, libc::F_WRLCK) != 0 {
        return eprintln!("skipped: the file system has no leases");
    }
    std::thread::scope(|scope| {
        let listening = scope.spawn(|| device.open_cm().unwrap().listen(at));
        let is_asked = || lease(libc::F_GETLEASE, 0) != libc::F_WRLCK;
        while !is_asked() && !listening.is_finished() {
            std::thread::yield_now();
        }
        let was_asked = is_asked();
        let (sender, opened) = std::sync::mpsc::channel();
        scope.spawn(move || sender.send(socket::open().is_ok()));
        let is_open = opened.recv_timeout(std::time::Duration::from_secs(10));
        assert_eq!(lease(libc::F_SETLEASE, libc::F_UNLCK), 0);
        assert_eq!(is_open, Ok(true));
        listening.join().unwrap().unwrap();
        assert!(was_asked, "it has not opened the file");
    });
}
