//! The disposition of a received transmission.

use rpcrdma_proto::{CallId, Complete, Part, PropertyOutcome, ReplyTo, Violation};

use super::prepare::ExposedReply;
use crate::error::{CallError, CloseReason};
use crate::state::rdma::fetch::Found;

/// The facts of a Receive completion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecvInfo {
    /// Bytes received.
    pub byte_len: u32,
    /// The own key that the peer has invalidated with it.
    pub invalidated: Option<u32>,
}

/// The result of interpreting a transmission.
pub(crate) enum Disposition {
    /// The transmission is fully processed.
    Done,
    /// The buffer is part of an incomplete group.
    Park,
    /// The buffer is the last of a group.
    Complete(Complete),
    /// It aborted a group and is a separate message: interpret it again.
    Again,
    /// It aborted a group that was the reply to an own call; `again` if it is a separate message.
    Aborted { again: bool, id: CallId, why: Violation },
    /// It answers an own request for changes of properties.
    Properties(PropertyOutcome),
    /// It is a call.
    Call(ReplyTo),
    /// It is a call with data in the memory of its caller.
    Fetch(ReplyTo, Part, Found),
    /// It is the reply to a call.
    Reply(CallId),
    /// It is the reply to a call with exposed memory.
    Exposed(ExposedReply, Part),
    /// An own call failed.
    Failed(CallId, CallError),
    /// The connection must be closed.
    Close(CloseReason),
}
