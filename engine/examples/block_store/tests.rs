//! The server and the client against each other, and the server against clients that err.

use std::fs;
use std::io::{BufRead, BufReader, Lines, sink};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma::onc::CallHeader;
use rpcrdma::{Fabric, Payload, Shm};
use rpcrdma_testing::denied::Denied;

use super::*;
use crate::args::block;
use crate::server::BLOCK_MAX;

fn parsed(options: &[&str]) -> Result<Args, clap::Error> {
    Args::try_parse_from(["block_store"].iter().chain(options))
}

/// A directory with `file`, of so many bytes that do not repeat; removed with its files.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(len: usize) -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("block_store-test-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir(&folder.0).expect("the directory is writable");
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 253 + at / 65_521) as u8).collect();
        fs::write(folder.0.join("file"), bytes).expect("written");
        folder
    }

    /// A store of this name, or of none: a temporary one.
    fn args(&self, store: &str, more: &[&str]) -> Args {
        let [file, store] = ["file", store].map(|name| self.0.join(name).display().to_string());
        let line = ["block_store", "--file", &file, "--store", &store, "--window", "4"];
        Args::try_parse_from(line.iter().chain(more)).expect("a command line")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("readable")
    }

    /// A client of a server with an empty store.
    fn session(&self) -> Session<Fabric> {
        self.session_with(&[])
    }

    fn session_with(&self, options: &[&str]) -> Session<Fabric> {
        let args = self.args("store", options);
        let store = store(&args).expect("a new file");
        let config = args.config(true).expect("a configuration");
        Session::start(Fabric::new(), config, &store).expect("starts")
    }
}

/// Makes a call that `write` writes from behind the message type; returns the words of the reply.
fn raw(session: &mut Session<Fabric>, write: impl Fn(&mut Payload<'_>)) -> Vec<u32> {
    let mut call = session.client.call(session.peer, 0).expect("a credit");
    write(call.payload());
    call.submit().expect("it is short");
    let mut words = None;
    while words.is_none() {
        session.client.poll_for(Duration::from_secs(1), |done| {
            let mut reader = done.result().expect("there is a reply").reader();
            words = Some(std::iter::from_fn(|| reader.u32().ok()).collect());
        });
    }
    words.unwrap_or_default()
}

#[test]
fn no_commit_succeeds_behind_one_that_failed() {
    let syncs = crate::disk::Syncs::default();
    let of_another_shard = syncs.clone();
    let number = |outcome: io::Result<()>| outcome.map_err(|why| why.raw_os_error());
    assert_eq!(number(syncs.outcome(Ok(()))), Ok(()));
    let lost = io::Error::from_raw_os_error(libc::ENOSPC);
    assert_eq!(number(syncs.outcome(Err(lost))), Err(Some(libc::ENOSPC)));
    assert_eq!(number(of_another_shard.outcome(Ok(()))), Err(Some(libc::ENOSPC)));
}

#[test]
fn files_of_any_length_come_back_as_they_were() {
    let long = (2 << 20) + 4099;
    for (len, spares) in
        [(0, "64"), (1, "64"), (4096, "64"), (long, "64"), (long, "0"), (long, "5")]
    {
        let folder = Folder::new(len);
        run(&folder.args("store", &["--spares", spares]), &mut sink())
            .expect("every byte is compared");
        assert!(folder.read("file") == folder.read("store"), "{len} bytes, {spares} spares");
    }
}

#[test]
fn files_come_back_as_they_were_where_io_uring_is_forbidden() {
    let denied = Denied { calls: &[libc::SYS_io_uring_setup], errno: libc::EPERM };
    let folder = Folder::new((2 << 20) + 4099);
    // The thread of the shard is a child of this one.
    denied
        .run(|| {
            run(&folder.args("store", &["--spares", "5"]), &mut sink())
                .map_err(|why| why.to_string())
        })
        .expect("every byte is compared");
    assert!(folder.read("file") == folder.read("store"));
}

#[test]
fn files_come_back_over_tcp_as_they_were() {
    for len in [1, (2 << 20) + 4099] {
        let folder = Folder::new(len);
        run(&folder.args("store", &["--provider", "tcp"]), &mut sink())
            .expect("every byte is compared");
        assert!(folder.read("file") == folder.read("store"), "{len} bytes");
    }
}

/// This program once more, with one test that plays the server, and what it says.
struct Server(Child, Lines<BufReader<ChildStdout>>);

/// Where the server listens, and its store; what plays it does nothing without them.
const AT: &str = "BLOCK_STORE_TEST_SERVER";

impl Server {
    /// A server for so many clients at a time.
    fn start(folder: &Folder, connections: u32) -> Server {
        let paths = ["server.sock", "store"].map(|name| folder.0.join(name).display().to_string());
        let line = [&paths[..], &[connections.to_string()]].concat();
        let child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "--ignored", "--nocapture", "tests::serves_another_process"])
            .env(AT, line.join("\n"))
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("this program can be started once more");
        let stdout = child.stdout.take().expect("it is a pipe");
        let mut server = Server(child, BufReader::new(stdout).lines());
        server.says("listening at");
        server
    }

    fn says(&mut self, text: &str) {
        let mut lines = self.1.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains(text)).expect("the server gets that far");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "plays the server of a_file_is_stored_by_another_process"]
fn serves_another_process() {
    let Ok(line) = std::env::var(AT) else { return };
    let [at, store, connections] = line.lines().collect::<Vec<_>>()[..] else { panic!("{line}") };
    let at = format!("shm:{at}");
    let line = ["--listen", &at, "--store", store, "--window", "4", "--connections", connections];
    let args = parsed(&line);
    run(&args.expect("a command line"), &mut std::io::stdout()).expect("serves");
}

#[test]
fn a_file_is_stored_by_another_process() {
    let folder = Folder::new((2 << 20) + 4099);
    let _server = Server::start(&folder, 1);
    let [file, socket] = ["file", "server.sock"].map(|name| folder.0.join(name));
    let (file, at) = (file.display().to_string(), format!("shm:{}", socket.display()));
    let mut out = Vec::new();
    let args = parsed(&["--file", &file, "--connect", &at, "--window", "4"]);
    run(&args.expect("a command line"), &mut out).expect("every byte is compared");
    assert!(folder.read("file") == folder.read("store"));
    let out = String::from_utf8(out).expect("text");
    assert_eq!(out.lines().filter(|line| line.contains(" on ")).count(), BLOCKS.len(), "{out}");
    assert!(!out.contains(" off "), "{out}");
}

#[test]
fn as_many_clients_as_connections_are_served_at_a_time() {
    let folder = Folder::new(1 << 20);
    let _server = Server::start(&folder, 2);
    let at = format!("shm:{}", folder.0.join("server.sock").display());
    let args = parsed(&["--connect", &at, "--file", "file", "--window", "4"]).expect("a line");
    let connect = || {
        let config = args.config(true)?;
        Session::connect(Shm::from_config(&config)?, config, at.parse()?)
    };
    let mut sessions = [(); 2].map(|()| connect().expect("there is a place"));
    assert!(connect().is_err(), "a third client finds no place");
    let file = &File::open(folder.0.join("file")).expect("there");
    let blocks = Block::all(1 << 20, 64 << 10);
    for (writer, reader) in [(0, 1), (1, 0)] {
        sessions[writer].write(file, &blocks, 4).expect("written");
        sessions[reader].read(file, &blocks, 4).expect("as the other wrote it");
        sessions[reader].commit(0).expect("emptied");
    }
}

#[test]
fn a_file_that_exists_is_not_overwritten() {
    let folder = Folder::new(4096);
    fs::write(folder.0.join("store"), "in use").expect("writable");
    let why = run(&folder.args("store", &[]), &mut sink()).expect_err("it exists").to_string();
    assert!(why.contains("store: File exists"), "{why}");
    assert_eq!(folder.read("store"), b"in use");
}

#[test]
fn a_temporary_store_leaves_no_file() {
    let folder = Folder::new(4099);
    run(&folder.args("", &[]), &mut sink()).expect("every byte is compared");
    assert_eq!(fs::read_dir(&folder.0).expect("readable").count(), 1, "the file");
}

#[test]
fn a_changed_byte_and_a_short_store_are_found() {
    let folder = Folder::new(1 << 20);
    let file = &File::open(folder.0.join("file")).expect("there");
    let blocks = Block::all(1 << 20, 256 << 10);
    let mut session = folder.session();
    session.write(file, &blocks, 4).expect("written");
    let mut stored = folder.read("store");
    assert!(stored == folder.read("file"));
    stored[777_777] ^= 0x10;
    fs::write(folder.0.join("store"), &stored).expect("writable");
    let error = session.read(file, &blocks, 4).expect_err("a byte differs").to_string();
    assert!(error.contains("byte 777777 differs"), "{error}");
    session.commit(0).expect("emptied");
    let error = session.read(file, &blocks, 1).expect_err("nothing is there").to_string();
    assert!(error.ends_with("0 bytes at byte 0, not 262144"), "{error}");
}

#[test]
fn calls_that_cannot_be_executed_have_their_replies() {
    let folder = Folder::new(0);
    let mut session = folder.session();
    let (program, too_long) = (server::PROGRAM.number, BLOCK_MAX as u32 + 1);
    for (words, expected) in [
        (&[3, program, 1, 0][..], &[1, 0, 2, 2][..]),
        (&[2, program + 1, 1, 0], &[0, 0, 0, 1]),
        (&[2, program, 2, 0], &[0, 0, 0, 2, 1, 1]),
        (&[2, program, 1, 5], &[0, 0, 0, 3]),
        (&[2, program, 1, server::READ], &[0, 0, 0, 4]),
        (&[2, program, 1, server::READ, 0, 0, too_long], &[0, 0, 0, 0, libc::EMSGSIZE as u32]),
        (&[2, program, 1, server::READ, 1 << 31, 0, 4096], &[0, 0, 0, 0, libc::EINVAL as u32]),
        // Behind the end is nothing, and nothing is written.
        (&[2, program, 1, server::READ, 1 << 8, 0, 4096], &[0; 6]),
        (&[2, program, 1, server::WRITE, 0, 0, 0], &[0; 6]),
        (&[2, program, 1, server::WRITE, 0, 0, 1], &[0, 0, 0, 4]),
        (&[2, program, 1, server::NULL], &[0; 4]),
    ] {
        let words = [&words[..4], &[0; 4], &words[4..]].concat();
        let put = |payload: &mut Payload<'_>| words.iter().for_each(|word| payload.put_u32(*word));
        assert_eq!(raw(&mut session, put), expected, "{words:?}");
    }
}

#[test]
fn a_read_of_more_than_the_server_has_memory_for_fails_and_is_not_cut() {
    let folder = Folder::new(0);
    let mut session = folder.session_with(&["--block", "4KiB"]);
    let mut read = |len| {
        raw(&mut session, |payload| {
            payload.put_fixed(&CallHeader::plain(server::PROGRAM.number, 1, server::READ));
            payload.put_u64(0);
            payload.put_u32(len);
        })
    };
    assert_eq!(read(SEGMENT_LEN as u32), [0; 6]);
    assert_eq!(read(SEGMENT_LEN as u32 + 1), [0, 0, 0, 0, libc::EMSGSIZE as u32]);
}

#[test]
fn data_in_the_payload_stream_are_written_and_committed_as_well() {
    let folder = Folder::new(0);
    let data: Vec<u8> = (0..3001_u32).map(|at| (at / 3) as u8).collect();
    let write = |payload: &mut Payload<'_>| {
        payload.put_fixed(&CallHeader::plain(server::PROGRAM.number, 1, server::WRITE));
        payload.put_u64(11);
        payload.put_opaque(&data);
    };
    let mut session = folder.session();
    assert_eq!(raw(&mut session, write), [0, 0, 0, 0, 0, 3001]);
    assert_eq!(folder.read("store")[11..], data);
    let commit = |payload: &mut Payload<'_>, len: u64| {
        payload.put_fixed(&CallHeader::plain(server::PROGRAM.number, 1, server::COMMIT));
        payload.put_u64(len);
    };
    for (len, left) in [(server::SAME_LENGTH, 3012), (3000, 3000)] {
        assert_eq!(raw(&mut session, |payload| commit(payload, len)), [0; 5]);
        assert_eq!(folder.read("store").len(), left);
    }
}

#[test]
fn lengths_and_devices_are_checked() {
    assert_eq!((block("4096B"), block("1MiB")), (Ok(4096), Ok(1 << 20)));
    for wrong in ["", "2KiB", "2MiB", "5000B", "4kb"] {
        assert!(block(wrong).is_err(), "{wrong}");
    }
    for wrong in [["--window", "65"], ["--provider", "none"], ["--block", "1"]] {
        parsed(&[&["--file", "f"][..], &wrong].concat()).expect_err("it is wrong");
    }
    for (line, why) in [
        (&["--file", "f", "--provider", "verbs"][..], "--address"),
        (&["--listen", "10.0.0.1:7777", "--provider", "fabric"], "shm:/PATH"),
        (&["--listen", "shm:/s", "--provider", "fabric"], "shm:/PATH"),
        (&["--file", "f", "--connect", "10.0.0.1:7777", "--provider", "fabric"], "shm:/PATH"),
    ] {
        let refused = parsed(line).expect("a command line").config(true).expect_err("impossible");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    for (line, address) in [
        (&["--listen", "10.0.0.1:7777", "--provider", "verbs"][..], Some("10.0.0.1")),
        (&["--listen", "10.0.0.1:7777", "--provider", "tcp"], None),
        (&["--listen", "10.0.0.1:7777", "--provider", "verbs", "-d", "rxe0"], None),
        (&["--file", "f", "--connect", "10.0.0.1:7777", "--provider", "verbs"], None),
    ] {
        let config = parsed(line).map(|args| args.config(true));
        let config = config.expect("a command line").expect("possible");
        let address = address.map(|ip| ip.parse().expect("an address"));
        assert_eq!(config.verbs().address, address, "{line:?}");
    }
}
