//! The disposition of a received transmission.

use rpcrdma_proto::{CallId, Complete, Part, PropertyOutcome, ReplyTo, Violation};

use crate::error::{CallError, CloseReason};

/// What a completion says of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecvInfo {
    /// Bytes received.
    pub byte_len: u32,
    /// The key of ours that the peer has given up with it.
    pub invalidated: Option<u32>,
}

/// What became of a transmission.
pub(crate) enum Disposition {
    /// The transmission is done with.
    Done,
    /// The buffer is a part of a group that is not whole.
    Park,
    /// The buffer is the last of a group.
    Complete(Complete),
    /// It ended a group and is a message of its own: once more.
    Again,
    /// It ended a group that was the reply to a call of ours; and whether it is a message of its own.
    Aborted { again: bool, id: CallId, why: Violation },
    /// It answers our request for changes of properties.
    Settled(PropertyOutcome),
    /// It is a call.
    Call(ReplyTo),
    /// It is a call whose data are in the memory of its caller; they take so many buffers.
    Fetch(ReplyTo, Part, usize),
    /// It is the reply to a call.
    Reply(CallId),
    /// It is the reply to a call that has memory exposed, in this place.
    Exposed(u32, Part),
    /// A call of ours failed.
    Failed(CallId, CallError),
    /// The connection must go.
    Close(CloseReason),
}
