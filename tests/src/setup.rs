//! Configurations of tests: small, and of the version that a test wants.

use std::cell::Cell;

use rpcrdma_config::{Config, Raw};
use rpcrdma_engine::Provider;

use crate::service::source_len;

/// Has every configuration that [`small`] makes in `test` speak this version: `auto`, `one`, `two`.
pub fn speaking<T>(version: &'static str, test: impl FnOnce() -> T) -> T {
    let before = VERSION.replace(version);
    let result = test();
    VERSION.set(before);
    result
}

thread_local! {
    /// What the tests of this thread speak.
    static VERSION: Cell<&'static str> = const { Cell::new("auto") };
}

/// A small configuration: few connections, no prefault, a core is never sought.
pub fn small() -> Raw {
    let mut raw = Raw::default();
    raw.protocol.version = VERSION.get().into();
    raw.engine.numa_bind = false;
    raw.memory.pages = "4K".into();
    raw.memory.prefault = false;
    raw.connections.max = 2;
    raw.connections.credits = 16;
    raw.connections.credits_requested = 16;
    raw.connections.calls_max = 16;
    raw.send.slots = 64;
    raw.send.signal_every = 8;
    raw.receive.spares = 16;
    // Half of them are for own calls, half for calls of peers, an item in each.
    raw.explicit.buffers.count = 16;
    raw.app.bulk.count = 8;
    raw.app.bulk.length = format!("{}B", source_len(64 << 10)).as_str().into();
    raw
}

/// A configuration for messages of `len` bytes and more.
pub fn large(len: usize) -> Raw {
    let mut raw = small();
    raw.app.bulk.length = format!("{}B", source_len(len).next_multiple_of(4096)).as_str().into();
    raw.connections.credits = 32;
    raw.connections.credits_requested = 32;
    raw
}

/// The same for the device that a test runs on: the configuration names it.
///
/// # Panics
/// If it does not hold, or is about something else of the device.
pub fn suited<P: Provider>(device: &P, raw: &Raw) -> Config {
    let config = checked(raw);
    if device.check(&config).is_ok() {
        return config;
    }
    let mut raw = raw.clone();
    raw.engine.provider = "verbs".into();
    checked(&raw)
}

/// Checks a configuration that a test made.
///
/// # Panics
/// If it does not hold.
pub fn checked(raw: &Raw) -> Config {
    Config::try_from(raw.clone()).expect("the configuration of a test holds")
}

/// The seed after which the shard that an engine makes next has its xids come round: each place for
/// a call is used six times before. `Engine::seed_xids` makes 2^32 - 7 of it.
pub const LAST_XIDS: u64 = 0x3f04_3218_c4b1_4ddf;
