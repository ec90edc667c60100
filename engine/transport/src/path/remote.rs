//! Requests of peers to this side's memory: Writes, Reads, and Sends with invalidation.
//!
//! ```text
//!   requester   READ ─────▶ SEND ─────▶
//!   responder        take         take, deliver      carry out: check, copy ─▶ outcome
//!                                                    not before the next poll, nor before the
//!                                                    data could have travelled back
//! ```
//!
//! A Read is taken in order, when its key is first checked, and executed late, when the key is
//! checked again. Everything behind it may overtake it, as on a device. A program that needs it
//! done first posts a fence.

use rpcrdma_provider::{WcBatch, WcOpcode};

use super::{PENDING_READ, PENDING_SEND, Path, PendingRead};
use crate::body::{Header, OP_READ, OP_SEND_INVALIDATE, OP_WRITE, Refusal};
use crate::carrier::{Carrier, DmaError, Incoming, Outgoing};
use crate::dma;
use crate::keys::Reader;
use crate::qp::State;
use crate::queue_set::{Arrival, QueueSet};
use crate::rights::{Granted, Request};
use rpcrdma_mempool::Access;

impl<C: Carrier> Path<C> {
    /// Executes the front, which is not a plain Send. False if it waits for a Receive.
    #[inline(never)]
    pub(crate) fn carry_out(
        &mut self,
        set: &mut QueueSet,
        out: &mut WcBatch,
        now: u64,
        front: &Header,
    ) -> bool {
        let arrival = match front.op {
            OP_WRITE => set.write(&self.rx, front),
            OP_SEND_INVALIDATE => set.arrive_invalidating(&self.rx, front, out),
            OP_READ => {
                self.take_read(set, out, now, *front);
                return true;
            }
            _ => {
                self.rx.release();
                self.peer_left(set, out, now, front.dst);
                return true;
            }
        };
        self.return_front(set, out, now, front.dst, arrival)
    }

    /// Takes a Read in its turn. A wrong key is reported at once, and one Read more than there are
    /// slots: each keeps its slot until it is executed.
    fn take_read(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64, header: Header) {
        let (from, position) = (self.rx.target(), self.rx.next());
        let is_possible = self.reads.len() < self.posted.len();
        let why =
            if is_possible { set.readable(&header, from).err() } else { Some(Refusal::Access) };
        if let Some(why) = why {
            self.finish_reads_of(set, header.dst);
            self.rx.finish(position, Err(why));
            self.rx.release();
            self.announce();
            self.peer_left(set, out, now, header.dst);
            return;
        }
        let due = now.saturating_add(set.settings.delay_ns);
        self.reads.push_back(PendingRead { position, is_new: true, due, from, header });
        self.pending |= PENDING_READ;
        self.rx.release();
    }

    /// Executes the peer's due Reads, then this side's waiting requests.
    #[inline(never)]
    pub(crate) fn do_pending(
        &mut self,
        set: &mut QueueSet,
        reader: &Reader,
        out: &mut WcBatch,
        now: u64,
    ) {
        if self.pending & PENDING_READ != 0 {
            reader.begin(&mut set.keys);
            self.carry_out_reads(set, out, now);
            reader.end();
        }
        if self.pending & PENDING_SEND != 0 {
            self.drain(set, Some(out), now);
        }
    }

    /// Executes Reads that are due and were taken in an earlier poll: only so many that others have
    /// their turn.
    fn carry_out_reads(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64) {
        let before = self.reads.len();
        while before - self.reads.len() < TURN_READS
            && self.rx.can_answer()
            && self.reads.front().is_some_and(|read| !read.is_new && read.due <= now)
            && let Some(read) = self.reads.pop_front()
        {
            let outcome = set.read(&self.rx, &read);
            self.rx.finish(read.position, outcome);
            if outcome.is_err() {
                self.finish_reads_of(set, read.header.dst);
                self.peer_left(set, out, now, read.header.dst);
            }
        }
        self.reads
            .iter_mut()
            .rev()
            .take_while(|read| read.is_new)
            .for_each(|read| read.is_new = false);
        if self.reads.is_empty() {
            self.pending &= !PENDING_READ;
        }
        if self.reads.len() != before {
            self.announce();
            self.carrier.wake_peer();
        }
    }

    /// Executes the Reads of a queue pair that is going to fail: the peer's earlier requests are
    /// answered. The answers keep their delay.
    #[cold]
    pub(crate) fn finish_reads_of(&mut self, set: &QueueSet, num: u32) {
        let rx = &mut self.rx;
        self.reads.retain(|read| {
            let is_theirs = read.header.dst == num;
            if is_theirs {
                let outcome = set.read(rx, read);
                rx.finish(read.position, outcome);
            }
            !is_theirs
        });
    }

    /// Whether the slot at `position` is a Read of this side that the peer has not executed.
    pub(crate) fn is_read_under_way(&self, position: u64) -> bool {
        self.posted[(position & self.mask) as usize].opcode == WcOpcode::Read
            && self.tx.outcome(position).is_none()
    }
}

impl QueueSet {
    /// Executes a Write.
    fn write<R: Incoming>(&self, rx: &R, front: &Header) -> Arrival {
        let to = match self.granted(front, rx.target(), Access::REMOTE_WRITE) {
            Ok(to) => to,
            Err(why) => return Arrival::Refused(why),
        };
        let outcome = if front.pieces == 0 {
            Some(dma::write(rx, front, to))
        } else {
            dma::write_fetched(rx, front, to, &self.keys)
        };
        match outcome {
            Some(Ok(())) => Arrival::Delivered,
            Some(Err(_)) => Arrival::Refused(Refusal::Unreadable),
            None => Arrival::Refused(Refusal::Gone),
        }
    }

    /// The bytes that a Read asks for.
    fn readable(&self, read: &Header, from: u64) -> Result<Granted, Refusal> {
        self.granted(read, from, Access::REMOTE_READ)
    }

    /// Executes a Read.
    fn read<R: Incoming>(&self, rx: &R, read: &PendingRead) -> Result<(), Refusal> {
        let from = self.readable(&read.header, read.from)?;
        match rx.answer(read.position, &read.header, &self.keys, from) {
            Some(Ok(())) => Ok(()),
            Some(Err(DmaError::Source | DmaError::Destination)) => Err(Refusal::Unreadable),
            None => Err(Refusal::Gone),
        }
    }

    /// The memory of this side that a request names, with its queue pair, key, bounds and rights
    /// checked.
    #[inline]
    fn granted(&self, front: &Header, addr: u64, access: Access) -> Result<Granted, Refusal> {
        let Header { dst, rkey, byte_len, .. } = *front;
        let qp = self.qps.peek(dst).filter(|qp| qp.state != State::Error);
        qp.ok_or(Refusal::Gone)?;
        let request = Request { qp: dst, rkey, addr, len: byte_len, access };
        self.rights.grant(&self.keys, request)
    }

    /// As [`QueueSet::arrive`], with a key that is dead when the Receive completes. A message whose
    /// key its queue pair does not have takes no Receive.
    fn arrive_invalidating<R: Incoming>(
        &mut self,
        rx: &R,
        front: &Header,
        out: &mut WcBatch,
    ) -> Arrival {
        let (qp, rkey) = (front.dst, front.rkey);
        let is_alive = self.qps.receives(qp);
        if is_alive && !self.rights.is_bound(qp, rkey) {
            return Arrival::Refused(Refusal::Access);
        }
        let arrival = self.arrive(rx, front, out);
        if matches!(arrival, Arrival::Delivered) {
            self.rights.invalidate(qp, rkey);
            if let Some(completion) = out.last_mut() {
                completion.invalidated = Some(rkey);
            }
        }
        arrival
    }
}

/// Reads of one path that a poll executes: as many as a queue pair has under way by default.
const TURN_READS: usize = 16;
