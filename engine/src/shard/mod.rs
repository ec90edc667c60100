//! A shard: one thread's share of the engine, and everything it owns.
//!
//! ```text
//!   mailbox ─▶ flush ─▶ poll ─▶ completions ─▶ RDMA steps ─▶ flush ─▶ refill ─▶ events ─▶ RDMA steps
//!           ─▶ on_turn ─▶ flush ─▶ times
//! ```

pub(crate) mod admit;
mod answers;
#[doc(hidden)]
pub mod audit;
mod batch;
mod call_timeouts;
pub(crate) mod close;
pub(crate) mod core;
mod deadlines;
pub(crate) mod doorbell;
pub(crate) mod exposed;
pub(crate) mod fetch;
pub(crate) mod fetches;
mod giving_up;
pub(crate) mod groups;
pub mod handle;
pub(crate) mod lane;
pub(crate) mod layout;
pub(crate) mod mailbox;
pub(crate) mod memory;
pub mod message;
mod negotiate;
pub(crate) mod offering;
pub(crate) mod outbox;
pub mod peers;
mod posting;
pub(crate) mod prepare;
pub mod properties;
mod queue_events;
pub(crate) mod rdma_steps;
pub mod run;
pub(crate) mod rx;
mod single_item;
mod stop;
pub mod turn;
mod waiting;
pub(crate) mod windows;
