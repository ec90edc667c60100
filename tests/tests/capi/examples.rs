//! The examples in C, each under checks of memory and with the static library.

use std::fs;
use std::path::PathBuf;
use std::slice;

use rpcrdma_tests::folder::Folder;

use crate::program::{Check, Program, stop};
use crate::toolchain::capi;

const CHECKS: [Check; 3] = [Check::Static, Check::Sanitizers, Check::Memcheck];

/// The first source of an example.
pub fn example(name: &str) -> PathBuf {
    capi("examples").join(name).with_extension("c")
}

/// All sources of an example: NAME.c and NAME_*.c.
fn sources(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(capi("examples")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_source = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let rest = file.strip_prefix(name).and_then(|rest| rest.strip_suffix(".c"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    paths.filter(is_source).collect()
}

/// The example, compiled for each check that is not skipped.
pub fn programs(name: &str) -> impl Iterator<Item = Program> {
    let sources = sources(name);
    CHECKS.into_iter().filter_map(move |check| Program::new(&sources, check))
}

#[test]
fn the_checks_find_memory_that_is_never_freed() {
    let folder = Folder::new();
    let source = folder.join("leak.c");
    let text = "#include <rpcrdma.h>\n\
        int main(void) { rpcrdma_config *lost; return rpcrdma_config_parse(NULL, &lost); }\n";
    fs::write(&source, text).expect("the folder is writable");
    for (check, why) in [(Check::Sanitizers, "LeakSanitizer"), (Check::Memcheck, "definitely lost")]
    {
        let Some(program) = Program::new(slice::from_ref(&source), check) else { continue };
        let output = program.command(&[]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
}

#[test]
fn echo_answers_in_one_process() {
    for program in programs("echo") {
        assert_eq!(program.run(&[]), "echo: 32 calls answered\n");
    }
}

#[test]
fn echo_answers_another_process() {
    for program in programs("echo") {
        let (server, address) = program.serve(&["--listen", "shm:@"]);
        assert_eq!(program.run(&["--connect", &address]), "echo: 32 calls answered\n");
        stop(server);
    }
}

#[test]
fn kv_keeps_values_for_another_process() {
    for program in programs("kv") {
        let (server, address) = program.serve(&["--listen", "shm:@"]);
        assert_eq!(program.run(&["--connect", &address]), "kv: 8 values are as they were\n");
        stop(server);
    }
}

#[test]
fn kv_ends_by_its_deadline_without_a_server() {
    for program in programs("kv") {
        let mut command = program.command(&["--connect", "shm:/nowhere/kv.sock", "1"]);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_deadline = said.starts_with("kv: key 0: ") && said.contains("deadline");
        assert_eq!((output.status.code(), is_deadline), (Some(1), true), "{said}");
    }
}

#[test]
fn observe_shows_its_events_and_metrics() {
    for program in programs("observe") {
        let output = program.command(&[]).output().expect("it runs");
        let [said, events] = [output.stdout, output.stderr].map(String::from_utf8);
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!("observe: rpcrdma {version}: 1 call answered\n");
        let events = events.expect("text");
        assert!(output.status.success() && said == Ok(expected), "{events}");
        for event in ["info: listening at=127.0.0.1:", "info: connected shard="] {
            assert!(events.contains(event), "{events}");
        }
        assert!(!events.contains("debug: "), "{events}");
    }
}

#[test]
fn kv_is_no_longer_than_a_first_program_may_be() {
    let text = fs::read_to_string(example("kv")).expect("it is there");
    assert!(text.lines().count() <= 250, "{} lines", text.lines().count());
}

#[test]
fn what_cannot_be_opened_is_an_error_with_its_text() {
    for program in programs("echo") {
        for (options, why) in [
            (&["--connect", "shm:/nowhere/echo.sock"][..], "/nowhere/echo.sock"),
            (&["--connect", "shm:nonsense"], "shm:nonsense"),
            (&["--wrong"], "echo [--listen ADDRESS | --connect ADDRESS]"),
        ] {
            let output = program.command(options).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), said.contains(why)), (Some(1), true), "{said}");
        }
    }
}
