//! Requests that are executed on this side, in order with the sent ones.
//!
//! A Bind or an invalidation takes effect when all requests before it have begun, and completes
//! behind everything that was posted before it.

use std::num::NonZeroU64;

use rpcrdma_provider::{SendOp, WcBatch};

use super::Path;
use crate::carrier::{Carrier, Outgoing};
use crate::qp::{Disposition, QueuePair, State, opcode_of};
use crate::queue_set::{Posted, QueueSet};

impl<C: Carrier> Path<C> {
    /// Binds or invalidates, and completes it when all earlier requests have completed. False,
    /// without effect, if a rule forbids it.
    pub(crate) fn carry_out_here(
        &mut self,
        set: &mut QueueSet,
        out: Option<&mut WcBatch>,
        posted: Posted,
        op: SendOp,
    ) -> bool {
        let QueueSet { rights, keys, qps, backlog, .. } = set;
        let is_done = match op {
            SendOp::Bind(bind) => rights.bind(keys, posted.qp_num, &bind),
            SendOp::Invalidate { rkey } => rights.invalidate(posted.qp_num, rkey),
            _ => false,
        };
        let Some(qp) = qps.find(posted.qp_num).filter(|_| is_done) else { return false };
        let Some(behind) = self.under_way(qp) else {
            if posted.disposition != Disposition::Silent {
                set.complete(&posted, out);
            }
            return true;
        };
        self.care += 1;
        let Posted { wr_id, disposition, covers, .. } = posted;
        backlog.append(&mut qp.locals, wr_id, disposition, covers, |request| {
            (request.op, request.behind) = (op, behind);
        });
        true
    }

    /// Completes a request that was executed here and waits only for the slots before `behind`;
    /// with `disposition` instead of its own, if there is one.
    pub(crate) fn complete_behind(
        &mut self,
        set: &mut QueueSet,
        mut out: Option<&mut WcBatch>,
        num: u32,
        behind: u64,
        disposition: Option<Disposition>,
    ) {
        while let Some(qp) = set.qps.find(num)
            && let Some(request) = set.backlog.front(&qp.locals)
            && request.behind == behind
        {
            let (wr_id, opcode) = (request.wr_id, opcode_of(request.op));
            let covers = if disposition.is_some() { 0 } else { request.covers };
            let disposition = disposition.unwrap_or(request.disposition);
            set.backlog.pop(&mut qp.locals);
            self.care -= 1;
            if disposition != Disposition::Silent {
                let posted = Posted { wr_id, qp_num: num, covers, disposition, opcode };
                set.complete(&posted, out.as_deref_mut());
            }
        }
    }

    /// The position behind the newest outstanding slot of a queue pair.
    pub(crate) fn under_way(&self, qp: &QueuePair) -> Option<u64> {
        qp.sent_until.map(NonZeroU64::get).filter(|until| *until > self.tx.freed())
    }

    /// A Read has ended: requests that waited for it may begin.
    pub(crate) fn read_has_ended(&mut self, set: &mut QueueSet, num: u32) {
        let Some(qp) = set.qps.find(num) else { return };
        qp.reads = qp.reads.saturating_sub(1);
        if qp.state == State::Held {
            (qp.state, qp.is_waiting) = (State::Ready, true);
            self.enqueue(num);
        }
    }
}
