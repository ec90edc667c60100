//! The API suite on the software fabric.

use rpcrdma_engine::Fabric;

fn open() -> impl Fn() -> Fabric {
    let fabric = Fabric::new();
    move || fabric.clone()
}

rpcrdma_tests::api_suite!(open());
