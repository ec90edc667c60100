//! The engine over TCP: the API suite in one process, hostile peers as over the fabric, many
//! connections, and processes of which some die.

#[path = "../shm/forbidden.rs"]
mod forbidden;
#[path = "../fabric/hostile.rs"]
mod hostile;
#[path = "../fabric/hostile_rdma.rs"]
mod hostile_rdma;
#[path = "../fabric/hostile_server.rs"]
mod hostile_server;
mod many;
mod net;
mod nfs;
mod nfs41;
mod processes;
mod silence;
mod simulation;

use rpcrdma::Tcp;
use rpcrdma::tcp::TcpOptions;
use rpcrdma_tests::opener::OnDevice;

/// Both engines of a test share the registrations of one provider, as in one process.
fn open() -> OnDevice<Tcp> {
    with(TcpOptions::default(), "127.0.0.1:0")
}

fn with(options: TcpOptions, address: &str) -> OnDevice<Tcp> {
    OnDevice {
        device: Tcp::with_options(options).expect("they are allowed"),
        address: address.parse().expect("an address"),
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

/// With checksums, over IPv6.
mod checksums {
    use super::*;

    fn open() -> OnDevice<Tcp> {
        with(TcpOptions { crc: true, ..TcpOptions::default() }, "[::1]:0")
    }

    rpcrdma_tests::api_suite!(open());
}

#[test]
fn a_call_that_is_forbidden_is_an_error_or_done_without() {
    forbidden::is_an_error_or_done_without("tcp", "127.0.0.1:0", Tcp::from_config);
}
