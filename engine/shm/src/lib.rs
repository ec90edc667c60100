//! Shared memory: an RDMA provider between the processes of a host.
//!
//! ```text
//!   process A                     memfd of one connection                     process B
//!   ShmQueues ── publish ──▶ │ ring A to B │ staging A to B │ ──▶ poll, copy ── ShmQueues
//!             ◀─ poll, copy ─│ ring B to A │ staging B to A │ ◀── publish ─────
//!   ShmCm ◀──────────────────── Unix socket: who, handshake, pools, wake, end ────▶ ShmCm
//! ```
//!
//! The rules are those of `rpcrdma-transport`, as on the software fabric. The carrier differs: a
//! connection has memory of its own, which only its two processes map. A request whose bytes do not
//! fit in its slot has them copied to the staging area, and from there to where they belong. An RDMA
//! Read is answered in its slot if the bytes fit there, and otherwise in the staging area of its
//! requester. The peer reaches nothing else.
//!
//! **The peer is not trusted.** It can write anything into the memory of its connections at any
//! time. Only the copy of a word that was checked is used; bytes are copied and then belong to a
//! message; positions and lengths are checked against what this side knows. A peer that breaks the
//! rules ends or spoils its own connections. The memory's length is sealed, so no access raises
//! SIGBUS.
//!
//! **Mapped pools** ([`ShmOptions::map_pools`]), if both sides want it: the peer maps each shared
//! region that a message was sent from, read-only, and copies later long ones once, from where they
//! are. What it has not mapped, or cannot, is staged. It can then read all bytes of these regions as
//! long as it lives, and still writes only the link's own memory: the side whose memory it is
//! executes RDMA Writes, and answers of RDMA Reads are staged. Seals allow no process to write to a
//! shared region except through its owner's mapping, to free its pages or to change its length. A
//! long message is lost if its sender closes before it is copied. This is for processes of one
//! owner.
//!
//! Addresses are Unix sockets ([`Address::Shm`]): the permissions of the path decide who may
//! connect, and the kernel states which process did ([`Address::Process`]). A path that a dead
//! process has left is used again. No message passes a socket: a system call is made only to wake a
//! receiver that sleeps, and for the first message from a mapped pool.
//!
//! **Death.** The kernel closes the socket of a process that ends. A thread of the provider waits
//! for that and does nothing else. What the peer has published before is still delivered.
//!
//! Limits: a message, an RDMA Read and an RDMA Write have at most [`ShmOptions::staging`] bytes.
//! Each connection has 2 descriptors while it is being made, and 1 afterwards. Descriptors that a
//! peer sends unasked end its connection, and are closed by a thread of their own.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `provider`
//! - `cm`
//! - `endpoint`
//! - `queues`
//! - `channel`
//! - `consumer`, `producer`
//! - `hostile_peer`, `link`, `shared`
//! - `socket`, `watch`
//! - `handshake`, `life`, `options`
//! - `layout`, `port`
//! - `pools`
//! - `closer`, `fence`, `memory`, `staged`, `staging`

mod channel;
mod closer;
mod cm;
mod consumer;
mod endpoint;
mod fence;
mod handshake;
#[cfg(any(test, feature = "hostile-peer"))]
pub mod hostile_peer;
mod layout;
mod life;
mod link;
mod memory;
mod options;
mod pools;
mod port;
mod producer;
mod provider;
mod queues;
mod shared;
mod socket;
mod staged;
mod staging;
#[cfg(test)]
mod tests;
mod watch;

#[cfg(doc)]
use rpcrdma_provider::Address;

pub use self::cm::{ShmCm, ShmRequest, ShmSockets};
pub use self::options::ShmOptions;
pub use self::provider::Shm;
pub use self::queues::{ShmEndpoint, ShmHandle, ShmQueues};
pub use self::socket::own_user;
pub use rpcrdma_transport::clock::DeviceClock;
pub use rpcrdma_transport::queues::SoftQp as ShmQp;
