//! The API suite on the software fabric, in any version and in version one.

use rpcrdma::Fabric;

fn open() -> impl Fn() -> Fabric {
    let fabric = Fabric::new();
    move || fabric.clone()
}

mod auto {
    use super::*;

    rpcrdma_suite::api_suite!(open());
}

mod version_one {
    use super::*;

    rpcrdma_suite::api_suite_one!(open());
}
