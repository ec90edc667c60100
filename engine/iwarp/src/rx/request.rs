//! What a message of the peer asks for, and what is reported to the peer if it is refused.

use rpcrdma_transport::body::{OP_READ, OP_SEND_INVALIDATE, Refusal};

use crate::wire::segment::ReadRequest;
use crate::wire::violation::Violation;

/// What a message of the peer asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub op: u8,
    /// The key that it names.
    pub rkey: u32,
    pub byte_len: u32,
    /// The address in this side's memory that it names.
    pub target: u64,
}

impl Request {
    pub fn of(read: &ReadRequest) -> Request {
        let ReadRequest { source_stag, source_to, len, .. } = *read;
        Request { op: OP_READ, rkey: source_stag, byte_len: len, target: source_to }
    }

    /// Why it was refused, in terms of the wire. None if the peer is not to blame.
    pub fn violation(self, why: Refusal) -> Option<Violation> {
        let Request { op, rkey, byte_len: len, target: to } = self;
        match why {
            Refusal::TooLong | Refusal::NotReady => Some(Violation::TooLong),
            Refusal::Access if op == OP_SEND_INVALIDATE => Some(Violation::Invalidation(rkey)),
            Refusal::Access => Some(Violation::Stag(rkey)),
            Refusal::Bounds => Some(Violation::Bounds { to, len }),
            Refusal::Rights => Some(Violation::Rights(rkey)),
            _ => None,
        }
    }
}
