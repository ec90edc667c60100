//! The simulation over shared memory: the same programs, faults and checks as over the fabric.
//!
//! Another thread learns that a socket is closed, so the same seed may give another run.

use rpcrdma::Shm;
use rpcrdma_tests::sim::{self, Coverage};

#[test]
fn no_seed_shows_a_violation_over_shared_memory() {
    let mut seen = Coverage::new();
    for seed in 0..SEEDS {
        let outcome = sim::run::<Shm>(seed).unwrap_or_else(|failure| panic!("{failure}"));
        for (what, count) in outcome.coverage {
            *seen.entry(what).or_default() += count;
        }
    }
    for what in SEEN {
        assert!(seen.contains_key(what), "no run had this: {what}");
    }
}

/// `tests/run simulate --provider shm` runs more.
const SEEDS: u64 = 250;
/// What the runs have to cover.
const SEEN: [&str; 9] = [
    "calls given up",
    "calls lost",
    "connections",
    "ended: a request failed",
    "ended: the peer is gone",
    "replies with placed items",
    "relays",
    "segments kept",
    "shards stopped",
];
