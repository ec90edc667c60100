//! The test client and an NFS server of another project, on an RDMA device: `rpcrdma_tests::nfs::foreign`.
//!
//! `RPCRDMA_TEST_DEVICE` and `RPCRDMA_TEST_ADDRESS` say which device.

rpcrdma_tests::foreign_nfs!(
    rpcrdma_tests::device::device().device;
    #[ignore = "needs an RDMA device: tests/run vm"]
);
