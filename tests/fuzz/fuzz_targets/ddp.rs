//! DDP segments, and their order; run with `cargo fuzz run --fuzz-dir tests/fuzz ddp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_tests::checks::ddp::check(bytes));
