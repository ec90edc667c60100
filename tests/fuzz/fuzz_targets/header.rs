//! Any bytes as a message; run with `cargo fuzz run --fuzz-dir tests/fuzz header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::header::check(bytes));
