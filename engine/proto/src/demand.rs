//! The content of calls and replies to send, as the program states it, and their memory
//!
//! ```text
//!   CallDemand ──route_call──▶ CallRoute ──memory is exposed──▶ Exposed ──begin_call──▶ Plan
//!   ReplyDemand, with what the caller offered ─────────────────────────begin_reply────▶ Plan
//! ```
//! A call is routed before memory is exposed: only what the route names is offered to the peer. A
//! reply's memory was offered by its call.

use core::fmt;

use rpcrdma_xdr::array::{Array, Extent, List};
use rpcrdma_xdr::chunk::{RdmaSegment, WriteChunk, WriteList};
use rpcrdma_xdr::rtr::placement::RsdSet;

use crate::item::{BulkItem, ItemSet};
use crate::layout::Layout;

/// A DDP-eligible result: a data item of the reply that is requested outside of the payload stream.
///
/// Consecutive results with the same range belong to one operation of the call and are matched in
/// order (\[RTR\] 7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// First byte of the operation in the call's stream with nothing excised.
    pub begin: u32,
    /// The byte after the operation.
    pub end: u32,
    /// A shorter item stays in line. With 0, an item of any length is separate.
    pub min_len: u32,
    /// The maximum length.
    pub max_len: u32,
    /// How the item is to be moved.
    pub kind: WantKind,
    /// For [`WantKind::BySize`]: the longest item to be moved by Send.
    pub over: u32,
    /// Memory pieces of the program's result buffer; 0 if there is none.
    pub pieces: u32,
}

impl Want {
    /// A result by Send, of an operation in this range.
    #[must_use]
    pub fn sends(begin: u32, end: u32, min_len: u32, max_len: u32) -> Self {
        Self { begin, end, min_len, max_len, kind: WantKind::Tbsn, over: 0, pieces: 0 }
    }
}

/// The transmissions of the longest reply to the last call of a single result. The next such call
/// often has the same lengths. It follows from what is known of the peer, and is forgotten with it.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastWant {
    /// The longest payload, and the longest item.
    pub lens: (u32, u32),
    /// 0: there was no such call.
    pub count: u32,
}

/// It is no state of the connection, which is the same on the general way.
impl fmt::Debug for LastWant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastWant")
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

/// The engine's means of explicit RDMA for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Explicit {
    /// Whether memory can be exposed at all.
    pub enabled: bool,
    /// The length of one buffer that the engine can provide: for a result without a result buffer,
    /// or for a whole message. 0 if it has none.
    pub rdma_buffer_len: u32,
    /// The most memory pieces that the peer may write for one call: result buffers and RDMA
    /// buffers.
    pub written_max: u32,
    /// The most RDMA buffers of a message that is fetched as a whole.
    pub body_max: u32,
}

impl Explicit {
    /// No memory can be exposed.
    pub const NONE: Self = Self { enabled: false, rdma_buffer_len: 0, written_max: 0, body_max: 0 };

    /// Memory can be exposed, in any number of pieces.
    #[must_use]
    pub const fn unlimited(rdma_buffer_len: u32) -> Self {
        Self { enabled: true, rdma_buffer_len, written_max: u32::MAX, body_max: u32::MAX }
    }
}

/// A call to be sent.
#[derive(Debug, Clone, Copy)]
pub struct CallDemand<'a> {
    /// Bytes of the payload without the items, but with their length words.
    pub payload: u32,
    /// The items, by position.
    pub items: &'a [BulkItem],
    /// The requested results, by range.
    pub wants: &'a [Want],
    /// The longest payload of the reply, without the requested results.
    pub reply_payload_max: u32,
    /// The most pieces of a transmission's gather list, including its header.
    pub gather_max: u32,
    /// The longest stream whose pieces can be copied together if they are too many.
    pub copy_max: u32,
    /// Whether memory can be exposed for it.
    pub explicit: Explicit,
}

impl CallDemand<'_> {
    /// Whether there is memory for all result buffers, for these results without one, and for so
    /// many buffers for the whole reply.
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

/// The form of a call, and the memory that must be exposed for it.
///
/// The route counts at most one segment for each memory piece of an item or a result buffer, and
/// one for each RDMA buffer of the engine.
#[derive(Debug, Clone, Copy)]
pub struct CallRoute {
    /// Which operation carries it.
    pub form: CallForm,
    /// The items that the peer reads.
    pub items: ItemSet,
    /// The results whose buffers are offered for RDMA Write. For one without pieces the engine
    /// provides RDMA buffers of its maximum length.
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
    /// Bytes of the stream in the transmissions, without placed and read items.
    pub(crate) stream: u32,
    /// The layout in the peer's buffers.
    pub(crate) layout: Layout,
    /// The buffer length of the peer that the layout is for.
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

    /// Segments of all lists.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.ends.last().map_or(0, |end| u32::from(*end))
    }

    /// The list at `index`; empty if there is none, or if its end is invalid.
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

/// The offers for the reply to a call, as the caller has kept them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offered<'a> {
    /// The results with memory: [`CallRoute::wants`].
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

/// The caller's offers for the reply, from the first transmission of its call.
#[derive(Debug, Clone, Copy, Default)]
pub enum Offer<'a> {
    /// None: the whole reply is in line.
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

/// An [`Offer`] without a reference to the bytes that it was decoded from.
#[derive(Debug, Clone, Copy, Default)]
pub enum KeptOffer {
    /// No offer.
    #[default]
    None,
    /// Where the directions are.
    Directions(Extent),
    /// Where the chunks are.
    Chunks {
        /// The Write list.
        writes: Extent,
        /// The segments of the Reply chunk.
        reply: Option<Extent>,
    },
}

impl KeptOffer {
    /// The offer in these bytes.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> Offer<'_> {
        match self {
            Self::None => Offer::None,
            Self::Directions(sets) => Offer::Directions(Array::at(bytes, sets)),
            Self::Chunks { writes, reply } => Offer::Chunks {
                writes: List::at(bytes, writes),
                reply: reply.map(|segments| WriteChunk(Array::at(bytes, segments))),
            },
        }
    }
}

impl Offer<'_> {
    /// Where its lists are in the message.
    #[must_use]
    pub fn keep(&self) -> KeptOffer {
        match self {
            Self::None => KeptOffer::None,
            Self::Directions(sets) => KeptOffer::Directions(sets.extent()),
            Self::Chunks { writes, reply } => KeptOffer::Chunks {
                writes: writes.extent(),
                reply: reply.map(|WriteChunk(segments)| segments.extent()),
            },
        }
    }

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
    /// Bytes of the payload without the items, but with their length words.
    pub payload: u32,
    /// The items, by position, each with its origin. An empty one is never moved separately, but
    /// uses up its direction or its chunk.
    pub items: &'a [BulkItem],
    /// What the caller offered.
    pub offer: Offer<'a>,
    /// The most pieces of a transmission's gather list, including its header.
    pub gather_max: u32,
    /// The longest stream whose pieces can be copied together if they are too many.
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
