//! The test client over TCP, and an NFS server of another project on software iWARP:
//! `rpcrdma_tests::nfs::foreign`.
//!
//! `RPCRDMA_TEST_ADDRESS` is an address of the server. With `RPCRDMA_TEST_CRC` there are checksums.

use std::env;

use rpcrdma::Tcp;
use rpcrdma::tcp::TcpOptions;

rpcrdma_tests::foreign_nfs!(
    open();
    #[ignore = "needs the kernel's iWARP: tests/run vm"]
);

fn open() -> Tcp {
    let crc = env::var_os("RPCRDMA_TEST_CRC").is_some();
    Tcp::with_options(TcpOptions { crc, ..TcpOptions::default() }).expect("sockets")
}
