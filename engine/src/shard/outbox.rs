//! The outbox: where messages are built and laid out, and wait for the end of the turn.

use core::ops::Range;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{HEADROOM, Loan, Pool, SendPool, SendToken, Sge, ZeroPage};
use rpcrdma_proto::{
    BulkItem, Connection, ControlSend, Gather, GroupPlan, InlinePlan, Plan, Report, ShardLedger,
};
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;

use super::lane::Lane;
use super::message::{Body, Bulk, Head, Headers, ITEMS_MAX, Item, Messages};
use super::peers::Peer;
use crate::error::CallRefused;
use crate::stats::SharedStats;

/// Everything a message needs on its way out, short of the queue pair.
pub(crate) struct Outbox {
    pub send: SendPool,
    pub headers: Pool<Headers>,
    pub zero: ZeroPage,
    pub messages: Messages,
    pub ledger: ShardLedger,
    pub stats: SharedStats,
    /// Gather entries of one work request.
    pub gather_max: u32,
    /// Loans that left with a message, on their way to their pools.
    pub returned: Vec<Loan>,
    /// Messages that the device never gave back.
    pub leaked: u64,
    /// Peers with pending messages, each once.
    ready: Vec<u32>,
}

/// Why a message could not be laid out: a limit of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyPieces;

impl Outbox {
    pub fn new(
        pools: (SendPool, Pool<Headers>, ZeroPage),
        messages: Messages,
        ledger: ShardLedger,
        stats: SharedStats,
        (gather_max, peers_max): (u32, usize),
    ) -> Outbox {
        let (send, headers, zero) = pools;
        let ready = Vec::with_capacity(peers_max);
        let returned = Vec::with_capacity(RETURNED_MAX);
        let leaked = 0;
        Outbox { send, headers, zero, messages, ledger, stats, gather_max, returned, leaked, ready }
    }

    /// Begins a message. `None` when all slots are on their way.
    #[inline]
    pub fn begin(&mut self) -> Option<u32> {
        let slot = self.send.pop()?;
        match self.messages.begin(slot) {
            Ok(index) => Some(index),
            Err(slot) => {
                self.send.push(slot);
                None
            }
        }
    }

    /// Gives a message up, or back after it left.
    #[inline]
    pub fn release(&mut self, index: u32) {
        if self.messages.head(index).body {
            self.release_body(index);
        }
        if let Some(slot) = self.messages.release(index) {
            self.send.push(slot);
        }
    }

    #[cold]
    fn release_body(&mut self, index: u32) {
        let Outbox { send, headers, messages, returned, .. } = self;
        let body = messages.body_mut(index);
        body.slots.drain(..).for_each(|slot| send.push(slot));
        if let Some(slot) = body.headers.take() {
            headers.push(slot);
        }
        for piece in body.pieces.drain(..) {
            // What finds no room goes home on its own, by the longer way.
            if let Bulk::Loan(loan) = piece
                && returned.len() < returned.capacity()
            {
                returned.push(loan);
            }
        }
        body.items.clear();
        body.ends.clear();
        body.gather.clear();
    }

    /// Gives up what a lane has not posted. A message that was posted in part stays in flight.
    #[cold]
    pub fn discard_pending(&mut self, lane: &mut Lane) {
        while let Some(index) = lane.pending.pop(&self.messages) {
            if self.messages.head(index).posted == 0 {
                self.release(index);
            } else {
                self.messages.head_mut(index).seq = lane.last_seq();
                lane.flight.push(&mut self.messages, index);
            }
        }
    }

    /// Lays a message out as planned.
    #[inline]
    pub fn lay_out(
        &mut self,
        index: u32,
        conn: &Connection,
        plan: Plan<'_>,
    ) -> Result<(), CallRefused> {
        match plan {
            Plan::Inline(plan) if !self.messages.head(index).body => {
                self.lay_out_inline(index, conn, &plan);
                Ok(())
            }
            Plan::Inline(plan) => self.lay_out_long(index, conn, &plan),
            Plan::Group(mut plan) => self.lay_out_group(index, conn, &mut plan),
        }
        .map_err(|TooManyPieces| CallRefused::TooManyPieces)
    }

    /// Sends an error message, if there is a slot for it: errors are told as well as can be.
    #[cold]
    pub fn report(&mut self, peer: &mut Peer, report: &Report) {
        self.stats.violations.add(1);
        self.small(peer, |conn, writer| conn.encode_report(report, writer));
    }

    /// Sends a message between the transports.
    #[cold]
    pub fn control(&mut self, peer: &mut Peer, send: &ControlSend) {
        self.small(peer, |conn, writer| conn.encode_control(send, writer));
    }

    fn small(
        &mut self,
        peer: &mut Peer,
        encode: impl FnOnce(&Connection, &mut Writer<'_>) -> Result<(), NoRoom>,
    ) {
        let Some(index) = self.begin() else {
            self.stats.busy_local.add(1);
            return;
        };
        let Outbox { send, messages, .. } = self;
        let head = messages.head_mut(index);
        let slot = head.slot.as_mut().expect("a message has its first slot until it is released");
        let mut writer = Writer::new(send.payload_mut(slot));
        if encode(&peer.conn, &mut writer).is_err() {
            debug_assert!(false, "a control message has at most 1024 bytes, as has every slot");
            self.release(index);
            return;
        }
        head.header_len = 0;
        head.payload_len = writer.position() as u32;
        self.enqueue(&mut peer.lane, peer.id.index, index);
    }

    /// The payload area of slot `slot` of a message.
    #[inline]
    pub fn payload_mut(&mut self, index: u32, slot: usize) -> Option<&mut [u8]> {
        let token = match slot.checked_sub(1) {
            None => self.messages.head_mut(index).slot.as_mut()?,
            Some(more) => self.messages.body_mut(index).slots.get_mut(more)?,
        };
        Some(self.send.payload_mut(token))
    }

    /// Adds a payload slot to a message. False if there is none, or the message has its most.
    #[cold]
    pub fn extend(&mut self, index: u32) -> bool {
        let Outbox { send, messages, .. } = self;
        let slots = &mut messages.body_mut(index).slots;
        if slots.is_full() {
            return false;
        }
        let Some(slot) = send.pop() else { return false };
        slots.push(slot);
        true
    }

    /// Puts a laid out message into its peer's lane.
    #[inline]
    pub fn enqueue(&mut self, lane: &mut Lane, peer: u32, index: u32) {
        lane.pending.push(&mut self.messages, index);
        if !lane.ready {
            lane.ready = true;
            self.ready.push(peer);
        }
    }

    /// Peers with pending messages. They are handed over; who is not done comes back by `retry`.
    #[inline]
    pub fn pop_ready(&mut self) -> Option<u32> {
        self.ready.pop()
    }

    /// Whether any peer has pending messages.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// Asks for another go at a lane that could not send everything.
    pub fn retry(&mut self, lane: &mut Lane, peer: u32) {
        lane.ready = true;
        self.ready.push(peer);
    }

    /// Lays a message out that is one RDMA_MSG in one slot: its header goes in front.
    #[inline]
    fn lay_out_inline(&mut self, index: u32, conn: &Connection, plan: &InlinePlan) {
        let Outbox { send, messages, .. } = self;
        let head = messages.head_mut(index);
        let slot = head.slot.as_mut().expect("a message has its first slot until it is released");
        let bytes = send.header_mut(slot, InlinePlan::HEADER_LEN as usize);
        conn.encode_inline(plan, &mut Writer::new(bytes))
            .expect("the headroom holds the header of an inline message");
        head.header_len = InlinePlan::HEADER_LEN;
        head.payload_len = plan.payload;
    }

    /// The gather entry of a message of one entry.
    #[inline]
    pub fn single(&self, head: &Head) -> Sge {
        let slot = head.slot.as_ref().expect("a message has its first slot until it is released");
        self.send.sge(slot, head.header_len as usize, head.payload_len as usize)
    }

    /// Lays a message out that is one RDMA_MSG in several slots.
    #[cold]
    fn lay_out_long(
        &mut self,
        index: u32,
        conn: &Connection,
        plan: &InlinePlan,
    ) -> Result<(), TooManyPieces> {
        self.with_layout(index, |layout| {
            let (bytes, sge) = layout.header(InlinePlan::HEADER_LEN as usize)?;
            conn.encode_inline(plan, &mut Writer::new(bytes)).map_err(|_| TooManyPieces)?;
            layout.push(0, sge)?;
            layout.payload(0, 0..plan.payload)?;
            layout.end()
        })
    }

    /// Lays a message out that is a group of transmissions, or one with bulk: encodes its headers
    /// and makes its gather lists.
    #[cold]
    pub fn lay_out_group(
        &mut self,
        index: u32,
        conn: &Connection,
        plan: &mut GroupPlan<'_>,
    ) -> Result<(), TooManyPieces> {
        self.with_layout(index, |layout| layout.run(conn, plan))
    }

    fn with_layout(
        &mut self,
        index: u32,
        make: impl FnOnce(&mut Layout<'_>) -> Result<(), TooManyPieces>,
    ) -> Result<(), TooManyPieces> {
        let Outbox { send, headers, zero, messages, .. } = self;
        let mut first = messages.head_mut(index).slot.take().expect("a message has a first slot");
        let body = messages.body_mut(index);
        let mut layout = Layout { send, headers, zero, first: &mut first, body, header_at: 0 };
        let result = make(&mut layout);
        let requests = messages.body(index).ends.len() as u16;
        let head = messages.head_mut(index);
        head.slot = Some(first);
        head.requests = requests;
        result
    }

    /// The bulk items of a message as the protocol wants them.
    pub fn items(&self, index: u32) -> ArrayVec<BulkItem, ITEMS_MAX> {
        self.messages.body(index).items.iter().map(|entry: &Item| entry.item).collect()
    }
}

/// A group on its way from a plan to gather lists.
struct Layout<'a> {
    send: &'a mut SendPool,
    headers: &'a mut Pool<Headers>,
    zero: &'a ZeroPage,
    first: &'a mut SendToken,
    body: &'a mut Body,
    /// Bytes of the header slot that are used.
    header_at: usize,
}

impl Layout<'_> {
    fn run(&mut self, conn: &Connection, plan: &mut GroupPlan<'_>) -> Result<(), TooManyPieces> {
        while let Some(transmission) = conn.next_transmission(plan) {
            let begin = self.body.gather.len();
            let (bytes, sge) = self.header(transmission.header_len as usize)?;
            conn.encode_header(plan, &transmission, &mut Writer::new(bytes))
                .map_err(|_| TooManyPieces)?;
            self.push(begin, sge)?;
            for piece in conn.pieces(plan, &transmission) {
                match piece {
                    Gather::Payload(range) => self.payload(begin, range)?,
                    Gather::Bulk { item, start, len } => {
                        if !self.body.gather_item(item as usize, start, len) {
                            return Err(TooManyPieces);
                        }
                    }
                    Gather::Zero(len) => self.zeros(begin, len)?,
                }
            }
            self.end()?;
        }
        Ok(())
    }

    /// Ends the gather list of a work request.
    fn end(&mut self) -> Result<(), TooManyPieces> {
        let end = self.body.gather.len() as u16;
        self.body.ends.try_push(end).map_err(|_| TooManyPieces)
    }

    /// Room for a header: in front of the payload if it is the first and fits, else in the
    /// message's header slot.
    fn header(&mut self, len: usize) -> Result<(&mut [u8], Sge), TooManyPieces> {
        if self.body.ends.is_empty() && len <= HEADROOM {
            let sge = self.send.sge(self.first, len, 0);
            return Ok((self.send.header_mut(self.first, len), sge));
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
        let room = self.send.payload_len();
        let (mut at, end) = (range.start as usize, range.end as usize);
        while at < end {
            let (slot, offset) = (at / room, at % room);
            let len = (end - at).min(room - offset);
            let bytes = offset..offset + len;
            let sge = match slot.checked_sub(1) {
                None => self.send.payload_sge(self.first, bytes),
                Some(more) => self.send.payload_sge(&self.body.slots[more], bytes),
            };
            self.push(begin, sge)?;
            at += len;
        }
        Ok(())
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

/// Loans that may be on their way home at one time without taking the longer way.
const RETURNED_MAX: usize = 1024;
