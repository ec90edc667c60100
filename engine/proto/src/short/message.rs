//! Short messages: the types of received ones, the parameters of those to send, and their plans.

use rpcrdma_xdr::rtr::fixed::{
    Empty, FixedXmtReq, FixedXmtResp, IntoBytes, Msg, OneDirection, OneItem,
};

use crate::answer::Finished;
use crate::calls::CallId;
use crate::demand::Want;
use crate::ingress::ReplyTo;
use crate::item::BulkItem;

/// A received short message; all of it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short<'a> {
    /// A plain message.
    Plain {
        /// What it is.
        kind: ShortKind,
        /// Its payload.
        payload: &'a [u8],
    },
    /// A message with a single item, or a single direction.
    SingleItem(SingleItem<'a>),
}

/// Whether a message is a call or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortKind {
    /// A call.
    Call(ReplyTo),
    /// The reply to an own call, which ends with it.
    Reply(Finished),
}

/// A received message with a single item, or a single direction; all of it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleItem<'a> {
    /// What it is.
    pub kind: ShortKind,
    /// Where its payload begins in the first segment.
    pub payload_start: u32,
    /// Bytes of its payload, all of them in the first segment.
    pub payload_len: u32,
    /// Its item.
    pub item: Option<SegmentItem>,
    /// The results that a call requests, to be kept for the reply.
    pub directions: Option<&'a OneDirection>,
}

/// An item that lies in one placement segment, from its beginning on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentItem {
    /// Where its first byte is in the stream with nothing excised.
    pub position: u32,
    /// Its bytes, without padding.
    pub len: u32,
    /// The segment of the receive buffer, counted among all its segments.
    pub segment: u32,
}

/// A short message to be sent.
#[derive(Debug, Clone, Copy)]
pub enum ShortSend<'a> {
    /// A call.
    Call {
        /// Which one.
        id: CallId,
        /// How long the payload of its reply can be.
        reply_payload_max: u32,
        /// What it has beside its payload.
        with: CallWith,
    },
    /// A reply.
    Reply {
        /// The call.
        to: &'a ReplyTo,
        /// Its item, which answers the only direction of the call. Without an item, the call has no
        /// direction.
        item: Option<(&'a BulkItem, &'a OneDirection)>,
    },
}

/// What a call has beside its payload.
#[derive(Debug, Clone, Copy)]
pub enum CallWith {
    /// Nothing.
    Nothing,
    /// An item.
    Item(BulkItem),
    /// A requested result.
    Want(Want),
}

/// The means of sending a message.
#[derive(Debug, Clone, Copy)]
pub struct GatherMeans {
    /// The most pieces that a transmission can be gathered from, its header counted as one.
    pub gather_max: u32,
    /// The longest padding that is one piece.
    pub zeros_max: u32,
}

/// The plan of a message: its header, and where its item begins.
#[derive(Debug, Clone, Copy)]
pub struct ShortPlan {
    pub(super) header: ShortHeader,
    /// Zeros between the payload and the item.
    pub zeros: u32,
}

/// Every header of a short message.
#[derive(Debug, Clone, Copy)]
pub(super) enum ShortHeader {
    Plain(Msg),
    WriteCall(WriteCall),
    ReadCall(ReadCall),
    ReadReply(ReadReply),
}

/// A call with an item.
pub(super) type WriteCall = FixedXmtReq<OneItem, Empty>;
/// A call with a requested result.
pub(super) type ReadCall = FixedXmtReq<Empty, OneDirection>;
/// A reply with an item.
pub(super) type ReadReply = FixedXmtResp<OneItem>;

impl ShortPlan {
    /// The plan of a message without an item.
    #[inline]
    pub(super) fn without_item(header: ShortHeader) -> Self {
        Self { header, zeros: 0 }
    }

    /// The header, to be put in front of the payload.
    #[inline(always)]
    #[must_use]
    pub fn header(&self) -> &[u8] {
        match &self.header {
            ShortHeader::Plain(header) => header.as_bytes(),
            ShortHeader::WriteCall(header) => header.as_bytes(),
            ShortHeader::ReadCall(header) => header.as_bytes(),
            ShortHeader::ReadReply(header) => header.as_bytes(),
        }
    }

    /// Whether an item follows the payload.
    #[inline]
    #[must_use]
    pub fn has_item(&self) -> bool {
        matches!(self.header, ShortHeader::WriteCall(_) | ShortHeader::ReadReply(_))
    }
}
