//! The transport: a completion queue, a shared receive queue, and queue pairs, over any carrier.
//!
//! ```text
//!   post_send ──▶ slot of a path's carrier ───────────▶ the peer's poll_cq: matches a Receive, copies
//!       └─ no room ─▶ backlog of the queue pair ─▶ (poll_cq)
//!   poll_cq ◀── acks ◀── slots of the other direction, or alone
//! ```
//!
//! This crate is for the providers of this workspace: its interface is not stable.
//! A provider implements [`Port`](port::Port); its queues are [`SoftQueues`](queues::SoftQueues).
//!
//! It matches, orders, checks keys and rights, flushes and completes. It is independent of the
//! carrier of its messages: a [`Carrier`](carrier::Carrier) is a parameter.
//!
//! With more than a few paths, a poll visits those that have messages or requests, and some of the
//! others in turn (`rounds.rs`).
//!
//! `poll_cq` executes everything that arrives, on the thread that owns the queues. `poll_cq`,
//! `post_send` and `post_srq_recv` take no lock of this crate and allocate nothing here while
//! connections last, with these exceptions:
//!
//! - The first call after a registration has changed locks the key table and copies it. A key that is
//!   not in the copy is looked up there, too.
//! - The lists of queue pairs that wait for room, disconnect or have ended grow until they are as
//!   long as they ever get. A path that ends lists its queue pairs.
//!
//! What a carrier does is its own: that of TCP takes locks that no other thread wants.
//!
//! # Layers
//!
//! A module uses only modules that stand below it.
//!
//! - `device`
//! - `queues`: a provider's queues
//! - `endpoint`
//! - `port`: what a provider implements
//! - `transport`: the queues of one thread
//! - `post`
//! - `path`
//! - `queue_set`
//! - `srq`
//! - `dma`
//! - `carrier`
//! - `limits`, `numbers`, `rights`
//! - `keys`, `qp`, `settings`, `socket_cm`
//! - `barrier`, `body`, `callers`, `clock`, `conn`, `epoll_set`, `failed`, `prefetch`, `readiness`,
//!   `rounds`, `sleep`, `sockets`, `sync`

pub mod barrier;
pub mod body;
pub mod callers;
pub mod carrier;
pub mod clock;
pub mod conn;
pub mod device;
mod dma;
pub mod endpoint;
pub mod epoll_set;
pub mod failed;
pub mod keys;
mod limits;
pub mod numbers;
mod path;
pub mod port;
mod post;
pub mod prefetch;
mod qp;
mod queue_set;
pub mod queues;
mod readiness;
pub mod rights;
mod rounds;
pub mod settings;
pub mod sleep;
pub mod socket_cm;
pub mod sockets;
mod srq;
pub mod sync;
#[cfg(test)]
mod tests;
mod transport;

pub use self::transport::Transport;
