//! What a handler sees: calls and replies, completions, and the turn of its shard.

pub mod builder;
pub mod call;
pub mod completion;
pub mod handler;
#[cfg(feature = "storage")]
pub(crate) mod joint;
pub(crate) mod owned;
pub mod payload;
pub mod properties;
pub mod reply;
pub mod turn;
pub mod unsent;
