//! The test client over TCP, and an NFS server of another project on software iWARP:
//! `rpcrdma_tests::nfs::foreign`.
//!
//! `RPCRDMA_TEST_ADDRESS` is an address of the server.

use rpcrdma_engine::Tcp;

rpcrdma_tests::foreign_nfs!(
    Tcp::new().expect("sockets");
    #[ignore = "needs the kernel's iWARP: tests/run vm"]
);
