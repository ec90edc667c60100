//! The server and the client against each other, and the server against clients that err.

use std::fs;
use std::io::sink;
use std::sync::atomic::{AtomicU32, Ordering};

use rpcrdma_engine::{CallBuilder, Client, Fabric, Incoming, Payload};

use super::*;

/// A folder that is removed with its files: `file`, of so many bytes that do not repeat.
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

    fn args(&self, more: &[&str]) -> Args {
        let [file, store] = ["file", "store"].map(|name| self.0.join(name).display().to_string());
        let line = ["block_store", "--file", &file, "--store", &store, "--window", "4"];
        Args::try_parse_from(line.iter().chain(more)).expect("a command line")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("readable")
    }

    /// A server of an empty store, and its client.
    fn session(&self) -> Session<Fabric> {
        fs::write(self.0.join("store"), "").expect("writable");
        let config = config(&self.args(&[]), true).expect("a configuration");
        Session::start(Fabric::new(), config, &self.0.join("store")).expect("starts")
    }
}

/// Makes a call that `write` writes from behind the message type; returns the words of the reply.
fn raw(session: &mut Session<Fabric>, mut write: impl FnMut(&mut CallBuilder<'_>)) -> Vec<u32> {
    let mut words = Vec::new();
    let begin = |client: &mut Client<Fabric>, peer, index, _| {
        let mut call = client.call(peer, index)?;
        write(&mut call);
        Ok(call.submit()?)
    };
    let end = |_, reply: &Incoming<'_>| {
        let mut reader = reply.reader();
        words.extend(std::iter::from_fn(|| reader.u32().ok()));
        Ok(())
    };
    session.run(1, 1, begin, end).expect("there is a reply");
    words
}

#[test]
fn files_of_any_length_come_back_as_they_were() {
    for len in [0, 1, 4096, (3 << 20) + 4099] {
        let folder = Folder::new(len);
        run(&folder.args(&[]), &mut sink()).expect("every byte is compared");
        assert!(folder.read("file") == folder.read("store"), "{len} bytes");
    }
}

#[test]
fn a_file_that_exists_is_not_overwritten() {
    let folder = Folder::new(4096);
    fs::write(folder.0.join("store"), "somebody's").expect("writable");
    let why = run(&folder.args(&[]), &mut sink()).expect_err("it exists").to_string();
    assert!(why.contains("store: File exists"), "{why}");
    assert_eq!(folder.read("store"), b"somebody's");
}

#[test]
fn segments_that_cannot_be_taken_are_written_where_they_are() {
    for spares in ["0", "5"] {
        let folder = Folder::new((2 << 20) + 77);
        run(&folder.args(&["--spares", spares]), &mut sink()).expect("slower, but right");
        assert!(folder.read("file") == folder.read("store"), "{spares} spares");
    }
}

#[test]
fn a_byte_that_changes_in_the_store_is_found() {
    let folder = Folder::new(1 << 20);
    let file = File::open(folder.0.join("file")).expect("there");
    let blocks = Blocks { file: &file, len: 1 << 20, block: 256 << 10 };
    let mut session = folder.session();
    session.write(blocks, 4).expect("written");
    let mut stored = folder.read("store");
    assert!(stored == folder.read("file"));
    stored[777_777] ^= 0x10;
    fs::write(folder.0.join("store"), &stored).expect("writable");
    let error = session.read(blocks, 4).expect_err("a byte differs").to_string();
    assert!(error.contains("byte 777777 differs"), "{error}");
}

#[test]
fn a_store_that_is_too_short_is_found() {
    let folder = Folder::new(100_000);
    let file = File::open(folder.0.join("file")).expect("there");
    let blocks = Blocks { file: &file, len: 100_000, block: 64 << 10 };
    let mut session = folder.session();
    session.write(blocks, 4).expect("written");
    session.commit(0).expect("emptied");
    let error = session.read(blocks, 1).expect_err("nothing is there").to_string();
    assert!(error.ends_with("0 bytes at byte 0, not 65536"), "{error}");
}

#[test]
fn calls_that_are_not_of_the_program_are_denied() {
    let folder = Folder::new(0);
    let mut session = folder.session();
    let (program, version) = (rpc::PROGRAM, rpc::VERSION);
    for (words, expected) in [
        ([3, program, version, 0], &[1, 0, 2, 2][..]),
        ([2, program + 1, version, 0], &[0, 0, 0, 1]),
        ([2, program, version + 1, 0], &[0, 0, 0, 2, version, version]),
        ([2, program, version, 5], &[0, 0, 0, 3]),
        ([2, program, version, 2], &[0, 0, 0, 4]),
        ([2, program, version, 0], &[0; 4]),
    ] {
        let header = words.into_iter().chain([0; 4]);
        let put = |payload: &mut Payload<'_>| header.clone().for_each(|word| payload.put_u32(word));
        assert_eq!(raw(&mut session, |call| put(call.payload())), expected, "{words:?}");
    }
}

#[test]
fn what_cannot_be_done_comes_back_as_an_error_number() {
    let folder = Folder::new(0);
    let mut session = folder.session();
    for (procedure, offset, len, expected) in [
        (rpc::READ, 0, BLOCK_MAX as u32 + 1, &[libc::EMSGSIZE as u32][..]),
        (rpc::READ, 1 << 63, 4096, &[libc::EINVAL as u32]),
        // Behind the end is nothing, and nothing is written.
        (rpc::READ, 1 << 40, 4096, &[0, 0]),
        (rpc::WRITE, 0, 0, &[0, 0]),
    ] {
        let reply = raw(&mut session, |call| {
            rpc::put_call(call.payload(), procedure);
            call.payload().put_u64(offset);
            call.payload().put_u32(len);
        });
        assert_eq!(reply[..4], [0; 4], "accepted");
        assert_eq!(reply[4..], *expected, "{offset} {len}");
    }
}

#[test]
fn data_in_the_payload_stream_are_written_as_well() {
    let folder = Folder::new(0);
    let data: Vec<u8> = (0..3001_u32).map(|at| (at / 3) as u8).collect();
    let write = |call: &mut CallBuilder<'_>| {
        rpc::put_call(call.payload(), rpc::WRITE);
        call.payload().put_u64(11);
        call.payload().put_opaque(&data);
    };
    assert_eq!(raw(&mut folder.session(), write), [0, 0, 0, 0, 0, 3001]);
    assert_eq!(folder.read("store")[11..], data);
}

#[test]
fn lengths_and_devices_are_checked() {
    assert_eq!((block("4096B"), block("1MiB")), (Ok(4096), Ok(1 << 20)));
    for wrong in ["", "2KiB", "2MiB", "5000B", "4kb"] {
        assert!(block(wrong).is_err(), "{wrong}");
    }
    for wrong in [["--window", "65"], ["--provider", "verbs"], ["--block", "1"]] {
        let line = ["block_store", "--file", "f"].into_iter().chain(wrong);
        Args::try_parse_from(line).expect_err("it is wrong");
    }
}
