//! Continued messages: a single item in many placement segments, in one transmission or more.
//!
//! ```text
//!   t=0   XMTREQ or XMTRESP | item, 0 .. n-1 | payload | zeros | bytes of K segments |
//!   t>0   XMTCONT                                      | zeros | bytes of K segments |
//! ```
//! The peer's placement segments are one group, and the item begins in the first of them: so every
//! transmission takes the same number of bytes, which the plan counts once. The layout of the
//! general way is the same for such a message.

use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::numbers::{opttype, size};
use rpcrdma_xdr::property::RtrSupport;
use rpcrdma_xdr::rtr::fixed::{
    ContEnd, Empty, FixedXmtCont, IntoBytes, Operation, ReqEnd, RespEnd, Stamp,
};
use rpcrdma_xdr::rtr::segmented::ItemStart;
use rpcrdma_xdr::rtr::structure::{SegmentAt, SegmentRun};

use super::message::{CallWith, GatherMeans, ShortSend};
use super::single_item::has_first_words;
use crate::calls::{CallId, CallNeeds};
use crate::connection::{Connection, ShardLedger};
use crate::ingress::ReplyTo;
use crate::item::BulkItem;
use crate::layout::{CONT_LEN, Span, span};
use crate::placement::direct::WantSet;
use crate::placement::inline::Direction;

/// The plan of a continued message: where its item is in the peer's buffers, and its headers.
#[derive(Debug, Clone, Copy)]
pub struct ContinuedPlan {
    xid: u32,
    stamp: Stamp,
    direction: Direction,
    item: ItemStart,
    layout: Segmented,
    payload: u32,
}

/// How an item lies in a peer's buffers, the same in each.
#[derive(Debug, Clone, Copy)]
struct Segmented {
    /// Bytes of the first header.
    header_len: u32,
    /// Where the first placement segment begins.
    start: u32,
    /// Bytes of all placement segments of a buffer.
    stretch: u32,
    /// Placement segments that the item takes.
    segments: u32,
    /// Transmissions.
    count: u32,
}

/// The limits of a continued message.
#[derive(Debug, Clone, Copy)]
struct ContinuedLimits {
    means: GatherMeans,
    /// Bytes of all headers.
    headroom: u32,
    /// Transmissions.
    count_max: u32,
}

/// The bytes of the item in one transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemStretch {
    /// The number of the transmission, from 0.
    pub index: u32,
    /// The number of zeros before the bytes.
    pub zeros: u32,
    /// The offset of the first byte in the item.
    pub start: u32,
    /// The number of bytes.
    pub len: u32,
}

impl Connection {
    /// Plans a message of `payload` bytes with a single item, whose headers fit `headroom` bytes.
    /// `None`, without effect, if it needs the general way.
    #[inline(never)]
    pub fn begin_continued(
        &mut self,
        ledger: &mut ShardLedger,
        payload: u32,
        message: ShortSend<'_>,
        means: GatherMeans,
        headroom: u32,
    ) -> Option<ContinuedPlan> {
        match message {
            ShortSend::Call { id, reply_payload_max, with: CallWith::Item(item) }
                if self.is_single_reply(reply_payload_max) =>
            {
                self.begin_continued_call(ledger, id, payload, &item, means, headroom)
            }
            ShortSend::Reply { to, item: Some((item, direction)) } => {
                let is_asked = self.answers(to, payload, item, direction);
                let own = &self.settings;
                let count_max = match own.rtr.contains(RtrSupport::XCONT) {
                    true => to.rsbuf.clamp(1, GROUP_MAX).min(own.response_sx_limit),
                    false => 1,
                };
                if !is_asked {
                    return None;
                }
                let limits = ContinuedLimits { means, headroom, count_max };
                self.begin_continued_reply(ledger, to, payload, item, limits)
            }
            ShortSend::Call { .. } | ShortSend::Reply { .. } => None,
        }
    }

    fn begin_continued_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        payload: u32,
        item: &BulkItem,
        means: GatherMeans,
        headroom: u32,
    ) -> Option<ContinuedPlan> {
        if !self.calls_with_items(payload) {
            return None;
        }
        // wire.md E6: a call that the credits do not allow now may take another form.
        let count_max = self.call_bounds().count_max.min(self.credits.available());
        let header_min = size::XMTREQ_MIN as u32;
        let limits = ContinuedLimits { means, headroom, count_max };
        let layout = self.segmented(header_min, payload, item, limits)?;
        let (credits, wants) = (layout.count, WantSet::NONE);
        let needs = CallNeeds { credits, receives: 1, wants, is_xmt: true };
        self.take_for_call(ledger, id, needs).ok()?;
        Some(self.continued(id.xid(), Direction::Call, payload, item, layout))
    }

    fn begin_continued_reply(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        payload: u32,
        item: &BulkItem,
        limits: ContinuedLimits,
    ) -> Option<ContinuedPlan> {
        let layout = self.segmented(size::XMTRESP_MIN as u32, payload, item, limits)?;
        self.release_credits(ledger, to);
        Some(self.continued(to.xid, Direction::Reply, payload, item, layout))
    }

    fn continued(
        &self,
        xid: u32,
        direction: Direction,
        payload: u32,
        item: &BulkItem,
        layout: Segmented,
    ) -> ContinuedPlan {
        let stamp = self.stamp(direction);
        let item = ItemStart::new(item.position, item.len, layout.segments);
        ContinuedPlan { xid, stamp, direction, item, layout, payload }
    }

    /// Where an item lies that begins in the first placement segment behind so much payload.
    fn segmented(
        &self,
        header_min: u32,
        payload: u32,
        item: &BulkItem,
        limits: ContinuedLimits,
    ) -> Option<Segmented> {
        let ContinuedLimits { means, headroom, count_max } = limits;
        let peer = self.limits();
        if !self.places() || !self.takes_item(payload, item, means) {
            return None;
        }
        let run = peer.structure.only_run()?;
        let Span { segments, count } = span(run, item.len, count_max)?;
        let SegmentRun { first: SegmentAt { start, length, .. }, count: in_one } = run;
        let header_len = header_min + size::MITEM_TBSN as u32 + 4 * segments;
        let zeros = start.checked_sub(header_len)?.checked_sub(payload)?;
        let zeros_max = if count > 1 { start - CONT_LEN } else { zeros };
        let is_possible = has_first_words(&peer.structure, peer.recv_size, header_len)
            && header_len + (count - 1) * CONT_LEN <= headroom
            && zeros.max(zeros_max) <= means.zeros_max;
        let stretch = in_one * length;
        is_possible.then_some(Segmented { header_len, start, stretch, segments, count })
    }
}

impl ContinuedPlan {
    /// Bytes of every header but the first.
    pub const CONT_LEN: u32 = CONT_LEN;

    /// Bytes of the first header.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> u32 {
        self.layout.header_len
    }

    /// Transmissions.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.layout.count
    }

    /// Writes the first header.
    ///
    /// # Panics
    /// If `bytes` has another length than the header.
    pub fn write_header(&self, bytes: &mut [u8]) {
        let Self { xid, stamp, layout: Segmented { header_len, count, segments, .. }, .. } = *self;
        let (opttype, end_len) = match self.direction {
            Direction::Call => (opttype::XMTREQ, size_of::<Empty>() + size_of::<ReqEnd>()),
            Direction::Reply => (opttype::XMTRESP, size_of::<RespEnd>()),
        };
        let operation = Operation::new(xid, stamp, opttype, header_len);
        let (start, rest) = bytes.split_at_mut(size_of::<Operation>());
        start.copy_from_slice(operation.as_bytes());
        let (start, rest) = rest.split_at_mut(size_of::<ItemStart>());
        start.copy_from_slice(self.item.as_bytes());
        let (numbers, end) = rest.split_at_mut(rest.len() - end_len);
        for (number, to) in (0..segments).zip(numbers.chunks_exact_mut(4)) {
            to.copy_from_slice(&number.to_be_bytes());
        }
        match self.direction {
            Direction::Call => {
                let (list, end) = end.split_at_mut(size_of::<Empty>());
                list.copy_from_slice(Empty::LIST.as_bytes());
                end.copy_from_slice(ReqEnd::new(count, 1, self.payload).as_bytes());
            }
            Direction::Reply => end.copy_from_slice(RespEnd::new(count, self.payload).as_bytes()),
        }
    }

    /// The header of transmission `index`, which is not the first.
    #[inline]
    #[must_use]
    pub fn continuation(&self, index: u32) -> FixedXmtCont {
        let itype = match self.direction {
            Direction::Call => opttype::XMTREQ,
            Direction::Reply => opttype::XMTRESP,
        };
        FixedXmtCont::new(self.xid, self.stamp, ContEnd::new(index, itype, 0))
    }

    /// The bytes of the item in each transmission.
    #[inline]
    pub fn stretches(&self) -> impl Iterator<Item = ItemStretch> {
        let Segmented { header_len, start: begin, stretch, .. } = self.layout;
        let (mut index, mut start, mut before) = (0, 0, header_len + self.payload);
        let mut left = self.item.length.get();
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let len = left.min(stretch);
            let next = ItemStretch { index, zeros: begin - before, start, len };
            (index, start, before) = (index + 1, start + len, CONT_LEN);
            left -= len;
            Some(next)
        })
    }
}
