//! The caller of the emulated machines, on the software fabric: it detects errors.

use std::time::{Duration, Instant};

use rpcrdma::{Engine, Fabric};
use rpcrdma_tests::caller::{Caller, Task};
use rpcrdma_tests::service::Service;
use rpcrdma_tests::setup::{checked, small};

fn engine(fabric: &Fabric) -> Engine<Fabric> {
    let mut raw = small();
    raw.engine.idle.policy = "block".into();
    raw.engine.idle.spin = "20us".into();
    raw.connections.stop_timeout = "500ms".into();
    Engine::new(fabric.clone(), checked(&raw)).expect("an engine")
}

fn serving(fabric: &Fabric, task: &mut Task) -> Engine<Fabric> {
    let mut engine = engine(fabric);
    engine.start(|_| Service::default()).expect("a shard");
    task.to = engine.listen(task.to).expect("a port");
    engine
}

fn task() -> Task {
    let to = "127.0.0.1:0".parse().expect("an address");
    Task { to, lines: 2, calls: 200, bytes_max: 30_000, again: false }
}

fn patience() -> impl FnMut() {
    let until = Instant::now() + Duration::from_secs(60);
    move || assert!(Instant::now() < until, "the caller hangs")
}

#[test]
fn every_call_of_every_line_is_answered() {
    let (fabric, mut task, mut patience) = (Fabric::new(), task(), patience());
    let _server = serving(&fabric, &mut task);
    let calling = engine(&fabric);
    let mut caller = Caller::new(&calling, task).expect("a client");
    while caller.turn() {
        patience();
    }
    for account in caller.accounts() {
        assert_eq!((account.answered, account.connected), (200, 1));
        assert!(account.failed.is_empty() && account.unconnected.is_empty(), "{account:?}");
    }
    assert_eq!(caller.open(), 0);
}

#[test]
fn a_server_that_goes_away_ends_every_line() {
    let (fabric, mut task, mut patience) = (Fabric::new(), task(), patience());
    task.calls = u64::MAX;
    let mut server = serving(&fabric, &mut task);
    let calling = engine(&fabric);
    let mut caller = Caller::new(&calling, task).expect("a client");
    while caller.accounts().any(|account| account.answered < 20) {
        assert!(caller.turn());
        patience();
    }
    server.stop();
    while caller.turn() {
        patience();
    }
    for account in caller.accounts() {
        assert!(account.answered >= 20 && account.connected == 1, "{account:?}");
    }
    assert_eq!(caller.open(), 0);
}

#[test]
fn lines_that_connect_again_survive_a_restart() {
    let (fabric, mut task, mut patience) = (Fabric::new(), task(), patience());
    (task.calls, task.again) = (300, true);
    let first = serving(&fabric, &mut task);
    let calling = engine(&fabric);
    let mut caller = Caller::new(&calling, task).expect("a client");
    while caller.accounts().any(|account| account.answered < 20) {
        assert!(caller.turn());
        patience();
    }
    drop(first);
    let _second = serving(&fabric, &mut task);
    while caller.turn() {
        patience();
    }
    for account in caller.accounts() {
        assert_eq!((account.answered, account.connected), (300, 2), "{account:?}");
    }
}
