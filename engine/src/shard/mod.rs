//! A shard: one thread's share of the engine, and everything it owns.
//!
//! ```text
//!   letters ─▶ flush ─▶ poll ─▶ completions ─▶ settle ─▶ flush ─▶ refill ─▶ events ─▶ settle
//!           ─▶ on_turn ─▶ flush ─▶ times
//! ```

pub(crate) mod admit;
mod answers;
#[doc(hidden)]
pub mod audit;
mod batch;
pub(crate) mod close;
pub(crate) mod core;
mod deadlines;
pub(crate) mod exposed;
pub(crate) mod fetch;
pub(crate) mod fetches;
mod giving_up;
pub(crate) mod groups;
pub(crate) mod hold;
pub(crate) mod inbox;
pub(crate) mod lane;
pub(crate) mod layout;
pub(crate) mod legs;
pub mod letters;
mod lone;
pub(crate) mod memory;
pub mod message;
mod negotiate;
mod news;
pub(crate) mod offering;
pub(crate) mod outbox;
mod owing;
pub mod peers;
mod posting;
pub(crate) mod prepare;
pub mod properties;
pub mod run;
pub(crate) mod rx;
mod stop;
pub mod turn;
mod waiting;
pub(crate) mod windows;
