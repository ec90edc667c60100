//! The engine on shared memory: the API suite in one process, and two processes of which one dies.

use rpcrdma_engine::Shm;
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
