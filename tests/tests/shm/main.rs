//! The engine on shared memory: the API suite in one process, and processes of which some die.

mod forbidden;
mod fuzzed;
mod nfs41;
mod places;
mod processes;
mod simulation;
mod stress;

use rpcrdma::Shm;
use rpcrdma::shm::ShmOptions;
use rpcrdma_tests::opener::OnDevice;

/// Both engines of a test share the registrations of one provider, as in one process.
fn open() -> OnDevice<Shm> {
    OnDevice {
        device: Shm::new().expect("a thread"),
        address: "shm:@".parse().expect("an address"),
    }
}

mod auto {
    use super::*;

    rpcrdma_tests::api_suite!(open());
}

/// What is the same in version one.
mod version_one {
    use super::*;

    rpcrdma_tests::api_suite_one!(open());
}

/// With the pools of each side mapped by the other.
mod mapped {
    use super::*;

    fn open() -> OnDevice<Shm> {
        let options = ShmOptions { map_pools: true, ..ShmOptions::default() };
        let device = Shm::with_options(options).expect("a thread");
        OnDevice { device, ..super::open() }
    }

    rpcrdma_tests::api_suite!(open());
}

#[test]
fn a_call_that_is_forbidden_is_an_error_or_done_without() {
    forbidden::is_an_error_or_done_without("shm", "shm:@", Shm::from_config);
}
