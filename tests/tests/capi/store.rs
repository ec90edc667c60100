//! The block store in C against itself and against the block store in Rust, over shared memory.

use std::fs;
use std::process::Command;

use rpcrdma_testing::children::Started;
use rpcrdma_tests::folder::Folder;

use crate::examples::programs;
use crate::program::{Program, stop};
use crate::toolchain::succeed;

/// A folder with a file of so many bytes that do not repeat, and the place of a server.
struct Place {
    folder: Folder,
}

impl Place {
    fn new(len: usize) -> Place {
        let folder = Folder::new();
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 253 + at / 65_521) as u8).collect();
        fs::write(folder.join("file"), bytes).expect("written");
        Place { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn server(&self) -> [String; 4] {
        let at = format!("shm:{}", self.path("sock"));
        ["--listen".to_owned(), at, "--store".to_owned(), self.path("store")]
    }

    fn client(&self) -> [String; 6] {
        let at = format!("shm:{}", self.path("sock"));
        let file = self.path("file");
        ["--connect", &at, "--file", &file, "--window", "4"].map(str::to_owned)
    }

    fn check(&self) {
        let [file, store] = ["file", "store"].map(|name| fs::read(self.path(name)).expect("there"));
        assert!(file == store, "{} bytes, {} stored", file.len(), store.len());
    }
}

/// The example in Rust, which is built as a program of this crate.
fn rust() -> Command {
    Command::new(env!("CARGO_BIN_EXE_block_store"))
}

fn by<'a>(program: &Program, options: &'a [String]) -> Command {
    let options: Vec<&'a str> = options.iter().map(String::as_str).collect();
    program.command(&options)
}

fn started(mut command: Command) -> Started {
    let mut server = Started::by(&mut command);
    let line = server.line().expect("a server says where it listens");
    assert!(line.contains("listening at shm:"), "{line}");
    server
}

#[test]
fn a_client_in_c_stores_a_file_with_a_server_in_c() {
    for program in programs("store") {
        for len in [0, 1, LONG] {
            let place = Place::new(len);
            let server = started(by(&program, &place.server()));
            let said = succeed(&mut by(&program, &place.client()));
            assert!(said.ends_with("every byte was compared: all are as they were\n"), "{said}");
            stop(server);
            place.check();
        }
    }
}

#[test]
fn a_client_in_rust_stores_a_file_with_a_server_in_c() {
    for program in programs("store") {
        let place = Place::new(LONG);
        let server = started(by(&program, &place.server()));
        let said = succeed(rust().args(place.client()).args(["--block", "256KiB"]));
        assert!(said.ends_with("every byte was compared: all are as they were\n"), "{said}");
        stop(server);
        place.check();
    }
}

#[test]
fn a_client_in_c_stores_a_file_with_a_server_in_rust() {
    for program in programs("store") {
        let place = Place::new(LONG);
        let server = started({
            let mut server = rust();
            server.args(place.server());
            server
        });
        let said = succeed(&mut by(&program, &place.client()));
        assert!(said.ends_with("every byte was compared: all are as they were\n"), "{said}");
        stop(server);
        place.check();
    }
}

/// Bytes of a file: more blocks than calls are open at a time, and a part of one.
const LONG: usize = (5 << 18) + 4099;
