//! A shard with a valid and a misbehaving peer; run with
//! `cargo fuzz run --fuzz-dir tests/fuzz shard`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::shard::check(bytes));
