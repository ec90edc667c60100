//! Tests of shared memory. The rules of the transport are those of the fabric, and so are their
//! tests: the same files, over another device.

mod connect;
mod descriptors;
mod device;
mod ends;
mod exposed;
mod forked;
mod hostile;
mod mapped;
mod sleep;
mod unequal;

#[path = "../../../../tests/src/denied.rs"]
pub(crate) mod denied;

#[path = "../../../fabric/src/tests/acks.rs"]
mod acks;
#[path = "../../../fabric/src/tests/fault.rs"]
mod fault;
#[path = "../../../fabric/src/tests/host.rs"]
mod host;
#[path = "../../../fabric/src/tests/model.rs"]
mod model;
#[path = "../../../fabric/src/tests/remote.rs"]
mod remote;
#[path = "../../../fabric/src/tests/remote_model.rs"]
mod remote_model;
#[path = "../../../fabric/src/tests/remote_threads.rs"]
mod remote_threads;
#[path = "../../../fabric/src/tests/rules.rs"]
mod rules;
#[path = "../../../fabric/src/tests/teardown.rs"]
mod teardown;
#[path = "../../../fabric/src/tests/threads.rs"]
mod threads;
#[path = "../../../fabric/src/tests/windows.rs"]
mod windows;
