//! Tests of the transport over carriers that a test has in its hands. Under loom: the keys.

#[cfg(loom)]
mod interleavings;

#[cfg(not(loom))]
mod carrier;
#[cfg(not(loom))]
mod hostile;
#[cfg(not(loom))]
mod many;
#[cfg(not(loom))]
mod rules;
#[cfg(not(loom))]
mod staging;
