//! The test client of NFS version 4.1 and our small server of it, over the fabric: calls of both
//! directions on one connection.

use rpcrdma::Fabric;
use rpcrdma_tests::opener::OnDevice;

fn open() -> OnDevice<Fabric> {
    OnDevice { device: Fabric::new(), address: "127.0.0.1:0".parse().expect("an address") }
}

mod version_one {
    use super::*;

    rpcrdma_tests::ours_suite!(open(), |_| {});
}

mod version_two {
    use super::*;

    rpcrdma_tests::ours_suite!(open(), |raw| raw.protocol.version = "two".into());
}
