//! Short runs of the program `stress`; docs/testing.md has long ones.

use std::process::Command;

/// Runs a stress test. What it prints has its seed, with which it can be repeated.
fn passes(test: &str, options: &[&str]) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_stress"));
    let output = program.arg(test).args(options).output().expect("it is built with the tests");
    let printed =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{}", printed.concat());
    assert!(output.status.success(), "{test} {options:?}: {}", output.status);
}

#[test]
fn killed_clients_and_servers_leave_nothing_and_no_call_without_an_end() {
    passes("kills", &["--rounds", "12"]);
}

#[test]
fn a_client_that_writes_over_all_its_memory_harms_no_other() {
    passes("corrupt", &["--seconds", "4"]);
}

#[test]
fn stopped_clients_cost_others_nothing_and_go_on_later() {
    passes("stop", &["--rounds", "2"]);
}

#[test]
fn processes_that_sleep_before_each_message_are_always_woken() {
    passes("sleep", &["--seconds", "3"]);
}

#[test]
fn a_session_loses_no_call_when_its_server_is_killed_and_its_connections_are_cut() {
    passes("sessions", &["--calls", "20000", "--losses", "30", "--kills", "5"]);
}

#[test]
fn more_processes_than_cores_are_all_served() {
    for idle in ["block", "backoff"] {
        passes("load", &["--clients", "24", "--calls", "50", "--idle", idle]);
    }
}
