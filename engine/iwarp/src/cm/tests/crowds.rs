//! Very many callers, and a system that has no room.

use std::os::fd::AsRawFd;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

#[test]
fn three_hundred_callers_at_a_time_are_all_taken() {
    let mut scene = Scene::new();
    let at = scene.listen();
    let mut streams: Vec<TcpStream> = (0..300).map(|_| caller(at)).collect();
    scene.settle(301);
    let (one, other) = OWN_REQUEST.split_at(23);
    for part in [one, other] {
        assert!(scene.is_quiet());
        for stream in &mut streams {
            stream.write_all(part).unwrap();
        }
    }
    let mut from = std::collections::HashSet::new();
    for _ in 0..streams.len() {
        let (request, address, _) = scene.request();
        from.insert(address.as_ip().unwrap());
        drop(request);
    }
    for mut stream in streams {
        assert!(from.remove(&stream.local_addr().unwrap()));
        assert_eq!(read(&mut stream, 24), b"MPA ID Rep Frame\x30\x02\x00\x04\x00\x00\x00\x00");
        assert!(has_ended(&mut stream));
    }
    assert_eq!(scene.cm.sockets.len(), 1);
}

/// Callers that say nothing, more than may be waited for. None if the process may not have so many.
fn crowd(scene: &mut Scene, at: SocketAddr) -> Option<Vec<TcpStream>> {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = CALLERS_MAX + 50;
    if files < 2 * count as u64 + 200 {
        return None;
    }
    let crowd = (0..count).map(|_| caller(at)).collect();
    // The clock is not looked at meanwhile: it would make room on a slow machine.
    while scene.cm.sockets.len() <= CALLERS_MAX {
        scene.cm.work();
        assert!(scene.cm.events.is_empty());
    }
    Some(crowd)
}

/// Whether the listener takes nobody.
fn does_rest(scene: &Scene) -> bool {
    let rests = |it: &Source| matches!(it, Source::Listener(it) if it.is_resting());
    scene.cm.sockets.values().any(rests)
}

#[test]
fn callers_that_say_nothing_are_not_more_than_allowed_and_keep_nobody_out() {
    let mut scene = Scene::new();
    let at = scene.listen();
    let Some(crowd) = crowd(&mut scene, at) else { return };
    assert_eq!(scene.cm.sockets.len(), CALLERS_MAX + 1, "and the listener");
    assert!(does_rest(&scene), "which rests");
    let mut other = caller(at);
    other.write_all(OWN_REQUEST).unwrap();
    scene.look_in(1);
    let (_request, from, _) = scene.request();
    assert_eq!(from.as_ip(), Some(other.local_addr().unwrap()));
    assert!(!is_open(&crowd[0]), "the oldest are dropped");
    assert!(crowd.iter().filter(|stream| !is_open(stream)).count() <= 2 * ROOM);
}

#[test]
fn the_addresses_of_one_ipv6_network_are_one_origin() {
    if !has_ipv6() {
        return;
    }
    let mut scene = Scene::new();
    let at = scene.listen_at("[::1]:0");
    let _stream = caller(at);
    scene.settle(2);
    let (_, found) = scene.cm.callers().next().unwrap();
    assert_eq!(found.origin().to_string(), "::");
    let at = scene.listen_at("127.0.0.1:0");
    let _other = caller(at);
    scene.settle(4);
    let mut origins: Vec<_> = scene.cm.callers().map(|(_, it)| it.origin().to_string()).collect();
    origins.sort_unstable();
    assert_eq!(origins, ["127.0.0.1", "::"]);
}

/// It goes on as soon as there is one.
#[test]
fn a_listener_without_a_free_descriptor_rests() {
    const ROLE: &str = "RPCRDMA_TEST_RESTS";
    if std::env::var(ROLE).is_err() {
        // The limit is one of a process.
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["cm::tests::crowds::a_listener_without_a_free_descriptor_rests", "--exact"]);
        let output = child.arg("--nocapture").env(ROLE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    let mut scene = Scene::new();
    let at = scene.listen();
    let mut stream = caller(at);
    stream.write_all(OWN_REQUEST).unwrap();
    let before = getrlimit(Resource::Nofile);
    let lowest = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let none = Rlimit { current: Some(lowest), maximum: before.maximum };
    setrlimit(Resource::Nofile, none).unwrap();
    // It returns, and does not try for ever.
    scene.cm.work();
    assert!(scene.cm.events.is_empty() && does_rest(&scene));
    setrlimit(Resource::Nofile, before).unwrap();
    let _request = scene.request();
}
