//! The result of receiving a transmission, for the engine to act on.

use rpcrdma_xdr::array::{Array, List};
use rpcrdma_xdr::chunk::{ChunkLists, RdmaSegment, ReadList, WriteChunk, WriteList};
use rpcrdma_xdr::header::{Body, Header, Optional};
use rpcrdma_xdr::rtr::placement::{Loc, MsgItem, RsdItem, RsdLoc, RsdSet};
use rpcrdma_xdr::rtr::transmit::{XmtReq, XmtResp};

use crate::calls::CallId;
use crate::change::{Changes, PropertyOutcome};
use crate::demand::Offer;
use crate::error::{Fatal, Violation};
use crate::group::Part;
use crate::placement::inline::InlinePlan;
use crate::property::PropertyAnswer;
use crate::report::{Refusal, Report};

/// A transmission that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The engine's name for the receive buffer.
    pub buffer: u32,
    /// Bytes received into it.
    pub byte_len: u32,
}

/// The meaning of a received transmission, and what happens to its buffer.
#[derive(Debug)]
pub enum Ingress<'a> {
    /// A complete call. The buffer stays until it is answered.
    Call(Message<'a>),
    /// A complete reply to this call. The buffer stays until the call is finished.
    Reply(CallId, Message<'a>),
    /// A part of a message. The buffer stays parked; it is the last of the group.
    Partial,
    /// The last part of a message. The buffer stays; the group is complete.
    Complete(Complete),
    /// A control message, fully handled. The buffer is free.
    Control(Control),
    /// Our request for changes of properties is answered. The buffer is free.
    PropertiesAnswered(PropertyOutcome),
    /// An own call failed. The buffer is free.
    Failed(CallId, Refusal),
    /// An own call was not executed, because the peer does not accept its form. End it; it may be
    /// sent again as a new call. That form is not used again on this connection. The buffer is
    /// free.
    Again(CallId, Refusal),
    /// The peer reports an own reply as invalid. Its caller knows that it gets no other; send
    /// nothing (wire.md E34, W16). The buffer is free.
    ReplyRefused {
        /// The xid of the reply.
        xid: u32,
        /// What is wrong with it.
        refusal: Refusal,
    },
    /// The reply to an own call breaks a rule: the call has failed. Send the report. The buffer is
    /// free.
    BadReply {
        /// The call.
        id: CallId,
        /// The rule.
        violation: Violation,
        /// To be sent.
        report: Report,
    },
    /// An invalid message: send the report. The buffer is free.
    Reject(Report),
    /// The open group is aborted: its parked buffers are free.
    Aborted(Aborted),
    /// Nothing to do. The buffer is free.
    Ignored(Ignored),
    /// The connection must be closed. The buffer is free.
    Fatal(Fatal),
}

/// A message whose last part has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Complete {
    /// A call of the peer.
    Call,
    /// The reply to this call.
    Reply(CallId),
    /// The reply to a call that has ended meanwhile: all buffers of the group are free.
    Unwanted,
}

/// A group given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    /// To be sent.
    pub report: Report,
    /// Whether the transmission that ended the group is a message of its own, which the engine
    /// passes in again; if not, its buffer is free.
    pub again: bool,
    /// The own call that has failed, if the group was its reply, and the reason.
    pub failed: Option<(CallId, Violation)>,
}

/// The effects of a control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Whether this message makes the connection ready.
    pub became_ready: bool,
    /// To be sent.
    pub answer: Option<ControlSend>,
}

/// An own control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlSend {
    /// Our properties.
    ConnProp {
        /// The xid that it carries.
        xid: u32,
    },
    /// A request for changes.
    ReqProp {
        /// The xid that it carries.
        xid: u32,
        /// What is asked for.
        changes: Changes,
    },
    /// Changes of our own properties.
    UpdProp {
        /// The xid that it carries.
        xid: u32,
        /// What has changed.
        changes: Changes,
    },
    /// The answer to a request for changes.
    RespProp {
        /// The xid of the request.
        xid: u32,
        /// What is done of it.
        answer: PropertyAnswer,
    },
}

/// Which operation carried a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// RDMA_MSG.
    Msg,
    /// RDMA_NOMSG: the message is moved by explicit RDMA.
    NoMsg,
    /// A transmit request or a transmit response.
    Xmt,
}

/// An RPC message, as its first transmission describes it.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The RPC's xid.
    pub xid: u32,
    /// Which operation carried it.
    pub via: Via,
    /// The first transmission.
    pub part: Part,
    /// The items taken out of the stream.
    pub dp: Array<'a, MsgItem<'a>>,
    /// In a call: the requested form of the reply's items.
    pub rsd: Array<'a, RsdSet<'a>>,
    /// Transmissions.
    pub count: u32,
    /// In a call: the most transmissions that the reply may have.
    pub rsbuf: u32,
    /// In a base call: the chunks to fetch.
    pub reads: ReadList<'a>,
    /// In a base message: the chunks of single results.
    pub writes: WriteList<'a>,
    /// In a base message: the chunk of the whole reply.
    pub reply: Option<WriteChunk<'a>>,
}

impl<'a> Message<'a> {
    /// A message that is an RDMA_MSG without chunks.
    #[inline(always)]
    pub(crate) fn plain(xid: u32, at: Received) -> Self {
        let Received { buffer, byte_len } = at;
        let payload_start = InlinePlan::HEADER_LEN;
        let payload_len = byte_len - payload_start;
        Self::single(xid, Part { buffer, byte_len, payload_start, payload_len })
    }

    /// A message of one transmission, without anything else.
    #[inline(always)]
    pub(crate) fn single(xid: u32, part: Part) -> Self {
        Self {
            xid,
            via: Via::Msg,
            part,
            dp: Array::EMPTY,
            rsd: Array::EMPTY,
            count: 1,
            rsbuf: 1,
            reads: List::EMPTY,
            writes: List::EMPTY,
            reply: None,
        }
    }

    /// A message of the extension.
    pub(crate) fn xmt(xid: u32, part: Part, dp: Array<'a, MsgItem<'a>>, count: u32) -> Self {
        Self { via: Via::Xmt, dp, count, ..Self::single(xid, part) }
    }

    /// Decodes the message again from `part`, its first transmission, whose buffer the caller has
    /// kept. `None` if `first_segment` is another one.
    #[must_use]
    pub fn decode(part: Part, first_segment: &'a [u8]) -> Option<Self> {
        let (Header { xid, body, .. }, _) = Header::decode(first_segment).ok()?;
        let base = |via, ChunkLists { reads, writes, reply }: ChunkLists<'a>| Self {
            via,
            reads,
            writes,
            reply,
            ..Self::single(xid, part)
        };
        match body {
            Body::Msg(lists) => Some(base(Via::Msg, lists)),
            Body::NoMsg(lists) => Some(base(Via::NoMsg, lists)),
            Body::Optional(Optional::XmtReq(XmtReq { dp, rsd, count, rsbuf, .. })) => {
                Some(Self { rsd, rsbuf, ..Self::xmt(xid, part, dp, count) })
            }
            Body::Optional(Optional::XmtResp(XmtResp { dp, count, .. })) => {
                Some(Self::xmt(xid, part, dp, count))
            }
            _ => None,
        }
    }

    /// Whether there is nothing to resolve: one transmission, no item, no direction, no chunk.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.count == 1 && self.dp.is_empty() && self.rsd.is_empty() && self.has_no_chunk()
    }

    /// Whether it may contain memory segments.
    #[inline]
    fn shows_memory(&self) -> bool {
        let has_item = |item: MsgItem<'_>| matches!(item.loc, Loc::Exrw(_));
        let has_direction = |item: RsdItem<'_>| !matches!(item.loc, RsdLoc::Tbsn);
        !self.has_no_chunk()
            || self.dp.iter().any(has_item)
            || self.rsd.iter().any(|set| set.items.iter().any(has_direction))
    }

    #[inline]
    fn has_no_chunk(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// The caller's offers for the reply. The engine keeps these bytes to answer the call.
    #[inline]
    #[must_use]
    pub fn offer(&self) -> Offer<'a> {
        match self.via {
            Via::Xmt => Offer::Directions(self.rsd),
            Via::Msg | Via::NoMsg => Offer::Chunks { writes: self.writes, reply: self.reply },
        }
    }

    /// What the engine keeps of a call to answer it.
    #[inline]
    #[must_use]
    pub fn reply_to(&self) -> ReplyTo {
        let Self { xid, count: credits, rsbuf, via, .. } = *self;
        let handle = if self.shows_memory() { self.common_handle() } else { None };
        ReplyTo { xid, credits, rsbuf, via, handle }
    }

    /// The handle of all memory that a call exposes, if there is only one (wire.md C9).
    fn common_handle(&self) -> Option<u32> {
        let Self { reads, writes, reply, .. } = self;
        let mut handle = None;
        let mut is_same =
            |segment: RdmaSegment| *handle.get_or_insert(segment.handle) == segment.handle;
        let is_common = reads.iter().all(|read| is_same(read.target))
            && writes.iter().chain(*reply).all(|WriteChunk(list)| list.iter().all(&mut is_same))
            && (self.via != Via::Xmt || self.extension_segments().all(&mut is_same));
        handle.filter(|_| is_common)
    }

    /// The segments of the items and the directions of the extension.
    pub(crate) fn extension_segments(&self) -> impl Iterator<Item = RdmaSegment> + use<'a> {
        let items = self.dp.iter().map(|item| match item.loc {
            Loc::Exrw(segments) => segments,
            Loc::Tbsn { .. } | Loc::TooShort | Loc::NoItem => Array::EMPTY,
        });
        let directions = self.rsd.iter().flat_map(|set| set.items.iter());
        let directions = directions.map(|item| match item.loc {
            RsdLoc::Exrw(segments) | RsdLoc::Choice(segments) | RsdLoc::BySize { segments, .. } => {
                segments
            }
            RsdLoc::Tbsn => Array::EMPTY,
        });
        items.chain(directions).flat_map(|segments| segments.iter())
    }
}

/// What the engine keeps of a call to answer it: exactly one answer for each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    /// The RPC's xid.
    pub xid: u32,
    /// Credits that the call holds: its transmissions.
    pub credits: u32,
    /// The most transmissions that the reply may have.
    pub rsbuf: u32,
    /// Which operation carried the call.
    pub via: Via,
    /// The handle of all memory that the call exposes, if there is only one: the reply may
    /// invalidate it (wire.md C9).
    pub handle: Option<u32>,
}

impl ReplyTo {
    /// For a plain call: only its xid varies.
    #[inline]
    #[must_use]
    pub const fn plain(xid: u32) -> Self {
        Self { xid, credits: 1, rsbuf: 1, via: Via::Msg, handle: None }
    }
}

/// Why a transmission was ignored. Each has its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ignored {
    /// Shorter than any header (wire.md B12).
    Short,
    /// An error of another version, or an undecodable one: errors are never answered.
    BadError,
    /// RDMA_DONE (wire.md B6).
    Done,
    /// A message of another version to a client: only a server answers it.
    OtherVersion,
    /// A reply to a call that is not outstanding.
    UnknownReply,
    /// A reply that is inconsistent, or that a client cannot decode; a reply of the base protocol
    /// is never answered by an error.
    BadReply,
    /// An error that names no outstanding own message.
    UnmatchedError,
    /// The rest of an aborted group.
    AbortedRest,
    /// Properties for the second time (wire.md P7).
    RepeatedProperties,
    /// The answer to a request that was not made (wire.md P8).
    UnaskedProperties,
    /// The reply to a cancelled call, or an error about it.
    LateReply,
}

impl Ignored {
    /// How many reasons there are.
    pub const COUNT: usize = Self::LateReply as usize + 1;
}
