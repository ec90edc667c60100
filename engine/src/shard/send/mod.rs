//! The sending part of a shard: messages under construction, pending in lanes, and posted.

pub(crate) mod answers;
pub(crate) mod batch;
mod construction;
mod copied;
pub(crate) mod doorbell;
mod flush;
mod inline;
pub(crate) mod lane;
pub(crate) mod layout;
pub(crate) mod messages;
pub(crate) mod outbox;
pub(crate) mod queue;
mod reports;
mod single_item;
