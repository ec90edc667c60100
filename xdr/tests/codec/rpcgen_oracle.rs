//! The codec, compared with the C code that rpcgen makes of `spec/rpcrdma.x`, in both directions.
//!
//! Needs rpcgen, gcc and libtirpc (Debian: `apt-get install rpcsvc-proto libtirpc-dev gcc`).
//! Without them the tests fail, unless `RPCRDMA_SKIP_ORACLE=1` says that this is known. The
//! messages are the same in every run; `RPCRDMA_SEED` (a number) makes others, and a failure names
//! its seed.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::oracle::{Request, ask, copy, oracle, run, runner, sample, seed};
use crate::{fields, golden, headers};
use proptest::prelude::*;
use rpcrdma_xdr::{DecodeError, Header, Writer};

const MESSAGES: usize = 5_000;

/// The folder of the C program; `None` if the oracle is to be skipped.
fn rpcgen() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    oracle(&BUILT, "rpcgen_oracle", |out| {
        copy(out, "spec/rpcrdma.x");
        copy(out, "tests/codec/oracle.c");
        run(out, "rpcgen", &["-h", "-o", "rpcrdma.h", "rpcrdma.x"]);
        run(out, "rpcgen", &["-c", "-o", "rpcrdma_xdr.c", "rpcrdma.x"]);
        // rpcgen declares variables that it does not use: -Wall is for our file only.
        run(out, "gcc", &["-O1", "-w", "-I/usr/include/tirpc", "-c", "rpcrdma_xdr.c"]);
        run(out, "gcc", &["-O1", "-Wall", "-Werror", "-I/usr/include/tirpc", "-c", "oracle.c"]);
        run(out, "gcc", &["-o", "oracle", "oracle.o", "rpcrdma_xdr.o", "-ltirpc"]);
    })
}

fn encode(header: &Header<'_>) -> Vec<u8> {
    let mut buffer = vec![0; header.encoded_len()];
    header.encode(&mut Writer::new(&mut buffer)).expect("encoded_len is the length");
    buffer
}

fn text(fields: &[String]) -> String {
    fields.iter().map(|field| format!("{field}\n")).collect()
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
    let Some(folder) = rpcgen() else { return };
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
    let Some(folder) = rpcgen() else { return };
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
    let Some(folder) = rpcgen() else { return };
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
