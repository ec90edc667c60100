//! A shard: one thread's share of the engine, and everything it owns.
//!
//! ```text
//!   mailbox ─▶ flush ─▶ poll ─▶ completions ─▶ RDMA steps ─▶ flush ─▶ refill ─▶ events ─▶ RDMA steps
//!           ─▶ on_turn ─▶ flush ─▶ times
//! ```

pub(crate) mod arrival;
#[doc(hidden)]
pub mod audit;
mod completions;
pub(crate) mod core;
pub(crate) mod mailbox;
pub(crate) mod memory;
pub(crate) mod negotiate;
pub mod peers;
pub(crate) mod rdma;
pub(crate) mod receive;
pub(crate) mod send;
mod stop;
pub(crate) mod timers;
