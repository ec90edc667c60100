//! Errors, by the side at fault: the peer ([`Violation`]), a resource ([`SendError`],
//! [`OpenError`]), or our caller ([`Misuse`]).

use rpcrdma_xdr::error::DecodeError;
use rpcrdma_xdr::property::PropId;
use rpcrdma_xdr::rtr::report::{Mismatch, OutOfRange, ReptInfo};
use thiserror::Error;

/// A message of the peer breaks a rule. It is reported, and the connection continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The header does not decode.
    #[error("the header cannot be decoded: {0}")]
    Undecodable(DecodeError),
    /// A rule of the base protocol is broken.
    #[error("{0}")]
    BadHeader(&'static str),
    /// The optional operation is unknown, or switched off.
    #[error("optional operation {opttype} is not supported")]
    UnknownOption {
        /// `rdma_opttype`.
        opttype: u32,
    },
    /// A continuation was due and the message has another `rdma_proc`.
    #[error("rdma_proc is {current}; {expect} expected")]
    HeaderType {
        /// What was due.
        expect: u32,
        /// What came.
        current: u32,
    },
    /// A continuation was due and the message has another opttype, or continues another type.
    #[error("opttype is {current}; {expect} expected")]
    OptionType {
        /// What was due.
        expect: u32,
        /// What came.
        current: u32,
    },
    /// A continuation with no group to continue.
    #[error("unexpected continuation: no group is open")]
    UnexpectedContinuation,
    /// A continuation whose number is not the next.
    #[error("transmission {current} out of sequence; {expect} expected")]
    OutOfSequence {
        /// The number that was due.
        expect: u32,
        /// The number that came.
        current: u32,
    },
    /// A group whose rest does not come.
    #[error("group incomplete after transmission {current}; {expect} expected")]
    Missing {
        /// The number that is due.
        expect: u32,
        /// The number that came last.
        current: u32,
    },
    /// A group of no transmissions, or of more than are accepted.
    #[error("a group of {current} transmissions; the nearest allowed count is {expect}")]
    GroupSize {
        /// The nearest count that would have been accepted.
        expect: u32,
        /// The count that came.
        current: u32,
    },
    /// A continuation of another message than the open group's.
    #[error("xid is {current:#x}; that of the open group, {expect:#x}, expected")]
    ForeignXid {
        /// The xid of the open group.
        expect: u32,
        /// The xid that came.
        current: u32,
    },
    /// An item's offset in its segment, or its position in the stream, is not possible.
    #[error("offset {value}: a multiple of four from {min} to {max} expected")]
    Offset {
        /// What came.
        value: u32,
        /// The least possible value.
        min: u32,
        /// The greatest possible value.
        max: u32,
    },
    /// A segment number, the number of them, or the type of an item is not possible.
    #[error("target buffer segment {value}: a usable one from {min} to {max} expected")]
    Segment {
        /// What came.
        value: u32,
        /// The least possible value.
        min: u32,
        /// The greatest possible value.
        max: u32,
    },
    /// The payload length is not a multiple of four, or does not fit the bytes received.
    #[error("payload length {value}: a multiple of four from {min} to {max} expected")]
    PayloadLength {
        /// What came.
        value: u32,
        /// The least possible value.
        min: u32,
        /// The greatest possible value.
        max: u32,
    },
}

impl Violation {
    /// How it is reported to the peer: the only place that maps violations to error numbers.
    #[must_use]
    pub fn error_reply(&self) -> ErrorReply {
        match *self {
            // wire.md N5, E36: the base protocol answers violations of the base protocol.
            Self::Undecodable(_) | Self::BadHeader(_) => ErrorReply::BadHeader,
            Self::UnknownOption { .. } => ErrorReply::InvalOption,
            Self::HeaderType { expect, current } => {
                ErrorReply::Report(ReptInfo::BadHmt(Mismatch { expect, current }))
            }
            Self::OptionType { expect, current } => {
                ErrorReply::Report(ReptInfo::BadOmt(Mismatch { expect, current }))
            }
            Self::UnexpectedContinuation => ErrorReply::Report(ReptInfo::BadCont),
            Self::OutOfSequence { expect, current }
            | Self::Missing { expect, current }
            | Self::GroupSize { expect, current } => {
                ErrorReply::Report(ReptInfo::BadSeq(Mismatch { expect, current }))
            }
            Self::ForeignXid { expect, current } => {
                ErrorReply::Report(ReptInfo::BadXid(Mismatch { expect, current }))
            }
            Self::Offset { value, min, max } => {
                ErrorReply::Report(ReptInfo::BadOff(OutOfRange { value, min, max }))
            }
            Self::Segment { value, min, max } => {
                ErrorReply::Report(ReptInfo::BadTbsn(OutOfRange { value, min, max }))
            }
            Self::PayloadLength { value, min, max } => {
                ErrorReply::Report(ReptInfo::BadPl(OutOfRange { value, min, max }))
            }
        }
    }
}

/// The message that reports a violation to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorReply {
    /// RDMA_ERROR with RDMA_ERR_BAD_HEADER.
    BadHeader,
    /// RDMA_ERROR with RDMA_ERR_INVAL_OPTION.
    InvalOption,
    /// A report of the round-trip-reduction extension (\[RTR\] 9.5).
    Report(ReptInfo),
}

/// Our caller violates the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Misuse(pub &'static str);

/// Why a message is not sent. The call has no effect then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Sends alone do not suffice: the message needs explicit RDMA.
    #[error(
        "{payload} bytes of payload and {bulk} of items need {transmissions} transmissions; the limit \
         is {limit}: needs explicit RDMA"
    )]
    NeedsExplicitRdma {
        /// Bytes of the payload stream.
        payload: u32,
        /// Bytes of all items.
        bulk: u32,
        /// Transmissions that the message, or its reply, would need; 0 if no number suffices.
        transmissions: u32,
        /// Transmissions that are possible.
        limit: u32,
    },
    /// The message exceeds the limits of this side or of the peer, even with explicit RDMA.
    #[error(
        "{payload} bytes of payload, {bulk} of items, and a reply of up to {reply} bytes fit no way: \
         in line a call may have {call_max} bytes and a reply {reply_max}, their headers included, and \
         what may be exposed beside that is too little"
    )]
    NoRoute {
        /// Bytes of the payload.
        payload: u32,
        /// Bytes of all items.
        bulk: u32,
        /// Bytes of the longest reply, with its items.
        reply: u32,
        /// Bytes of the longest transmission to the peer.
        call_max: u32,
        /// Bytes of the longest transmission of the peer.
        reply_max: u32,
    },
    /// The message is longer than this side's limit, which also stands for the peer's: the peer's
    /// own limit is not known.
    #[error("the message has {len} bytes; the limit is {max} (connections.rpc_len_max)")]
    TooLong {
        /// Bytes of the message, its items included.
        len: u32,
        /// The limit.
        max: u32,
    },
    /// The requested reply may be longer than this side accepts.
    #[error(
        "the reply with all requested results may have {len} bytes; the limit is {max} \
         (connections.rpc_len_max)"
    )]
    ReplyTooLong {
        /// Bytes of the longest reply, its items included.
        len: u64,
        /// The limit.
        max: u32,
    },
    /// The caller offered less memory than the reply needs; the call must be answered with
    /// RDMA_ERROR.
    #[error("need {need} bytes; the caller offers {have}")]
    RoomTooSmall {
        /// Bytes of an item, or of the message.
        need: u32,
        /// Bytes offered.
        have: u64,
    },
    /// The credits for all transmissions of the call are not available now, but will be.
    #[error("need {need} credits, have {have}")]
    NotEnoughCredits {
        /// Transmissions of the call.
        need: u32,
        /// Credits available.
        have: u32,
    },
    /// The receives for the reply are not available now, but will be.
    #[error("need {need} receives for the reply, have {have}")]
    NotEnoughReceives {
        /// Transmissions that the reply may have.
        need: u32,
        /// Receives not reserved for other replies.
        have: u32,
    },
    /// As many calls are outstanding as the table holds.
    #[error("all {max} calls are outstanding")]
    TableFull {
        /// The size of the table.
        max: u32,
    },
    /// The peer accepts no calls in this direction.
    #[error("the peer does not accept backward calls")]
    NoBackward,
    /// The properties are not exchanged yet.
    #[error("the connection is not ready")]
    NotReady,
    /// A transmission needs more gather entries than the device supports.
    #[error("a transmission of {need} gather pieces; the limit is {max}")]
    TooManyPieces {
        /// Pieces needed.
        need: u32,
        /// Pieces possible.
        max: u32,
    },
    /// The call is not in the table.
    #[error("the call is not open")]
    UnknownCall,
    /// A call of this connection has the xid: it is open, or was cancelled and its reply may still
    /// come.
    #[error("xid {xid:#x} is in use on this connection, by a call whose reply may still come")]
    XidInUse {
        /// The xid.
        xid: u32,
    },
    /// The xid belongs to the other direction, or to control messages (wire.md B9, P9).
    #[error("xid {xid:#x} is outside the range for calls of this side, {min:#x} to {max:#x}")]
    XidNotOurs {
        /// The xid.
        xid: u32,
        /// The least that is possible.
        min: u32,
        /// The greatest that is possible.
        max: u32,
    },
    /// The arguments contradict the documentation.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// Why a property is not requested or announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// Properties are switched off.
    #[error("properties are switched off")]
    Off,
    /// Our own properties were not sent, or the peer has not accepted us yet.
    #[error("the properties are not exchanged yet")]
    NotExchanged,
    /// The peer has not sent its properties, or does not support requests for changes.
    #[error("the peer does not accept requests for changes")]
    PeerWithout,
    /// The last request is not answered.
    #[error("the request {xid:#x} is not answered yet")]
    Outstanding {
        /// Its xid.
        xid: u32,
    },
    /// The property was not stated at the start, or is fixed.
    #[error("property {} does not change", .0.0)]
    Fixed(PropId),
    /// The arguments contradict the documentation.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// Why a connection is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No receive is left for its floor of one credit.
    #[error("no receive is free for another connection")]
    NoReceives,
    /// The settings are inconsistent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fatal {
    /// The peer exceeds its grant, at the expense of all others.
    #[error(
        "the peer exceeds its credits: {outstanding} transmissions outstanding; {granted} granted"
    )]
    CreditOverstep {
        /// Unanswered transmissions, including the offending ones.
        outstanding: u32,
        /// The grant.
        granted: u32,
    },
    /// The peer sends only control messages or invalid ones.
    #[error("{messages} messages without effect; the limit is {limit}")]
    ControlFlood {
        /// Such messages since the last call or reply.
        messages: u32,
        /// The most that are answered.
        limit: u32,
    },
    /// The peer does not support the version of this side's first message, nor one that this side
    /// can go on with. It has executed nothing.
    #[error("the peer supports versions {low} to {high} only")]
    VersionRefused {
        /// The lowest version of the peer.
        low: u32,
        /// The highest version of the peer.
        high: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_violation_has_its_number() {
        let (expect, current, value, min, max) = (1, 2, 3, 4, 5);
        let mismatch = Mismatch { expect, current };
        let range = OutOfRange { value, min, max };
        let table = [
            (Violation::BadHeader("x"), ErrorReply::BadHeader),
            (Violation::Undecodable(DecodeError::NoChunk), ErrorReply::BadHeader),
            (Violation::UnknownOption { opttype: 9 }, ErrorReply::InvalOption),
            (
                Violation::HeaderType { expect, current },
                ErrorReply::Report(ReptInfo::BadHmt(mismatch)),
            ),
            (
                Violation::OptionType { expect, current },
                ErrorReply::Report(ReptInfo::BadOmt(mismatch)),
            ),
            (Violation::UnexpectedContinuation, ErrorReply::Report(ReptInfo::BadCont)),
            (
                Violation::OutOfSequence { expect, current },
                ErrorReply::Report(ReptInfo::BadSeq(mismatch)),
            ),
            (
                Violation::GroupSize { expect, current },
                ErrorReply::Report(ReptInfo::BadSeq(mismatch)),
            ),
            (
                Violation::Missing { expect, current },
                ErrorReply::Report(ReptInfo::BadSeq(mismatch)),
            ),
            (
                Violation::ForeignXid { expect, current },
                ErrorReply::Report(ReptInfo::BadXid(mismatch)),
            ),
            (Violation::Offset { value, min, max }, ErrorReply::Report(ReptInfo::BadOff(range))),
            (Violation::Segment { value, min, max }, ErrorReply::Report(ReptInfo::BadTbsn(range))),
            (
                Violation::PayloadLength { value, min, max },
                ErrorReply::Report(ReptInfo::BadPl(range)),
            ),
        ];
        for (violation, reply) in table {
            assert_eq!(violation.error_reply(), reply, "{violation}");
        }
    }
}
