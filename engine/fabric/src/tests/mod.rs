//! Tests of the software fabric: the rules of a device, and what is special to the fabric. Under loom:
//! the ring and the sleep.

#[cfg(loom)]
mod interleavings;

#[cfg(not(loom))]
mod connect;
#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod delay;
#[cfg(not(loom))]
mod late;
#[cfg(not(loom))]
mod remote_delay;
#[cfg(not(loom))]
mod rules;
