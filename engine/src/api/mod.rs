//! The types of a program: shard and handler, calls and replies, tickets and completions.

pub mod builder;
pub mod call;
pub mod client;
pub mod completion;
pub mod handle;
pub mod handler;
pub(crate) mod owned;
pub mod properties;
pub mod reply;
pub mod shard;
pub mod sink;
pub mod ticket;
pub mod turn;
pub mod unsent;
