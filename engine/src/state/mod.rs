//! The state of a shard: the parts that its turn, and calls and replies under construction, work on.
//!
//! ```text
//!   io ──▶ parts ──▶ send ──┬──▶ timers ──▶ peers ──┬──▶ lane
//!                           └──▶ rdma ──────────────┘
//! ```
//! A part calls no handler, and keeps its fields private, but for peers and their lanes. The steps of
//! the turn are in [`shard`](crate::shard).

pub(crate) mod io;
pub(crate) mod lane;
pub(crate) mod parts;
pub(crate) mod peers;
pub(crate) mod rdma;
pub(crate) mod send;
pub(crate) mod timers;
