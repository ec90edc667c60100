//! The outbox: where messages are built and laid out, and wait for the end of the turn.

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Loan, Pool, SendPool, SendSlot, Sge, ZeroPage};
use rpcrdma_proto::{
    BulkItem, CallDemand, CallId, CallRoute, Connection, ControlSend, Plan, ReplyTo, Report,
    ShardLedger, Violation,
};
use rpcrdma_xdr::cursor::Writer;
use rpcrdma_xdr::error::NoRoom;

use super::draft::Draft;
use super::lane::Lane;
use super::layout::{self, Means, Opening};
use super::messages::{After, Head, Headers, Item, Messages};
use crate::api::handle::ShardHandle;
use crate::error::CallRefused;
use crate::message::bulk::{Bulk, ITEMS_MAX};
use crate::message::wanted::{WANTS_MAX, Wanted};
use crate::provider::PostError;
use crate::shard::peers::{Peer, Peers};
use crate::shard::rdma::exposures::Exposures;
use crate::shard::timers::deadlines::Deadlines;
use crate::stats::SharedStats;

/// Everything a message needs on its way out, short of the queue pair.
pub(crate) struct Outbox {
    /// The shard, for the tickets of its calls.
    pub home: ShardHandle,
    pub send: SendPool,
    pub headers: Pool<Headers>,
    pub zero: ZeroPage,
    pub messages: Messages,
    pub ledger: ShardLedger,
    pub stats: SharedStats,
    /// Gather entries of one work request.
    pub gather_max: u32,
    /// Scatter entries of one RDMA Read.
    pub scatter_max: u32,
    /// Loans that left with a message, on their way to their pools.
    pub returned: Vec<Loan>,
    /// Messages that the device never gave back.
    pub leaked: u64,
    /// What own calls have exposed.
    pub exposures: Exposures,
    /// Until when own calls may take.
    pub deadlines: Deadlines,
    /// What the message under construction has beside its last slot.
    pub draft: Draft,
    /// What the call under construction wants of its reply.
    pub wants: Vec<Wanted>,
    /// Those who wait for messages that have completed, or were given up.
    pub released: Vec<After>,
    /// Bytes that the device copies while posting.
    pub inline_len: u32,
    /// Short messages to be posted before everything in the lanes.
    pub inline_sends: ArrayVec<InlineSend, INLINE_SENDS_MAX>,
    /// Peers with pending messages, each once.
    ready: Vec<u32>,
}

/// A message short enough to be copied while posting, behind nothing in its lane: its slot is free
/// again as soon as it is posted.
pub(crate) struct InlineSend {
    pub peer: u32,
    pub header_len: u32,
    pub payload_len: u32,
    pub slot: SendSlot,
}

impl InlineSend {
    /// The gather entry.
    #[inline]
    pub fn sge(&self) -> Sge {
        self.slot.sge(self.header_len as usize, self.payload_len as usize)
    }
}

impl Outbox {
    pub fn new(
        (home, stats): (ShardHandle, SharedStats),
        pools: (SendPool, Pool<Headers>, ZeroPage),
        messages: Messages,
        exposures: Exposures,
        ledger: ShardLedger,
        (gather_max, scatter_max): (u32, u32),
        (inline_len, peers_max): (u32, usize),
    ) -> Outbox {
        let (send, headers, zero) = pools;
        // A connection that ended may stand in the list together with its successor.
        let ready = Vec::with_capacity(2 * peers_max);
        let returned = Vec::with_capacity(RETURNED_MAX);
        let leaked = 0;
        let released = Vec::with_capacity(messages.len());
        let deadlines = Deadlines::new(ledger.calls.slots());
        Outbox {
            home,
            send,
            headers,
            zero,
            messages,
            ledger,
            stats,
            gather_max,
            scatter_max,
            returned,
            leaked,
            exposures,
            deadlines,
            draft: Draft::default(),
            wants: Vec::with_capacity(WANTS_MAX),
            released,
            inline_len,
            inline_sends: ArrayVec::new(),
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
        header: &[u8],
        payload_len: u32,
    ) {
        slot.header_mut(header.len()).copy_from_slice(header);
        let header_len = header.len() as u32;
        let is_short = header_len + payload_len <= self.inline_len;
        let short = InlineSend { peer, header_len, payload_len, slot };
        // Behind what is pending it would overtake.
        if is_short && lane.pending.front().is_none() && !self.inline_sends.is_full() {
            self.inline_sends.push(short);
        } else {
            self.send_in_line(lane, short);
        }
    }

    /// Sends a message behind what is pending in its lane.
    #[inline(never)]
    fn send_in_line(&mut self, lane: &mut Lane, short: InlineSend) {
        let InlineSend { peer, header_len, payload_len, slot } = short;
        let message = self.message(slot, header_len, payload_len);
        self.enqueue(lane, peer, message);
    }

    /// Empties the list of short messages when not all of them were taken (a bit for each that
    /// was): the others go to the front of their lanes, in order.
    #[cold]
    pub fn requeue_inline(&mut self, peers: &mut Peers, taken: u64) {
        while let Some(short) = self.inline_sends.pop() {
            let InlineSend { peer: to, header_len, payload_len, slot } = short;
            if taken >> self.inline_sends.len() & 1 == 1 {
                self.send.put(slot);
                continue;
            }
            let Some(peer) = peers.at(to) else {
                self.send.put(slot);
                continue;
            };
            let message = self.message(slot, header_len, payload_len);
            peer.lane.pending.push_front(&mut self.messages, message);
            self.wake(&mut peer.lane, to);
        }
    }

    /// What went wrong with a post although all was taken comes out when its lane is looked at.
    #[cold]
    pub fn note_trouble(&mut self, lane: &mut Lane, peer: u32, why: PostError) {
        if why != PostError::QueueFull {
            lane.trouble = Some(why);
        }
        self.wake(lane, peer);
    }

    /// Whether a peer may have one more send slot. Who takes nothing cannot have them all: four
    /// fifths at most if it is alone, and less with every other that has some.
    #[inline]
    pub fn has_slot_for(&self, lane: &Lane) -> bool {
        (lane.slots() as usize) < SHARE * self.send.free()
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

    /// Whether somebody waits for the end of a message, or for memory that it holds: a program for
    /// its loans, all for many slots. One slot, and bytes that are sent again and again, can wait for
    /// a later completion.
    #[inline]
    pub fn is_awaited(&self, message: u32) -> bool {
        let is_loan = |piece: &Bulk| matches!(piece, Bulk::Loan(_));
        let body = self.messages.body(message);
        self.messages.head(message).after != After::Nobody
            || body.slots.len() > 1
            || body.pieces.iter().any(is_loan)
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
        let Outbox { send, headers, messages, returned, exposures, released, .. } = self;
        let after = messages.head(index).after;
        if let After::Called(exposure) = after {
            // The peer may read them until its rights are dead.
            exposures.at(exposure).kept.extend(messages.body_mut(index).pieces.drain(..));
        }
        if after != After::Nobody {
            released.push(after);
        }
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
        body.requests.clear();
        body.gather.clear();
    }

    /// Gives up the short messages to a peer.
    #[cold]
    pub fn discard_inline(&mut self, peer: u32) {
        let mut at = 0;
        while let Some(it) = self.inline_sends.get(at) {
            if it.peer == peer {
                let InlineSend { slot, .. } = self.inline_sends.remove(at);
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

    /// Drops every message, whatever has become of it. What they were made of comes home but for the
    /// slots, which are lost to whoever recalls them. The queues are destroyed.
    #[cold]
    pub fn drop_messages(&mut self) {
        self.inline_sends.clear();
        self.messages = Messages::new(0);
    }

    /// Peers may reach what messages hold, for good: it is never used again.
    #[cold]
    pub fn abandon_messages(&mut self) {
        core::mem::forget(core::mem::replace(&mut self.messages, Messages::new(0)));
    }

    /// Lays a message out as planned. Its slots are in its body.
    #[cold]
    pub fn lay_out(
        &mut self,
        index: u32,
        conn: &Connection,
        plan: Plan<'_>,
    ) -> Result<(), CallRefused> {
        let Outbox { headers, send, zero, messages, .. } = self;
        let means = Means { headers, send, zero, gather_max: self.gather_max as usize };
        layout::lay_out(messages, means, index, (conn, plan), Opening::default())
    }

    /// Plans a call on its route and lays it out, with what it exposes in front of it.
    #[cold]
    pub fn lay_out_exposed(
        &mut self,
        (index, place): (u32, u32),
        conn: &mut Connection,
        id: CallId,
        (demand, route): (&CallDemand<'_>, &CallRoute),
    ) -> Result<(), CallRefused> {
        let Outbox { headers, send, zero, messages, exposures, ledger, .. } = self;
        let means = Means { headers, send, zero, gather_max: self.gather_max as usize };
        let (segments, opening) = exposures.at(place).opening();
        self.stats.exposed.add(opening.grants.len() as u64);
        let planned = conn.begin_call(ledger, id, demand, route, &segments.exposed());
        let plan = planned.map_err(CallRefused::Protocol)?;
        layout::lay_out(messages, means, index, (conn, plan), opening)
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

    /// Answers a call that breaks a rule; it was not executed.
    #[cold]
    pub fn reject(&mut self, peer: &mut Peer, to: &ReplyTo, violation: Violation) {
        self.stats.violations.add(1);
        let report = peer.conn.reject_call(&mut self.ledger, to, violation);
        self.answer(peer, &report);
    }

    /// Answers a call that has no reply, whether it was executed or not.
    #[cold]
    pub fn refuse(&mut self, peer: &mut Peer, to: &ReplyTo) {
        let report = peer.conn.refuse(&mut self.ledger, to);
        self.answer(peer, &report);
    }

    /// Sends the error message that answers a call. Whoever answers has a slot free for it.
    fn answer(&mut self, peer: &mut Peer, report: &Report) {
        let is_sent = self.small(peer, |conn, writer| conn.encode_report(report, writer));
        debug_assert!(is_sent, "a call is looked at only when a slot is free to answer it");
    }

    /// Whether a message between the transports can be sent now.
    pub fn takes_control(&self, peer: &Peer) -> bool {
        peer.lane.unsolicited < UNSOLICITED_MAX && self.send.free() > 0
    }

    /// Sends a message between the transports, unless too many wait or no slot is free.
    #[cold]
    pub fn control(&mut self, peer: &mut Peer, send: &ControlSend) -> bool {
        if peer.lane.unsolicited >= UNSOLICITED_MAX {
            self.stats.unreported.add(1);
            return false;
        }
        peer.lane.unsolicited += 1;
        self.small(peer, |conn, writer| conn.encode_control(send, writer))
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
        self.ready.len() | self.inline_sends.len() == 0
    }

    /// Whether what is pending is short, and waits in no lane.
    #[inline]
    pub fn is_short_only(&self) -> bool {
        self.ready.is_empty()
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

/// Short messages of one turn that are posted ahead of the lanes.
pub(crate) const INLINE_SENDS_MAX: usize = 64;
/// Messages that a peer may be owed without having called: the control reserve (wire.md P10).
pub(crate) const UNSOLICITED_MAX: u32 = 4;
/// A peer may hold so many times the send slots that are still free.
const SHARE: usize = 4;
/// Loans that may be on their way home at one time without taking the longer way.
const RETURNED_MAX: usize = 1024;
