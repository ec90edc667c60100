//! Very many callers, and a system that has no room.

use std::collections::HashSet;
use std::process::Command;

use rpcrdma_provider::Origin;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

#[test]
fn three_hundred_callers_at_a_time_are_all_taken() {
    let mut scene = Scene::new();
    scene.cm.set_callers_max(1024);
    let at = scene.listen();
    let mut streams: Vec<TcpStream> = (0..300).map(|_| caller(at)).collect();
    scene.work_until(301);
    let (one, other) = OWN_REQUEST.split_at(23);
    for part in [one, other] {
        assert!(scene.is_quiet());
        for stream in &mut streams {
            stream.write_all(part).unwrap();
        }
    }
    let mut from = HashSet::new();
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
    assert_eq!(scene.cm.sockets(), 1);
}

/// Whether the listener takes no connection.
fn is_paused(scene: &Scene) -> bool {
    scene.cm.is_paused()
}

#[test]
fn the_addresses_of_one_ipv6_network_are_one_origin() {
    if !has_ipv6() {
        return;
    }
    let mut scene = Scene::new();
    let at = scene.listen_at("[::1]:0");
    let _stream = caller(at);
    scene.work_until(2);
    let (_, found, _) = scene.cm.callers().next().unwrap();
    let origin = |text: &str| Origin::Host(text.parse().unwrap());
    assert_eq!(found.origin(), origin("::"));
    let at = scene.listen_at("127.0.0.1:0");
    let _other = caller(at);
    scene.work_until(4);
    let origins: HashSet<Origin> = scene.cm.callers().map(|(_, it, _)| it.origin()).collect();
    assert_eq!(origins, HashSet::from(["127.0.0.1", "::"].map(origin)));
}

/// Whether this process is to run the test with that name. If not, another one does, whose limits
/// the test may set, and has run it.
fn is_alone(name: &str) -> bool {
    const ROLE: &str = "RPCRDMA_TEST_ALONE";
    if std::env::var(ROLE).is_ok() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--nocapture", &format!("cm::tests::many_callers::{name}")]);
    let output = child.env(ROLE, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    false
}

/// Lowers a limit of this process. Returns what it was.
fn lower(resource: Resource, to: u64) -> Rlimit {
    let before = getrlimit(resource);
    let maximum = before.maximum;
    setrlimit(resource, Rlimit { current: Some(to), maximum }).unwrap();
    before
}

#[test]
fn callers_leave_three_quarters_of_the_descriptors() {
    if !is_alone("callers_leave_three_quarters_of_the_descriptors") {
        return;
    }
    lower(Resource::Nofile, 400);
    let mut scene = Scene::new();
    let at = scene.listen();
    let _callers: Vec<TcpStream> = (0..150).map(|_| caller(at)).collect();
    scene.cm.work();
    assert_eq!((scene.cm.callers().count(), is_paused(&scene)), (100, true));
    // The others wait no longer than it takes to drop them.
    let mut other = caller(at);
    other.write_all(OWN_REQUEST).unwrap();
    scene.look_in(1);
    let (_request, from, _) = scene.request();
    assert_eq!(from.as_ip(), Some(other.local_addr().unwrap()));
}

#[test]
fn without_memory_for_its_buffer_a_connection_is_not_attached() {
    if !is_alone("without_memory_for_its_buffer_a_connection_is_not_attached") {
        return;
    }
    let message_len = 1 << 30;
    let mut scene = Scene::with(TcpOptions { message_len, ..TcpOptions::default() });
    let at = scene.listen();
    let attempt = scene.connect(at);
    let (request, ..) = scene.request();
    let theirs = scene.accept(request);
    let (_ours, _) = scene.connected(attempt);
    let before = lower(Resource::As, message_len.into());
    let outcome = scene.queues.attach(theirs);
    setrlimit(Resource::As, before).unwrap();
    let error = outcome.expect_err("there is no memory").to_string();
    assert!(error.contains("mmap") && error.contains("tcp.message_len"), "{error}");
}
