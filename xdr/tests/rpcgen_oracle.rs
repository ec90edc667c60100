//! Our coder against the C coder that rpcgen makes of `spec/rpcrdma.x`, both ways, byte for byte.
//!
//! Needs rpcgen, gcc and libtirpc (Debian: `apt-get install rpcsvc-proto libtirpc-dev gcc`).
//! Without them the tests fail, unless `RPCRDMA_SKIP_ORACLE=1` says that this is known. The messages are
//! the same in every run; `RPCRDMA_SEED` (a number) makes others, and a failure names its seed.

#[path = "support/fields.rs"]
mod fields;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/headers.rs"]
mod headers;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rpcrdma_xdr::{DecodeError, Header, Writer};

const PACKAGES: &str = "the rpcgen oracle needs the Debian packages rpcsvc-proto, libtirpc-dev and \
    gcc (apt-get install rpcsvc-proto libtirpc-dev gcc), or RPCRDMA_SKIP_ORACLE=1 to go without";

const MESSAGES: usize = 5_000;

/// A request to the C program; `tests/support/oracle.c` explains it.
struct Request {
    kind: u8,
    data: Vec<u8>,
}

/// The folder of the C program, which is built once; `None` if the oracle is to be skipped.
fn oracle() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if std::env::var_os("RPCRDMA_SKIP_ORACLE").is_some_and(|value| value == "1") {
                // Not eprintln!: the harness would keep it to itself.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED rpcgen_oracle (RPCRDMA_SKIP_ORACLE=1): nothing is compared with C"
                );
                return None;
            }
            Some(build())
        })
        .as_deref()
}

fn build() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rpcgen_oracle");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).expect("the folder for build products can be made");
    for (from, to) in [("spec/rpcrdma.x", "rpcrdma.x"), ("tests/support/oracle.c", "oracle.c")] {
        fs::copy(crate_folder.join(from), out.join(to)).expect("our own files can be copied");
    }
    run(&out, "rpcgen", &["-h", "-o", "rpcrdma.h", "rpcrdma.x"]);
    run(&out, "rpcgen", &["-c", "-o", "rpcrdma_xdr.c", "rpcrdma.x"]);
    // rpcgen declares variables that it does not use: -Wall is for our file only.
    run(&out, "gcc", &["-O1", "-w", "-I/usr/include/tirpc", "-c", "rpcrdma_xdr.c"]);
    run(&out, "gcc", &["-O1", "-Wall", "-Werror", "-I/usr/include/tirpc", "-c", "oracle.c"]);
    run(&out, "gcc", &["-o", "oracle", "oracle.o", "rpcrdma_xdr.o", "-ltirpc"]);
    out
}

fn run(folder: &Path, program: &str, arguments: &[&str]) {
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

/// All answers of one run of the C program; `None` for what it refuses.
fn ask(folder: &Path, name: &str, requests: &[Request]) -> Vec<Option<Vec<u8>>> {
    let mut input = Vec::new();
    for request in requests {
        input.extend(u32::from(request.kind).to_be_bytes());
        input.extend((request.data.len() as u32).to_be_bytes());
        input.extend(&request.data);
    }
    // By files: neither side waits for the other, however much there is.
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

fn encode(header: &Header<'_>) -> Vec<u8> {
    let mut buffer = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut buffer)).expect("encoded_len is the length");
    buffer
}

fn text(fields: &[String]) -> String {
    fields.iter().map(|field| format!("{field}\n")).collect()
}

fn seed() -> u64 {
    match std::env::var("RPCRDMA_SEED") {
        Ok(seed) => seed.parse().expect("RPCRDMA_SEED is a number"),
        Err(_) => 8166,
    }
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn sample<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> S::Value {
    strategy.new_tree(runner).expect("the strategies reject nothing").current()
}

/// Compares decoding (C names the fields of our bytes) and encoding (C makes bytes of our fields).
fn compare(folder: &Path, name: &str, messages: &[(String, Vec<u8>, Vec<String>)]) {
    let requests: Vec<Request> = messages
        .iter()
        .flat_map(|(_, bytes, fields)| {
            [
                Request { kind: b'D', data: bytes.clone() },
                Request { kind: b'B', data: text(fields).into_bytes() },
            ]
        })
        .collect();
    let answers = ask(folder, name, &requests);
    for ((what, bytes, fields), pair) in messages.iter().zip(answers.chunks_exact(2)) {
        let decoded = pair[0].as_ref().unwrap_or_else(|| panic!("{what}: C refuses {bytes:02x?}"));
        assert_eq!(String::from_utf8_lossy(decoded), text(fields), "{what}: decoded by C");
        assert_eq!(pair[1].as_ref(), Some(bytes), "{what}: encoded by C");
    }
}

#[test]
fn generated_headers_mean_the_same_to_c_and_encode_to_the_same_bytes() {
    let Some(folder) = oracle() else { return };
    let seed = seed();
    let mut runner = runner(seed);
    let strategy = headers::header();
    let messages: Vec<_> = (0..MESSAGES)
        .map(|index| {
            let header = sample(&mut runner, &strategy);
            let what = format!("RPCRDMA_SEED={seed}, message {index}");
            (what, encode(&header), fields::fields(&header))
        })
        .collect();
    compare(folder, "generated", &messages);
}

#[test]
fn golden_vectors_mean_the_same_to_c_and_encode_to_the_same_bytes() {
    let Some(folder) = oracle() else { return };
    let messages: Vec<_> = golden::load()
        .into_iter()
        .map(|vector| (vector.name, vector.message[..vector.header_len].to_vec(), vector.fields))
        .collect();
    compare(folder, "golden", &messages);
}

/// C is more lenient than we are, never stricter: what we accept it accepts, and makes the same
/// bytes of; what we find cut short or wrongly numbered it refuses as well.
#[test]
fn damaged_headers_that_we_accept_are_accepted_by_c_and_unchanged() {
    let Some(folder) = oracle() else { return };
    let seed = seed();
    let mut runner = runner(seed ^ 1);
    let strategy = (
        headers::header(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 0..3u8), 1..3),
    );
    let damaged: Vec<Vec<u8>> = (0..MESSAGES)
        .map(|_| {
            let (header, changes) = sample(&mut runner, &strategy);
            let mut message = encode(&header);
            for (at, word, how) in changes {
                let at = 4 * at.index(message.len() / 4);
                match how {
                    0 => message[at..at + 4].copy_from_slice(&word.to_be_bytes()),
                    1 => message[at..at + 4].copy_from_slice(&(word % 9).to_be_bytes()),
                    _ => message.truncate(at.max(16)),
                }
            }
            message
        })
        .collect();
    let requests: Vec<Request> =
        damaged.iter().map(|message| Request { kind: b'R', data: message.clone() }).collect();
    let answers = ask(folder, "damaged", &requests);
    let (mut accepted, mut refused) = (0, 0);
    for (index, (message, answer)) in damaged.iter().zip(answers).enumerate() {
        let what = format!("RPCRDMA_SEED={seed}, message {index}: {message:02x?}");
        match Header::decode(message) {
            Ok((_, len)) => {
                assert_eq!(answer.as_deref(), Some(&message[..len]), "{what}");
                accepted += 1;
            }
            Err(error) => {
                if matches!(error, DecodeError::Truncated { .. }) {
                    assert_eq!(answer, None, "{error} for us; {what}");
                }
                refused += 1;
            }
        }
    }
    assert!(accepted > MESSAGES / 10 && refused > MESSAGES / 10, "{accepted} to {refused}");
}
