//! Tests of the software fabric: its rules, models, and two threads. Under loom: the ring and
//! the sleep.

#[cfg(loom)]
mod interleavings;

#[cfg(not(loom))]
mod acks;
#[cfg(not(loom))]
mod connect;
#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod delay;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod fault;
#[cfg(not(loom))]
mod host;
#[cfg(not(loom))]
mod late;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod remote;
#[cfg(not(loom))]
mod remote_delay;
#[cfg(not(loom))]
mod remote_model;
#[cfg(not(loom))]
mod remote_threads;
#[cfg(not(loom))]
mod rules;
#[cfg(not(loom))]
mod teardown;
#[cfg(not(loom))]
mod threads;
#[cfg(not(loom))]
mod windows;
