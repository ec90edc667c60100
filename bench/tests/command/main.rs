//! The command as a user types it: output, files, exit code.

mod cmp;
mod contests;
mod keys;
mod modes;
mod outcomes;
mod outputs;
mod prove;
mod shm;
mod tcp;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bench(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(options.split_whitespace())
        // Some modes write a file where they are started; the sources may not be written to.
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .expect("the program was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints text")
}

/// What it says of why it ends; `None` on a machine with one core, which it refuses.
fn errors(output: &Output) -> Option<String> {
    let errors = text(&output.stderr);
    (!errors.contains("two threads that spin need two")).then_some(errors)
}

/// The standard output of a run that ends well and says nothing else; `None` on a machine with one
/// core.
fn good(options: &str) -> Option<String> {
    let output = bench(options);
    let errors = errors(&output)?;
    assert!(output.status.success(), "{options}: {errors}");
    assert_eq!(errors, "", "nothing of the progress goes into a pipe");
    Some(text(&output.stdout))
}

/// The same of a short run.
fn short(options: &str) -> Option<String> {
    good(&format!("{options} -n 300 -r 2 --warm-up 10"))
}

fn json(options: &str) -> Option<Value> {
    let json = good(&format!("{options} --json -"))?;
    Some(serde_json::from_str(&json).expect("nothing but JSON"))
}

fn short_json(options: &str) -> Option<Value> {
    json(&format!("{options} -n 300 -r 2 --warm-up 10"))
}

fn has(table: &str, parts: &[&str]) {
    for part in parts {
        assert!(table.contains(part), "no {part} in\n{table}");
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("rpcrdma-bench-{}-{name}", std::process::id()))
}

/// A server with such options answers one client, which finds it where it says that it is.
fn answered(options: &[&str], client: &str) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_rpcrdma-bench"))
        .args(["serve", "--once"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built for this test");
    let mut out = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut first = String::new();
    out.read_line(&mut first).expect("text");
    // A machine with one core is refused.
    let Some((_, rest)) = first.split_once("connect to ") else {
        assert!(!server.wait().expect("it ends").success());
        return;
    };
    let at = rest.split(',').next().expect("an address");
    let table = short(&format!("{client} --connect {at}")).expect("two cores");
    has(&table, &["rpc, server"]);
    assert!(!table.contains("floor"), "its other end was started by hand\n{table}");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    assert!(server.wait().expect("it ends").success());
    has(&rest, &["echo of 64 bytes: ", "calls answered", "replies_sent"]);
}
