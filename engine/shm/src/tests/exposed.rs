//! Pools that a peer of the same owner exposes: which of them a message names, and what ends the
//! connection.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rpcrdma_conformance::host::*;
use rpcrdma_conformance::subject::Subject;
use rpcrdma_provider::{
    Attached, CmEvent, ConnParam, ConnectionManager, Provider, QueueEvent, Queues, Waker, WcStatus,
};
use rpcrdma_transport::body::OP_SEND;
use rustix::fs::{MemfdFlags, SealFlags};

use super::rules::{Host, Qp};
use crate::hostile_peer::HostilePeer;
use crate::pools::{Name, POOLS_MAX};
use crate::{Shm, ShmOptions};

const STAGING: u32 = 4 << 20;
const LEN: u32 = 4096;

/// Queues that map the pools of their peer.
struct Scene {
    host: Host,
    peer: HostilePeer,
    qp: Attached<Qp>,
}

impl Scene {
    fn new() -> Scene {
        let device =
            Shm::with_options(ShmOptions { map_pools: true, ..ShmOptions::default() }).unwrap();
        let mut host = Host::new(&device, &SMALL);
        let mut cm = device.open_cm().unwrap();
        let at = cm.listen(Shm::address()).unwrap();
        let rpcrdma_provider::Address::Shm(name) = at else { panic!("{at} is not a name") };
        let mut peer =
            HostilePeer::connect_with(&name, STAGING, |hello| hello.maps_pools = true).unwrap();
        let Some(CmEvent::Request { request, .. }) = next(&mut cm) else { panic!("no request") };
        let param = ConnParam { private: &[], rnr_retry: 7, send_timeout: None };
        let endpoint = cm.accept(request, &host.queues.handle(), &param).unwrap();
        assert!(peer.is_accepted());
        let qp = host.queues.attach(endpoint).unwrap();
        (0..8).for_each(|id| host.recv(id, 0, LEN));
        Scene { host, peer, qp }
    }

    fn expose(&self, name: Name, file: Option<&OwnedFd>) {
        let Name { key, place, number } = name;
        let len = file.map_or(0, |_| u64::from(LEN));
        let mut bytes = len.to_ne_bytes().to_vec();
        [key, place, number].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        match file {
            Some(file) => self.peer.hand(&bytes, &[file.as_fd()]).unwrap(),
            None => self.peer.send(&bytes),
        }
    }

    /// Sends all bytes of the pool with this key. The first one, if they arrive.
    fn first_of(&mut self, key: u32) -> Option<u8> {
        let piece = [key.to_ne_bytes(), LEN.to_ne_bytes(), [0; 4], [0; 4]].concat();
        let second = u64::from(OP_SEND) << 32 | 1 << 40;
        self.peer.publish([0, second, u64::from(LEN)], &piece);
        let got = self.host.poll_dry();
        let is_there = got.iter().any(|wc| wc.status == WcStatus::Success);
        is_there.then(|| self.host.read(0, 1)[0])
    }

    /// Sleeps, which ends at once as the socket has words.
    fn read_words(&mut self) {
        self.host.poll_dry();
        self.host.queues.wait(&Waker::new().unwrap(), Duration::from_secs(20)).unwrap();
    }

    /// Whether the connection has ended when the socket was read.
    fn ends(&mut self) -> bool {
        self.read_words();
        self.host.poll_dry();
        self.host.events().contains(&QueueEvent::Disconnected { qp_num: self.qp.qp_num })
    }
}

fn name(key: u32, place: u32, number: u32) -> Name {
    Name { key, place, number }
}

/// Memory that begins with this byte.
fn pool(first: u8, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&file, u64::from(LEN)).unwrap();
    rustix::io::pwrite(&file, &[first], 0).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

fn sealed(first: u8) -> OwnedFd {
    pool(first, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)
}

#[test]
fn a_message_names_the_pool_that_was_exposed_last_with_its_key() {
    let mut scene = Scene::new();
    scene.expose(name(5, 0, 1), Some(&sealed(1)));
    assert_eq!(scene.first_of(5), Some(1));
    scene.expose(name(6, 1, 2), Some(&sealed(2)));
    assert_eq!(scene.first_of(6), Some(2));
    // Another key, so that it looks.
    scene.expose(name(5, 2, 3), Some(&sealed(3)));
    scene.expose(name(7, 3, 4), Some(&sealed(4)));
    assert_eq!(scene.first_of(7), Some(4));
    assert_eq!(scene.first_of(5), Some(3), "the key is used again");
}

#[test]
fn a_pool_whose_place_has_another_one_or_that_is_gone_is_not_read() {
    for takes_place in [true, false] {
        let mut scene = Scene::new();
        scene.expose(name(5, 0, 1), Some(&sealed(1)));
        assert_eq!(scene.first_of(5), Some(1));
        let there = scene.peer.layout.side(1).mapped[0].load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(there, 1, "it is reported to the peer");
        if takes_place {
            scene.expose(name(6, 0, 2), Some(&sealed(2)));
        } else {
            scene.expose(name(5, 0, 1), None);
            scene.expose(name(6, 1, 2), Some(&sealed(2)));
        }
        assert_eq!(scene.first_of(6), Some(2));
        assert_eq!(scene.first_of(5), None);
    }
}

/// What was exposed first is withdrawn late: the socket had no room for it.
#[test]
fn a_pool_that_is_gone_takes_no_later_one_of_its_key_with_it() {
    let mut scene = Scene::new();
    scene.expose(name(5, 0, 1), Some(&sealed(1)));
    scene.expose(name(5, 1, 2), Some(&sealed(2)));
    scene.expose(name(5, 0, 1), None);
    scene.read_words();
    assert_eq!(scene.first_of(5), Some(2));
}

/// The socket was read as the queues slept, and not for a message.
#[test]
fn a_key_that_is_used_again_names_the_later_pool_once_that_is_mapped() {
    let mut scene = Scene::new();
    scene.expose(name(5, 0, 1), Some(&sealed(1)));
    assert_eq!(scene.first_of(5), Some(1));
    scene.expose(name(5, 1, 2), Some(&sealed(2)));
    scene.read_words();
    let there = scene.peer.layout.side(1).mapped[1].load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(there, 2, "it is reported to the peer");
    assert_eq!(scene.first_of(5), Some(2));
}

#[test]
fn what_is_no_pool_ends_the_connection() {
    let good = sealed(1);
    let places = POOLS_MAX as u32;
    let shrinks = pool(1, SealFlags::GROW | SealFlags::FUTURE_WRITE);
    let device = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    for (place, file, ends) in [
        (0, &good, false),
        (places - 1, &good, false),
        (places, &good, true),
        (u32::MAX, &good, true),
        (0, &shrinks, true),
        (0, &device, true),
    ] {
        let mut scene = Scene::new();
        scene.expose(name(5, place, 1), Some(file));
        assert_eq!(scene.ends(), ends, "{place} {file:?}");
    }
}
