//! What leaves: messages under construction, pending in lanes, and posted.

mod answers;
pub(crate) mod doorbell;
pub(crate) mod draft;
mod flush;
pub(crate) mod lane;
pub(crate) mod layout;
pub(crate) mod messages;
pub(crate) mod outbox;
mod single_item;
