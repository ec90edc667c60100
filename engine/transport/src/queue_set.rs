//! The state that all paths of a set of queues share: queue pairs, Receives, keys, completions, the
//! clock.
#![expect(unsafe_code, reason = "the bytes of a slot are reached by a raw pointer")]

use std::collections::VecDeque;

use rpcrdma_provider::{
    QueueAttr, QueueEvent, RecvWr, SendOp, WcBatch, WcOpcode, WcStatus, WorkCompletion, WrId,
};

use super::body::{Acks, Header, Refusal};
use super::carrier::{DmaError, Incoming};
use super::dma;
use super::keys::KeyCache;
use super::qp::{BacklogPool, Disposition, QpTable, State};
use super::rights::Rights;
use super::settings::Settings;
use super::srq::Srq;

/// A published request, kept until its slot returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Posted {
    pub wr_id: WrId,
    pub qp_num: u32,
    /// Places of the send queue that its completion frees.
    pub covers: u16,
    pub disposition: Disposition,
    pub opcode: WcOpcode,
}

/// A request that goes to the peer.
pub(crate) struct Outbound {
    pub posted: Posted,
    pub op: SendOp,
    pub byte_len: u32,
}

/// The state that the paths share.
pub(crate) struct QueueSet {
    pub qps: QpTable,
    pub backlog: BacklogPool,
    pub srq: Srq,
    pub keys: KeyCache,
    pub rights: Rights,
    pub cq: CompletionQueue,
    pub events: VecDeque<QueueEvent>,
    /// Queue pairs whose peer may not be attached yet.
    pub opening: Vec<u32>,
    pub settings: Settings,
    /// Messages that found no Receive.
    pub rnr_count: u64,
}

/// The result of a message's arrival.
pub(crate) enum Arrival {
    /// The bytes are delivered.
    Delivered,
    /// There is no Receive.
    NoReceive {
        /// The number of retries that the sender allows.
        rnr_retry: u8,
    },
    /// It cannot be delivered.
    Refused(Refusal),
}

impl QueueSet {
    pub(crate) fn new(
        attr: &QueueAttr,
        keys: KeyCache,
        rights: Rights,
        settings: Settings,
    ) -> QueueSet {
        QueueSet {
            qps: QpTable::new(attr.qp_max),
            backlog: BacklogPool::new(attr.qp_max as usize * attr.send_depth as usize),
            srq: Srq::new(attr.srq_depth, attr.recv_sge),
            keys,
            rights,
            cq: CompletionQueue::new(attr.cq_depth),
            events: VecDeque::new(),
            opening: Vec::with_capacity(attr.qp_max as usize),
            settings,
            rnr_count: 0,
        }
    }

    /// Whether a poll has work apart from its paths.
    #[inline]
    pub(crate) fn has_pending_work(&self) -> bool {
        (self.cq.waiting.len() | self.opening.len() | usize::from(self.cq.is_overrun)) != 0
    }

    /// The time, if it is needed now.
    #[inline]
    pub(crate) fn now_if_delayed(&self) -> u64 {
        if self.settings.delay_ns == 0 { 0 } else { self.settings.clock.now_ns() }
    }

    /// Matches at most `max` messages with the oldest Receives, while each is of the simple case:
    /// it is in its slot and not empty, its queue pair receives, and it fits in the first part of a
    /// Receive, which may be written since the last [`Srq::check`]. [`QueueSet::arrive`] handles
    /// the general case. Returns their number, and the last one's acks.
    #[inline(always)]
    pub(crate) fn arrive_short<R: Incoming>(
        &mut self,
        rx: &mut R,
        out: &mut WcBatch,
        max: usize,
    ) -> (usize, Acks) {
        let QueueSet { qps, srq, .. } = self;
        let mut receives = srq.fronts();
        let (first, max) = (rx.next(), max.min(receives.len()));
        let (mut acks, mut receiver) = (Acks::default(), NO_QP);
        while max > 0
            && let Some((front, bytes)) = rx.front_and_bytes()
            && front.is_short_send()
        {
            let (qp_num, byte_len) = (front.dst, front.byte_len);
            if u64::from(qp_num) != receiver {
                if !qps.receives(qp_num) {
                    break;
                }
                receiver = qp_num.into();
            }
            let Some((wr_id, to)) = receives.part() else { break };
            let (status, opcode, invalidated) = (WcStatus::Success, WcOpcode::Recv, None);
            let completion =
                WorkCompletion { wr_id, qp_num, status, opcode, byte_len, invalidated };
            acks = front.acks;
            // Nothing but what the loop needs is kept during the copy.
            // SAFETY: the carrier's bytes are readable.
            if !unsafe { dma::deliver(&front, bytes, to, || out.push(completion)) } {
                break;
            }
            receives.pop();
            rx.release();
            if rx.next() == first + max as u64 {
                break;
            }
            rx.prefetch_front();
        }
        ((rx.next() - first) as usize, acks)
    }

    /// Matches a message with the oldest Receive.
    pub(crate) fn arrive<R: Incoming>(
        &mut self,
        rx: &R,
        front: &Header,
        out: &mut WcBatch,
    ) -> Arrival {
        let Some(qp) = self.qps.find(front.dst).filter(|qp| qp.state != State::Error) else {
            return Arrival::Refused(Refusal::Gone);
        };
        let Some(recv @ RecvWr { wr_id, .. }) = self.srq.front() else {
            return Arrival::NoReceive { rnr_retry: qp.peer_rnr_retry };
        };
        let list = self.srq.list(recv);
        let (status, arrival) = if !dma::has_room(list, front.byte_len) {
            (WcStatus::LocalLength, Arrival::Refused(Refusal::TooLong))
        } else {
            let outcome = if front.pieces == 0 {
                dma::scatter(rx, front, list, &self.keys)
            } else {
                match dma::fetch(rx, front, list, &self.keys) {
                    Some(outcome) => outcome,
                    None => return Arrival::Refused(Refusal::Gone),
                }
            };
            match outcome {
                Ok(()) => (WcStatus::Success, Arrival::Delivered),
                Err(DmaError::Destination) => {
                    (WcStatus::LocalProtection, Arrival::Refused(Refusal::Broken))
                }
                // The Receive is valid and waits for the next message.
                Err(DmaError::Source) => return Arrival::Refused(Refusal::Unreadable),
            }
        };
        self.srq.pop();
        out.push(WorkCompletion {
            wr_id,
            qp_num: front.dst,
            status,
            opcode: WcOpcode::Recv,
            byte_len: front.byte_len,
            invalidated: None,
        });
        arrival
    }

    /// Completes a request if it needs a completion.
    #[inline]
    pub(crate) fn complete(&mut self, posted: &Posted, out: Option<&mut WcBatch>) {
        if let Some(qp) = self.qps.find(posted.qp_num) {
            qp.outstanding -= posted.covers;
        }
        let completion = WorkCompletion {
            wr_id: posted.wr_id,
            qp_num: posted.qp_num,
            status: posted.disposition.status(),
            opcode: posted.opcode,
            byte_len: 0,
            invalidated: None,
        };
        self.cq.push(completion, out);
    }

    /// Reports to the program, once, that the peer is gone.
    #[cold]
    pub(crate) fn report_disconnect(&mut self, num: u32) {
        if let Some(qp) = self.qps.find(num)
            && !std::mem::replace(&mut qp.is_reported, true)
        {
            self.events.push_back(QueueEvent::Disconnected { qp_num: num });
        }
    }
}

/// Not a queue pair's number.
const NO_QP: u64 = u64::MAX;

/// Completions that are not polled yet.
pub(crate) struct CompletionQueue {
    waiting: VecDeque<WorkCompletion>,
    depth: usize,
    is_overrun: bool,
}

impl CompletionQueue {
    fn new(depth: u32) -> CompletionQueue {
        let depth = depth as usize;
        CompletionQueue { waiting: VecDeque::with_capacity(depth), depth, is_overrun: false }
    }

    /// Passes a completion to the current poll, or keeps it for the next.
    #[inline]
    fn push(&mut self, completion: WorkCompletion, out: Option<&mut WcBatch>) {
        match out {
            Some(out) if self.waiting.is_empty() && !out.is_full() => out.push(completion),
            _ if self.waiting.len() < self.depth => self.waiting.push_back(completion),
            _ => self.is_overrun = true,
        }
    }

    /// Drops a queue pair's kept completions.
    #[cold]
    pub(crate) fn forget(&mut self, num: u32) {
        self.waiting.retain(|completion| completion.qp_num != num);
    }

    /// Reports kept completions.
    #[cold]
    pub(crate) fn drain(&mut self, out: &mut WcBatch) {
        let count = out.remaining_capacity().min(self.waiting.len());
        out.extend(self.waiting.drain(..count));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[inline]
    pub(crate) fn is_overrun(&self) -> bool {
        self.is_overrun
    }
}
