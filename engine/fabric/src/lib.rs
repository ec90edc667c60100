//! The software fabric: an RDMA provider inside the process, the embedded default.
//!
//! ```text
//!   Fabric ── open_queues ──▶ FabricQueues ──┐ path ── ring ──▶ ┌── FabricQueues
//!     │                        (one thread)  └───── ◀── ring ── ┘    (another, or the same)
//!     ├────── open_cm ──────▶ FabricCm: the address space of the fabric is the process
//!     └────── registrar ────▶ memory keys
//! ```
//!
//! `transport` keeps the rules and knows nothing of what carries its messages; `rings` is the carrier
//! within a process. See decision 0016.
//!
//! It keeps an RNIC's rules: Receives of a shared receive queue are matched in order; a message
//! without a Receive waits and in the end fails its queue pair; lengths, keys and rights are
//! checked; completions of a queue pair come in the order of posting; an error flushes. Memory that
//! was posted belongs to the fabric until its completion has been polled.
//!
//! Reads and Writes are carried out by the responder's `poll_cq`, which checks key, bounds and rights
//! before it touches a byte; a request is carried out as a whole or not at all, but for memory that is
//! deregistered while it is under way. A wrong one fails its queue pair on both sides, and the
//! requester learns of [`WcStatus::RemoteAccess`]. A Read is taken in its turn and carried out behind
//! what is posted after it, not before its data could have travelled back: fences are needed.
//! At most [`FabricOptions::rd_atomic`] of them are under way; more wait, and what is behind
//! them. Binds and invalidations take no time and complete in their place.
//!
//! Windows. A key is of one queue pair and names nothing on any other. When the queue pair is in the
//! error state at this side, whether its program knows it or not, nothing that arrives under the
//! key is carried out: the memory is not touched any more, and the window cannot be bound again
//! before `destroy`, after which it is bound to nothing. A registration by `expose` is of
//! these queues: all their queue pairs can use its key, and, unlike with a device, those of other
//! queues cannot.
//!
//! Registrations. A key is valid as soon as it exists. Deregistering waits for the polls in
//! progress; after its return no poll uses the key.
//!
//! Depths. A send queue has `send_depth` places; a completion frees that of its request and of the
//! unsignaled ones before it, so a program that never signals runs out of places. Requests that do
//! not fit in a ring wait in memory reserved for them. Receives complete as they are polled and
//! take no entry of the completion queue; send completions that do not fit in the batch of a poll
//! do, and one more than `cq_depth` of them is an overrun.
//!
//! Retries. A message without a Receive waits at the head of its ring and is delivered as soon as
//! there is one. It counts as retried once in every [`FabricOptions::rnr_timer_ns`]; after as many
//! retries as its connection was made with (0: at once) its queue pair fails on both sides.
//!
//! What differs from a device: the receiver's `poll_cq` does the copying, so an endpoint that is
//! not polled takes nothing; the queue pairs between two sets of queues share a ring, so a message
//! that waits for a Receive holds up those behind it, which need a Receive of the same queue.

mod barrier;
mod cm;
mod doze;
mod endpoint;
mod fabric;
mod options;
mod port;
mod queues;
mod rings;
mod sync;
#[cfg(test)]
mod tests;
mod transport;

#[cfg(doc)]
use rpcrdma_provider::WcStatus;

pub use self::cm::{FabricCm, FabricRequest};
pub use self::endpoint::Endpoint as FabricEndpoint;
pub use self::fabric::{Fabric, FabricUse};
pub use self::options::FabricOptions;
pub use self::queues::{FabricHandle, FabricQp, FabricQueues};
pub use self::transport::clock::FabricClock;
