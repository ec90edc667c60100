//! The sent requests of a path: returned slots, and requests that wait for one.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use rpcrdma_provider::{SendOp, WcBatch, WcOpcode, WrId};

use super::{COLD, PENDING_SEND, Path};
use crate::body::{Acks, Header, OP_DISCONNECT, Refusal};
use crate::carrier::{Carrier, Incoming, Outgoing, Vacant};
use crate::keys::KeyCache;
use crate::qp::{Backlog, Disposition, QueuePair, State, opcode_of};
use crate::queue_set::{Outbound, Posted, QueueSet};

impl<C: Carrier> Path<C> {
    /// Whether a new request can be sent at once: none waits, and every poll will look for its ack.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.pending & (PENDING_SEND | COLD) == 0
    }

    /// Sends plain requests one after the other; [`Path::end_burst`] if any was sent.
    #[inline(always)]
    pub(crate) fn burst(&mut self) -> Burst<'_, C> {
        assert!(!self.posted.is_empty(), "a carrier has slots");
        let Path { tx, rx, posted, signaled, .. } = self;
        Burst { tx, posted, signaled, acks: rx.acks() }
    }

    /// The slots of a burst have acknowledged all slots taken.
    #[inline(always)]
    pub(crate) fn end_burst(&mut self) {
        self.announced = self.rx.next();
    }

    /// Publishes a slot that `fill` has written, for any request that goes to the peer. False if
    /// there is no room, or others wait for it.
    pub(crate) fn push_op(
        &mut self,
        qp: &mut QueuePair,
        keys: &KeyCache,
        request: Outbound,
        now: u64,
        fill: impl FnOnce(&mut <C::Tx as Outgoing>::Vacant<'_>),
    ) -> bool {
        self.is_open() && self.publish_op(qp, keys, request, now, fill)
    }

    /// As [`Path::push_op`], before all waiting requests.
    fn publish_op(
        &mut self,
        qp: &mut QueuePair,
        keys: &KeyCache,
        Outbound { posted, op, byte_len }: Outbound,
        now: u64,
        fill: impl FnOnce(&mut <C::Tx as Outgoing>::Vacant<'_>),
    ) -> bool {
        let is_published = self.publish(posted, byte_len, keys, now, |slot| {
            if let SendOp::Write(remote) | SendOp::Read(remote) = op {
                slot.set_target(remote.addr);
            }
            fill(slot);
        });
        if !is_published {
            return false;
        }
        qp.sent_until = NonZeroU64::new(self.tx.head());
        if posted.opcode == WcOpcode::Read {
            qp.reads += 1;
            self.care += 1;
        }
        true
    }

    /// Publishes a slot that `fill` has written. False if there is no room.
    #[inline(always)]
    fn publish(
        &mut self,
        posted: Posted,
        byte_len: u32,
        keys: &KeyCache,
        now: u64,
        fill: impl FnOnce(&mut <C::Tx as Outgoing>::Vacant<'_>),
    ) -> bool {
        let mut burst = self.burst();
        let is_published = burst.send(posted, byte_len, keys, |slot| {
            fill(slot);
            if now != 0 {
                slot.stamp(now);
            }
        });
        if is_published {
            if posted.disposition != Disposition::Silent {
                burst.mark();
            }
            self.end_burst();
        }
        is_published
    }

    /// Frees the slots that were taken if no request has to be completed for it. Otherwise returns
    /// false without effect: [`Path::retire`].
    #[inline(always)]
    pub(crate) fn free_silent(&mut self) -> bool {
        let until = self.acked.taken();
        let is_silent = self.care == 0
            && self.tx.refused() == self.refusals
            && self.signaled.front().is_none_or(|signaled| *signaled >= until);
        if is_silent {
            debug_assert!(self.knows_signaled(until), "every one is marked");
            self.tx.free(self.acked, until);
        }
        is_silent
    }

    /// Completes the requests whose slots were taken.
    #[inline]
    pub(crate) fn retire(&mut self, set: &mut QueueSet, mut out: Option<&mut WcBatch>, now: u64) {
        if self.care != 0 || self.tx.refused() != self.refusals {
            return self.retire_one_by_one(set, out, now);
        }
        let until = self.acked.taken();
        debug_assert!(self.knows_signaled(until), "every one is marked");
        while let Some(&position) = self.signaled.front()
            && position < until
        {
            self.signaled.pop_front();
            let posted = &self.posted[(position & self.mask) as usize];
            // One of a queue pair that has failed since is completed already.
            if posted.disposition != Disposition::Silent {
                set.complete(posted, out.as_deref_mut());
            }
        }
        self.tx.free(self.acked, until);
    }

    /// Whether all requests before `until` that need a completion are marked.
    fn knows_signaled(&self, until: u64) -> bool {
        (self.tx.freed()..until).all(|position| {
            self.posted[(position & self.mask) as usize].disposition == Disposition::Silent
                || self.signaled.contains(&position)
        })
    }

    /// As [`Path::retire`], with the time and the result of each slot.
    #[cold]
    fn retire_one_by_one(&mut self, set: &mut QueueSet, mut out: Option<&mut WcBatch>, now: u64) {
        while self.tx.freed() != self.acked.taken() {
            let position = self.tx.freed();
            if set.settings.delay_ns != 0
                && now < self.tx.taken_at(position).saturating_add(set.settings.delay_ns)
            {
                return;
            }
            let posted = self.posted[(position & self.mask) as usize];
            let mut is_lost = false;
            let refusal = if posted.opcode == WcOpcode::Read {
                // Its slot returns only after the peer has executed it.
                let Some(outcome) = self.tx.outcome(position) else { return };
                self.care -= 1;
                self.read_has_ended(set, posted.qp_num);
                is_lost = outcome.is_ok() && posted.qp_num != UNOWNED.qp_num && {
                    set.keys.refresh();
                    self.tx.place_read(position, &set.keys).is_err()
                };
                outcome.err()
            } else if self.tx.refused() == self.refusals {
                None
            } else {
                let refusal = self.tx.refusal(position);
                self.refusals += u64::from(refusal.is_some());
                refusal
            };
            self.tx.free(self.acked, position + 1);
            if self.signaled.front() == Some(&position) {
                self.signaled.pop_front();
            }
            match refusal {
                Some(why) => self.was_refused(set, out.as_deref_mut(), posted, why),
                None if is_lost => self.was_lost(set, out.as_deref_mut(), posted),
                None => {
                    if posted.disposition != Disposition::Silent {
                        set.complete(&posted, out.as_deref_mut());
                    }
                    let (num, behind) = (posted.qp_num, position + 1);
                    self.complete_behind(set, out.as_deref_mut(), num, behind, None);
                }
            }
        }
    }

    /// The peer has refused a slot.
    fn was_refused(
        &mut self,
        set: &mut QueueSet,
        mut out: Option<&mut WcBatch>,
        posted: Posted,
        why: Refusal,
    ) {
        let num = posted.qp_num;
        // The requests of a failed queue pair are already flushed.
        if set.qps.find(num).is_none_or(|qp| qp.state == State::Error) {
            return;
        }
        let disposition = match why {
            Refusal::TooLong => Disposition::TooLong,
            Refusal::NotReady => Disposition::NotReady,
            Refusal::Gone => Disposition::Flushed,
            Refusal::Broken => Disposition::Broken,
            Refusal::Unreadable => Disposition::Protection,
            Refusal::Access | Refusal::Bounds | Refusal::Rights => Disposition::RemoteAccess,
        };
        set.complete(&Posted { disposition, covers: 0, ..posted }, out.as_deref_mut());
        self.fail(set, out, num);
        set.report_disconnect(num);
    }

    /// The data of a Read have not reached their place on this side.
    #[cold]
    fn was_lost(&mut self, set: &mut QueueSet, out: Option<&mut WcBatch>, posted: Posted) {
        let peer = set.qps.find(posted.qp_num).map(|qp| qp.peer);
        self.was_refused(set, out, posted, Refusal::Unreadable);
        if let Some(peer) = peer {
            self.queue_disconnect(peer);
        }
    }

    /// Moves a queue pair to the error state and flushes it: first the requests that the peer has
    /// not acked, then those that wait here. Afterwards the memory of its requests is not read.
    /// False if it was in the error state already.
    #[cold]
    pub(crate) fn fail(
        &mut self,
        set: &mut QueueSet,
        mut out: Option<&mut WcBatch>,
        num: u32,
    ) -> bool {
        let Some(qp) = set.qps.find(num).filter(|qp| qp.state != State::Error) else {
            return false;
        };
        qp.state = State::Error;
        let mut waiting = std::mem::replace(&mut qp.backlog, Backlog::EMPTY);
        let flushed = Some(Disposition::Flushed);
        let positions = self.tx.freed()..self.tx.head();
        let is_ours = |posted: &Posted| posted.qp_num == num;
        for position in positions.clone() {
            if is_ours(&self.posted[(position & self.mask) as usize]) {
                self.tx.withdraw(position);
            }
        }
        self.tx.quiesce();
        self.complete_behind(set, out.as_deref_mut(), num, self.tx.freed(), flushed);
        for position in positions {
            let posted = &mut self.posted[(position & self.mask) as usize];
            if is_ours(posted) {
                let lost = Posted { disposition: Disposition::Flushed, covers: 0, ..*posted };
                // The peer keeps the slot of a Read until it reports its result.
                *posted = Posted { opcode: posted.opcode, ..UNOWNED };
                set.complete(&lost, out.as_deref_mut());
                let behind = position + 1;
                self.complete_behind(set, out.as_deref_mut(), num, behind, flushed);
            }
        }
        while let Some(request) = set.backlog.front(&waiting) {
            let disposition = if request.disposition.is_success() {
                Disposition::Flushed
            } else {
                request.disposition
            };
            let (wr_id, opcode) = (request.wr_id, opcode_of(request.op));
            let flushed = Posted { wr_id, qp_num: num, covers: 0, disposition, opcode };
            set.backlog.pop(&mut waiting);
            set.complete(&flushed, out.as_deref_mut());
        }
        true
    }

    /// Sends a disconnect as soon as there is room: the peer's queue pair fails, too.
    pub(crate) fn queue_disconnect(&mut self, peer_num: u32) {
        self.pending |= PENDING_SEND;
        self.disconnects.push_back(peer_num);
    }

    /// A queue pair's requests wait for room.
    pub(crate) fn enqueue(&mut self, num: u32) {
        self.pending |= PENDING_SEND;
        self.waiting.push_back(num);
    }

    /// Removes a queue pair from the waiting ones.
    pub(crate) fn forget(&mut self, num: u32) {
        self.waiting.retain(|waiting| *waiting != num);
    }

    /// Sends what waits for room: disconnects, then one request of each queue pair in turn.
    #[cold]
    pub(crate) fn drain(&mut self, set: &mut QueueSet, mut out: Option<&mut WcBatch>, now: u64) {
        let before = self.tx.head();
        set.keys.refresh();
        while let Some(&peer_num) = self.disconnects.front()
            && self.publish(UNOWNED, 0, &set.keys, now, |slot| {
                let disconnect = Header { dst: peer_num, op: OP_DISCONNECT, ..Header::empty() };
                slot.body().header = disconnect;
            })
        {
            self.disconnects.pop_front();
        }
        // Queue pairs that wait for another event are skipped, each once.
        let mut passed = 0;
        while self.tx.has_room() && passed < self.waiting.len() {
            let Some(num) = self.waiting.pop_front() else { break };
            match self.send_waiting(set, out.as_deref_mut(), num, now) {
                Turn::Done => {}
                Turn::Again => self.waiting.push_back(num),
                Turn::Later => {
                    passed += 1;
                    self.waiting.push_back(num);
                }
                Turn::NoRoom => {
                    self.waiting.push_front(num);
                    break;
                }
            }
        }
        if self.disconnects.is_empty() && self.waiting.is_empty() {
            self.pending &= !PENDING_SEND;
        }
        if self.tx.head() != before {
            self.carrier.wake_peer();
        }
    }

    /// Sends the oldest waiting request of a queue pair. There is a slot.
    fn send_waiting(
        &mut self,
        set: &mut QueueSet,
        out: Option<&mut WcBatch>,
        num: u32,
        now: u64,
    ) -> Turn {
        let QueueSet { qps, backlog, keys, .. } = set;
        let Some(qp) = qps.find(num) else { return Turn::Done };
        let Some(request) = backlog.front(&qp.backlog) else {
            qp.is_waiting = false;
            return Turn::Done;
        };
        if !request.disposition.is_success() {
            // Its memory was invalid when it was posted; it fails after those before it.
            if self.under_way(qp).is_some() {
                return Turn::Later;
            }
            let peer = qp.peer;
            self.fail(set, out, num);
            set.report_disconnect(num);
            self.queue_disconnect(peer);
            return Turn::Done;
        }
        let reads_max = set.settings.reads_max.min(self.tx.reads_max());
        if request.must_wait(qp.reads.into(), reads_max) {
            // The completion of the Read queues it again.
            (qp.state, qp.is_waiting) = (State::Held, false);
            return Turn::Done;
        }
        let (wr_id, covers, disposition, op) =
            (request.wr_id, request.covers, request.disposition, request.op);
        let posted = Posted { wr_id, qp_num: num, covers, disposition, opcode: opcode_of(op) };
        if matches!(op, SendOp::Bind(_) | SendOp::Invalidate { .. }) {
            if !self.carry_out_here(set, out, posted, op) {
                let Some(qp) = set.qps.find(num) else { return Turn::Done };
                set.backlog.mark_failed(&qp.backlog, Disposition::WindowBind);
                return Turn::Again;
            }
        } else {
            let outbound = Outbound { posted, op, byte_len: request.body.header.byte_len };
            if !self.publish_op(qp, keys, outbound, now, |slot| *slot.body() = request.body) {
                return Turn::NoRoom;
            }
        }
        let Some(qp) = set.qps.find(num) else { return Turn::Done };
        set.backlog.pop(&mut qp.backlog);
        qp.is_waiting = !qp.backlog.is_empty();
        if qp.is_waiting { Turn::Again } else { Turn::Done }
    }
}

/// Plain requests of a path that are sent one after the other.
pub(crate) struct Burst<'a, C: Carrier> {
    tx: &'a mut C::Tx,
    posted: &'a mut [Posted],
    signaled: &'a mut VecDeque<u64>,
    /// What all their slots acknowledge.
    acks: Acks,
}

impl<C: Carrier> Burst<'_, C> {
    /// Publishes a slot that `fill` has written. False if there is no room.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        posted: Posted,
        byte_len: u32,
        keys: &KeyCache,
        fill: impl FnOnce(&mut <C::Tx as Outgoing>::Vacant<'_>),
    ) -> bool {
        let position = self.tx.head();
        let Some(mut slot) = self.tx.claim(byte_len) else { return false };
        self.posted[position as usize & (self.posted.len() - 1)] = posted;
        fill(&mut slot);
        slot.publish(self.acks, keys);
        true
    }

    /// Makes the last request, which was sent as silent, complete, with so many places of the send
    /// queue.
    #[inline(always)]
    pub(crate) fn signal(&mut self, covers: u16) {
        signal(self.posted, self.signaled, self.tx.head() - 1, covers);
    }

    /// The last request needs a completion.
    fn mark(&mut self) {
        self.signaled.push_back(self.tx.head() - 1);
    }
}

/// As [`Burst::signal`], of the request at `position`.
#[cold]
#[inline(never)]
fn signal(posted: &mut [Posted], signaled: &mut VecDeque<u64>, position: u64, covers: u16) {
    let posted = &mut posted[position as usize & (posted.len() - 1)];
    (posted.disposition, posted.covers) = (Disposition::Signaled, covers);
    signaled.push_back(position);
}

/// The result of a queue pair's turn to send.
enum Turn {
    /// It has nothing more to send.
    Done,
    /// It has more to send.
    Again,
    /// It waits for another event.
    Later,
    /// It waits for room for the bytes of its next request.
    NoRoom,
}

/// The record of a slot that has no request to complete.
const UNOWNED: Posted = Posted {
    wr_id: WrId(0),
    qp_num: u32::MAX,
    covers: 0,
    disposition: Disposition::Silent,
    opcode: WcOpcode::Send,
};
