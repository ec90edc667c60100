//! The server and its clients as processes: they are stopped, killed, started anew and refused.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma_testing::children::{Started, end_with_parent};
use rustix::process::Signal;

use super::*;

/// The command line of a process; what plays it does nothing without one.
const LINE: &str = "KEY_VALUE_TEST_LINE";

/// A directory with a socket and configurations; removed with its files.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// The server admits only the processes that `allow` names.
    fn new(allow: &str) -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("key_value-test-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir(&folder.0).expect("the directory is writable");
        let server = include_str!("server.toml");
        let allowed = server.replace("# allow = [\"uid:1000\"]", &format!("allow = [\"{allow}\"]"));
        assert_ne!(server, allowed, "the file has a line about it");
        fs::write(folder.0.join("server.toml"), allowed).expect("written");
        fs::write(folder.0.join("client.toml"), include_str!("client.toml")).expect("written");
        folder
    }

    /// Starts this program once more, with the test that plays it.
    fn start(&self, role: &str, calls: u64) -> Started {
        self.start_at(&format!("shm:{}/socket", self.0.display()), role, calls)
    }

    fn start_at(&self, at: &str, role: &str, calls: u64) -> Started {
        let folder = self.0.display();
        let side = if role == "serve" { "server" } else { "client" };
        let line =
            format!("key_value {role} --calls {calls} --at {at} --config {folder}/{side}.toml");
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--exact", "--ignored", "--nocapture", "tests::plays_a_process"]);
        Started::by(command.env(LINE, line).stderr(Stdio::null()))
    }

    fn server(&self) -> Started {
        let mut server = self.start("serve", 0);
        says(&mut server, "listening at");
        server
    }
}

/// Reads until a line has the text.
fn says(process: &mut Started, text: &str) -> String {
    let mut said = Vec::new();
    while let Some(line) = process.line() {
        if line.contains(text) {
            return line;
        }
        said.push(line);
    }
    panic!("it ends without {text:?}: {said:#?}");
}

/// The number behind a name in a line of counts.
fn count(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(&format!("{name}: ")).expect("the line has it");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Asks a process to end, and returns the line with which it does.
fn stop(mut process: Started) -> String {
    process.signal(Signal::TERM);
    let line = says(&mut process, ": stopped");
    assert!(process.rest().iter().all(|line| !line.contains("FAILED")));
    assert!(process.wait().success());
    line
}

fn own_user() -> String {
    format!("uid:{}", fs::metadata("/proc/self").expect("this process").uid())
}

#[test]
#[ignore = "plays a process of the other tests"]
fn plays_a_process() {
    let Ok(line) = std::env::var(LINE) else { return };
    end_with_parent();
    run(&Args::try_parse_from(line.split(' ')).expect("a command line")).expect("ends well");
}

#[test]
fn both_clients_read_what_they_have_stored() {
    let folder = Folder::new(&own_user());
    let server = folder.server();
    let (mut client, mut tokio) = (folder.start("call", 400), folder.start("tokio", 160));
    let counts = says(&mut client, "client: stopped");
    assert!(count(&counts, "verified") > 100, "{counts}");
    assert_eq!((count(&counts, "lost"), count(&counts, "failed")), (0, 0), "{counts}");
    says(&mut tokio, "tokio: stopped: 80 values verified");
    assert!(client.wait().success() && tokio.wait().success());
    stop(server);
}

#[test]
fn both_clients_read_what_they_have_stored_over_tcp() {
    let folder = Folder::new("127.0.0.0/8");
    let mut server = folder.start_at("127.0.0.1:0", "serve", 0);
    let line = says(&mut server, "listening at");
    let (_, at) = line.rsplit_once(' ').expect("the address is behind it");
    let mut client = folder.start_at(at, "call", 400);
    let mut tokio = folder.start_at(at, "tokio", 160);
    let counts = says(&mut client, "client: stopped");
    assert_eq!((count(&counts, "lost"), count(&counts, "failed")), (0, 0), "{counts}");
    says(&mut tokio, "tokio: stopped: 80 values verified");
    assert!(client.wait().success() && tokio.wait().success());
    stop(server);
}

#[test]
fn a_server_that_is_killed_and_returns_delays_its_clients_and_nothing_else() {
    let folder = Folder::new(&own_user());
    let server = folder.server();
    let (mut client, tokio) = (folder.start("call", u64::MAX), folder.start("tokio", u64::MAX));
    // Each second it says what it has done.
    while count(&says(&mut client, "client: Counts"), "verified") == 0 {}
    server.kill();
    says(&mut client, "client: connection to");
    says(&mut client, "next attempt in");
    let server = folder.server();
    says(&mut client, "client: connected");
    let before = says(&mut client, "client: Counts");
    while count(&says(&mut client, "client: Counts"), "verified") <= count(&before, "verified") {}
    let counts = stop(client);
    assert!(count(&counts, "lost") > 0, "it has asked for values of before: {counts}");
    assert_eq!(count(&counts, "failed"), 0, "{counts}");
    // Its calls under way are answered: no task ends with an error.
    assert!(!stop(tokio).contains(" 0 values"));
    stop(server);
}

#[test]
fn a_server_stops_with_calls_in_flight() {
    let folder = Folder::new(&own_user());
    let server = folder.server();
    let mut client = folder.start("call", u64::MAX);
    while count(&says(&mut client, "client: Counts"), "verified") == 0 {}
    stop(server);
    says(&mut client, "next attempt in");
    // Its calls wait for a server. They end with the session.
    let counts = stop(client);
    assert_eq!(count(&counts, "failed"), 32, "{counts}");
}

#[test]
fn a_peer_that_is_not_allowed_is_refused() {
    let folder = Folder::new("uid:4294967294");
    let mut server = folder.server();
    let mut client = folder.start("call", 400);
    says(&mut client, "not tried again");
    assert!(!client.wait().success(), "it does not try again");
    server.signal(Signal::TERM);
    let said = server.rest();
    let line = said.iter().rfind(|line| line.contains("peers accepted")).expect("its last report");
    assert!(line.contains(" 0 peers accepted") && !line.ends_with(" 0 not allowed"), "{line}");
    assert!(server.wait().success());
}
