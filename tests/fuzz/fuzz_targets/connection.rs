//! Two connected ends with arbitrary traffic; run with
//! `cargo fuzz run --fuzz-dir tests/fuzz connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::connection::check(bytes));
