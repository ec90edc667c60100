//! The software fabric: an RDMA provider inside the process, the embedded default.
//!
//! ```text
//!   Fabric ── open_queues ──▶ FabricQueues ──┐ path ── ring ──▶ ┌── FabricQueues
//!     │                        (one thread)  └───── ◀── ring ── ┘    (another, or the same)
//!     ├────── open_cm ──────▶ FabricCm: the address space of the fabric is the process
//!     └────── registrar ────▶ memory keys
//! ```
//!
//! The crate `rpcrdma-transport` implements the rules, independently of the carrier of its messages;
//! `rings` is the carrier within a process. See decision 0016.
//!
//! It keeps an RNIC's rules. Receives of a shared receive queue are matched in order. A message
//! without a Receive waits, and in the end fails its queue pair. Lengths, keys and rights are
//! checked. Completions of a queue pair come in the order of posting. An error flushes the queue
//! pair. Posted memory belongs to the fabric until its completion is polled.
//!
//! The responder's `poll_cq` executes Reads and Writes. It checks key, bounds and rights before it
//! touches a byte. A request is executed as a whole or not at all, except for memory that is
//! deregistered meanwhile. A wrong request fails its queue pair on both sides; the requester gets
//! [`WcStatus::RemoteAccess`]. A Read is taken in order and executed behind what is posted after
//! it, not before its data could have travelled back: fences are needed. At most
//! [`FabricOptions::rd_atomic`] Reads are outstanding; further ones wait, and so do the requests
//! behind them. Binds and invalidations take no time and complete in order.
//!
//! Windows. A key belongs to one queue pair and is unknown to any other. Once the queue pair is in
//! the error state at this side, even if its program has no event of it yet, requests with the key
//! are not executed: the memory is not touched any more. The window cannot be bound again before
//! `destroy`, which unbinds it. A registration by `expose` belongs to these queues: all their queue
//! pairs can use its key. Unlike with a device, queue pairs of other queues cannot.
//!
//! Registrations. A key is valid as soon as it exists. Deregistering waits for the polls in
//! progress; after it returns, no poll uses the key.
//!
//! Depths. A send queue has `send_depth` places. A completion frees the places of its request and
//! of the unsignaled ones before it, so a program that never signals runs out of places. Requests
//! that do not fit in a ring wait in memory reserved for them. Receives complete as they are polled
//! and take no entry of the completion queue. Send completions that do not fit in the batch of a
//! poll take one; more than `cq_depth` of them are an overrun.
//!
//! Retries. A message without a Receive waits at the head of its ring and is delivered as soon as
//! there is one. It counts as retried once in every [`FabricOptions::rnr_timer_ns`]. After the
//! connection's number of retries (0: at once) its queue pair fails on both sides.
//!
//! Differences from a device: the receiver's `poll_cq` does the copying, so an endpoint that is not
//! polled receives nothing. The queue pairs between two sets of queues share a ring, so a message
//! that waits for a Receive delays those behind it, which need a Receive of the same queue.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `fabric`
//! - `cm`
//! - `queues`
//! - `rings`
//! - `port`
//! - `options`, `sleeper`

mod cm;
mod fabric;
mod options;
mod port;
mod queues;
mod rings;
mod sleeper;
#[cfg(test)]
mod tests;

#[cfg(doc)]
use rpcrdma_provider::WcStatus;

pub use self::cm::{FabricCm, FabricRequest};
pub use self::fabric::{Fabric, FabricUse};
pub use self::options::FabricOptions;
pub use self::queues::{FabricEndpoint, FabricHandle, FabricQueues};
pub use rpcrdma_transport::clock::DeviceClock;
pub use rpcrdma_transport::queues::SoftQp as FabricQp;
