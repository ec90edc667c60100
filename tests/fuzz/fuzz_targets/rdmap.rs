//! Terminate messages and Read Requests; run with `cargo fuzz run --fuzz-dir tests/fuzz rdmap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::rdmap::check(bytes));
