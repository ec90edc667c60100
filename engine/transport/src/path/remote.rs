//! Requests of peers to this side's memory: Writes, Reads, and Sends with invalidation.
//!
//! ```text
//!   requester   READ ─────▶ SEND ─────▶
//!   responder        take         take, deliver      carry out: check, copy ─▶ verdict
//!                                                    not before the next poll, nor before the
//!                                                    data could have travelled back
//! ```
//!
//! A Read is taken in order, when its key is first checked, and executed late, when the key is
//! checked again. Everything behind it may overtake it, as on a device. A program that needs it
//! done first posts a fence.

use rpcrdma_provider::{WcBatch, WcOpcode};

use super::{CHORE_READ, CHORE_SEND, Outlook, Path, PendingRead};
use crate::body::{Body, OP_READ, OP_SEND_INVALIDATE, OP_WRITE, Refusal};
use crate::carrier::{Carrier, DmaError, Incoming, Outgoing};
use crate::dma;
use crate::keys::Reader;
use crate::qp::State;
use crate::queue_set::{Arrival, QueueSet};
use crate::rights::Granted;
use rpcrdma_mempool::Access;

impl<C: Carrier> Path<C> {
    /// Executes the front, which is not a plain Send. False if it waits for a Receive.
    #[inline(never)]
    pub(crate) fn carry_out(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64) -> bool {
        let Some(body) = self.rx.front() else { return true };
        let dst = body.dst;
        let arrival = match body.op {
            OP_WRITE => set.write(&self.rx, body),
            OP_SEND_INVALIDATE => set.arrive_invalidating(&self.rx, body, out),
            OP_READ => {
                self.take_read(set, out, now);
                return true;
            }
            _ => {
                self.rx.release();
                self.peer_left(set, out, now, dst);
                return true;
            }
        };
        self.return_front(set, out, now, (dst, arrival))
    }

    /// Takes a Read in its turn. A wrong key is reported at once.
    fn take_read(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64) {
        let Some(&body) = self.rx.front() else { return };
        let (from, position) = (self.rx.target(), self.rx.next());
        if let Err(why) = set.readable(&body, from) {
            self.finish_reads_of(set, body.dst);
            self.rx.finish(position, Err(why));
            self.rx.release();
            self.announce();
            self.peer_left(set, out, now, body.dst);
            return;
        }
        let due = now.saturating_add(set.settings.delay_ns);
        self.reads.push_back(PendingRead { position, is_new: true, due, from, body });
        self.chores |= CHORE_READ;
        self.rx.release();
    }

    /// Executes the peer's due Reads, then this side's waiting requests.
    #[inline(never)]
    pub(crate) fn do_chores(
        &mut self,
        (set, reader): (&mut QueueSet, &Reader),
        out: &mut WcBatch,
        now: u64,
    ) {
        if self.chores & CHORE_READ != 0 {
            reader.begin(&mut set.keys);
            self.carry_out_reads(set, out, now);
            reader.end();
        }
        if self.chores & CHORE_SEND != 0 {
            self.drain(set, Some(out), now);
        }
    }

    /// Executes the Reads that are due and were taken in an earlier poll.
    fn carry_out_reads(&mut self, set: &mut QueueSet, out: &mut WcBatch, now: u64) {
        let before = self.reads.len();
        while let Some(read) = self.reads.pop_front_if(|read| !read.is_new && read.due <= now) {
            let outcome = set.read(&self.rx, &read);
            self.rx.finish(read.position, outcome);
            if outcome.is_err() {
                self.finish_reads_of(set, read.body.dst);
                self.peer_left(set, out, now, read.body.dst);
            }
        }
        self.reads
            .iter_mut()
            .rev()
            .take_while(|read| read.is_new)
            .for_each(|read| read.is_new = false);
        if self.reads.is_empty() {
            self.chores &= !CHORE_READ;
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
        let rx = &self.rx;
        self.reads.retain(|read| {
            let is_theirs = read.body.dst == num;
            if is_theirs {
                rx.finish(read.position, set.read(rx, read));
            }
            !is_theirs
        });
    }

    /// Whether the slot at `position` is a Read of this side that the peer has not executed.
    pub(crate) fn is_read_under_way(&self, position: u64) -> bool {
        self.posted[(position & self.mask) as usize].opcode == WcOpcode::Read
            && self.tx.verdict(position).is_none()
    }

    /// When this side's waiting requests can proceed, as far as it does not depend on the peer.
    pub(crate) fn outlook_of_requests(&self) -> Outlook {
        if self.chores & CHORE_SEND == 0 || !self.tx.has_room() {
            Outlook::Nothing
        } else if self.tx.freed() == self.tx.head() {
            Outlook::Now
        } else {
            // A request that fails here waits for those before it.
            Outlook::Soon
        }
    }

    /// When the peer's next Read is due.
    pub(crate) fn outlook_of_reads(&self, set: &QueueSet) -> Outlook {
        match self.reads.front() {
            None => Outlook::Nothing,
            Some(read) if set.settings.delay_ns != 0 && set.settings.clock.now_ns() < read.due => {
                Outlook::At(read.due)
            }
            Some(_) => Outlook::Now,
        }
    }
}

impl QueueSet {
    /// Executes a Write.
    fn write<R: Incoming>(&self, rx: &R, body: &Body) -> Arrival {
        let to = match self.granted(body, rx.target(), Access::REMOTE_WRITE) {
            Ok(to) => to,
            Err(why) => return Arrival::Refused(why),
        };
        if body.pieces == 0 {
            dma::write(body, to);
            return Arrival::Delivered;
        }
        match dma::write_fetched(rx, body, to, &self.keys) {
            Some(Ok(())) => Arrival::Delivered,
            Some(Err(_)) => Arrival::Refused(Refusal::Unreadable),
            None => Arrival::Refused(Refusal::Gone),
        }
    }

    /// The bytes that a Read asks for.
    fn readable(&self, body: &Body, from: u64) -> Result<Granted, Refusal> {
        self.granted(body, from, Access::REMOTE_READ)
    }

    /// Executes a Read.
    fn read<R: Incoming>(&self, rx: &R, read: &PendingRead) -> Result<(), Refusal> {
        let from = self.readable(&read.body, read.from)?;
        match rx.answer(read.position, &read.body, &self.keys, from) {
            Some(Ok(())) => Ok(()),
            Some(Err(DmaError::Source | DmaError::Destination)) => Err(Refusal::Unreadable),
            None => Err(Refusal::Gone),
        }
    }

    /// The memory of this side that a request names, with its queue pair, key, bounds and rights
    /// checked.
    #[inline]
    fn granted(&self, body: &Body, addr: u64, access: Access) -> Result<Granted, Refusal> {
        let qp = self.qps.peek(body.dst).filter(|qp| qp.state != State::Error);
        qp.ok_or(Refusal::Gone)?;
        let granted =
            self.rights.grant(&self.keys, (body.dst, body.rkey), (addr, body.byte_len), access);
        granted.ok_or(Refusal::Access)
    }

    /// As [`QueueSet::arrive`], with a key that is dead when the Receive completes. A message whose
    /// key its queue pair does not have takes no Receive.
    fn arrive_invalidating<R: Incoming>(
        &mut self,
        rx: &R,
        body: &Body,
        out: &mut WcBatch,
    ) -> Arrival {
        let (qp, rkey) = (body.dst, body.rkey);
        let is_alive = self.qps.receives(qp);
        if is_alive && !self.rights.is_bound(qp, rkey) {
            return Arrival::Refused(Refusal::Access);
        }
        let arrival = self.arrive(rx, body, out);
        if matches!(arrival, Arrival::Delivered) {
            self.rights.invalidate(qp, rkey);
            if let Some(completion) = out.last_mut() {
                completion.invalidated = Some(rkey);
            }
        }
        arrival
    }
}
