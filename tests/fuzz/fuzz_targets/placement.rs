//! Messages that name bytes, and messages that are planned; run with
//! `cargo fuzz run --fuzz-dir tests/fuzz placement`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::placement::check(bytes));
