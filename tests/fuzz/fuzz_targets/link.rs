//! A server over shared memory with a peer that writes anything; run with
//! `cargo fuzz run --fuzz-dir tests/fuzz link`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::link::check(bytes));
