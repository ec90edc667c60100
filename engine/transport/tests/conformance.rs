//! The rules of a device, over the smallest carrier: the rings of the software fabric.

use rpcrdma_testing::fabric::Rings;

rpcrdma_conformance::rules! {
    Rings:
    acks, connections, exposed, messages, model, remote, remote_model, remote_threads, teardown, threads, windows,
}
