//! The state of a message under construction.

use crate::error::CallRefused;

/// The message under construction; its current slot is in the batch, until the message is passed
/// on. A shard has one, because it builds one message at a time: so the
/// handles of calls and replies are references, and the program passes them on cheaply.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Whether any of the rest is set, apart from `origin`, or a result is requested.
    pub is_begun: bool,
    pub is_reply: bool,
    /// In a reply: where in the call the operation began that produces the next results.
    pub origin: u32,
    /// Bytes in the slots before the current one.
    pub before: u32,
    /// Bytes of bulk, with their padding.
    pub bulk_len: u32,
    /// The message that holds the earlier slots and the bulk, if there are any.
    pub message: Option<u32>,
    pub refused: Option<CallRefused>,
}
