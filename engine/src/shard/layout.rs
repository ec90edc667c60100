//! How a planned message becomes work requests: headers are encoded, gather lists are made.

use core::ops::Range;

use rpcrdma_mempool::{HEADROOM, Loan, Pool, Sge, ZeroPage};
use rpcrdma_proto::{Connection, Gather, GroupPlan, InlinePlan, Plan};
use rpcrdma_xdr::chunk::RdmaSegment;
use rpcrdma_xdr::cursor::Writer;

use super::message::{Body, Fill, Headers, Messages};
use super::windows::Grant;
use crate::error::CallRefused;
use crate::provider::{Remote, SendOp};

/// Why a message could not be laid out: a limit of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TooManyPieces;

/// Lays message `index` out as planned; its slots are in its body. What it exposes is opened before
/// the peer is told.
pub(crate) fn lay_out(
    messages: &mut Messages,
    (headers, zero, gather_max): (&mut Pool<Headers>, &ZeroPage, u32),
    index: u32,
    (conn, plan): (&Connection, Plan<'_>),
    opening: Opening<'_>,
) -> Result<(), CallRefused> {
    let body = messages.body_mut(index);
    let mut layout = Layout::new(headers, zero, body, gather_max as usize);
    let result = layout.open(opening, &plan).and_then(|()| match plan {
        Plan::Inline(plan) => layout.run_inline(conn, &plan),
        Plan::Group(mut plan) => layout.run_group(conn, &mut plan),
    });
    let requests = messages.body(index).requests.len() as u16;
    messages.head_mut(index).requests = requests;
    result.map_err(|TooManyPieces| CallRefused::TooManyPieces)
}

/// What a call opens to its peer.
#[derive(Default)]
pub(crate) struct Opening<'a> {
    /// The rights.
    pub grants: &'a mut [Grant],
    /// Memory for the message itself, if the peer fetches it.
    pub message: &'a mut [Loan],
}

/// A message on its way from a plan to gather lists.
struct Layout<'a> {
    headers: &'a mut Pool<Headers>,
    zero: &'a ZeroPage,
    body: &'a mut Body,
    /// Whether the first header is there.
    is_headed: bool,
    /// Bytes of the header slot that are used.
    header_at: usize,
    /// Gather entries of one work request.
    gather_max: usize,
}

impl<'a> Layout<'a> {
    /// Of the message that this body is of.
    pub fn new(
        headers: &'a mut Pool<Headers>,
        zero: &'a ZeroPage,
        body: &'a mut Body,
        gather_max: usize,
    ) -> Layout<'a> {
        Layout { headers, zero, body, is_headed: false, header_at: 0, gather_max }
    }

    /// Opens what the peer is told of in the header that follows, and fills what it fetches.
    fn open(&mut self, opening: Opening<'_>, plan: &Plan<'_>) -> Result<(), TooManyPieces> {
        let Opening { grants, message } = opening;
        if let Plan::Group(plan) = plan {
            let mut fill = Fill::new(message);
            for piece in plan.body_pieces() {
                self.body.copy_piece(&piece, &mut fill);
            }
        }
        for op in grants.iter_mut().filter_map(Grant::open) {
            self.end(op)?;
        }
        Ok(())
    }

    /// One RDMA_MSG, in however many slots its payload is.
    pub fn run_inline(
        &mut self,
        conn: &Connection,
        plan: &InlinePlan,
    ) -> Result<(), TooManyPieces> {
        let (bytes, sge) = self.header(InlinePlan::HEADER_LEN as usize)?;
        conn.encode_inline(plan, &mut Writer::new(bytes)).map_err(|_| TooManyPieces)?;
        self.push(0, sge)?;
        self.payload(0, 0..plan.payload)?;
        self.end(send_op(plan.invalidate))
    }

    /// A group of transmissions, or one with bulk.
    pub fn run_group(
        &mut self,
        conn: &Connection,
        plan: &mut GroupPlan<'_>,
    ) -> Result<(), TooManyPieces> {
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
                .map_err(|_| TooManyPieces)?;
            self.push(begin, sge)?;
            for piece in conn.pieces(plan, &transmission) {
                self.gather(begin, piece)?;
            }
            // wire.md P12: with the last transmission, and with no other.
            let is_last = transmission.index + 1 == plan.count();
            self.end(send_op(plan.invalidate().filter(|_| is_last)))?;
        }
        Ok(())
    }

    /// Appends what a piece of a plan stands for.
    fn gather(&mut self, begin: usize, piece: Gather) -> Result<(), TooManyPieces> {
        match piece {
            Gather::Payload(range) => self.payload(begin, range),
            Gather::Bulk { item, start, len } => {
                self.body.gather_item(item, start, len).ok_or(TooManyPieces)
            }
            Gather::Zero(len) => self.zeros(begin, len),
        }
    }

    /// Ends an RDMA Write, which is cut where its gather list gets too long for a work request.
    fn end_write(&mut self, begin: usize, remote: &RdmaSegment) -> Result<(), TooManyPieces> {
        let RdmaSegment { handle: rkey, offset: mut addr, .. } = *remote;
        let end = self.body.gather.len();
        let mut at = begin;
        while at < end {
            let next = (at + self.gather_max).min(end);
            let op = SendOp::Write(Remote { addr, rkey });
            self.body.end_request_at(op, next).ok_or(TooManyPieces)?;
            let lengths = self.body.gather[at..next].iter().map(|sge| u64::from(sge.length));
            addr = addr.wrapping_add(lengths.sum());
            at = next;
        }
        Ok(())
    }

    /// Ends the gather list of a work request.
    fn end(&mut self, op: SendOp) -> Result<(), TooManyPieces> {
        if self.body.open_entries() > self.gather_max {
            return Err(TooManyPieces);
        }
        self.body.end_request(op).ok_or(TooManyPieces)
    }

    /// Room for a header: in front of the payload if it is the first and fits, else in the
    /// message's header slot.
    fn header(&mut self, len: usize) -> Result<(&mut [u8], Sge), TooManyPieces> {
        if !core::mem::replace(&mut self.is_headed, true) && len <= HEADROOM {
            let slot = self.body.slots.first_mut().ok_or(TooManyPieces)?;
            let sge = slot.sge(len, 0);
            return Ok((slot.header_mut(len), sge));
        }
        if self.body.headers.is_none() {
            self.body.headers = Some(self.headers.pop().ok_or(TooManyPieces)?);
        }
        let slot = self.body.headers.as_mut().ok_or(TooManyPieces)?;
        let range = self.header_at..self.header_at + len;
        if range.end > self.headers.slot_len() {
            return Err(TooManyPieces);
        }
        self.header_at = range.end;
        let sge = self.headers.sge(slot, range.clone());
        Ok((&mut self.headers.bytes_mut(slot)[range], sge))
    }

    /// Bytes of the payload that the program wrote, wherever their slots are.
    fn payload(&mut self, begin: usize, range: Range<u32>) -> Result<(), TooManyPieces> {
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
        if left == 0 { Ok(()) } else { Err(TooManyPieces) }
    }

    /// Padding, from the zero page and nowhere else.
    fn zeros(&mut self, begin: usize, len: u32) -> Result<(), TooManyPieces> {
        let mut left = len;
        while left > 0 {
            let part = left.min(self.zero.len() as u32);
            self.push(begin, self.zero.sge(part as usize))?;
            left -= part;
        }
        Ok(())
    }

    /// Appends a gather entry, joined to the one before if they touch.
    fn push(&mut self, begin: usize, sge: Sge) -> Result<(), TooManyPieces> {
        if let Some(last) = self.body.gather[begin..].last_mut()
            && last.lkey == sge.lkey
            && last.addr + u64::from(last.length) == sge.addr
        {
            last.length += sge.length;
            return Ok(());
        }
        self.body.gather.try_push(sge).map_err(|_| TooManyPieces)
    }
}

/// The Send that takes a right of its own peer back, if there is one to be taken.
fn send_op(invalidate: Option<u32>) -> SendOp {
    invalidate.map_or(SendOp::Send, |rkey| SendOp::SendInvalidate { rkey })
}
