//! The state of a message under construction, apart from its last slot.

use crate::error::CallRefused;

/// The message under construction, apart from its last slot. A shard has one, because it builds one
/// message at a time; as a part of the builder every message would write these cache lines.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Whether any of it is set, apart from `origin`.
    pub is_begun: bool,
    pub is_reply: bool,
    /// In a reply: where in the call the operation began that produces the next results.
    pub origin: u32,
    /// Bytes in the slots before the last.
    pub before: usize,
    /// Bytes of bulk, with their padding.
    pub bulk_len: u32,
    /// The message that holds the earlier slots and the bulk, if there are any.
    pub message: Option<u32>,
    pub refused: Option<CallRefused>,
}
