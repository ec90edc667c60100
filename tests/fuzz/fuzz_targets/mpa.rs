//! A stream of FPDUs, cut anywhere; run with `cargo fuzz run --fuzz-dir tests/fuzz mpa`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::mpa::check(bytes));
