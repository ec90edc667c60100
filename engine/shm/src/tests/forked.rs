//! A child that is forked and drops what its parent has made.
#![expect(unsafe_code, reason = "fork(2) has no safe interface")]

use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_provider::{
    Address, CmEvent, ConnParam, ConnectionManager, Provider, QueueEvent, Queues, Waker,
};
use rpcrdma_transport::body::OP_SEND;

use super::rules::Host;
use crate::Shm;
use crate::hostile_peer::HostilePeer;
use crate::layout::Direction;

/// What no step takes.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_child_that_drops_all_takes_nothing_from_its_parent() {
    let path = std::env::temp_dir().join(format!("rpcrdma-forked-{}.sock", std::process::id()));
    let at: Address = format!("shm:{}", path.display()).parse().unwrap();
    let Address::Shm(name) = at else { panic!("{at} is not a name") };
    let device = Shm::plain();
    let mut host = Host::new(&device, &SMALL);
    let mut cm = device.open_cm().unwrap();
    cm.listen(at).unwrap();
    let mut peer = HostilePeer::connect(&name, 4 << 20).unwrap();
    let Some(CmEvent::Request { request, .. }) = next(&mut cm) else { panic!("no request") };
    let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
    let endpoint = cm.accept(request, &host.queues.handle(), &param).unwrap();
    assert!(peer.is_accepted());
    let qp = host.queues.attach(endpoint).unwrap();
    let sge = host.sge(0, 64);
    host.recv_all(&[(1, &[sge])]).unwrap();
    peer.layout.side(0).asleep.0.store(1, Ordering::SeqCst);

    // SAFETY: the child only drops, and uses no memory of another thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(host.queues);
        drop(cm);
        drop(device);
        // SAFETY: no memory of this process is used afterwards.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: there is room for the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);

    assert!(fs::metadata(&path).is_ok(), "the socket of the parent is there");
    let [to, from] = [0, 1].map(|index| Direction::new(&peer.layout, index));
    let words = [&to.words().abandoned, &from.words().closed, &peer.layout.side(0).asleep];
    assert_eq!(words.map(|word| word.0.load(Ordering::SeqCst)), [0, 0, 1]);
    assert!(!peer.is_rung());
    peer.publish([0, u64::from(OP_SEND) << 32, 4], b"more");
    host.poll_dry();
    assert_eq!(host.read(0, 4), b"more");
    // The thread that watches the parent's sockets is there.
    peer.hang_up().unwrap();
    let (gone, waker) = (QueueEvent::Disconnected { qp_num: qp.qp_num }, Waker::new().unwrap());
    let begun = Instant::now();
    while !host.events().contains(&gone) {
        assert!(begun.elapsed() < LONG, "no one noticed it");
        host.queues.wait(&waker, Duration::from_millis(20)).unwrap();
        host.poll_dry();
    }
    drop(cm);
    assert!(fs::metadata(&path).is_err(), "the parent has removed it");
}
