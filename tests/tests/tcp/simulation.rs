//! The simulation over TCP: the same programs, faults and checks as over the fabric.
//!
//! Over a virtual network the seed determines the whole run, and the network has trouble of its own:
//! it splits streams anywhere, delays pieces of them, is full, and cuts connections. Over the sockets
//! of the system the same seed may give another run.

use rpcrdma::Tcp;
use rpcrdma_tests::sim::provider::{SimProvider, VirtualTcp};
use rpcrdma_tests::sim::{self, Coverage, Outcome};

fn run<P: SimProvider>(seed: u64) -> Outcome {
    sim::run::<P>(seed).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Runs seeds, and looks whether they saw enough.
fn no_violation<P: SimProvider>(seeds: u64, wanted: &[&str]) {
    let mut seen = Coverage::new();
    for seed in 0..seeds {
        for (what, count) in run::<P>(seed).coverage {
            *seen.entry(what).or_default() += count;
        }
    }
    for what in wanted {
        assert!(seen.contains_key(what), "no run had this: {what}");
    }
}

#[test]
fn no_seed_shows_a_violation_over_tcp() {
    no_violation::<Tcp>(SEEDS, &SEEN);
}

#[test]
fn no_seed_shows_a_violation_over_a_virtual_network() {
    no_violation::<VirtualTcp>(SEEDS_VIRTUAL, &[&SEEN[..], &SEEN_VIRTUAL].concat());
}

#[test]
fn the_same_seed_gives_the_same_run_over_a_virtual_network() {
    for seed in 0..20 {
        let [one, other] = [(); 2].map(|()| run::<VirtualTcp>(seed));
        assert_eq!((one.hash, one.events), (other.hash, other.events), "seed {seed}");
    }
    assert_ne!(run::<VirtualTcp>(0).hash, run::<VirtualTcp>(1).hash);
}

/// `tests/run simulate --provider tcp` runs more.
const SEEDS: u64 = 100;
/// `tests/run simulate --provider virtual-tcp` runs more.
const SEEDS_VIRTUAL: u64 = 250;
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
/// And what a virtual network has to do.
const SEEN_VIRTUAL: [&str; 6] = [
    "connections reset by the network",
    "pieces of streams that came alone",
    "servers of sessions killed",
    "session calls sent again",
    "sockets that were full",
    "streams ended by the network",
];
