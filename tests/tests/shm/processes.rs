//! Processes that call each other through shared memory, and what is left of them when one is
//! killed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rpcrdma_tests::children::Started;
use rpcrdma_tests::folder::Folder;

/// Where the processes of a test meet.
pub struct Place {
    folder: Folder,
    /// Whether they map each other's pools: `yes` or `no`.
    maps: &'static str,
}

/// The program `peer`, and what it says.
pub struct Peer {
    program: Started,
    /// All that it has said so far.
    said: Vec<String>,
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

impl Peer {
    fn start(role: &str, place: &Place, options: &[&str]) -> Peer {
        Peer::start_by(Command::new(env!("CARGO_BIN_EXE_peer")), role, place, options)
    }

    /// Started by a command that ends with the program's path.
    pub fn start_by(mut by: Command, role: &str, place: &Place, options: &[&str]) -> Peer {
        by.args([role, &format!("shm:{}", place.socket().display())]);
        by.args(["--map", place.maps]).args(options);
        Peer { program: Started::by(&mut by), said: Vec::new() }
    }

    /// A server, once it listens. It ends when there is a file of this name in the folder.
    pub fn serves(place: &Place, until: &str) -> Peer {
        Peer::serves_with(place, until, &[])
    }

    /// As before, with further options.
    pub fn serves_with(place: &Place, until: &str, options: &[&str]) -> Peer {
        let until = place.path(until);
        let options = [&["--until", &until], options].concat();
        let mut server = Peer::start("serve", place, &options);
        server.says(|line| line.starts_with("listening at").then_some(()));
        server
    }

    /// A caller that goes on until there is a file of this name.
    fn calls(place: &Place, until: &str, options: &[&str]) -> Peer {
        let until = place.path(until);
        let options = [&["--until", &until, "--progress", "-"], options].concat();
        Peer::start("call", place, &options)
    }

    /// Reads what it says until `find` has found something.
    pub fn says<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> T {
        loop {
            let Some(line) = self.program.line() else {
                panic!("it ended too early: {:#?}", self.said);
            };
            let found = find(&line);
            self.said.push(line);
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// The calls of each line that are answered now, at least.
    pub fn answered(&mut self) -> u64 {
        self.says(|line| line.strip_prefix("answered ")?.parse().ok())
    }

    /// Returns when each line has had twenty more calls answered.
    fn goes_on(&mut self) {
        let before = self.answered();
        while self.answered() < before + 20 {}
    }

    /// Whether it has mapped memory of another process's pools.
    pub fn has_pools_of_others(&self) -> bool {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.program.id()));
        let is_one = |line: &str| line.contains(" r--s ") && line.contains("memfd:rpcrdma-region");
        maps.expect("it runs").lines().any(is_one)
    }

    /// Kills it without a chance to say good-bye.
    fn kill(self) {
        self.program.kill();
    }

    /// Waits for its end. Its code must be this one, and it must not have leaked buffers.
    pub fn ends(mut self, code: i32) -> Vec<String> {
        self.said.extend(self.program.rest());
        let status = self.program.wait();
        assert_eq!(status.code(), Some(code), "{:#?}", self.said);
        let clean = self
            .said
            .iter()
            .any(|line| line.ends_with(" 0 buffers leaked") || line == "0 buffers leaked");
        assert!(clean, "{:#?}", self.said);
        self.said
    }
}

/// The calls that a caller's lines had answered.
pub fn calls_of(said: &[String]) -> Vec<u64> {
    let answered = |line: &String| {
        let (_, rest) = line.strip_prefix("line ")?.split_once(": ")?;
        rest.split_once(" calls answered")?.0.parse().ok()
    };
    said.iter().filter_map(answered).collect()
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
    let server = Peer::serves(&place, "end");
    let caller = |lines: &str, bytes: &str| {
        let options = ["--calls", "300", "--lines", lines, "--bytes", bytes];
        Peer::start("call", &place, &options)
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
    let server = Peer::serves(&place, "end");
    let mut beside = Peer::calls(&place, "enough", &["--lines", "1"]);
    for _ in 0..4 {
        let mut doomed = Peer::calls(&place, "never", &["--lines", "3"]);
        doomed.goes_on();
        doomed.kill();
        beside.goes_on();
        assert_eq!(server.has_pools_of_others(), maps == "yes");
    }
    place.say("enough");
    let said = beside.ends(0);
    assert!(calls_of(&said)[0] > 80, "{said:#?}");
    place.say("end");
    server.ends(0);
}

fn a_caller_goes_on_with_a_server_that_was_killed_and_came_back_on_the_same_path(
    maps: &'static str,
) {
    let place = Place::new(maps);
    let mut server = Peer::serves(&place, "end");
    let mut caller = Peer::calls(&place, "enough", &["--again", "yes"]);
    for _ in 0..3 {
        caller.goes_on();
        server.kill();
        assert!(place.socket().exists(), "it had no chance to remove it");
        server = Peer::serves(&place, "end");
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
        every_call_of_another_process_is_answered,
        callers_that_are_killed_under_load_do_no_harm_to_another,
        a_caller_goes_on_with_a_server_that_was_killed_and_came_back_on_the_same_path
    );
}

mod mapped {
    tests!(
        "yes",
        every_call_of_another_process_is_answered,
        callers_that_are_killed_under_load_do_no_harm_to_another,
        a_caller_goes_on_with_a_server_that_was_killed_and_came_back_on_the_same_path
    );
}
