//! The tests of the rules where long messages are, and what is copied from a peer's pool.

mod copies;
mod device;
mod pools;
mod reuse;

#[path = "../../../../fabric/src/tests/acks.rs"]
mod acks;
#[path = "../../../../fabric/src/tests/fault.rs"]
mod fault;
#[path = "../../../../fabric/src/tests/host.rs"]
mod host;
#[path = "../../../../fabric/src/tests/remote.rs"]
mod remote;
#[path = "../../../../fabric/src/tests/remote_model.rs"]
mod remote_model;
#[path = "../../../../fabric/src/tests/remote_threads.rs"]
mod remote_threads;
#[path = "../../../../fabric/src/tests/rules.rs"]
mod rules;
#[path = "../../../../fabric/src/tests/teardown.rs"]
mod teardown;
#[path = "../../../../fabric/src/tests/threads.rs"]
mod threads;
