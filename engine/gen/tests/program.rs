//! The program: what it prints, and its exit code.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(files: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rpcrdma-gen"));
    command.arg("--check").args(files).output().expect("it is built with this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_right_description_is_counted_and_a_wrong_one_fails_the_program() {
    let right = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/store.x");
    let output = run(&[&right]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with("store.x: 11 definitions\n"));
    assert!(output.stderr.is_empty());

    let absent = PathBuf::from("absent.x");
    let output = run(&[&absent, &right]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("No such file") && errors.contains("absent.x"), "{errors}");
    assert!(text(&output.stdout).contains("11 definitions"), "the others are read all the same");
}

#[test]
fn a_wrong_command_line_is_an_error() {
    let program = env!("CARGO_BIN_EXE_rpcrdma-gen");
    let output = Command::new(program).arg("--check").output().expect("it is built");
    assert_eq!(output.status.code(), Some(2), "no file");
}
