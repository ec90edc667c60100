//! Callers of another user, of other namespaces, and with few resources.
//!
//! They need root, or namespaces of users. Where the system allows neither they say so and do
//! nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rpcrdma_tests::peer::calls_of;

use crate::processes::{Place, has_pools_of_others, serves, serves_with, start_by};

/// A command that starts the program `peer` by `words`, such as `setpriv` with its options.
fn by(words: &[&str], program: &str) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(program);
    command
}

/// Whether a program can be started in this way here; if not, says so.
fn can_be_started_by(words: &[&str]) -> bool {
    let tried = by(words, "true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = tried.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("not run: {} is not possible here", words.join(" "));
    }
    is_there
}

/// The program where every user may run it. Another process copies it: a test that forks meanwhile
/// would have it open for writing, and it could not be started.
fn program_for_all(place: &Place) -> String {
    let copy = place.path("peer");
    let copied = Command::new("cp").args([env!("CARGO_BIN_EXE_peer"), &copy]).status();
    assert!(copied.is_ok_and(|status| status.success()), "there is room");
    copy
}

/// Every call of a caller that is started by `words` is answered, and no pool is mapped.
fn is_answered(place: &Place, words: &[&str]) {
    let server = serves(place, "end");
    // The folder is open to all, and so is the socket from now on.
    fs::set_permissions(place.socket(), Permissions::from_mode(0o666)).expect("it is our own");
    let options = ["--calls", "300", "--lines", "2"];
    let caller = start_by(by(words, &program_for_all(place)), "call", place, &options);
    assert_eq!(calls_of(&caller.ends(0)), [300; 2]);
    place.say("end");
    server.ends(0);
}

const OTHER_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn a_caller_of_another_user_with_little_memory_to_lock_is_answered() {
    let words = [&OTHER_USER[..], &["prlimit", "--memlock=8388608"]].concat();
    if can_be_started_by(&words) {
        is_answered(&Place::new("no"), &words);
    }
}

#[test]
fn processes_of_two_users_map_no_pools_of_each_other() {
    if !can_be_started_by(&OTHER_USER) {
        return;
    }
    let place = Place::new("yes");
    let server = serves(&place, "end");
    fs::set_permissions(place.socket(), Permissions::from_mode(0o666)).expect("it is our own");
    let until = place.path("enough");
    let options = ["--until", &until, "--progress", "-"];
    let other = by(&OTHER_USER, &program_for_all(&place));
    let mut caller = start_by(other, "call", &place, &options);
    while caller.answered() < 20 {}
    assert!(!has_pools_of_others(&server) && !has_pools_of_others(&caller));
    place.say("enough");
    caller.ends(0);
    place.say("end");
    server.ends(0);
}

#[test]
fn a_socket_without_permission_lets_no_other_user_in() {
    if !can_be_started_by(&OTHER_USER) {
        return;
    }
    let place = Place::new("no");
    let server = serves(&place, "end");
    fs::set_permissions(place.socket(), Permissions::from_mode(0o600)).expect("it is our own");
    let refused = by(&OTHER_USER, &program_for_all(&place))
        .args(["call", &format!("shm:{}", place.socket().display())])
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&refused.stdout);
    let why = "connect failed on this host: Permission denied";
    assert!(said.contains(&format!("line 0: 1 times not connected: {why}")), "{refused:?}");
    place.say("end");
    server.ends(0);
}

#[test]
fn a_user_or_a_group_that_is_denied_is_rejected_and_others_are_answered() {
    if !can_be_started_by(&OTHER_USER) {
        return;
    }
    for entry in ["uid:65534", "gid:65534"] {
        let place = Place::new("no");
        let server = serves_with(&place, "end", &["--deny", entry]);
        fs::set_permissions(place.socket(), Permissions::from_mode(0o666)).expect("it is our own");
        let refused = by(&OTHER_USER, &program_for_all(&place))
            .args(["call", &format!("shm:{}", place.socket().display())])
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&refused.stdout);
        let why = "the peer rejected the connection: this host or user may not connect";
        assert!(said.contains(&format!("line 0: 1 times not connected: {why}")), "{refused:?}");
        let own = Command::new(env!("CARGO_BIN_EXE_peer"));
        let caller = start_by(own, "call", &place, &["--calls", "300", "--lines", "2"]);
        assert_eq!(calls_of(&caller.ends(0)), [300; 2]);
        place.say("end");
        server.ends(0);
    }
}

#[test]
fn a_caller_of_other_namespaces_without_dev_shm_is_answered() {
    let words = [
        "unshare",
        "--mount",
        "--ipc",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        // An empty folder that no process can write to, in the place of /dev/shm.
        "mount -t tmpfs -o ro,size=4k none /dev/shm && exec \"$0\" \"$@\"",
    ];
    if can_be_started_by(&words) {
        is_answered(&Place::new("no"), &words);
    }
}
