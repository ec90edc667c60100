//! The outbox: where messages are built and laid out, and wait for the end of the turn.

use core::ops::Range;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{HEADROOM, Loan, Pool, SendPool, SendSlot, Sge, ZeroPage};
use rpcrdma_proto::{
    BulkItem, Connection, ControlSend, Gather, GroupPlan, InlinePlan, PLAIN_HEADER_LEN, Plan,
    Report, ShardLedger,
};
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;

use super::lane::Lane;
use super::message::{Body, Bulk, Head, Headers, ITEMS_MAX, Item, Messages};
use super::peers::{Peer, Peers};
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
    /// Bytes that the device copies while posting.
    pub inline_len: u32,
    /// Short messages to be posted before everything in the lanes.
    pub express: ArrayVec<Express, EXPRESS_MAX>,
    /// Peers with pending messages, each once.
    ready: Vec<u32>,
}

/// A message short enough to be copied while posting, behind nothing in its lane: its slot is free
/// again as soon as it is posted.
pub(crate) struct Express {
    pub peer: u32,
    pub len: u32,
    pub slot: SendSlot,
}

impl Express {
    /// The gather entry.
    #[inline]
    pub fn sge(&self) -> Sge {
        self.slot.sge(PLAIN_HEADER_LEN, self.len as usize - PLAIN_HEADER_LEN)
    }
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
        (gather_max, inline_len, peers_max): (u32, u32, usize),
    ) -> Outbox {
        let (send, headers, zero) = pools;
        // A connection that ended may stand in the list together with its successor.
        let ready = Vec::with_capacity(2 * peers_max);
        let returned = Vec::with_capacity(RETURNED_MAX);
        let leaked = 0;
        Outbox {
            send,
            headers,
            zero,
            messages,
            ledger,
            stats,
            gather_max,
            returned,
            leaked,
            inline_len,
            express: ArrayVec::new(),
            ready,
        }
    }

    /// Sends a message that is a header and one slot of payload.
    #[inline]
    pub fn send_plain(
        &mut self,
        lane: &mut Lane,
        peer: u32,
        mut slot: SendSlot,
        header: &[u8; PLAIN_HEADER_LEN],
        payload_len: u32,
    ) {
        slot.header_mut(PLAIN_HEADER_LEN).copy_from_slice(header);
        let len = PLAIN_HEADER_LEN as u32 + payload_len;
        // Behind what is pending it would overtake.
        if len <= self.inline_len && lane.pending.front().is_none() && !self.express.is_full() {
            self.express.push(Express { peer, len, slot });
        } else {
            let message = self.message(slot, PLAIN_HEADER_LEN as u32, payload_len);
            self.enqueue(lane, peer, message);
        }
    }

    /// Empties the list of short messages when not all of them were taken (a bit for each that
    /// was): the others go to the front of their lanes, in order.
    #[cold]
    pub fn settle_express(&mut self, peers: &mut Peers, taken: u64) {
        while let Some(Express { peer: to, len, slot }) = self.express.pop() {
            if taken >> self.express.len() & 1 == 1 {
                self.send.put(slot);
                continue;
            }
            let Some(peer) = peers.at(to) else {
                self.send.put(slot);
                continue;
            };
            let header_len = PLAIN_HEADER_LEN as u32;
            let message = self.message(slot, header_len, len - header_len);
            peer.lane.pending.push_front(&mut self.messages, message);
            self.wake(&mut peer.lane, to);
        }
    }

    /// A message of one gather entry.
    pub fn message(&mut self, slot: SendSlot, header_len: u32, payload_len: u32) -> u32 {
        let index = self.messages.begin().expect("there are as many messages as slots");
        let head = self.messages.head_mut(index);
        head.slot = Some(slot);
        head.header_len = header_len;
        head.payload_len = payload_len;
        index
    }

    /// Gives a message up, or back after it left.
    #[inline]
    pub fn release(&mut self, index: u32) {
        if self.messages.head(index).body {
            self.release_body(index);
        }
        if let Some(slot) = self.messages.release(index) {
            self.send.put(slot);
        }
    }

    #[cold]
    fn release_body(&mut self, index: u32) {
        let Outbox { send, headers, messages, returned, .. } = self;
        let body = messages.body_mut(index);
        body.slots.drain(..).for_each(|slot| send.put(slot));
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

    /// Gives up the short messages to a peer.
    #[cold]
    pub fn discard_express(&mut self, peer: u32) {
        let mut at = 0;
        while let Some(it) = self.express.get(at) {
            if it.peer == peer {
                let Express { slot, .. } = self.express.remove(at);
                self.send.put(slot);
            } else {
                at += 1;
            }
        }
    }

    /// Gives up what a lane has not posted. A message that was posted in part stays in flight.
    #[cold]
    pub fn discard_pending(&mut self, lane: &mut Lane) {
        while let Some(index) = lane.pending.pop(&self.messages) {
            if self.messages.head(index).posted == 0 || lane.outstanding() == 0 {
                self.release(index);
            } else {
                self.messages.head_mut(index).seq = lane.last_seq();
                lane.flight.push(&mut self.messages, index);
            }
        }
    }

    /// Lays a message out as planned. Its slots are in its body.
    #[cold]
    pub fn lay_out(
        &mut self,
        index: u32,
        conn: &Connection,
        plan: Plan<'_>,
    ) -> Result<(), CallRefused> {
        let Outbox { headers, zero, messages, .. } = self;
        let body = messages.body_mut(index);
        let gather_max = self.gather_max as usize;
        let mut layout = Layout { headers, zero, body, header_at: 0, gather_max };
        let result = match plan {
            Plan::Inline(plan) => layout.run_inline(conn, &plan),
            Plan::Group(mut plan) => layout.run_group(conn, &mut plan),
        };
        let requests = messages.body(index).ends.len() as u16;
        messages.head_mut(index).requests = requests;
        result.map_err(|TooManyPieces| CallRefused::TooManyPieces)
    }

    /// Sends an error message about something that was not taken for a call. False if it cannot be
    /// told: a peer that makes errors and takes no reports gets no more of the shard's slots, and
    /// its connection is to be closed, or it would wait for ever (RFC 8166 4.5.4).
    #[cold]
    #[must_use]
    pub fn report(&mut self, peer: &mut Peer, report: &Report) -> bool {
        self.stats.violations.add(1);
        // A lawful peer has a Receive for each of its calls, any of which may be bad.
        let is_told = peer.lane.unsolicited < peer.conn.inflow().granted() + UNSOLICITED_MAX
            && self.small(peer, |conn, writer| conn.encode_report(report, writer));
        peer.lane.unsolicited += 1;
        self.stats.unreported.add(u64::from(!is_told));
        is_told
    }

    /// Sends the error message that answers a call. Whoever answers has a slot free for it.
    #[cold]
    pub fn answer(&mut self, peer: &mut Peer, report: &Report) {
        self.stats.violations.add(1);
        let is_sent = self.small(peer, |conn, writer| conn.encode_report(report, writer));
        debug_assert!(is_sent, "a call is looked at only when a slot is free to answer it");
    }

    /// Sends a message between the transports.
    #[cold]
    pub fn control(&mut self, peer: &mut Peer, send: &ControlSend) {
        if peer.lane.unsolicited >= UNSOLICITED_MAX {
            self.stats.unreported.add(1);
            return;
        }
        peer.lane.unsolicited += 1;
        self.small(peer, |conn, writer| conn.encode_control(send, writer));
    }

    fn small(
        &mut self,
        peer: &mut Peer,
        encode: impl FnOnce(&Connection, &mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> bool {
        let Some(mut slot) = self.send.take() else {
            self.stats.busy_local.add(1);
            return false;
        };
        let mut writer = Writer::new(slot.payload_mut());
        if encode(&peer.conn, &mut writer).is_err() {
            debug_assert!(false, "a control message has at most 1024 bytes, as has every slot");
            self.send.put(slot);
            return false;
        }
        let len = writer.position() as u32;
        let message = self.message(slot, 0, len);
        self.enqueue(&mut peer.lane, peer.id.index, message);
        true
    }

    /// Puts a laid out message into its peer's lane.
    #[inline]
    pub fn enqueue(&mut self, lane: &mut Lane, peer: u32, index: u32) {
        lane.pending.push(&mut self.messages, index);
        self.wake(lane, peer);
    }

    /// Puts a peer into the list of those with pending messages.
    #[inline]
    pub fn wake(&mut self, lane: &mut Lane, peer: u32) {
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
        self.ready.is_empty() && self.express.is_empty()
    }

    /// Asks for another go at a lane that the device refused, behind all others.
    #[cold]
    pub fn retry(&mut self, lane: &mut Lane, peer: u32) {
        if !lane.ready {
            lane.ready = true;
            self.ready.insert(0, peer);
        }
    }

    /// The gather entry of a message of one entry.
    #[inline]
    pub fn single(&self, head: &Head) -> Sge {
        let slot = head.slot.as_ref().expect("a message of one entry has its slot");
        slot.sge(head.header_len as usize, head.payload_len as usize)
    }

    /// The bulk items of a message as the protocol wants them.
    pub fn items(&self, index: u32) -> ArrayVec<BulkItem, ITEMS_MAX> {
        self.messages.body(index).items.iter().map(|entry: &Item| entry.item).collect()
    }
}

/// A message on its way from a plan to gather lists.
struct Layout<'a> {
    headers: &'a mut Pool<Headers>,
    zero: &'a ZeroPage,
    body: &'a mut Body,
    /// Bytes of the header slot that are used.
    header_at: usize,
    /// Gather entries of one work request.
    gather_max: usize,
}

impl Layout<'_> {
    /// One RDMA_MSG, in however many slots its payload is.
    fn run_inline(&mut self, conn: &Connection, plan: &InlinePlan) -> Result<(), TooManyPieces> {
        let (bytes, sge) = self.header(InlinePlan::HEADER_LEN as usize)?;
        conn.encode_inline(plan, &mut Writer::new(bytes)).map_err(|_| TooManyPieces)?;
        self.push(0, sge)?;
        self.payload(0, 0..plan.payload)?;
        self.end()
    }

    /// A group of transmissions, or one with bulk.
    fn run_group(
        &mut self,
        conn: &Connection,
        plan: &mut GroupPlan<'_>,
    ) -> Result<(), TooManyPieces> {
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
                        self.body.gather_item(item, start, len).ok_or(TooManyPieces)?;
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
        let start = self.body.ends.last().map_or(0, |&end| usize::from(end));
        if self.body.gather.len() - start > self.gather_max {
            return Err(TooManyPieces);
        }
        let end = self.body.gather.len() as u16;
        self.body.ends.try_push(end).map_err(|_| TooManyPieces)
    }

    /// Room for a header: in front of the payload if it is the first and fits, else in the
    /// message's header slot.
    fn header(&mut self, len: usize) -> Result<(&mut [u8], Sge), TooManyPieces> {
        if self.body.ends.is_empty() && len <= HEADROOM {
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

/// Short messages of one turn that are posted ahead of the lanes.
pub(crate) const EXPRESS_MAX: usize = 64;
/// Messages that a peer may be owed without having called: the control reserve (wire.md P10).
pub(crate) const UNSOLICITED_MAX: u32 = 4;
/// Loans that may be on their way home at one time without taking the longer way.
const RETURNED_MAX: usize = 1024;
