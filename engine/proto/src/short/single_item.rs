//! Single-item messages: one transmission, with one item in one placement segment.
//!
//! ```text
//!   write call   XMTREQ  | item | no direction |
//!   read call    XMTREQ  | no item | one direction, TBSN |
//!   read reply   XMTRESP | item |
//! ```
//! The result of a read call may be longer than a segment: then its reply takes the general way,
//! and the call the short one.

use rpcrdma_xdr::cursor::pad_len;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::numbers::{opttype, size};
use rpcrdma_xdr::onc::Rpc;
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};
use rpcrdma_xdr::property::RtrSupport;
use rpcrdma_xdr::rtr::fixed::{Empty, OneDirection, OneItem, Operation, ReqEnd, RespEnd};
use rpcrdma_xdr::rtr::structure::RecvStructure;

use super::message::{
    GatherMeans, ReadCall, ReadReply, SegmentItem, ShortHeader, ShortKind, ShortPlan, SingleItem,
    WriteCall,
};
use crate::calls::{CallId, CallNeeds, CallState, NO_MARK};
use crate::connection::{Connection, ShardLedger};
use crate::demand::{LastWant, Want, WantKind};
use crate::error::SendError;
use crate::ingress::{ReplyTo, Via};
use crate::item::{BulkItem, ItemSet};
use crate::layout::{self, Target, places_items};
use crate::placement::direct::{ItemKind, WantSet};
use crate::placement::inline::Direction;
use crate::route::CALL_OPERATIONS;
use crate::settings::Role;

impl Connection {
    /// Takes a message with a single item if it breaks no rule.
    #[inline(never)]
    pub(super) fn on_single_item<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        byte_len: u32,
        bytes: &'a [u8],
    ) -> Option<SingleItem<'a>> {
        match Operation::peek(bytes)?.opttype.get() {
            opttype::XMTREQ => match WriteCall::read(bytes) {
                Some(header) => self.on_write_call(ledger, header, byte_len, bytes),
                None => self.on_read_call(ledger, ReadCall::read(bytes)?, bytes),
            },
            opttype::XMTRESP => {
                self.on_read_reply(ledger, ReadReply::read(bytes)?, byte_len, bytes)
            }
            _ => None,
        }
    }

    #[inline]
    fn on_write_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        header: &WriteCall,
        byte_len: u32,
        bytes: &[u8],
    ) -> Option<SingleItem<'a>> {
        let WriteCall { operation, dp, end, .. } = header;
        let payload = payload(bytes, WriteCall::LEN, end.pslen.get(), operation, MsgType::Call)?;
        let item = self.segment_item(dp, byte_len, payload)?;
        let kind = self.on_single_item_call(ledger, operation, end)?;
        Some(single_item(kind, payload, Some(item), None))
    }

    #[inline]
    fn on_read_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        header: &'a ReadCall,
        bytes: &[u8],
    ) -> Option<SingleItem<'a>> {
        let ReadCall { operation, rsd, end, .. } = header;
        let len = end.pslen.get();
        // wire.md E23: the range lies within the call.
        if rsd.end.get() <= rsd.begin.get()
            || rsd.end.get() > len
            || len > self.settings.rpc_len_max
        {
            return None;
        }
        let payload = payload(bytes, ReadCall::LEN, len, operation, MsgType::Call)?;
        let kind = self.on_single_item_call(ledger, operation, end)?;
        Some(single_item(kind, payload, None, Some(rsd)))
    }

    #[inline]
    fn on_read_reply<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        header: &ReadReply,
        byte_len: u32,
        bytes: &[u8],
    ) -> Option<SingleItem<'a>> {
        let ReadReply { operation, dp, end: RespEnd { count, pslen } } = header;
        let (xid, credit) = (operation.xid.get(), operation.credit.get());
        if count.get() != 1 || credit == 0 || !self.settings.rtr.contains(RtrSupport::XRESP) {
            return None;
        }
        let payload = payload(bytes, ReadReply::LEN, pslen.get(), operation, MsgType::Reply)?;
        let (id, entry) = ledger.calls.find_own(xid, self.peer)?;
        let is_wanted = entry.wants.len() == 1 && entry.wants.check(0, ItemKind::Tbsn).is_ok();
        if entry.state != CallState::Sent || entry.mark != NO_MARK || !is_wanted {
            return None;
        }
        let item = self.segment_item(dp, byte_len, payload)?;
        self.idle_messages = 0;
        self.credits.on_grant(credit);
        self.group.on_single(xid);
        let kind = ShortKind::Reply(self.end_own_call(ledger, id)?);
        Some(single_item(kind, payload, Some(item), None))
    }

    /// Accepts a valid call, unless its peer has no credit for it.
    #[inline]
    fn on_single_item_call(
        &mut self,
        ledger: &mut ShardLedger,
        operation: &Operation,
        end: &ReqEnd,
    ) -> Option<ShortKind> {
        let is_served = self.role != Role::Client && self.settings.rtr.contains(RtrSupport::XREQ);
        if end.count.get() != 1 || !is_served {
            return None;
        }
        self.inflow.admit(operation.credit.get(), &mut ledger.grants).ok()?;
        self.idle_messages = 0;
        let (xid, rsbuf) = (operation.xid.get(), end.rsbuf.get());
        self.group.on_single(xid);
        Some(ShortKind::Call(ReplyTo { xid, credits: 1, rsbuf, via: Via::Xmt, handle: None }))
    }

    /// The item behind the payload and within the bytes that were received (wire.md E13, E16, E40).
    #[inline]
    fn segment_item(
        &self,
        item: &OneItem,
        byte_len: u32,
        payload: PayloadAt,
    ) -> Option<SegmentItem> {
        let (position, len) = (item.disp.get(), item.length.get());
        let at = self.settings.structure.placement(item.segment.get())?;
        let is_there = len > 0
            && len <= at.length
            && at.start >= payload.start + payload.len
            && at.start.checked_add(len)? <= byte_len;
        let excised = len.checked_add(pad_len(len as usize) as u32)?;
        let is_short = payload.len.checked_add(excised)? <= self.settings.rpc_len_max;
        let is_placed = is_position(position, payload.len);
        let segment = at.index;
        (is_there && is_short && is_placed).then_some(SegmentItem { position, len, segment })
    }

    /// Plans a call with a single item.
    #[inline]
    pub(super) fn begin_write_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        payload: u32,
        reply_payload_max: u32,
        item: &BulkItem,
        means: GatherMeans,
    ) -> Option<ShortPlan> {
        if !self.calls_with_items(payload) || !self.is_single_reply(reply_payload_max) {
            return None;
        }
        let zeros = self.single_item_zeros(WriteCall::LEN, payload, item, means)?;
        let needs = CallNeeds { credits: 1, receives: 1, wants: WantSet::NONE, is_xmt: true };
        self.take_for_call(ledger, id, needs).ok()?;
        let item = OneItem::new(item.position, item.len, 0);
        let (stamp, end) = (self.stamp(Direction::Call), ReqEnd::new(1, 1, payload));
        let header =
            ShortHeader::WriteCall(WriteCall::new(id.xid(), stamp, item, Empty::LIST, end));
        Some(ShortPlan { header, zeros })
    }

    /// Plans a call that requests a single result.
    #[inline]
    pub(super) fn begin_read_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        payload: u32,
        reply_payload_max: u32,
        want: &Want,
        means: GatherMeans,
    ) -> Option<ShortPlan> {
        let Want { begin, end, min_len, .. } = *want;
        let reply_count = self.read_call_replies(payload, reply_payload_max, want, means)?;
        let needs =
            CallNeeds { credits: 1, receives: reply_count, wants: WantSet::SENT, is_xmt: true };
        self.take_for_call(ledger, id, needs).ok()?;
        let direction = OneDirection::new(begin, end, min_len);
        let (stamp, end) = (self.stamp(Direction::Call), ReqEnd::new(1, reply_count, payload));
        let header = ReadCall::new(id.xid(), stamp, Empty::LIST, direction, end);
        Some(ShortPlan::without_item(ShortHeader::ReadCall(header)))
    }

    /// Why a call that requests a single result cannot be sent now, although it is a short one. The
    /// general way would fail for the same reason. `None` if it is not, or can be sent.
    #[must_use]
    pub fn read_call_shortage(
        &mut self,
        ledger: &ShardLedger,
        payload: u32,
        reply_payload_max: u32,
        want: &Want,
        means: GatherMeans,
    ) -> Option<SendError> {
        let need = self.read_call_replies(payload, reply_payload_max, want, means)?;
        if self.credits.available() == 0 {
            return Some(SendError::NotEnoughCredits { need: 1, have: 0 });
        }
        let have = ledger.replies.free();
        (have < need).then_some(SendError::NotEnoughReceives { need, have })
    }

    /// Transmissions of the reply to a call that requests a single result, if it is a short one.
    #[inline]
    fn read_call_replies(
        &mut self,
        payload: u32,
        reply_payload_max: u32,
        want: &Want,
        means: GatherMeans,
    ) -> Option<u32> {
        let Want { begin, end, kind, pieces, .. } = *want;
        let is_wanted = kind == WantKind::Tbsn && pieces == 0 && begin < end && end <= payload;
        if !self.calls_with_items(payload) || !is_wanted || !self.read_call_fits(payload, means) {
            return None;
        }
        self.single_item_reply_count(reply_payload_max, want)
    }

    /// Plans a reply with a single item to a call of a single direction.
    #[inline]
    pub(super) fn begin_read_reply(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        payload: u32,
        item: &BulkItem,
        direction: &OneDirection,
        means: GatherMeans,
    ) -> Option<ShortPlan> {
        if !self.answers(to, payload, item, direction) {
            return None;
        }
        let zeros = self.single_item_zeros(ReadReply::LEN, payload, item, means)?;
        self.inflow.release(to.credits, &mut ledger.grants);
        let (stamp, end) = (self.stamp(Direction::Reply), RespEnd::new(1, payload));
        let item = OneItem::new(item.position, item.len, 0);
        let header = ShortHeader::ReadReply(ReadReply::new(to.xid, stamp, item, end));
        Some(ShortPlan { header, zeros })
    }

    /// Whether an item is a result that a call requests, and may leave the stream of its reply.
    #[inline]
    pub(super) fn answers(
        &self,
        to: &ReplyTo,
        payload: u32,
        item: &BulkItem,
        direction: &OneDirection,
    ) -> bool {
        let is_known = to.via == Via::Xmt && self.settings.rtr.contains(RtrSupport::XRESP);
        // wire.md E23, E29
        let range = direction.begin.get()..direction.end.get();
        is_known
            && payload.is_multiple_of(4)
            && self.invalidated(to).is_none()
            && range.contains(&item.origin)
            && item.len >= direction.min_len.get()
    }

    /// Whether the longest reply to a call without results takes one transmission.
    #[inline]
    pub(super) fn is_single_reply(&self, reply_payload_max: u32) -> bool {
        let room = self.exchange().own_recv_size() - size::HEADER_MIN as u32;
        reply_payload_max <= room.min(self.settings.rpc_len_max)
    }

    /// Whether calls of so much payload may have an item or a result.
    #[inline]
    pub(super) fn calls_with_items(&self, payload: u32) -> bool {
        let both = self.settings.rtr & self.limits().rtr;
        self.role == Role::Client && both.contains(CALL_OPERATIONS) && payload.is_multiple_of(4)
    }

    /// Zeros between the payload and the item, if the item goes into the first placement segment of
    /// the peer's buffer, which the layout would choose as well.
    #[inline]
    fn single_item_zeros(
        &self,
        header_len: usize,
        payload: u32,
        item: &BulkItem,
        means: GatherMeans,
    ) -> Option<u32> {
        let peer = self.limits();
        if !self.places() || !self.takes_item(payload, item, means) {
            return None;
        }
        let header_len = header_len as u32;
        let usable = peer.recv_size;
        let start = first_place(&peer.structure, usable, header_len, payload, item.len)?;
        let zeros = start - header_len - payload;
        (zeros <= means.zeros_max).then_some(zeros)
    }

    /// Whether a message with so much payload may have this item, and a transmission its pieces.
    #[inline]
    pub(super) fn takes_item(&self, payload: u32, item: &BulkItem, means: GatherMeans) -> bool {
        // The header, the payload, the padding, the item.
        let entries = item.pieces.max(1).saturating_add(3);
        // The general way checks messages near the maximum length.
        let len = u64::from(payload) + u64::from(item.len) + 3;
        entries <= means.gather_max
            && is_position(item.position, payload)
            && len <= u64::from(self.settings.rpc_len_max)
    }

    /// Transmissions of the longest reply to a call of a single result, if it may take so many.
    #[inline]
    fn single_item_reply_count(&mut self, payload_max: u32, want: &Want) -> Option<u32> {
        let LastWant { lens, count } = self.last_want;
        if count > 0 && lens == (payload_max, want.max_len) {
            return Some(count);
        }
        let count = self.count_single_item_reply(payload_max, want)?;
        self.last_want = LastWant { lens: (payload_max, want.max_len), count };
        Some(count)
    }

    fn count_single_item_reply(&self, payload_max: u32, want: &Want) -> Option<u32> {
        let (structure, usable) = (&self.settings.structure, self.exchange().own_recv_size());
        let stream = payload_max.saturating_add(3) & !3;
        let header_len = ReadReply::LEN as u32;
        if !places_items(structure, usable) || want.max_len == 0 {
            return None;
        }
        if stream.checked_add(want.max_len.checked_add(3)?)? > self.settings.rpc_len_max {
            return None;
        }
        match first_place(structure, usable, header_len, stream, want.max_len) {
            Some(_) => Some(1),
            None => self.single_item_reply_laid(stream, want.max_len),
        }
    }

    /// As the general way counts them, where the item does not fit one segment.
    fn single_item_reply_laid(&self, stream: u32, len: u32) -> Option<u32> {
        let (structure, usable) = (&self.settings.structure, self.exchange().own_recv_size());
        let items = [BulkItem { position: 0, len, origin: 0, pieces: 1 }];
        let mut placed = ItemSet::EMPTY;
        placed.insert(0);
        let demand = layout::Demand {
            header_base: size::XMTRESP_MIN as u32,
            stream,
            stream_pieces: 1,
            items: &items,
            placed,
            count_max: GROUP_MAX,
            gather_max: u32::MAX,
        };
        let target = Target { structure, usable, placement: true };
        let count = layout::lay(target, &demand).ok()?.count;
        (count <= self.reply_count_max()).then_some(count)
    }

    /// Whether a call of a single result takes one transmission.
    #[inline]
    fn read_call_fits(&self, payload: u32, means: GatherMeans) -> bool {
        let peer = self.limits();
        let header_len = ReadCall::LEN as u32;
        means.gather_max >= 2
            && has_first_words(&peer.structure, peer.recv_size, header_len)
            && payload <= (peer.recv_size - header_len).min(self.settings.rpc_len_max)
    }
}

/// Where the payload of a received message begins, and how long it is.
#[derive(Debug, Clone, Copy)]
struct PayloadAt {
    start: u32,
    len: u32,
}

/// What was found of a message.
#[inline]
fn single_item(
    kind: ShortKind,
    payload: PayloadAt,
    item: Option<SegmentItem>,
    directions: Option<&OneDirection>,
) -> SingleItem<'_> {
    let PayloadAt { start: payload_start, len: payload_len } = payload;
    SingleItem { kind, payload_start, payload_len, item, directions }
}

/// Where the payload begins and how long it is, if it lies in the first segment and is this RPC of
/// this kind (wire.md E10).
#[inline]
fn payload(
    bytes: &[u8],
    start: usize,
    len: u32,
    operation: &Operation,
    kind: MsgType,
) -> Option<PayloadAt> {
    let payload = bytes.get(start..start.checked_add(len as usize)?)?;
    let rpc = Rpc::peek(payload)?;
    let is_it = rpc.xid == operation.xid && rpc.kind.get() == kind as u32;
    (is_it && len.is_multiple_of(4)).then_some(PayloadAt { start: start as u32, len })
}

/// Whether an item may be taken out of the stream there (wire.md E16).
#[inline]
pub(super) fn is_position(position: u32, payload_len: u32) -> bool {
    position.is_multiple_of(4) && position >= RpcPrefix::LEN as u32 && position <= payload_len
}

/// Where the first placement segment begins, if it is behind the payload and takes the item.
#[inline]
fn first_place(
    structure: &RecvStructure,
    usable: u32,
    header_len: u32,
    payload: u32,
    item: u32,
) -> Option<u32> {
    let at = structure.placement(0)?;
    let room = at.start.checked_sub(header_len)? & !3;
    let is_room = payload <= room && item > 0 && item <= at.length;
    (is_room && has_first_words(structure, usable, header_len)).then_some(at.start)
}

/// Whether header and the RPC's first words lie in the peer's first segment.
#[inline]
pub(super) fn has_first_words(structure: &RecvStructure, usable: u32, header_len: u32) -> bool {
    header_len + RpcPrefix::LEN as u32 <= structure.first_len().min(usable)
}
