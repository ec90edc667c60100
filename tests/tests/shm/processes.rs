//! Processes that call each other through shared memory, and what is left of them when one is
//! killed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rpcrdma_tests::folder::Folder;
use rpcrdma_tests::peer::{Peer, calls_of};
use rustix::process::Signal;

/// Where the processes of a test meet.
pub struct Place {
    folder: Folder,
    /// Whether they map each other's pools: `yes` or `no`.
    maps: &'static str,
}

impl Place {
    pub fn new(maps: &'static str) -> Place {
        Place { folder: Folder::new(), maps }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("server.sock")
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Makes a file, for which a process waits.
    pub fn say(&self, name: &str) {
        fs::write(self.folder.join(name), "").expect("the folder is writable");
    }
}

/// The program `peer` in a role at a place.
pub fn start_by(mut by: Command, role: &str, place: &Place, options: &[&str]) -> Peer {
    by.args([role, &format!("shm:{}", place.socket().display())]);
    Peer::by(by.args(["--map", place.maps]).args(options))
}

fn start(role: &str, place: &Place, options: &[&str]) -> Peer {
    start_by(Command::new(env!("CARGO_BIN_EXE_peer")), role, place, options)
}

/// A server, once it listens. It ends when there is a file of this name in the folder.
pub fn serves(place: &Place, until: &str) -> Peer {
    serves_with(place, until, &[])
}

/// As before, with further options.
pub fn serves_with(place: &Place, until: &str, options: &[&str]) -> Peer {
    let until = place.path(until);
    let mut server = start("serve", place, &[&["--until", &until], options].concat());
    server.listens();
    server
}

/// A caller that goes on until there is a file of this name.
fn calls(place: &Place, until: &str, options: &[&str]) -> Peer {
    let until = place.path(until);
    start("call", place, &[&["--until", &until, "--progress", "-"], options].concat())
}

/// Whether a process has mapped memory of another one's pools.
pub fn has_pools_of_others(peer: &Peer) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", peer.id()));
    let is_one = |line: &str| line.contains(" r--s ") && line.contains("memfd:rpcrdma-region");
    maps.expect("it runs").lines().any(is_one)
}

/// Tests of processes that copy all, or that map each other's pools.
macro_rules! tests {
    ($maps:literal, $($test:ident),+) => {
        $(
            #[test]
            fn $test() {
                super::$test($maps);
            }
        )+
    };
}

fn every_call_of_another_process_is_answered(maps: &'static str) {
    let place = Place::new(maps);
    let server = serves(&place, "end");
    let caller = |lines: &str, bytes: &str| {
        let options = ["--calls", "300", "--lines", lines, "--bytes", bytes];
        start("call", &place, &options)
    };
    let (one, other) = (caller("3", "30000"), caller("1", "400"));
    assert_eq!(calls_of(&one.ends(0)), [300; 3]);
    assert_eq!(calls_of(&other.ends(0)), [300]);
    place.say("end");
    server.ends(0);
    assert!(!place.socket().exists(), "the server has removed its socket");
}

fn callers_that_are_killed_under_load_do_no_harm_to_another(maps: &'static str) {
    let place = Place::new(maps);
    let server = serves(&place, "end");
    let mut beside = calls(&place, "enough", &["--lines", "1"]);
    for _ in 0..4 {
        let mut doomed = calls(&place, "never", &["--lines", "3"]);
        doomed.goes_on();
        doomed.kill();
        beside.goes_on();
        assert_eq!(has_pools_of_others(&server), maps == "yes");
    }
    place.say("enough");
    let said = beside.ends(0);
    assert!(calls_of(&said)[0] > 80, "{said:#?}");
    place.say("end");
    server.ends(0);
}

/// Its socket stays open, and the connections do not end by themselves.
fn a_server_that_is_stopped_loses_its_connections_by_the_timeout_of_calls(maps: &'static str) {
    let place = Place::new(maps);
    let server = serves(&place, "end");
    let mut caller = calls(&place, "never", &["--lines", "1"]);
    caller.goes_on();
    server.signal(Signal::STOP);
    let said = caller.ends(3);
    assert!(said.iter().any(|line| line.contains("connections.call_timeout")), "{said:#?}");
    server.signal(Signal::CONT);
    place.say("end");
    server.ends(0);
}

/// What the child keeps would keep the connections, and the name of the socket.
fn a_server_that_is_killed_is_gone_though_a_child_that_it_has_forked_lives(maps: &'static str) {
    let place = Place::new(maps);
    let mut server = serves_with(&place, "end", &["--fork", &place.path("fork")]);
    let mut caller = calls(&place, "enough", &["--again", "yes"]);
    caller.goes_on();
    place.say("fork");
    server.says(|line| line.starts_with("forked").then_some(()));
    server.kill();
    server = serves(&place, "end");
    caller.goes_on();
    place.say("enough");
    let said = caller.ends(3);
    assert!(!said.iter().any(|line| line.contains("in time")), "the kernel says so: {said:#?}");
    place.say("end");
    server.ends(0);
}

fn a_caller_goes_on_with_a_server_that_was_killed_and_came_back_on_the_same_path(
    maps: &'static str,
) {
    let place = Place::new(maps);
    let mut server = serves(&place, "end");
    let mut caller = calls(&place, "enough", &["--again", "yes"]);
    for _ in 0..3 {
        caller.goes_on();
        server.kill();
        assert!(place.socket().exists(), "it had no chance to remove it");
        server = serves(&place, "end");
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
    assert!(!place.socket().exists());
}

mod copied {
    tests!(
        "no",
        a_server_that_is_stopped_loses_its_connections_by_the_timeout_of_calls,
        every_call_of_another_process_is_answered,
        callers_that_are_killed_under_load_do_no_harm_to_another,
        a_caller_goes_on_with_a_server_that_was_killed_and_came_back_on_the_same_path,
        a_server_that_is_killed_is_gone_though_a_child_that_it_has_forked_lives
    );
}

mod mapped {
    tests!(
        "yes",
        every_call_of_another_process_is_answered,
        callers_that_are_killed_under_load_do_no_harm_to_another,
        a_caller_goes_on_with_a_server_that_was_killed_and_came_back_on_the_same_path,
        a_server_that_is_killed_is_gone_though_a_child_that_it_has_forked_lives
    );
}
