//! Processes that call each other over TCP, and what is left of them when one is killed.

use std::fs;
use std::process::Command;

use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::peer::{Peer, calls_of};
use rustix::process::Signal;

/// The folder of a test: a file in it ends the processes that wait for it.
struct Place(Folder);

impl Place {
    fn new() -> Place {
        Place(Folder::new())
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Makes a file, for which a process waits.
    fn say(&self, name: &str) {
        fs::write(self.0.join(name), "").expect("the folder is writable");
    }

    /// A server, once it listens, and its address. It ends with the file `end`.
    fn serves(&self, at: &str, options: &[&str]) -> (Peer, String) {
        let until = self.path("end");
        let mut server = start("serve", at, &[&["--until", &until], options].concat());
        let at = server.listens();
        (server, at)
    }

    /// A caller that goes on until there is a file of this name.
    fn calls(&self, at: &str, until: &str, options: &[&str]) -> Peer {
        let until = self.path(until);
        start("call", at, &[&["--until", &until, "--progress", "-"], options].concat())
    }
}

fn start(role: &str, at: &str, options: &[&str]) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
    Peer::by(command.args([role, at, "--provider", "tcp"]).args(options))
}

const ANY: &str = "127.0.0.1:0";

#[test]
fn every_call_of_another_process_is_answered() {
    for any in [ANY, "[::1]:0"] {
        let place = Place::new();
        let (server, at) = place.serves(any, &[]);
        let caller = |lines: &str, bytes: &str| {
            start("call", &at, &["--calls", "300", "--lines", lines, "--bytes", bytes])
        };
        let (one, other) = (caller("3", "30000"), caller("1", "400"));
        assert_eq!(calls_of(&one.ends(0)), [300; 3]);
        assert_eq!(calls_of(&other.ends(0)), [300]);
        place.say("end");
        server.ends(0);
    }
}

#[test]
fn callers_that_are_killed_under_load_do_no_harm_to_another() {
    let place = Place::new();
    let (server, at) = place.serves(ANY, &[]);
    let mut beside = place.calls(&at, "enough", &["--lines", "1"]);
    for _ in 0..4 {
        let mut doomed = place.calls(&at, "never", &["--lines", "3"]);
        doomed.goes_on();
        doomed.kill();
        beside.goes_on();
    }
    place.say("enough");
    let said = beside.ends(0);
    assert!(calls_of(&said)[0] > 80, "{said:#?}");
    place.say("end");
    server.ends(0);
}

#[test]
fn a_caller_goes_on_with_a_server_that_was_killed_and_came_back_at_the_same_address() {
    let place = Place::new();
    let (mut server, at) = place.serves(ANY, &[]);
    let mut caller = place.calls(&at, "enough", &["--again", "yes"]);
    for _ in 0..3 {
        caller.goes_on();
        server.kill();
        // The port is free at once, though connections of the dead process linger.
        (server, _) = place.serves(&at, &[]);
    }
    caller.goes_on();
    place.say("enough");
    // Each line was lost, and has connected again.
    let said = caller.ends(3);
    assert_eq!(calls_of(&said).len(), 2, "{said:#?}");
    let again = said.iter().filter(|line| line.ends_with("connected 4 times")).count();
    assert_eq!(again, 2, "{said:#?}");
    place.say("end");
    server.ends(0);
}

#[test]
fn a_host_that_is_denied_is_rejected() {
    let place = Place::new();
    let (server, at) = place.serves(ANY, &["--deny", "127.0.0.0/8"]);
    let said = start("call", &at, &["--calls", "10", "--lines", "1"]).ends(3);
    let why = "the peer rejected the connection: this host or user may not connect";
    let expected = format!("line 0: 1 times not connected: {why}");
    assert!(said.iter().any(|line| line.starts_with(&expected)), "{said:#?}");
    place.say("end");
    server.ends(0);
}

/// What the child keeps would keep the connections, and the port.
#[test]
fn a_server_that_is_killed_is_gone_though_a_child_that_it_has_forked_lives() {
    let place = Place::new();
    let (mut server, at) = place.serves(ANY, &["--fork", &place.path("fork")]);
    let mut caller = place.calls(&at, "enough", &["--again", "yes"]);
    caller.goes_on();
    place.say("fork");
    server.says(|line| line.starts_with("forked").then_some(()));
    server.kill();
    (server, _) = place.serves(&at, &[]);
    caller.goes_on();
    place.say("enough");
    let said = caller.ends(3);
    assert!(!said.iter().any(|line| line.contains("in time")), "the kernel says so: {said:#?}");
    place.say("end");
    server.ends(0);
}

/// Its system acknowledges all, and the connections do not end by themselves.
#[test]
fn a_server_that_is_stopped_loses_its_connections_by_the_timeout_of_calls() {
    let place = Place::new();
    let (server, at) = place.serves(ANY, &[]);
    let mut caller = place.calls(&at, "never", &["--lines", "1"]);
    caller.goes_on();
    server.signal(Signal::STOP);
    let said = caller.ends(3);
    assert!(said.iter().any(|line| line.contains("connections.call_timeout")), "{said:#?}");
    server.signal(Signal::CONT);
    place.say("end");
    server.ends(0);
}
