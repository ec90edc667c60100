//! Layout of a planned message: encodes headers, and builds gather lists and work requests.

use core::ops::Range;

use rpcrdma_mempool::{HEADROOM, Pool, SendPool, Sge, ZeroPage};
use rpcrdma_proto::{ChunkCallPlan, Connection, Gather, GroupPlan, InlinePlan, Plan};
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::cursor::Writer;

use crate::error::CallRefused;
use crate::provider::{Remote, SendOp};
use crate::state::lane::messages::{Body, Fill, Headers, Messages};
use crate::state::rdma::windows::{Grant, Opening};

/// Why a message could not be laid out: a limit of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stuck {
    /// More pieces than one work request, or the message, has room for.
    TooManyPieces,
    /// No send slot is free to copy pieces together.
    NoSlot,
}

/// The resources for laying out messages.
pub(crate) struct Means<'a> {
    /// Room for headers.
    pub headers: &'a mut Pool<Headers>,
    /// Slots for pieces that are copied together.
    pub send: &'a mut SendPool,
    /// The source of padding.
    pub zero: &'a ZeroPage,
    /// Gather entries of one work request.
    pub gather_max: usize,
}

/// Lays message `index` out as planned; its slots are in its body. Opens the memory that it exposes
/// before the transmission that names it.
pub(crate) fn lay_out(
    messages: &mut Messages,
    means: Means<'_>,
    index: u32,
    conn: &Connection,
    plan: Plan<'_>,
    opening: Opening<'_>,
) -> Result<(), CallRefused> {
    let body = messages.body_mut(index);
    let mut layout = Layout::new(means, body);
    let result = layout.open(opening, &plan).and_then(|()| match plan {
        Plan::Inline(plan) => layout.run_inline(conn, &plan),
        Plan::Group(mut plan) => layout.run_group(conn, &mut plan),
    });
    let requests = messages.body(index).requests.len() as u16;
    messages.head_mut(index).requests = requests;
    result.map_err(|stuck| match stuck {
        Stuck::TooManyPieces => CallRefused::TooManyPieces,
        Stuck::NoSlot => CallRefused::Busy,
    })
}

/// Lays message `index` out, a call with chunks whose payload is in one slot. Opens the memory that
/// it exposes before the transmission that names it. `None` if there is no room for all of it.
pub(crate) fn lay_out_chunk_call(
    messages: &mut Messages,
    index: u32,
    plan: &ChunkCallPlan<'_>,
    grants: &mut [Grant],
) -> Option<()> {
    let body = messages.body_mut(index);
    for op in grants.iter_mut().filter_map(Grant::open) {
        body.end_request(op)?;
    }
    let (slot, header_len) = (body.slots.first_mut()?, plan.header_len() as usize);
    plan.encode_header(&mut Writer::new(slot.header_mut(header_len))).ok()?;
    let sge = slot.sge(header_len, slot.appended() as usize);
    body.gather.try_push(sge).ok()?;
    body.end_request(SendOp::Send)?;
    let requests = body.requests.len() as u16;
    messages.head_mut(index).requests = requests;
    Some(())
}

/// The state of laying out one plan.
struct Layout<'a> {
    means: Means<'a>,
    body: &'a mut Body,
    /// Whether the first header is complete.
    is_headed: bool,
    /// Used bytes of the header slot.
    header_at: usize,
}

impl<'a> Layout<'a> {
    /// For the message of this body.
    pub fn new(means: Means<'a>, body: &'a mut Body) -> Layout<'a> {
        Layout { means, body, is_headed: false, header_at: 0 }
    }

    /// Opens the memory named in the header that follows, and fills the part for RDMA Read.
    fn open(&mut self, opening: Opening<'_>, plan: &Plan<'_>) -> Result<(), Stuck> {
        let Opening { grants, message } = opening;
        if let Plan::Group(plan) = plan {
            let mut fill = Fill::new(message);
            for piece in plan.body_pieces() {
                self.body.copy_piece(&piece, |bytes| fill.put(bytes));
            }
        }
        for op in grants.iter_mut().filter_map(Grant::open) {
            self.end(op)?;
        }
        Ok(())
    }

    /// One RDMA_MSG, whose payload may be in several slots.
    pub fn run_inline(&mut self, conn: &Connection, plan: &InlinePlan) -> Result<(), Stuck> {
        let (bytes, sge) = self.header(InlinePlan::HEADER_LEN as usize)?;
        conn.encode_inline(plan, &mut Writer::new(bytes)).map_err(|_| Stuck::TooManyPieces)?;
        self.push(0, sge)?;
        self.payload(0, 0..plan.payload)?;
        self.end(send_op(plan.invalidate))
    }

    /// A group of transmissions, or one transmission with bulk.
    pub fn run_group(&mut self, conn: &Connection, plan: &mut GroupPlan<'_>) -> Result<(), Stuck> {
        while let Some(write) = plan.next_write() {
            let begin = self.body.gather.len();
            for piece in plan.write_pieces(&write) {
                self.gather(begin, piece)?;
            }
            self.end_write(begin, &write.remote)?;
        }
        while let Some(transmission) = conn.next_transmission(plan) {
            let begin = self.body.gather.len();
            let (bytes, sge) = self.header(transmission.header_len as usize)?;
            conn.encode_header(plan, &transmission, &mut Writer::new(bytes))
                .map_err(|_| Stuck::TooManyPieces)?;
            self.push(begin, sge)?;
            for piece in conn.pieces(plan, &transmission) {
                self.gather(begin, piece)?;
            }
            if self.body.open_entries() > self.means.gather_max {
                self.body.gather.truncate(begin);
                self.push(begin, sge)?;
                self.copy_together(begin, conn.pieces(plan, &transmission))?;
            }
            // wire.md P12: with the last transmission, and with no other.
            let is_last = transmission.index + 1 == plan.count();
            self.end(send_op(plan.invalidate().filter(|_| is_last)))?;
        }
        Ok(())
    }

    /// Appends more pieces than fit one work request: copies the first, up to a slot's length, into
    /// a slot. The plan allows this for a stream of no more bytes.
    #[cold]
    fn copy_together(
        &mut self,
        begin: usize,
        pieces: impl Iterator<Item = Gather>,
    ) -> Result<(), Stuck> {
        // A message that holds all slots would wait for itself.
        if self.body.slots.is_full() || self.body.slots.len() == self.means.send.capacity() {
            return Err(Stuck::TooManyPieces);
        }
        let mut slot = self.means.send.take().ok_or(Stuck::NoSlot)?;
        let mut pieces = pieces.peekable();
        let (mut at, room) = (0, slot.payload_len());
        while let Some(piece) = pieces.next_if(|piece| at + piece.len() as usize <= room) {
            let to = slot.payload_mut();
            self.body.copy_piece(&piece, |bytes| {
                to[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            });
        }
        let sge = slot.payload_sge(0..at);
        // Behind the payload's slots, and freed with them.
        self.body.slots.push(slot);
        self.push(begin, sge)?;
        for piece in pieces {
            self.gather(begin, piece)?;
        }
        Ok(())
    }

    /// Appends the data of one piece of a plan.
    fn gather(&mut self, begin: usize, piece: Gather) -> Result<(), Stuck> {
        match piece {
            Gather::Payload(range) => self.payload(begin, range),
            Gather::Bulk { item, start, len } => {
                self.body.gather_item(item, start, len).ok_or(Stuck::TooManyPieces)
            }
            Gather::Zero(len) => self.zeros(begin, len),
        }
    }

    /// Ends an RDMA Write, and splits it where its gather list exceeds a work request.
    fn end_write(&mut self, begin: usize, remote: &RdmaSegment) -> Result<(), Stuck> {
        let RdmaSegment { handle: rkey, offset: mut addr, .. } = *remote;
        let end = self.body.gather.len();
        let mut at = begin;
        while at < end {
            let next = (at + self.means.gather_max).min(end);
            let op = SendOp::Write(Remote { addr, rkey });
            self.body.end_request_at(op, next).ok_or(Stuck::TooManyPieces)?;
            let lengths = self.body.gather[at..next].iter().map(|sge| u64::from(sge.length));
            addr = addr.wrapping_add(lengths.sum());
            at = next;
        }
        Ok(())
    }

    /// Ends the gather list of a work request.
    fn end(&mut self, op: SendOp) -> Result<(), Stuck> {
        if self.body.open_entries() > self.means.gather_max {
            return Err(Stuck::TooManyPieces);
        }
        self.body.end_request(op).ok_or(Stuck::TooManyPieces)
    }

    /// Room for a header: in front of the payload if it is the first and fits, else in the
    /// message's header slot.
    fn header(&mut self, len: usize) -> Result<(&mut [u8], Sge), Stuck> {
        if !core::mem::replace(&mut self.is_headed, true) && len <= HEADROOM {
            let slot = self.body.slots.first_mut().ok_or(Stuck::TooManyPieces)?;
            let sge = slot.sge(len, 0);
            return Ok((slot.header_mut(len), sge));
        }
        if self.body.headers.is_none() {
            self.body.headers = Some(self.means.headers.pop().ok_or(Stuck::TooManyPieces)?);
        }
        let slot = self.body.headers.as_mut().ok_or(Stuck::TooManyPieces)?;
        let range = self.header_at..self.header_at + len;
        if range.end > self.means.headers.slot_len() {
            return Err(Stuck::TooManyPieces);
        }
        self.header_at = range.end;
        let sge = self.means.headers.sge(slot, range.clone());
        Ok((&mut self.means.headers.bytes_mut(slot)[range], sge))
    }

    /// Bytes of the payload that the program wrote, across its slots.
    fn payload(&mut self, begin: usize, range: Range<u32>) -> Result<(), Stuck> {
        let (mut skip, mut left) = (range.start as usize, range.len());
        for at in 0..self.body.slots.len() {
            let room = self.body.slots[at].payload_len();
            if left == 0 {
                break;
            }
            if skip >= room {
                skip -= room;
                continue;
            }
            let part = left.min(room - skip);
            let sge = self.body.slots[at].payload_sge(skip..skip + part);
            self.push(begin, sge)?;
            left -= part;
            skip = 0;
        }
        if left == 0 { Ok(()) } else { Err(Stuck::TooManyPieces) }
    }

    /// Padding, always from the zero page.
    fn zeros(&mut self, begin: usize, len: u32) -> Result<(), Stuck> {
        let mut left = len;
        while left > 0 {
            let part = left.min(self.means.zero.len() as u32);
            self.push(begin, self.means.zero.sge(part as usize))?;
            left -= part;
        }
        Ok(())
    }

    /// Appends a gather entry, merged with the one before if they are adjacent.
    fn push(&mut self, begin: usize, sge: Sge) -> Result<(), Stuck> {
        if let Some(last) = self.body.gather[begin..].last_mut()
            && last.lkey == sge.lkey
            && last.addr + u64::from(last.length) == sge.addr
        {
            last.length += sge.length;
            return Ok(());
        }
        self.body.gather.try_push(sge).map_err(|_| Stuck::TooManyPieces)
    }
}

/// The Send operation, which invalidates a right of the peer if one is given.
pub(super) fn send_op(invalidate: Option<u32>) -> SendOp {
    invalidate.map_or(SendOp::Send, |rkey| SendOp::SendInvalidate { rkey })
}
