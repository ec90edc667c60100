//! The outbox: builds and lays out messages, and keeps them until the end of the turn.

use std::time::Duration;

use arrayvec::ArrayVec;
use rpcrdma_mempool::{Loan, Pool, Quiet, SendPool, SendSlot, Sge, ZeroPage};
use rpcrdma_proto::{BulkItem, Connection, Plan};

use super::answers::Answers;
use super::batch::Batch;
use super::doorbell::DoorbellBatching;
use super::layout::{self, Means};
use crate::error::CallRefused;
use crate::message::bulk::{Bulk, ITEMS_MAX};
use crate::message::draft::Draft;
use crate::message::wanted::{WANTS_MAX, Wanted};
use crate::provider::PostError;
use crate::state::lane::Lane;
use crate::state::lane::messages::{After, GatherItem, Headers, Messages, SLOTS_MAX};
use crate::state::peers::Peers;
use crate::state::rdma::windows::Opening;
use crate::state::timers::Timers;
use crate::stats::SharedStats;

/// All resources of outgoing messages, except the queue pairs.
pub(crate) struct Outbox {
    pub(super) slots: SendPool,
    headers: Pool<Headers>,
    pub(super) zero: ZeroPage,
    pub(super) messages: Messages,
    pub(super) stats: SharedStats,
    /// Gather entries of one work request.
    pub(super) gather_max: u32,
    /// Scatter entries of one RDMA Read.
    scatter_max: u32,
    /// Loans that left with a message, on their way to their pools.
    returned: Vec<Loan>,
    /// Messages that the device never completed.
    leaked: u64,
    /// The message under construction.
    pub(super) draft: Draft,
    /// The results requested by the call under construction.
    pub(super) wants: Vec<Wanted>,
    /// Bytes that the device copies while posting.
    pub(super) inline_len: u32,
    /// Messages to post before the lanes, and the slot of the one under construction.
    pub(super) batch: Batch,
    /// Whether any of those messages may be other than plain.
    pub(super) has_others: bool,
    /// Peers with pending messages, each once.
    pub(super) ready: Vec<u32>,
    doorbell: DoorbellBatching,
    answers: Answers,
}

/// The memory of outgoing messages.
pub(crate) struct OutboxPools {
    pub slots: SendPool,
    pub headers: Pool<Headers>,
    pub zero: ZeroPage,
}

/// The sizes of an [`Outbox`].
pub(crate) struct OutboxSizes {
    /// Messages at one time.
    pub messages: usize,
    /// Gather entries of one work request.
    pub gather_max: u32,
    /// Scatter entries of one RDMA Read.
    pub scatter_max: u32,
    /// Bytes that a work request can contain.
    pub inline_len: u32,
    /// Connections.
    pub peers_max: usize,
}

#[cfg(test)]
impl OutboxSizes {
    pub const SMALL: OutboxSizes =
        OutboxSizes { messages: 4, gather_max: 1, scatter_max: 1, inline_len: 64, peers_max: 2 };
}

impl Outbox {
    pub fn new(
        stats: SharedStats,
        pools: OutboxPools,
        sizes: OutboxSizes,
        hold: Duration,
    ) -> Outbox {
        let OutboxPools { slots, headers, zero } = pools;
        let OutboxSizes { messages, gather_max, scatter_max, inline_len, peers_max } = sizes;
        Outbox {
            slots,
            headers,
            zero,
            messages: Messages::new(messages),
            stats,
            gather_max,
            scatter_max,
            returned: Vec::with_capacity(RETURNED_MAX),
            leaked: 0,
            draft: Draft::default(),
            wants: Vec::with_capacity(WANTS_MAX),
            inline_len,
            batch: Batch::new(),
            has_others: false,
            // A connection that ended may be in the list together with its successor.
            ready: Vec::with_capacity(2 * peers_max),
            doorbell: DoorbellBatching::new(hold),
            answers: Answers::default(),
        }
    }

    /// The send slots. Free ones are also in the batch: [`Outbox::slots_free`].
    #[inline]
    pub fn slots(&self) -> &SendPool {
        &self.slots
    }

    /// The number of free send slots.
    #[inline]
    pub fn slots_free(&self) -> usize {
        self.slots.free() + self.batch.free()
    }

    /// The slots for the headers of groups.
    pub fn headers(&self) -> &Pool<Headers> {
        &self.headers
    }

    /// Allocates a slot for the next message, if one is free: the batch has it.
    #[inline(always)]
    pub fn allots_slot(&mut self) -> bool {
        if self.batch.slot().is_some() {
            return true;
        }
        match self.slots.take() {
            Some(slot) => self.batch.put(slot),
            None => return self.put_spare(),
        }
        true
    }

    /// Gives the next message a slot of the batch, if one is free.
    #[cold]
    fn put_spare(&mut self) -> bool {
        match self.batch.take_spare() {
            Some(slot) => self.batch.put(slot),
            None => return false,
        }
        true
    }

    /// Allocates another slot for the message under construction.
    #[cold]
    pub(super) fn take_next_slot(&mut self) -> Option<SendSlot> {
        self.slots.take().or_else(|| self.batch.take_spare())
    }

    /// Allocates a slot while no message is under construction.
    #[cold]
    pub(super) fn take_slot(&mut self) -> Option<SendSlot> {
        self.take_next_slot().or_else(|| self.batch.take())
    }

    /// Returns the free slots of the batch to their pool, for messages that are laid out. None is
    /// under construction.
    #[cold]
    fn return_spares(&mut self) {
        while let Some(slot) = self.batch.take().or_else(|| self.batch.take_spare()) {
            self.slots.put(slot);
        }
    }

    /// Gather entries of one work request.
    pub fn gather_max(&self) -> u32 {
        self.gather_max
    }

    /// Scatter entries of one RDMA Read.
    pub fn scatter_max(&self) -> u32 {
        self.scatter_max
    }

    #[inline]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    #[inline]
    pub fn messages_mut(&mut self) -> &mut Messages {
        &mut self.messages
    }

    /// The results requested by the call under construction.
    #[inline]
    pub fn wants(&self) -> &[Wanted] {
        &self.wants
    }

    /// As [`Outbox::wants`], to change them while the call is planned; they come back.
    #[cold]
    pub fn take_wants(&mut self) -> Vec<Wanted> {
        core::mem::take(&mut self.wants)
    }

    /// Puts the results back. The capacity stays for the next call.
    #[cold]
    pub fn put_wants(&mut self, wants: Vec<Wanted>) {
        self.wants = wants;
    }

    /// Whether a message can begin that is more than one slot of payload.
    pub fn has_message(&self) -> bool {
        self.draft.message.is_some() || self.messages.free() > 0
    }

    /// The results requested by the call under construction, and its gathered data.
    #[cold]
    pub fn take_back(&mut self) -> (impl Iterator<Item = Wanted>, impl Iterator<Item = Bulk>) {
        let Outbox { draft, messages, wants, .. } = self;
        let body = draft.message.map(|message| messages.body_mut(message));
        (wants.drain(..), body.into_iter().flat_map(|body| body.pieces.drain(..)))
    }

    /// Frees a message whose body is empty, with its slot.
    #[inline]
    pub fn free(&mut self, index: u32) {
        if let Some(slot) = self.messages.release(index) {
            self.slots.put(slot);
        }
    }

    /// Empties the body of a message; its gathered loans return to their pools.
    #[inline]
    pub fn empty(&mut self, index: u32) {
        let Outbox { messages, returned, .. } = self;
        let body = messages.body_mut(index);
        while let Some(piece) = body.pieces.pop() {
            // A loan that does not fit returns by being dropped, which costs more.
            if let Bulk::Loan(loan) = piece
                && returned.len() < returned.capacity()
            {
                returned.push(loan);
            }
        }
        body.items.clear();
        body.requests.clear();
        body.gather.clear();
        if !body.slots.is_empty() || body.headers.is_some() {
            self.free_slots(index);
        }
    }

    /// Frees the slots in the body of a message.
    #[inline(never)]
    fn free_slots(&mut self, index: u32) {
        let Outbox { slots, headers, messages, .. } = self;
        let body = messages.body_mut(index);
        body.slots.drain(..).for_each(|slot| slots.put(slot));
        if let Some(slot) = body.headers.take() {
            headers.push(slot);
        }
    }

    /// Whether short messages are ever held.
    #[inline]
    pub fn holds(&self) -> bool {
        self.doorbell.is_on()
    }

    /// Whether there is anything to post that is not held.
    #[inline]
    pub fn is_due(&mut self, now: u64, timers: &Timers) -> bool {
        !self.is_idle() && (!self.doorbell.is_on() || self.lets_go(now, timers))
    }

    /// Whether pending messages leave now. Only short messages are held, and only while slots are
    /// free.
    fn lets_go(&mut self, now: u64, timers: &Timers) -> bool {
        let is_short = self.is_short_only() && !self.has_others;
        let is_held = is_short && self.slots_free() > 0 && !timers.is_stopping();
        !is_held || self.doorbell.lets_go(self.batch.messages().len(), now)
    }

    /// Records that pending messages leave.
    #[inline]
    pub fn on_left(&mut self) {
        self.doorbell.on_left();
    }

    /// Records the number of polled messages.
    pub fn on_polled(&mut self, count: usize) {
        self.doorbell.on_polled(count);
    }

    /// Answers of other threads that wait for a slot.
    pub fn answers(&mut self) -> &mut Answers {
        &mut self.answers
    }

    /// The number of answers of other threads that wait for a slot.
    pub fn unanswered(&self) -> usize {
        self.answers.len()
    }

    /// Whether one of the waiting answers can be sent now.
    pub fn can_answer(&self, peers: &mut Peers) -> bool {
        self.answers.peers().any(|id| {
            // An answer to an ended connection does not wait.
            peers.named(id).is_none_or(|peer| self.has_slot_for(&peer.lane))
        })
    }

    /// Whether answers wait.
    #[inline]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether loans that left with a message have returned.
    #[inline]
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Loans that left with a message and have returned.
    pub fn returned(&self) -> &[Loan] {
        &self.returned
    }

    /// As [`Outbox::returned`], to return them to their pools.
    pub fn take_returned(&mut self) -> impl Iterator<Item = Loan> {
        self.returned.drain(..)
    }

    /// Messages that the device never completed.
    pub fn leaked(&self) -> u64 {
        self.leaked
    }

    /// Counts messages that the device did not complete in time.
    #[cold]
    pub fn on_leaked(&mut self, count: u64) {
        self.stats.buffers_leaked.add(count);
        self.leaked += count;
    }

    /// Recovers every slot whose holder was lost. The queues are destroyed.
    #[cold]
    pub fn recall(&mut self, quiet: impl Fn() -> Quiet) {
        self.slots.recall(quiet());
        self.headers.recall(quiet());
    }

    /// Writes `byte` over all free slots, for tests.
    pub fn poison(&mut self, byte: u8) {
        self.slots.poison(byte);
        self.batch.poison(byte);
        self.headers.poison(byte);
    }

    /// Records an error of a queue pair that took all requests: the next flush of its lane reports
    /// it.
    #[cold]
    pub fn note_trouble(&mut self, lane: &mut Lane, peer: u32, why: PostError) {
        if why != PostError::QueueFull {
            lane.trouble = Some(why);
        }
        self.wake(lane, peer);
    }

    /// Whether a peer may have one more send slot. A peer that accepts nothing gets at most four
    /// fifths of them if it is alone, and less for every other peer that has some.
    #[inline]
    pub fn has_slot_for(&self, lane: &Lane) -> bool {
        (lane.slots() as usize) < SHARE * self.slots_free()
    }

    /// A message of one gather entry.
    pub fn message(&mut self, slot: SendSlot, sge: Sge) -> u32 {
        let index = self.messages.begin().expect("there are as many messages as slots");
        let head = self.messages.head_mut(index);
        head.slot = Some(slot);
        head.sge = sge;
        index
    }

    /// Whether the end of a message matters to a waiter, or to users of its memory: a program for
    /// its loans, all peers for many slots. One slot, and registered bytes, can wait for a later
    /// completion.
    #[inline]
    pub fn is_awaited(&self, message: u32) -> bool {
        let is_loan = |piece: &Bulk| matches!(piece, Bulk::Loan(_));
        let body = self.messages.body(message);
        self.messages.head(message).after != After::Nothing
            || body.slots.len() > 1
            || body.pieces.iter().any(is_loan)
    }

    /// Drops every message in any state. Its resources return, except slots, which are lost until
    /// recovered. The queues are destroyed.
    #[cold]
    pub fn drop_messages(&mut self) {
        self.batch = Batch::new();
        self.has_others = false;
        self.messages = Messages::new(0);
    }

    /// Peers may reach memory of messages permanently: it is never used again.
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
        self.lay_out_opening(index, conn, plan, Opening::default())
    }

    /// As [`Outbox::lay_out`], behind the rights granted to the peer.
    #[cold]
    pub fn lay_out_opening(
        &mut self,
        index: u32,
        conn: &Connection,
        plan: Plan<'_>,
        opening: Opening<'_>,
    ) -> Result<(), CallRefused> {
        if self.batch.free() > 0 && self.slots.free() < SLOTS_MAX {
            self.return_spares();
        }
        let Outbox { headers, slots, zero, messages, gather_max, .. } = self;
        let means = Means { headers, send: slots, zero, gather_max: *gather_max as usize };
        layout::lay_out(messages, means, index, conn, plan, opening)
    }

    /// Puts a message that is laid out into its peer's lane.
    #[inline]
    pub fn enqueue(&mut self, lane: &mut Lane, peer: u32, index: u32) {
        lane.push(&mut self.messages, index);
        self.wake(lane, peer);
    }

    /// Puts a peer into the list of peers with pending messages.
    #[inline]
    pub fn wake(&mut self, lane: &mut Lane, peer: u32) {
        if !lane.ready {
            lane.ready = true;
            self.ready.push(peer);
        }
    }

    /// Returns and clears the peers with pending messages; unfinished ones come back by `retry`.
    #[inline]
    pub fn pop_ready(&mut self) -> Option<u32> {
        self.ready.pop()
    }

    /// Whether any peer has pending messages.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.ready.len() | self.batch.messages().len() == 0
    }

    /// Whether no message is pending in a lane.
    #[inline]
    pub fn is_short_only(&self) -> bool {
        self.ready.is_empty()
    }

    /// Schedules another attempt at a lane that the device refused, behind all others.
    #[cold]
    pub fn retry(&mut self, lane: &mut Lane, peer: u32) {
        if !lane.ready {
            lane.ready = true;
            self.ready.insert(0, peer);
        }
    }

    /// The bulk items of a message in the protocol's form.
    pub fn items(&self, index: u32) -> ArrayVec<BulkItem, ITEMS_MAX> {
        self.messages.body(index).items.iter().map(|entry: &GatherItem| entry.item).collect()
    }
}

/// Unsolicited messages that a peer may be sent: the control reserve (wire.md P10).
pub(crate) const UNSOLICITED_MAX: u32 = 4;
/// A peer may hold this multiple of the free send slots.
const SHARE: usize = 4;
/// Loans that may return at one time without being dropped.
const RETURNED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_utils::CachePadded;
    use rpcrdma_config::Config;

    use super::*;
    use crate::budget::Budget;
    use crate::fabric::Fabric;
    use crate::provider::Provider;
    use crate::shard::memory::Memory;
    use crate::stats::Stats;

    #[test]
    fn messages_that_never_complete_are_summed_up() {
        let (fabric, config) = (Fabric::new(), Config::default());
        let budget = Budget::new(&config, fabric.caps()).expect("it fits");
        let memory = Memory::new(&config, &budget, fabric.registrar(), None).expect("memory");
        let Memory { send: slots, headers, zero, .. } = memory;
        let pools = OutboxPools { slots, headers, zero };
        let stats = Arc::new(CachePadded::new(Stats::default()));
        let mut outbox = Outbox::new(stats.clone(), pools, OutboxSizes::SMALL, config.send().hold);
        outbox.on_leaked(2);
        outbox.on_leaked(3);
        assert_eq!((outbox.leaked(), stats.snapshot().buffers_leaked), (5, 5));
    }
}
