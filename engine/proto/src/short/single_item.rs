//! Messages with a single item: one transmission, and what is placed by Send lies in one placement
//! segment.
//!
//! ```text
//!   write call   XMTREQ  | item | no direction |
//!   read call    XMTREQ  | no item | one direction, TBSN |
//!   read reply   XMTRESP | item |
//! ```
//! What a read call asks for may be longer than a segment: then its reply takes the general way, and
//! the call the short one.

use rpcrdma_xdr::cursor::pad_len;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::numbers::{opttype, placement, proc, size};
use rpcrdma_xdr::onc::{MsgType, RpcPrefix};
use rpcrdma_xdr::property::RtrSupport;
use rpcrdma_xdr::rtr::fixed::Stamp;
use rpcrdma_xdr::rtr::structure::RecvStructure;

use super::{ShortKind, word};
use crate::calls::{CallId, CallState, NO_MARK};
use crate::connection::{Connection, ShardLedger};
use crate::demand::Want;
use crate::ingress::{ReplyTo, Via};
use crate::placement::direct::{ItemKind, WantKind, WantSet};
use crate::placement::inline::Direction;
use crate::placement::item::BulkItem;
use crate::placement::layout::{self, ItemSet, Target, places_items};
use crate::route::CALL_OPERATIONS;
use crate::settings::Role;

/// A message with a single item, or a single direction, that has arrived; all of it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleItem<'a> {
    /// What it is.
    pub kind: ShortKind,
    /// Where its payload begins in the first segment.
    pub payload_start: u32,
    /// Bytes of its payload, all of them in the first segment.
    pub payload_len: u32,
    /// What it brings.
    pub item: Option<SegmentItem>,
    /// What a call wants: its directions as they came, to be kept for the reply.
    pub directions: Option<&'a [u8; DIRECTIONS_LEN]>,
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

/// The only direction of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleDirection {
    /// First byte of its range in the call's stream.
    pub begin: u32,
    /// The byte after the range.
    pub end: u32,
    /// If the item is shorter, it is wanted in line.
    pub min_len: u32,
}

/// What a message is sent with.
#[derive(Debug, Clone, Copy)]
pub struct GatherMeans {
    /// The most pieces that a transmission can be gathered from, its header counted as one.
    pub gather_max: u32,
    /// The longest padding that is one piece.
    pub zeros_max: u32,
}

/// What a call has beside its payload.
#[derive(Debug, Clone, Copy)]
pub enum SingleItemCall {
    /// An item that it brings.
    Write(BulkItem),
    /// A result that it asks for.
    Read(Want),
}

/// The plan of a message: its header, and where its item begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SingleItemPlan {
    header: [u8; HEADER_MAX],
    header_len: usize,
    /// Zeros between the payload and the item.
    pub zeros: u32,
}

/// Bytes of a list of directions that has one of one item to be sent.
pub const DIRECTIONS_LEN: usize = 4 + size::RSDSET + size::RSDITEM_TBSN;

impl Connection {
    /// Takes a message with a single item if it breaks no rule. `None`: nothing has changed, and it is
    /// to be handed to [`Connection::on_transmission`].
    #[inline(never)]
    pub fn on_single_item<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        byte_len: u32,
        first_segment: &'a [u8],
    ) -> Option<SingleItem<'a>> {
        let head = first_segment.first_chunk::<READ_REPLY_LEN>()?;
        let at = |index| word(head, index);
        match (at(4), at(5), at(6)) {
            (opttype::XMTREQ, WRITE_CALL_INFO, 1) => {
                self.on_write_call(ledger, byte_len, first_segment)
            }
            (opttype::XMTREQ, READ_CALL_INFO, 0) => self.on_read_call(ledger, first_segment),
            (opttype::XMTRESP, READ_REPLY_INFO, 1) => {
                self.on_read_reply(ledger, byte_len, first_segment)
            }
            _ => None,
        }
    }

    #[inline]
    fn on_write_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        byte_len: u32,
        bytes: &'a [u8],
    ) -> Option<SingleItem<'a>> {
        let head = bytes.first_chunk::<WRITE_CALL_LEN>()?;
        let at = |index| word(head, index);
        let (sets, count, rsbuf, len) = (at(13), at(14), at(15), at(16));
        if sets != 0 || count != 1 {
            return None;
        }
        let payload_start = payload(bytes, WRITE_CALL_LEN, len, at(0), MsgType::Call)?;
        let item =
            self.single_item(core::array::from_fn(|i| at(7 + i)), byte_len, payload_start, len)?;
        let kind = self.on_single_item_call(ledger, at(0), at(2), rsbuf)?;
        let (item, directions) = (Some(item), None);
        Some(SingleItem { kind, payload_start, payload_len: len, item, directions })
    }

    #[inline]
    fn on_read_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        bytes: &'a [u8],
    ) -> Option<SingleItem<'a>> {
        let head = bytes.first_chunk::<READ_CALL_LEN>()?;
        let at = |index| word(head, index);
        let (count, rsbuf, len) = (at(13), at(14), at(15));
        let directions = head[28..].first_chunk::<DIRECTIONS_LEN>()?;
        // wire.md E23: the range lies within the call.
        let SingleDirection { begin, end, .. } = SingleDirection::decode(directions)?;
        if count != 1 || end <= begin || end > len || len > self.settings.rpc_len_max {
            return None;
        }
        let payload_start = payload(bytes, READ_CALL_LEN, len, at(0), MsgType::Call)?;
        let kind = self.on_single_item_call(ledger, at(0), at(2), rsbuf)?;
        let (item, directions) = (None, Some(directions));
        Some(SingleItem { kind, payload_start, payload_len: len, item, directions })
    }

    #[inline]
    fn on_read_reply<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        byte_len: u32,
        bytes: &'a [u8],
    ) -> Option<SingleItem<'a>> {
        let head = bytes.first_chunk::<READ_REPLY_LEN>()?;
        let at = |index| word(head, index);
        let (xid, credit, count, len) = (at(0), at(2), at(13), at(14));
        if count != 1 || credit == 0 || !self.settings.rtr.contains(RtrSupport::XRESP) {
            return None;
        }
        let payload_start = payload(bytes, READ_REPLY_LEN, len, xid, MsgType::Reply)?;
        let (id, entry) = ledger.calls.find_own(xid, self.peer)?;
        let is_wanted = entry.wants.len() == 1 && entry.wants.check(0, ItemKind::Tbsn).is_ok();
        if entry.state != CallState::Sent || entry.mark != NO_MARK || !is_wanted {
            return None;
        }
        let item =
            self.single_item(core::array::from_fn(|i| at(7 + i)), byte_len, payload_start, len)?;
        self.idle_messages = 0;
        self.credits.on_grant(credit);
        self.group.on_single(xid);
        let kind = ShortKind::Reply(self.end_own_call(ledger, id)?);
        let (item, directions) = (Some(item), None);
        Some(SingleItem { kind, payload_start, payload_len: len, item, directions })
    }

    /// Takes a call in that breaks no rule, unless its peer has no credit for it.
    #[inline]
    fn on_single_item_call(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
        rsbuf: u32,
    ) -> Option<ShortKind> {
        if self.role == Role::Client || !self.settings.rtr.contains(RtrSupport::XREQ) {
            return None;
        }
        // A peer that oversteps is left to the general way, which closes the connection.
        self.inflow.on_call(1).ok()?;
        self.idle_messages = 0;
        self.inflow.on_request(credit);
        self.inflow.grow(&mut ledger.grants);
        self.group.on_single(xid);
        Some(ShortKind::Call(ReplyTo { xid, credits: 1, rsbuf, via: Via::Xmt, handle: None }))
    }

    /// The item of these words, behind the payload and within the bytes that were received (wire.md
    /// E13, E16, E40).
    #[inline]
    fn single_item(
        &self,
        [position, len, kind, offset, count, number]: [u32; 6],
        byte_len: u32,
        payload_start: u32,
        payload_len: u32,
    ) -> Option<SegmentItem> {
        if kind != placement::TBSN || offset != 0 || count != 1 {
            return None;
        }
        let at = self.settings.structure.placement(number)?;
        let is_there = len > 0
            && len <= at.length
            && at.start >= payload_start + payload_len
            && at.start.checked_add(len)? <= byte_len;
        let excised = len.checked_add(pad_len(len as usize) as u32)?;
        let is_short = payload_len.checked_add(excised)? <= self.settings.rpc_len_max;
        let is_placed = is_position(position, payload_len);
        (is_there && is_short && is_placed).then_some(SegmentItem {
            position,
            len,
            segment: at.index,
        })
    }

    /// Plans a call that brings a single item or wants one. `None` if it has to take the general way,
    /// [`Connection::begin_call`]; nothing has changed then.
    #[inline]
    pub fn begin_single_item_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        (payload, reply_payload_max): (u32, u32),
        call: &SingleItemCall,
        means: GatherMeans,
    ) -> Option<SingleItemPlan> {
        let both = self.settings.rtr & self.limits().rtr;
        let is_forward = self.role == Role::Client;
        if !is_forward || !both.contains(CALL_OPERATIONS) || !payload.is_multiple_of(4) {
            return None;
        }
        let (wants, zeros, reply_count) = match call {
            SingleItemCall::Write(item) => {
                let room = self.exchange().own_recv_size() - size::HEADER_MIN as u32;
                let room = room.min(self.settings.rpc_len_max);
                let zeros = self.single_item_zeros(WRITE_CALL_LEN, payload, item, means)?;
                (reply_payload_max <= room).then_some((WantSet::NONE, zeros, 1))?
            }
            SingleItemCall::Read(want) => {
                let is_wanted = want.kind == WantKind::Tbsn && want.pieces == 0;
                let is_within = want.begin < want.end && want.end <= payload;
                let is_there = self.read_call_fits(payload, means);
                if !is_wanted || !is_within || !is_there {
                    return None;
                }
                (WantSet::SENT, 0, self.single_item_reply_count(reply_payload_max, want)?)
            }
        };
        self.take_for_call(ledger, id, (1, reply_count), wants, true).ok()?;
        let Stamp { vers, credit } = self.stamp(Direction::Call);
        let (xid, proc, op, kind) = (id.xid(), proc::OPTIONAL, opttype::XMTREQ, placement::TBSN);
        Some(match *call {
            // [RTR] 7.3: our items begin at the start of their first segment.
            SingleItemCall::Write(BulkItem { position: at, len, .. }) => {
                let info = WRITE_CALL_INFO;
                let words = [
                    xid, vers, credit, proc, op, info, 1, at, len, kind, 0, 1, 0, 0, 1, 1, payload,
                ];
                SingleItemPlan::new(words, zeros)
            }
            SingleItemCall::Read(Want { begin, end, min_len: min, .. }) => {
                let (info, rsbuf) = (READ_CALL_INFO, reply_count);
                let words = [
                    xid, vers, credit, proc, op, info, 0, 1, begin, end, 1, min, kind, 1, rsbuf,
                    payload,
                ];
                SingleItemPlan::new(words, zeros)
            }
        })
    }

    /// Plans a reply that brings a single item to a call of a single direction. `None` if it has to
    /// take the general way, [`Connection::begin_reply`]; nothing has changed then.
    #[inline]
    pub fn begin_single_item_reply(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        payload: u32,
        (item, direction): (&BulkItem, SingleDirection),
        means: GatherMeans,
    ) -> Option<SingleItemPlan> {
        let is_known = to.via == Via::Xmt && self.settings.rtr.contains(RtrSupport::XRESP);
        if !is_known || !payload.is_multiple_of(4) || self.invalidated(to).is_some() {
            return None;
        }
        // wire.md E23, E29
        let SingleDirection { begin, end, min_len } = direction;
        if !(begin..end).contains(&item.origin) || item.len < min_len {
            return None;
        }
        let zeros = self.single_item_zeros(READ_REPLY_LEN, payload, item, means)?;
        self.settle(ledger, to);
        let Stamp { vers, credit } = self.stamp(Direction::Reply);
        let (xid, proc, op, info) = (to.xid, proc::OPTIONAL, opttype::XMTRESP, READ_REPLY_INFO);
        let (BulkItem { position: at, len, .. }, kind) = (*item, placement::TBSN);
        let words = [xid, vers, credit, proc, op, info, 1, at, len, kind, 0, 1, 0, 1, payload];
        Some(SingleItemPlan::new(words, zeros))
    }

    /// Zeros between the payload and the item, if that goes into the first placement segment of the
    /// peer's buffer: what the layout would choose as well.
    #[inline]
    fn single_item_zeros(
        &self,
        header_len: usize,
        payload: u32,
        item: &BulkItem,
        means: GatherMeans,
    ) -> Option<u32> {
        let peer = self.limits();
        // The header, the payload, the padding, the item.
        let entries = item.pieces.max(1).saturating_add(3);
        let is_item = is_position(item.position, payload);
        if !self.places() || entries > means.gather_max || !is_item {
            return None;
        }
        // What comes near to the longest message is measured on the general way.
        if payload.checked_add(item.len.checked_add(3)?)? > self.settings.rpc_len_max {
            return None;
        }
        let header_len = header_len as u32;
        let usable = peer.recv_size;
        let start = first_place(&peer.structure, usable, header_len, payload, item.len)?;
        let zeros = start - header_len - payload;
        (zeros <= means.zeros_max).then_some(zeros)
    }

    /// Transmissions of the longest reply to a call of a single want, if it may take so many.
    #[inline]
    fn single_item_reply_count(&self, payload_max: u32, want: &Want) -> Option<u32> {
        let (structure, usable) = (&self.settings.structure, self.exchange().own_recv_size());
        let stream = payload_max.saturating_add(3) & !3;
        let header_len = READ_REPLY_LEN as u32;
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

    /// Whether a call of a single want takes one transmission.
    #[inline]
    fn read_call_fits(&self, payload: u32, means: GatherMeans) -> bool {
        let peer = self.limits();
        let header_len = READ_CALL_LEN as u32;
        means.gather_max >= 2
            && has_first_words(&peer.structure, peer.recv_size, header_len)
            && payload <= (peer.recv_size - header_len).min(self.settings.rpc_len_max)
    }
}

impl SingleItemPlan {
    #[inline]
    fn new<const N: usize>(words: [u32; N], zeros: u32) -> Self {
        let mut header = [0; HEADER_MAX];
        for (at, word) in header.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_be_bytes());
        }
        Self { header, header_len: 4 * N, zeros }
    }

    /// The header, to be put in front of the payload.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }
}

impl SingleDirection {
    /// The direction of a list, if the list is one set of one item to be sent.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; DIRECTIONS_LEN]) -> Option<Self> {
        let at = |index| word(bytes, index);
        let (begin, end, min_len) = (at(1), at(2), at(4));
        let is_one = at(0) == 1 && at(3) == 1 && at(5) == placement::TBSN;
        is_one.then_some(Self { begin, end, min_len })
    }
}

/// Where the payload begins, if it lies in the first segment and is an RPC of this kind (wire.md
/// E10).
#[inline]
fn payload(bytes: &[u8], start: usize, len: u32, xid: u32, kind: MsgType) -> Option<u32> {
    let payload = bytes.get(start..start.checked_add(len as usize)?)?;
    let prefix = payload.first_chunk::<{ RpcPrefix::LEN }>()?;
    let is_it = len.is_multiple_of(4) && word(prefix, 0) == xid && word(prefix, 1) == kind as u32;
    is_it.then_some(start as u32)
}

/// Whether an item may be taken out of the stream there (wire.md E16).
#[inline]
fn is_position(position: u32, payload_len: u32) -> bool {
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
fn has_first_words(structure: &RecvStructure, usable: u32, header_len: u32) -> bool {
    header_len + RpcPrefix::LEN as u32 <= structure.first_len().min(usable)
}

/// An item of one segment.
const ITEM_LEN: usize = size::MITEM_TBSN + 4;
/// A call that brings an item.
const WRITE_CALL_LEN: usize = size::XMTREQ_MIN + ITEM_LEN;
const WRITE_CALL_INFO: u32 = (WRITE_CALL_LEN - size::OPTIONAL) as u32;
/// Bytes of the header of a call that wants one.
pub const READ_CALL_LEN: usize = size::XMTREQ_MIN + size::RSDSET + size::RSDITEM_TBSN;
const READ_CALL_INFO: u32 = (READ_CALL_LEN - size::OPTIONAL) as u32;
/// A reply that brings one.
const READ_REPLY_LEN: usize = size::XMTRESP_MIN + ITEM_LEN;
const READ_REPLY_INFO: u32 = (READ_REPLY_LEN - size::OPTIONAL) as u32;
/// The longest header of these.
const HEADER_MAX: usize = WRITE_CALL_LEN;
