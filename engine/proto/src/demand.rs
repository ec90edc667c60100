//! The content of calls and replies to send, as the program states it, and their memory
//!
//! ```text
//!   CallDemand ──route_call──▶ CallRoute ──memory is exposed──▶ Exposed ──begin_call──▶ Plan
//!   ReplyDemand, with what the caller offered ─────────────────────────begin_reply────▶ Plan
//! ```
//! A call is routed before any memory is exposed: what the route does not name is not offered to the
//! peer. An answer's memory was offered by its call.

use rpcrdma_xdr::array::Array;
use rpcrdma_xdr::chunk::{RdmaSegment, WriteChunk, WriteList};
use rpcrdma_xdr::rtr::placement::RsdSet;

use crate::placement::item::BulkItem;
use crate::placement::layout::{ItemSet, Layout};

/// A data item of the reply that is wanted outside of the payload stream.
///
/// Wants of the same range, one behind the other, belong to one operation of the call and are met
/// in order (\[RTR\] 7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// First byte of the operation in the call's stream with nothing excised.
    pub begin: u32,
    /// The byte after the operation.
    pub end: u32,
    /// If the item is shorter, it is wanted in line. 0 wants it apart whatever its length.
    pub min_len: u32,
    /// How long it can be.
    pub max_len: u32,
    /// Which way it is wanted.
    pub kind: WantKind,
    /// For [`WantKind::BySize`]: the longest item that is wanted by Send.
    pub over: u32,
    /// Memory pieces of the program's sink; 0 if it gave none.
    pub pieces: u32,
}

impl Want {
    /// An item that is wanted by Send, of an operation in this range.
    #[must_use]
    pub fn sends(begin: u32, end: u32, min_len: u32, max_len: u32) -> Self {
        Self { begin, end, min_len, max_len, kind: WantKind::Tbsn, over: 0, pieces: 0 }
    }
}

/// `xmdp_type` of a reply direction: the rows of Table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantKind {
    /// By explicit RDMA.
    Exrw,
    /// By Send, in placement segments.
    Tbsn,
    /// Either.
    Choice,
    /// Either, by the item's size.
    BySize,
}

/// What the engine can do about explicit RDMA for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Explicit {
    /// Whether memory can be exposed at all.
    pub enabled: bool,
    /// Bytes of one buffer that the engine can provide: as a place for an item without a
    /// sink, or for a whole message. 0 if it has none.
    pub rdma_buffer_len: u32,
    /// The most pieces of memory that one call can have written to: those of all its sinks, and
    /// RDMA buffers.
    pub written_max: u32,
    /// The most RDMA buffers that a message to be fetched as a whole can lie in.
    pub body_max: u32,
}

impl Explicit {
    /// No memory can be exposed.
    pub const NONE: Self = Self { enabled: false, rdma_buffer_len: 0, written_max: 0, body_max: 0 };

    /// Memory can be exposed, in as many pieces as one likes.
    #[must_use]
    pub const fn unlimited(rdma_buffer_len: u32) -> Self {
        Self { enabled: true, rdma_buffer_len, written_max: u32::MAX, body_max: u32::MAX }
    }
}

/// A call to be sent.
#[derive(Debug, Clone, Copy)]
pub struct CallDemand<'a> {
    /// Bytes of the payload, without the items; the items' length words are in it.
    pub payload: u32,
    /// The items, by position.
    pub items: &'a [BulkItem],
    /// What is wanted of the reply's items, by range.
    pub wants: &'a [Want],
    /// The longest payload that the reply may have, without the wanted items.
    pub reply_payload_max: u32,
    /// The most pieces that a transmission can be gathered from, its header counted as one.
    pub gather_max: u32,
    /// The longest stream whose pieces can be copied together, to be one where they are too many.
    pub copy_max: u32,
    /// Whether memory can be exposed for it.
    pub explicit: Explicit,
}

impl CallDemand<'_> {
    /// Whether there are places for all sinks, for these wants without one, and for so many buffers
    /// for the whole reply.
    pub(crate) fn can_have_written(&self, wants: ItemSet, reply: u32) -> bool {
        let pieces = self.wants.iter().enumerate().map(|(index, want)| match want.pieces {
            0 if wants.contains(index) => want.segments(self.explicit).unwrap_or(u32::MAX),
            pieces => pieces,
        });
        pieces.fold(reply, u32::saturating_add) <= self.explicit.written_max
    }

    /// Whether neither the call nor the reply has items.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.items.is_empty() && self.wants.is_empty()
    }

    /// A call and a reply without items.
    #[inline]
    #[must_use]
    pub fn inline(payload: u32, reply_payload_max: u32) -> Self {
        Self {
            payload,
            items: &[],
            wants: &[],
            reply_payload_max,
            gather_max: 2,
            copy_max: 0,
            explicit: Explicit::NONE,
        }
    }
}

/// Which operation carries a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallForm {
    /// RDMA_MSG: the payload follows the header.
    Msg,
    /// RDMA_NOMSG: the message is fetched by the peer.
    NoMsg,
    /// A transmit request, alone or continued.
    Xmt,
}

/// Which way a call goes, and what memory must be exposed for it.
///
/// The route counts on no more segments than this: one for each memory piece of an item or a sink,
/// and one for each RDMA buffer of what the engine provides.
#[derive(Debug, Clone, Copy)]
pub struct CallRoute {
    /// Which operation carries it.
    pub form: CallForm,
    /// The items that the peer reads.
    pub items: ItemSet,
    /// The wants whose sinks are offered for RDMA Write. For one of no pieces the engine provides
    /// RDMA buffers of its greatest length.
    pub wants: ItemSet,
    /// Bytes of the message to be offered at position zero; 0 if there are none.
    pub body: u32,
    /// Bytes to be offered for the whole reply; 0 if none are.
    pub reply: u32,
    /// Transmissions of the call, and so its credits.
    pub count: u32,
    /// Transmissions that the reply may have, and so its receives.
    pub reply_count: u32,
    /// Items placed by Send.
    pub(crate) placed: ItemSet,
    /// Bytes of the stream in the transmissions: what is neither placed nor read.
    pub(crate) stream: u32,
    /// Where everything lies in the peer's buffers.
    pub(crate) layout: Layout,
    /// The bytes of a buffer of the peer for which it was found.
    pub(crate) recv_size: u32,
}

impl CallRoute {
    /// One RDMA_MSG that is all payload, answered by one message.
    #[inline]
    pub(crate) fn inline(payload: u32, recv_size: u32) -> Self {
        Self {
            form: CallForm::Msg,
            items: ItemSet::EMPTY,
            wants: ItemSet::EMPTY,
            body: 0,
            reply: 0,
            count: 1,
            reply_count: 1,
            placed: ItemSet::EMPTY,
            stream: payload,
            layout: Layout::default(),
            recv_size,
        }
    }

    /// Whether memory must be exposed.
    #[inline]
    #[must_use]
    pub fn exposes(&self) -> bool {
        !self.items.is_empty() || !self.wants.is_empty() || self.body > 0 || self.reply > 0
    }
}

/// Lists of segments, one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentLists<'a> {
    /// The segments of all lists.
    pub segments: &'a [RdmaSegment],
    /// Where each list ends among the segments.
    pub ends: &'a [u16],
}

impl<'a> SegmentLists<'a> {
    /// No list.
    pub const NONE: Self = Self { segments: &[], ends: &[] };

    /// How many lists there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The list at `index`; empty if there is none, or if its end makes no sense.
    #[must_use]
    pub fn list(&self, index: usize) -> &'a [RdmaSegment] {
        let end = self.ends.get(index).map_or(0, |end| usize::from(*end));
        let before = index.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.map_or(0, |end| usize::from(*end));
        self.segments.get(start..end).unwrap_or_default()
    }

    /// The list of a member of `set`, of which there is a list for each, in rising order.
    #[must_use]
    pub fn of(&self, set: ItemSet, index: usize) -> &'a [RdmaSegment] {
        set.rank(index).map_or(&[], |rank| self.list(rank))
    }
}

/// The memory that was exposed for a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exposed<'a> {
    /// A list for each member of [`CallRoute::items`], in rising order.
    pub items: SegmentLists<'a>,
    /// A list for each member of [`CallRoute::wants`], in rising order.
    pub wants: SegmentLists<'a>,
    /// Where the message is, if it is offered at position zero.
    pub body: &'a [RdmaSegment],
    /// Where the whole reply may be written.
    pub reply: &'a [RdmaSegment],
}

impl Exposed<'_> {
    /// No memory.
    pub const NONE: Self =
        Self { items: SegmentLists::NONE, wants: SegmentLists::NONE, body: &[], reply: &[] };
}

/// What was offered for the reply to a call, as the caller kept it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offered<'a> {
    /// The wants that had memory: [`CallRoute::wants`].
    pub set: ItemSet,
    /// A list for each of them, in rising order.
    pub wants: SegmentLists<'a>,
    /// What was offered for the whole reply.
    pub reply: &'a [RdmaSegment],
}

impl Offered<'_> {
    /// Nothing was offered.
    pub const NONE: Self = Self { set: ItemSet::EMPTY, wants: SegmentLists::NONE, reply: &[] };
}

/// What the caller offered for the reply, from the first transmission of its call.
#[derive(Debug, Clone, Copy, Default)]
pub enum Offer<'a> {
    /// Nothing: all of the reply is in line.
    #[default]
    None,
    /// The directions of a transmit request.
    Directions(Array<'a, RsdSet<'a>>),
    /// The chunks of a base message.
    Chunks {
        /// Where single results are put, in order.
        writes: WriteList<'a>,
        /// Where the whole reply may be put.
        reply: Option<WriteChunk<'a>>,
    },
}

impl Offer<'_> {
    /// Whether nothing is asked for or offered.
    #[inline]
    #[must_use]
    pub fn is_none(&self) -> bool {
        match self {
            Self::None => true,
            Self::Directions(sets) => sets.is_empty(),
            Self::Chunks { writes, reply } => writes.is_empty() && reply.is_none(),
        }
    }
}

/// A reply to be sent.
#[derive(Debug, Clone, Copy)]
pub struct ReplyDemand<'a> {
    /// Bytes of the payload, without the items; the items' length words are in it.
    pub payload: u32,
    /// The items, by position; each with its origin. One without bytes is never moved apart, but
    /// uses up its direction or its chunk.
    pub items: &'a [BulkItem],
    /// What the caller offered.
    pub offer: Offer<'a>,
    /// The most pieces that a transmission can be gathered from, its header counted as one.
    pub gather_max: u32,
    /// The longest stream whose pieces can be copied together, to be one where they are too many.
    pub copy_max: u32,
}

impl ReplyDemand<'_> {
    /// A reply without items, to a call without directions.
    #[inline]
    #[must_use]
    pub fn inline(payload: u32) -> Self {
        Self { payload, items: &[], offer: Offer::None, gather_max: 2, copy_max: 0 }
    }
}
