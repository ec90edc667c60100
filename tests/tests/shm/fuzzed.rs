//! Inputs of the fuzz target `link` that a seed makes: the fuzzer's own are replayed beside the
//! others (`tests/tests/fabric/fuzz_corpus.rs`).

use rpcrdma_tests::checks::link;
use rpcrdma_tests::script::Random;

#[test]
fn a_peer_that_writes_anything_harms_no_other() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let input: Vec<u8> = (0..600).map(|_| random.below(256) as u8).collect();
        link::check(&input);
    }
}
