//! The path: all traffic with one other set of queues, and the state of sent requests.
//!
//! All queue pairs between two sets of queues share a path. Acks count the slots taken. They travel
//! in every slot of the other direction; the ack line is used only when there is no such slot: a
//! store to a line that the peer reads would delay a following reply.

mod local;
mod readiness;
mod remote;
mod sent;
mod visit;

use std::collections::VecDeque;
use std::num::NonZeroU64;

use rpcrdma_provider::{RNR_RETRY_FOREVER, WcBatch, WcOpcode, WrId};

use super::body::{Acks, Header, OP_SEND, Refusal};
use super::carrier::{Carrier, Incoming, Outgoing};
use super::keys::Reader;
use super::qp::{Disposition, QueuePair};
use super::queue_set::{Arrival, Posted, QueueSet};

/// One end of a carrier, and its requests in flight.
pub(crate) struct Path<C: Carrier> {
    pub tx: C::Tx,
    pub rx: C::Rx,
    pub carrier: C,
    /// Its index among the paths of its queues.
    pub index: u32,
    /// Queue pairs that use it.
    pub qps: u32,
    /// The peer's queues are gone.
    pub is_dead: bool,
    /// Slots behind this position are not taken any more: the peer was found to be gone a lap before.
    last_lap: Option<u64>,
    /// By position of the slot.
    posted: Box<[Posted]>,
    mask: u64,
    /// The positions of the requests among them that need a completion, also of some that do not.
    signaled: VecDeque<u64>,
    /// The newest acks seen: never ahead of what was published.
    acked: Acks,
    /// Refusals handled.
    refusals: u64,
    /// The last ack that the peer was sent.
    announced: u64,
    /// Polls without a message since an ack became pending.
    quiet: u32,
    /// The last poll took a message.
    is_streaming: bool,
    /// Since when the front of `rx` waits for a Receive: position and time in ns.
    blocked: Option<(u64, u64)>,
    /// The position up to which acks behind a blocked front were read.
    peeked: u64,
    /// What its polls have to do: [`PENDING_SEND`], [`PENDING_READ`]; and [`COLD`].
    pending: u8,
    /// The peer's Reads that were taken and not executed yet, in order.
    reads: VecDeque<PendingRead>,
    /// This side's outstanding Reads, requests that complete behind a slot, and one for a delay.
    /// While it is not 0, slots are retired one by one.
    care: u32,
    /// The peer's queue pairs that a disconnect is to be sent to.
    disconnects: VecDeque<u32>,
    /// Queue pairs whose requests wait for room, each once.
    waiting: VecDeque<u32>,
}

impl<C: Carrier> Path<C> {
    pub(crate) fn new(carrier: C, tx: C::Tx, rx: C::Rx, index: u32, is_delayed: bool) -> Path<C> {
        let (wr_id, opcode) = (WrId(0), WcOpcode::Send);
        let nothing =
            Posted { wr_id, qp_num: 0, covers: 0, disposition: Disposition::Silent, opcode };
        let (acked, announced, slots) = (Acks::up_to(tx.freed()), rx.next(), tx.slots());
        Path {
            tx,
            rx,
            carrier,
            index,
            qps: 0,
            is_dead: false,
            last_lap: None,
            posted: vec![nothing; slots as usize].into_boxed_slice(),
            mask: slots - 1,
            signaled: VecDeque::with_capacity(slots as usize),
            acked,
            refusals: 0,
            announced,
            quiet: 0,
            is_streaming: false,
            blocked: None,
            peeked: 0,
            pending: 0,
            reads: VecDeque::with_capacity(slots as usize),
            care: is_delayed.into(),
            disconnects: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Reserves memory for one more queue pair, so that the data path allocates none.
    pub(crate) fn add_qp(&mut self) {
        self.qps += 1;
        let count = self.qps as usize;
        self.disconnects.reserve(count);
        self.waiting.reserve(count);
    }

    /// Executes at most `budget` messages that have arrived, and completes what was acked.
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        set: &mut QueueSet,
        reader: &Reader,
        out: &mut WcBatch,
        budget: usize,
    ) {
        let now = set.now_if_delayed();
        // The first message after an idle poll is reported alone: a look for a second one would
        // wait for a cache line that the peer has not written yet, and delay the program's reply.
        // Housekeeping waits for the next poll.
        let is_alone = !self.is_streaming && !C::Rx::TAKES_IN;
        let budget = if is_alone { 1 } else { budget };
        let taken = self.receive(set, reader, out, now, budget);
        let is_due = if taken == 0 { !self.is_still() } else { self.is_streaming };
        if is_due || set.settings.delay_ns != 0 {
            self.housekeep(set, out, now, taken == 0);
        }
        self.is_streaming = taken > 0;
        if taken > 0 {
            self.quiet = 0;
        }
        if self.pending & !COLD != 0 {
            self.do_pending(set, reader, out, now);
        }
    }

    /// Whether the path is idle in both directions and the peer exists. Slots that have come back
    /// and complete nothing are freed.
    #[inline(always)]
    fn is_still(&mut self) -> bool {
        self.announced == self.rx.next()
            && self.tx.acks() <= self.acked
            && !self.rx.is_closed()
            && (self.acked.taken() == self.tx.freed() || self.free_silent())
    }

    /// Acknowledges what was taken and completes what was acknowledged.
    #[inline(never)]
    fn housekeep(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64, is_idle: bool) {
        if self.announced == self.rx.next() && set.settings.delay_ns == 0 {
            self.quiet = 0;
        } else {
            self.announce_if_due(set.settings.delay_ns != 0, is_idle);
        }
        if is_idle {
            if self.tx.freed() != self.tx.head() {
                self.read_ack_line();
            }
            if self.rx.is_closed() {
                self.close(set, out);
            }
        } else if self.rx.is_cut() {
            self.close(set, out);
        }
        if self.acked.taken() != self.tx.freed() {
            self.retire(set, Some(out), now);
        }
    }

    /// Acknowledges the slots taken if there are many, or if no message comes whose answer would
    /// carry the ack.
    #[inline(never)]
    fn announce_if_due(&mut self, is_delayed: bool, is_idle: bool) {
        let unannounced = self.rx.next() - self.announced;
        self.quiet = if is_idle && unannounced != 0 { self.quiet + 1 } else { 0 };
        if unannounced > self.mask / 4 || self.quiet >= QUIET_POLLS || is_delayed {
            self.announce();
        }
    }

    /// Takes messages while there are any and a completion has room. Returns their number.
    #[inline(always)]
    fn receive(
        &mut self,
        set: &mut QueueSet,
        reader: &Reader,
        out: &mut WcBatch,
        now: u64,
        budget: usize,
    ) -> usize {
        if C::Rx::TAKES_IN && self.rx.has_news() {
            reader.begin(&mut set.keys);
            self.rx.take_in(&set.keys);
            reader.end();
        }
        self.rx.prefetch_front();
        if out.is_full() || self.rx.front().is_none() {
            return 0;
        }
        reader.begin(&mut set.keys);
        set.srq.check(&set.keys);
        let taken = self.take(set, out, now, budget);
        reader.end();
        taken
    }

    /// As [`Path::receive`], while keys may be used. There is a message, and room for its
    /// completion.
    #[inline(always)]
    fn take(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64, budget: usize) -> usize {
        let mut budget = budget.min(out.remaining_capacity());
        let mut taken = 0;
        loop {
            if set.settings.delay_ns == 0 {
                let (short, acks) = set.arrive_short(&mut self.rx, out, budget - taken);
                self.acked = self.newer(acks);
                taken += short;
            }
            if taken >= budget || self.rx.front().is_none() {
                return taken;
            }
            let (others, are_more) = self.take_others(set, out, now, budget - taken);
            taken += others;
            if !are_more {
                return taken;
            }
            // Requests of this side may have completed, too.
            budget = budget.min(taken + out.remaining_capacity());
        }
    }

    /// Takes messages of any kind, at most `max`, until the next is a short one. Returns their
    /// number, and whether there are more that do not wait.
    #[inline(never)]
    fn take_others(
        &mut self,
        set: &mut QueueSet,
        out: &mut WcBatch,
        now: u64,
        max: usize,
    ) -> (usize, bool) {
        let delay_ns = set.settings.delay_ns;
        let mut taken = 0;
        while let Some(front) = self.rx.front() {
            let is_last = taken >= max || out.is_full() || delay_ns == 0 && front.is_short_send();
            if taken > 0 && is_last {
                return (taken, true);
            }
            if delay_ns != 0 && !self.has_come(delay_ns, now) {
                break;
            }
            self.acked = self.newer(front.acks);
            if !self.receive_other(set, out, now, &front) {
                break;
            }
            taken += 1;
            self.rx.prefetch_front();
        }
        (taken, false)
    }

    /// Whether the delay of the front is over; if so, records when it is taken.
    #[cold]
    fn has_come(&self, delay_ns: u64, now: u64) -> bool {
        if now < self.rx.published_at().saturating_add(delay_ns) {
            return false;
        }
        self.rx.stamp_taken(now);
        true
    }

    /// Takes the front, with any operation. False if it waits for a Receive.
    fn receive_other(
        &mut self,
        set: &mut QueueSet,
        out: &mut WcBatch,
        now: u64,
        front: &Header,
    ) -> bool {
        if front.op != OP_SEND {
            return self.carry_out(set, out, now, front);
        }
        let arrival = set.arrive(&self.rx, front, out);
        self.return_front(set, out, now, front.dst, arrival)
    }

    /// Returns the front with its result. False if it waits for a Receive.
    fn return_front(
        &mut self,
        set: &mut QueueSet,
        out: &mut WcBatch,
        now: u64,
        dst: u32,
        arrival: Arrival,
    ) -> bool {
        match arrival {
            Arrival::Delivered => self.rx.release(),
            Arrival::Refused(why) => self.refuse(set, out, now, dst, why),
            Arrival::NoReceive { rnr_retry } if self.give_up(set, rnr_retry) => {
                self.refuse(set, out, now, dst, Refusal::NotReady);
            }
            Arrival::NoReceive { .. } => return false,
        }
        true
    }

    /// The front cannot be delivered; its queue pair fails on both sides.
    #[cold]
    fn refuse(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64, dst: u32, why: Refusal) {
        self.finish_reads_of(set, dst);
        self.rx.refuse(why);
        self.announce();
        self.peer_left(set, out, now, dst);
    }

    /// Nothing more comes from the queue pair's peer.
    #[cold]
    fn peer_left(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64, num: u32) {
        self.retire(set, Some(out), now);
        if self.fail(set, Some(out), num) {
            set.report_disconnect(num);
        }
    }

    /// Whether the front has waited for a Receive long enough. Meanwhile the acks behind it are
    /// read, so that this side's requests complete.
    #[cold]
    fn give_up(&mut self, set: &mut QueueSet, rnr_retry: u8) -> bool {
        let front = self.rx.next();
        if self.rx.is_cancelled() {
            return true;
        }
        let since = match self.blocked {
            Some((position, since)) if position == front => since,
            _ => {
                set.rnr_count += 1;
                self.peeked = front + 1;
                let since =
                    if rnr_retry < RNR_RETRY_FOREVER { set.settings.clock.now_ns() } else { 0 };
                self.blocked = Some((front, since));
                since
            }
        };
        while self.peeked - front <= self.mask
            && let Some(header) = self.rx.peek(self.peeked)
        {
            self.acked = self.newer(header.acks);
            self.peeked += 1;
        }
        if rnr_retry >= RNR_RETRY_FOREVER {
            return false;
        }
        let waited = set.settings.clock.now_ns().saturating_sub(since);
        waited >= u64::from(rnr_retry).saturating_mul(set.settings.rnr_timer_ns)
    }

    /// Reads the ack line for slots that the peer has taken since its last slot.
    #[inline]
    pub(crate) fn read_ack_line(&mut self) {
        self.acked = self.newer(self.tx.acks());
    }

    /// These acks, if they are newer than the last ones and not ahead of what was published;
    /// otherwise the last ones.
    #[inline(always)]
    fn newer(&self, acks: Acks) -> Acks {
        let acked = self.acked.taken();
        let is_newer = acks.taken().wrapping_sub(acked) <= self.tx.head() - acked;
        if is_newer { acks } else { self.acked }
    }

    /// Writes an ack to the ack line.
    #[cold]
    pub(crate) fn announce(&mut self) {
        self.quiet = 0;
        if self.announced != self.rx.next() {
            self.announced = self.rx.next();
            self.rx.announce();
            self.carrier.wake_peer();
        }
    }

    /// The peer's queues are gone: nothing more comes from them but what was published, a lap at
    /// most, and this side's slots are not read.
    #[cold]
    fn close(&mut self, set: &mut QueueSet, out: &mut WcBatch) {
        let lap = self.rx.next() + self.mask + 1;
        let has_more = self.rx.next() < *self.last_lap.get_or_insert(lap);
        if self.is_dead || has_more && self.rx.front().is_some() {
            return;
        }
        if !self.tx.is_abandoned() {
            return;
        }
        // Requests that the peer took before succeed.
        self.read_ack_line();
        self.retire(set, Some(out), set.now_if_delayed());
        self.is_dead = true;
        let ours = set.qps.iter().filter(|qp| qp.path == self.index);
        let nums: Vec<u32> = ours.map(|qp| qp.num).collect();
        for num in nums {
            if self.fail(set, Some(out), num) {
                set.report_disconnect(num);
            }
        }
        self.acked = self.tx.reclaim(self.acked);
        self.signaled.clear();
        self.disconnects.clear();
        self.reads.clear();
    }

    /// Accounts for skipped slots, in both directions of an idle path.
    #[cold]
    pub(crate) fn has_skipped(&mut self) {
        (self.acked, self.announced) = (self.tx.acks(), self.rx.next());
    }

    /// Closes both directions, and wakes the peer.
    pub(crate) fn close_for_good(self) {
        let Path { tx, rx, carrier, .. } = self;
        drop((tx, rx));
        carrier.wake_peer();
    }

    /// Whether a message may still come that a peer sent before it left.
    #[cold]
    pub(crate) fn has_more(&self, qp: &mut QueuePair) -> bool {
        let until = match qp.messages_end {
            Some(until) => until.get(),
            None => {
                let behind = self.rx.next() + self.mask + 1;
                qp.messages_end = NonZeroU64::new(behind);
                behind
            }
        };
        self.rx.front().is_some() && self.rx.next() < until
    }
}

/// A Read that was taken.
struct PendingRead {
    position: u64,
    /// It was taken in this poll.
    is_new: bool,
    /// When the data arrive at the requester, in ns.
    due: u64,
    /// The address in this side's memory that it reads.
    from: u64,
    header: Header,
}

/// Polls without a message before an ack is sent on the ack line: longer than a peer takes to
/// answer, so that the next message of the exchange carries the ack.
const QUIET_POLLS: u32 = 16;
/// Pending: this side's requests wait for room or another event.
const PENDING_SEND: u8 = 1;
/// Pending: the peer's Reads wait.
const PENDING_READ: u8 = 2;
/// Not every poll visits the path: before it has requests, [`Path::warm`].
const COLD: u8 = 4;
