//! The sending part of a shard: messages under construction, pending in lanes, and posted.

pub(crate) mod answers;
pub(crate) mod batch;
mod construction;
mod copied;
pub(crate) mod doorbell;
mod inline;
pub(crate) mod layout;
pub(crate) mod outbox;
mod reports;
mod single_item;
