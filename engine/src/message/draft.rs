//! The state of a message under construction, apart from its last slot.

use crate::error::CallRefused;

/// What a message under construction has beside its last slot. A shard has one, because one message is
/// written at a time; as a part of the builder it would be cache lines to write with every message.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Whether there is anything of it, an origin apart.
    pub is_begun: bool,
    pub is_reply: bool,
    /// In a reply: where in the call the operation began that produced what follows.
    pub origin: u32,
    /// Bytes in the slots before the last.
    pub before: usize,
    /// Bytes of bulk, with their padding.
    pub bulk_len: u32,
    /// The message that holds the slots before and the bulk, if there are any.
    pub message: Option<u32>,
    pub refused: Option<CallRefused>,
}
