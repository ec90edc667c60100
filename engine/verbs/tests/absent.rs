//! One program for hosts with and without RDMA: it is not linked with the RDMA libraries, and
//! reports if they are missing.

use std::path::Path;
use std::process::Command;

use rpcrdma_verbs::{Verbs, VerbsOptions, devices, leads_to};

/// What this program says when it opens a device; a process of its own, for libraries stay open.
#[test]
#[ignore = "run by the tests below"]
fn report_the_result_of_opening_a_device() {
    let [all, own] =
        ["0.0.0.0:0", "127.0.0.1:7"].map(|at| leads_to(at.parse().expect("it is one")));
    match (devices(), Verbs::open(&VerbsOptions::default())) {
        (Ok(names), Ok(_)) => println!("said: opened one of {}; leads: {all}, {own}", names.len()),
        (_, Err(error)) => println!("said: {error}; leads: {all}, {own}"),
        (Err(error), Ok(_)) => panic!("opened, though {error}"),
    }
}

/// What is said where `libraries` is looked at first for libraries.
fn said(libraries: &Path) -> String {
    let own = std::env::current_exe().expect("the name of this program");
    let output = Command::new(own)
        .args(["--exact", "report_the_result_of_opening_a_device", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let line = text.lines().find_map(|line| line.split_once("said: "));
    line.expect("it says something").1.to_owned()
}

/// A directory in which a library is a file that is none.
fn without(library: &str) -> tempdir::Directory {
    let directory = tempdir::Directory::new(library);
    std::fs::write(directory.path().join(library), b"not a library").expect("it is writable");
    directory
}

mod tempdir {
    use std::path::{Path, PathBuf};

    /// A directory that is gone when it is dropped.
    pub struct Directory(PathBuf);

    impl Directory {
        pub fn new(name: &str) -> Directory {
            let name = format!("rpcrdma-absent-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).expect("it is writable");
            Directory(path)
        }

        pub fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[test]
fn missing_libraries_are_named_with_their_packages() {
    // Whichever is looked for first, and whether or not the host has them.
    let said = said(without("libibverbs.so.1").path());
    assert!(said.starts_with("the RDMA libraries are missing: "), "{said}");
    assert!(said.contains("libibverbs.so.1"), "{said}");
    assert!(said.contains("libibverbs1") && said.contains("librdmacm1"), "{said}");
    assert!(said.contains("fabric"), "what else there is: {said}");
}

#[test]
fn without_the_libraries_no_address_leads_to_a_device() {
    let said = said(without("libibverbs.so.1").path());
    assert!(said.ends_with("; leads: false, false"), "{said}");
}

#[test]
fn this_host_opens_a_device_or_reports_why_not() {
    let nowhere = tempdir::Directory::new("nothing");
    let said = said(nowhere.path());
    let is_known = ["opened one of", "RDMA libraries are missing", "no RDMA device", "rdma_"];
    assert!(is_known.iter().any(|known| said.contains(known)), "{said}");
}

/// The libraries that a program is linked with: entries of its dynamic section (ELF, 64 bits).
fn needed(elf: &[u8]) -> Vec<String> {
    let word = |at: usize, len: usize| {
        let bytes = &elf[at..at + len];
        bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte)) as usize
    };
    assert_eq!(elf[..6], *b"\x7fELF\x02\x01", "64 bits, little endian");
    let (headers, size, count) = (word(32, 8), word(54, 2), word(56, 2));
    let segments: Vec<usize> = (0..count).map(|at| headers + at * size).collect();
    let of_type = |kind| segments.iter().filter(move |at| word(**at, 4) == kind);
    let (load, dynamic) = (1, 2);
    let in_file = |address: usize| {
        let holds = |at: &&usize| {
            let from = word(**at + 16, 8);
            (from..from + word(**at + 32, 8)).contains(&address)
        };
        let at = *of_type(load).find(holds).expect("it is loaded");
        address - word(at + 16, 8) + word(at + 8, 8)
    };
    let section = *of_type(dynamic).next().expect("it is linked dynamically");
    let (from, len) = (word(section + 8, 8), word(section + 32, 8));
    let entries: Vec<(usize, usize)> =
        (from..from + len).step_by(16).map(|at| (word(at, 8), word(at + 8, 8))).collect();
    let (tag_needed, tag_strings) = (1, 5);
    let strings = entries.iter().find(|entry| entry.0 == tag_strings).expect("names").1;
    let names = entries.iter().filter(|entry| entry.0 == tag_needed).map(|entry| {
        let name = &elf[in_file(strings) + entry.1..];
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    });
    names.collect()
}

#[test]
fn a_program_is_linked_with_no_library_of_rdma() {
    let own = std::env::current_exe().expect("the name of this program");
    let needed = needed(&std::fs::read(own).expect("it is readable"));
    assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
    for library in ["verbs", "rdmacm", "mlx", "rxe", "umad"] {
        assert!(!needed.iter().any(|name| name.contains(library)), "{needed:?}");
    }
}
