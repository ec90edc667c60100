//! Sequences of transmissions; run with `cargo fuzz run --fuzz-dir tests/fuzz group`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::group::check(bytes));
