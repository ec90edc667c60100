//! A C program with another codec, for comparison; it is built once.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const PACKAGES: &str = "the oracle in C needs the Debian packages rpcsvc-proto, libtirpc-dev and \
    gcc (apt-get install rpcsvc-proto libtirpc-dev gcc), or RPCRDMA_SKIP_ORACLE=1 to go without";

/// A request to the C program; `oracle.c` explains it.
pub struct Request {
    /// The operation.
    pub kind: u8,
    /// The operand.
    pub data: Vec<u8>,
}

/// The folder of the C program, which `build` fills once; `None` if the oracle is to be skipped.
pub fn oracle(
    built: &'static OnceLock<Option<PathBuf>>,
    name: &str,
    build: impl FnOnce(&Path),
) -> Option<&'static Path> {
    built
        .get_or_init(|| {
            if std::env::var_os("RPCRDMA_SKIP_ORACLE").is_some_and(|value| value == "1") {
                // Not eprintln!: the test harness would capture it.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED {name} (RPCRDMA_SKIP_ORACLE=1): nothing is compared with C"
                );
                return None;
            }
            let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            let _ = fs::remove_dir_all(&out);
            fs::create_dir_all(&out).expect("the folder for build products can be made");
            build(&out);
            Some(out)
        })
        .as_deref()
}

/// Copies a file of this crate into the folder.
pub fn copy(folder: &Path, from: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(from);
    let name = from.file_name().expect("a file");
    fs::copy(&from, folder.join(name)).expect("our own files can be copied");
}

/// Runs a step of the build.
pub fn run(folder: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; {PACKAGES}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?} failed; {PACKAGES}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// All answers of one run of the C program; `None` for input that it rejects.
pub fn ask(folder: &Path, name: &str, requests: &[Request]) -> Vec<Option<Vec<u8>>> {
    let mut input = Vec::new();
    for request in requests {
        input.extend(u32::from(request.kind).to_be_bytes());
        input.extend((request.data.len() as u32).to_be_bytes());
        input.extend(&request.data);
    }
    // Through files, so that neither process waits for the other.
    let (asked, answered) = (folder.join(format!("{name}.in")), folder.join(format!("{name}.out")));
    fs::write(&asked, input).expect("the requests can be written");
    let status = Command::new(folder.join("oracle"))
        .stdin(File::open(&asked).expect("the requests can be read"))
        .stdout(File::create(&answered).expect("the answers can be written"))
        .status()
        .expect("the oracle was built");
    assert!(status.success(), "the oracle: {status}");
    let output = fs::read(&answered).expect("the answers can be read");
    let mut rest = output.as_slice();
    let answers: Vec<Option<Vec<u8>>> = requests.iter().map(|_| answer(&mut rest)).collect();
    assert!(rest.is_empty(), "the oracle answered more than it was asked");
    answers
}

fn answer(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut word = || {
        let (word, tail) = rest.split_first_chunk::<4>().expect("an answer is whole");
        *rest = tail;
        u32::from_be_bytes(*word)
    };
    let (ok, len) = (word(), word() as usize);
    let (data, tail) = rest.split_at_checked(len).expect("an answer is whole");
    *rest = tail;
    (ok == 1).then(|| data.to_vec())
}

/// The seed of this run.
pub fn seed() -> u64 {
    match std::env::var("RPCRDMA_SEED") {
        Ok(seed) => seed.parse().expect("RPCRDMA_SEED is a number"),
        Err(_) => 8166,
    }
}

/// A source of values.
pub fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// A value.
pub fn sample<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> S::Value {
    strategy.new_tree(runner).expect("the strategies reject nothing").current()
}
