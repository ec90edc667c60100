//! Chunk messages: a call in one RDMA_MSG with one chunk, and the reply to it.
//!
//! ```text
//!   write call   | one Read segment |                 reply   plain
//!   read call    | one Write chunk of few segments |  reply   | the same, filled |
//! ```
//! Peers of the base protocol send nearly all bulk data in this form. As with the other short
//! messages, everything else takes the general way. A caller finds the form of a call on the
//! general way; then any call in one RDMA_MSG with all of its written payload is planned here.

use rpcrdma_xdr::array::Extent;
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::cursor::{Writer, pad_len};
use rpcrdma_xdr::error::NoRoom;
use rpcrdma_xdr::onc::{MsgType, Rpc, RpcPrefix};
use rpcrdma_xdr::one_chunk::{BaseStart, FixedSegment, OneRead, OneWrite, header_len};
use rpcrdma_xdr::rtr::fixed::{Msg, Stamp};

use super::message::GatherMeans;
use super::single_item::is_position;
use crate::calls::{CallId, CallState, NO_MARK};
use crate::connection::{Connection, ShardLedger};
use crate::demand::{CallDemand, CallForm, CallRoute, Exposed, Offered};
use crate::error::SendError;
use crate::group::Part;
use crate::ingress::{Received, ReplyTo, Via};
use crate::item::{BulkItem, ItemSet};
use crate::placement::inline::Direction;
use crate::placement::lists::CallLists;
use crate::placement::placed::{KeptPlaced, ReadItem};
use crate::settings::Role;

/// A received call with one chunk; all of it is valid.
#[derive(Debug, Clone, Copy)]
pub enum ChunkCall<'a> {
    /// One item is to be read, in one segment.
    Read {
        /// How to answer it.
        to: ReplyTo,
        /// Its transmission.
        part: Part,
        /// The item, found.
        placed: KeptPlaced,
        /// Bytes of the item.
        len: u32,
    },
    /// One result may be written.
    Write {
        /// How to answer it.
        to: ReplyTo,
        /// Its transmission.
        part: Part,
        /// Its Write list, to be kept for the reply.
        list: &'a [u8],
    },
}

/// The plan of a routed call with chunks in one RDMA_MSG, in which all that its program has written
/// follows the header, and nothing else.
#[derive(Debug, Clone, Copy)]
pub struct ChunkCallPlan<'a> {
    xid: u32,
    stamp: Stamp,
    lists: CallLists,
    items: &'a [BulkItem],
    read: ItemSet,
    exposed: Exposed<'a>,
    header_len: u32,
}

/// The plan of a reply whose only item is written to the Write chunk of its call.
#[derive(Debug, Clone, Copy)]
pub struct ChunkReply<'a> {
    xid: u32,
    stamp: Stamp,
    segments: &'a [FixedSegment],
    /// Bytes of the item.
    len: u32,
    /// The handle that the reply is to invalidate.
    pub invalidate: Option<u32>,
}

/// The plan of a plain reply that invalidates a handle.
#[derive(Debug, Clone, Copy)]
pub struct InvalidatingReply {
    /// Its header.
    pub header: Msg,
    /// The handle.
    pub handle: u32,
}

impl Connection {
    /// Takes a call with one chunk, if it breaks no rule and all of it is in the first segment.
    /// `None`, without effect: pass the transmission to [`Connection::on_transmission`].
    #[inline(never)]
    pub fn on_one_chunk<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        first_segment: &'a [u8],
    ) -> Option<ChunkCall<'a>> {
        let (header, _) = Msg::split(first_segment)?;
        let is_served = self.role == Role::Server && self.settings.explicit;
        let is_whole = first_segment.len() == at.byte_len as usize;
        if !(self.admits(header.vers.get()) && is_served && is_whole) {
            return None;
        }
        match OneRead::read(first_segment) {
            Some(read) => self.on_one_read(ledger, at, read, first_segment),
            None => self.on_one_write(ledger, at, OneWrite::read(first_segment)?, first_segment),
        }
    }

    /// The engine's name for the memory that is exposed for the call with the xid of this reply, if
    /// there is any.
    #[inline]
    #[must_use]
    pub fn exposed_for(&self, ledger: &ShardLedger, first_segment: &[u8]) -> Option<u32> {
        let (header, _) = Msg::split(first_segment)?;
        let (_, entry) = ledger.calls.find(header.xid.get(), self.peer)?;
        (entry.mark != NO_MARK).then_some(entry.mark)
    }

    /// Takes the reply to a base call that has offered this, if it breaks no rule and all of it is
    /// in the first segment: a plain one, or one with one Write chunk. `None`, without effect: pass
    /// the transmission to [`Connection::on_transmission`].
    #[inline(never)]
    pub fn on_one_chunk_reply(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        first_segment: &[u8],
        offered: &Offered<'_>,
    ) -> Option<(Part, KeptPlaced)> {
        let (header, _) = Msg::split(first_segment)?;
        let (xid, credit) = (header.xid.get(), header.credit.get());
        let is_whole = first_segment.len() == at.byte_len as usize;
        if !(self.admits(header.vers.get()) && is_whole) || credit == 0 {
            return None;
        }
        let (start, extent, excised) = if header.is_plain() {
            (Msg::LEN as u32, Extent::NOWHERE, 0)
        } else {
            let write = OneWrite::read(first_segment)?;
            (write.len, write.extent(), filled_len(write.segments, offered)?)
        };
        let part = part(at, start, (xid, MsgType::Reply), first_segment)?;
        let virtual_len = part.payload_len.checked_add(excised)?;
        let (_, entry) = ledger.calls.find_mut(xid, self.peer)?;
        let is_due = entry.state == CallState::Sent && !entry.is_xmt && entry.wants.is_empty();
        if !is_due || virtual_len > self.settings.rpc_len_max {
            return None;
        }
        entry.state = CallState::Answered;
        self.idle_messages = 0;
        self.credits.on_grant(credit);
        Some((part, KeptPlaced::written(extent, part.payload_len, virtual_len)))
    }

    #[inline]
    fn on_one_read<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        OneRead { start, position, target, .. }: &OneRead,
        bytes: &[u8],
    ) -> Option<ChunkCall<'a>> {
        let part = part(at, OneRead::LEN as u32, (start.xid.get(), MsgType::Call), bytes)?;
        let (position, target) = (position.get(), target.get());
        target.offset.checked_add(target.length.into())?;
        let excised = target.length.checked_add(pad_len(target.length as usize) as u32)?;
        let virtual_len = part.payload_len.checked_add(excised)?;
        // wire.md C2, C4, E40
        let is_valid = target.length > 0
            && is_position(position, part.payload_len)
            && virtual_len <= self.settings.rpc_len_max;
        if !is_valid {
            return None;
        }
        let to = self.admit_one_chunk(ledger, start, Some(target.handle))?;
        let item = ReadItem { position, len: target.length };
        let placed = KeptPlaced::one_read(OneRead::LIST, item, part.payload_len, virtual_len);
        Some(ChunkCall::Read { to, part, placed, len: target.length })
    }

    #[inline]
    fn on_one_write<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        at: Received,
        OneWrite { start, list, segments, len }: OneWrite<'a>,
        bytes: &[u8],
    ) -> Option<ChunkCall<'a>> {
        let part = part(at, len, (start.xid.get(), MsgType::Call), bytes)?;
        let handle = segments.first()?.handle;
        let (mut is_possible, mut is_common) = (true, true);
        for FixedSegment { handle: other, length, offset } in segments {
            is_possible &= offset.get().checked_add(length.get().into()).is_some();
            is_common &= *other == handle;
        }
        // wire.md W6: the shortest reply has a header of the same length.
        let is_valid = segments.len() <= SEGMENTS_MAX
            && is_possible
            && self.limits().fits_msg(len, RpcPrefix::LEN as u32)
            && part.payload_len <= self.settings.rpc_len_max;
        if !is_valid {
            return None;
        }
        // wire.md C9
        let handle = is_common.then_some(handle.get());
        let to = self.admit_one_chunk(ledger, start, handle)?;
        Some(ChunkCall::Write { to, part, list })
    }

    /// Accepts a valid call, unless its peer has no credit for it.
    #[inline]
    fn admit_one_chunk(
        &mut self,
        ledger: &mut ShardLedger,
        start: &BaseStart,
        handle: Option<u32>,
    ) -> Option<ReplyTo> {
        self.inflow.admit(start.credit.get(), &mut ledger.grants).ok()?;
        self.idle_messages = 0;
        let xid = start.xid.get();
        Some(ReplyTo { xid, credits: 1, rsbuf: 1, via: Via::Msg, handle })
    }

    /// As [`Connection::begin_call`], for a call with chunks in one RDMA_MSG, with all of the
    /// written payload, and with a header of at most `headroom` bytes. `None`, without effect, if
    /// it is another.
    ///
    /// # Errors
    /// Those of [`Connection::begin_call`].
    pub fn begin_chunk_call<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
        demand: &CallDemand<'a>,
        route: &CallRoute,
        exposed: &Exposed<'a>,
        headroom: u32,
    ) -> Result<Option<ChunkCallPlan<'a>>, SendError> {
        let is_it = route.form == CallForm::Msg
            && route.exposes()
            && route.stream == demand.payload
            && route.layout.header_len <= headroom;
        if !is_it {
            return Ok(None);
        }
        let header_len = self.take_for_routed(ledger, id, demand, route, exposed)?;
        let (xid, stamp) = (id.xid(), self.stamp(Direction::Call));
        let (lists, read) = (CallLists { is_fetched: false, wants: route.wants }, route.items);
        let (items, exposed) = (demand.items, *exposed);
        Ok(Some(ChunkCallPlan { xid, stamp, lists, items, read, exposed, header_len }))
    }

    /// Plans a reply of `payload` bytes whose only item is written to the chunk of this Write list,
    /// with a header of at most `headroom` bytes. `None`, without effect, if it needs the general
    /// way.
    #[inline]
    pub fn begin_chunk_reply<'a>(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        (payload, item): (u32, &BulkItem),
        list: &'a [u8],
        means: GatherMeans,
        headroom: u32,
    ) -> Option<ChunkReply<'a>> {
        let segments = OneWrite::segments(list)?;
        let header_len = header_len(segments.len() as u32);
        let room: u64 = segments.iter().map(|it| u64::from(it.length.get())).sum();
        let len = u64::from(payload) + u64::from(item.len).next_multiple_of(4);
        let is_it = to.via == Via::Msg
            && payload.is_multiple_of(4)
            && is_position(item.position, payload)
            && len <= u64::from(self.settings.rpc_len_max)
            && (1..=room).contains(&item.len.into())
            && header_len <= headroom
            && self.limits().fits_msg(header_len, payload)
            && means.gather_max >= item.pieces.max(2);
        if !is_it {
            return None;
        }
        self.release_credits(ledger, to);
        let (stamp, invalidate) = (self.stamp(Direction::Reply), self.invalidated(to));
        Some(ChunkReply { xid: to.xid, stamp, segments, len: item.len, invalidate })
    }

    /// Plans a reply without items to a call without directions, if it invalidates a handle.
    /// `None`, without effect, if it does not, or needs the general way.
    #[inline]
    pub fn begin_invalidating_reply(
        &mut self,
        ledger: &mut ShardLedger,
        to: &ReplyTo,
        payload: u32,
    ) -> Option<InvalidatingReply> {
        let handle = self.invalidated(to)?;
        if payload > self.plain_room() {
            return None;
        }
        self.release_credits(ledger, to);
        let header = Msg::new(to.xid, self.stamp(Direction::Reply));
        Some(InvalidatingReply { header, handle })
    }
}

impl ChunkCallPlan<'_> {
    /// Bytes of its header.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> u32 {
        self.header_len
    }

    /// Encodes its header.
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer bytes than [`ChunkCallPlan::header_len`].
    pub fn encode_header(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let Self { xid, stamp, lists, items, read, exposed, .. } = self;
        writer.put(&BaseStart::new(*xid, *stamp, lists.proc()))?;
        lists.encode(items, *read, exposed, writer)
    }
}

impl ChunkReply<'_> {
    /// Bytes of its header.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> u32 {
        header_len(self.segments.len() as u32)
    }

    /// Encodes its header.
    ///
    /// # Errors
    /// [`NoRoom`] if the writer has fewer bytes than [`ChunkReply::header_len`].
    #[inline]
    pub fn encode_header(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        OneWrite::put_filled(writer, (self.xid, self.stamp), self.segments, self.len)
    }

    /// The RDMA Writes of the item: in order, each with as many bytes as go there.
    #[inline]
    pub fn writes(&self) -> impl Iterator<Item = RdmaSegment> {
        let mut left = self.len;
        let parts = self.segments.iter().map(move |segment| {
            let segment = segment.get();
            let length = segment.length.min(left);
            left -= length;
            RdmaSegment { length, ..segment }
        });
        parts.filter(|part| part.length > 0)
    }
}

/// Where the payload behind a header of `payload_start` bytes is, if it is this RPC.
#[inline]
fn part(
    Received { buffer, byte_len }: Received,
    payload_start: u32,
    (xid, kind): (u32, MsgType),
    bytes: &[u8],
) -> Option<Part> {
    let rpc = Rpc::peek(bytes.get(payload_start as usize..)?)?;
    let is_it = rpc.xid.get() == xid && rpc.kind.get() == kind as u32;
    let payload_len = byte_len - payload_start;
    is_it.then_some(Part { buffer, byte_len, payload_start, payload_len })
}

/// Bytes in the stream of a result that fills these segments in order, if they are those of the
/// only chunk that was offered (RFC 8166 3.4.6).
#[inline]
fn filled_len(returned: &[FixedSegment], offered: &Offered<'_>) -> Option<u32> {
    let due = offered.wants.of(offered.set, 0);
    let (mut len, mut is_short) = (0u32, false);
    if offered.set.last() != Some(0) || returned.len() != due.len() {
        return None;
    }
    for (segment, offer) in returned.iter().zip(due) {
        let segment = segment.get();
        let is_same = (segment.handle, segment.offset) == (offer.handle, offer.offset);
        if !is_same || segment.length > offer.length || (is_short && segment.length > 0) {
            return None;
        }
        is_short = segment.length < offer.length;
        len = len.checked_add(segment.length)?;
    }
    len.checked_next_multiple_of(4)
}

/// Segments of the longest chunk that is taken: its Write list is copied for the reply.
const SEGMENTS_MAX: usize = 16;
