//! Configurations for tests: small, and of a chosen version.

use std::cell::Cell;

use rpcrdma::Provider;
use rpcrdma_config::{Config, Raw};

use crate::service::source_len;

/// Sets the version of every configuration that [`small`] makes in `test`: `auto`, `one`, `two`.
pub fn speaking<T>(version: &'static str, test: impl FnOnce() -> T) -> T {
    let before = VERSION.replace(version);
    let result = test();
    VERSION.set(before);
    result
}

thread_local! {
    /// The version for the tests of this thread.
    static VERSION: Cell<&'static str> = const { Cell::new("auto") };
}

/// A small configuration: few connections, no prefault, no choice of cores.
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
    // Half of them are for own calls, half for calls of peers, one item each.
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

/// The same, with the name of the device that the test runs on, and with registrations for one call
/// on devices without windows, where nothing is exposed without.
///
/// # Panics
/// If it is not valid for the device.
pub fn suited<P: Provider>(device: &P, raw: &Raw) -> Config {
    let mut raw = raw.clone();
    // What a device cannot gather is copied.
    if device.caps().send_sge < GATHERS_ALL && raw.send.slots == small().send.slots {
        raw.send.slots = SLOTS_TO_COPY;
    }
    // Both ends are of one owner.
    if device.caps().windows == 0 && raw.explicit.exposure.as_str() == "auto" {
        raw.explicit.exposure = "registration".into();
    }
    let named = |name: &str, changes: bool| {
        let mut raw = raw.clone();
        raw.engine.provider = name.into();
        raw.shm.map_pools = changes;
        raw.tcp.crc = changes;
        checked(&raw)
    };
    let all = ["shm", "tcp", "verbs"].map(|name| [named(name, false), named(name, true)]);
    let suited = all.into_iter().flatten().find(|config| device.check(config).is_ok());
    let config = checked(&raw);
    if device.check(&config).is_ok() { config } else { suited.unwrap_or(config) }
}

/// Gather entries with which no message of a scenario has too many pieces.
pub(crate) const GATHERS_ALL: u32 = 14;
/// Send slots in place of those of [`small`] where items are copied.
const SLOTS_TO_COPY: i64 = 256;

/// Checks a configuration that a test made.
///
/// # Panics
/// If it is not valid.
pub fn checked(raw: &Raw) -> Config {
    Config::try_from(raw.clone()).expect("the configuration of a test holds")
}

/// The seed with which the XIDs of the next shard of an engine wrap soon: each call slot is used
/// six times before. `Engine::seed_xids` makes 2^32 - 7 of it.
pub const LAST_XIDS: u64 = 0x3f04_3218_c4b1_4ddf;
