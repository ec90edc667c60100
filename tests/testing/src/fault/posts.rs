//! Injected outcomes of posts: every combination that a driver may produce.

use std::sync::atomic::AtomicU64;

use super::{FaultLog, Late, QueueFaults};
use rpcrdma_provider::interposed::Promised;
use rpcrdma_provider::{
    PostError, Queues, RecvWr, Requests, SendWr, Taken, WcOpcode, WcStatus, WorkCompletion, WrId,
};

/// The probability of each outcome of a post, in millionths.
#[derive(Debug, Clone, Copy)]
struct Chances {
    refused: u32,
    cut: u32,
    failed: u32,
    gone: u32,
    silent: u32,
    ghost: u32,
    /// The counters of these outcomes, in the same order.
    log: fn(&FaultLog) -> [&AtomicU64; 6],
}

/// The outcome of a post that does not simply succeed.
#[derive(Debug, Clone, Copy)]
struct PostOutcome {
    /// The number of requests that are passed to the device.
    count: usize,
    /// The error that is returned with their number.
    why: Option<PostError>,
    /// Whether the first of the others still completes.
    completes_late: bool,
}

impl<Q: Queues> QueueFaults<Q> {
    /// Chooses the outcome of a post of `len` requests.
    fn outcome_of(&mut self, len: usize, chances: Chances) -> Option<PostOutcome> {
        let full = Some(PostError::QueueFull);
        let some = |random: &mut super::SplitMix, bound: usize| random.below(bound as u64) as usize;
        let (kind, count, why) = if self.chance(chances.refused) {
            (0, 0, full)
        } else if len > 1 && self.chance(chances.cut) {
            (1, 1 + some(&mut self.random, len - 1), full)
        } else if self.chance(chances.failed) {
            (2, len, full)
        } else if self.chance(chances.gone) {
            (3, some(&mut self.random, len + 1), Some(PostError::QpGone))
        } else if len > 0 && self.chance(chances.silent) {
            (4, some(&mut self.random, len), None)
        } else {
            return None;
        };
        let completes_late = count < len && self.chance(chances.ghost);
        let counters = (chances.log)(&self.log);
        FaultLog::note(counters[kind]);
        if completes_late {
            FaultLog::note(counters[5]);
        }
        Some(PostOutcome { count, why, completes_late })
    }

    /// As [`Queues::post_send`], with faults.
    pub(super) fn post_sends<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        let plan = &self.plan;
        let chances = Chances {
            refused: plan.send_refused_ppm,
            cut: plan.send_cut_ppm,
            failed: plan.send_failed_ppm,
            gone: plan.send_gone_ppm,
            silent: plan.send_silent_ppm,
            ghost: plan.send_ghost_ppm,
            log: |log| {
                let FaultLog { sends_refused, sends_cut, sends_failed, sends_gone, .. } = log;
                let FaultLog { sends_silent, send_ghosts, .. } = log;
                [sends_refused, sends_cut, sends_failed, sends_gone, sends_silent, send_ghosts]
            },
        };
        let mut requests = wrs.requests();
        let Some(PostOutcome { count, why, completes_late }) =
            self.outcome_of(requests.len(), chances)
        else {
            return wrs.post_send(inner, qp);
        };
        let known = self.qps.iter().chain(&self.lost).find(|attached| attached.qp == qp);
        if completes_late
            && let Some(qp_num) = known.map(|attached| attached.qp_num)
            && let Some(wr) = requests.nth(count)
        {
            let status = self.late_status();
            self.schedule(late_completion(wr.wr_id, qp_num, status, WcOpcode::Send));
        }
        outcome(wrs.first(count).post_send(inner, qp), count, why)
    }

    /// As [`Queues::post_srq_recv`], with faults.
    pub(super) fn post_receives(
        &mut self,
        inner: &mut Q,
        wrs: Promised<impl Requests<RecvWr>>,
    ) -> Taken {
        let plan = &self.plan;
        let chances = Chances {
            refused: plan.recv_refused_ppm,
            cut: plan.recv_cut_ppm,
            failed: plan.recv_failed_ppm,
            gone: plan.recv_gone_ppm,
            silent: plan.recv_silent_ppm,
            ghost: plan.recv_ghost_ppm,
            log: |log| {
                let FaultLog { recvs_refused, recvs_cut, recvs_failed, recvs_gone, .. } = log;
                let FaultLog { recvs_silent, recv_ghosts, .. } = log;
                [recvs_refused, recvs_cut, recvs_failed, recvs_gone, recvs_silent, recv_ghosts]
            },
        };
        let mut requests = wrs.requests();
        let Some(PostOutcome { count, why, completes_late }) =
            self.outcome_of(requests.len(), chances)
        else {
            return self.hand_in(inner, wrs);
        };
        if completes_late && let Some(wr) = requests.nth(count) {
            let status = self.late_status();
            let at = self.random.below(self.qps.len() as u64 + 1) as usize;
            let qp_num = self.qps.get(at).map_or(0, |attached| attached.qp_num);
            self.schedule(late_completion(wr.wr_id, qp_num, status, WcOpcode::Recv));
        }
        outcome(self.hand_in(inner, wrs.first(count)), count, why)
    }

    /// Posts Receives to the provider, or withholds them.
    fn hand_in(&mut self, inner: &mut Q, wrs: Promised<impl Requests<RecvWr>>) -> Taken {
        let requests = wrs.requests();
        let count = requests.len();
        if self.chance(self.plan.recv_withheld_ppm) {
            self.withheld_until = self.delay();
            FaultLog::note(&self.log.recvs_withheld);
        }
        if !self.withheld.is_empty() || self.polls < self.withheld_until {
            self.withheld.extend(requests);
            return Taken::without_error(count);
        }
        let posted = wrs.post_srq_recv(inner);
        let (taken, _) = posted.of(count);
        self.posted.extend(requests.take(taken));
        posted
    }

    /// Schedules a completion of a request that was not taken.
    fn schedule(&mut self, completion: WorkCompletion) {
        let until = self.delay();
        self.late.push(Late { until, completion });
    }

    fn late_status(&mut self) -> WcStatus {
        match self.random.below(3) {
            0 => WcStatus::Flushed,
            1 => WcStatus::LocalOperation,
            _ => WcStatus::Success,
        }
    }
}

/// The result for the program after `count` requests were passed to the device.
fn outcome(posted: Taken, count: usize, why: Option<PostError>) -> Taken {
    match (posted.of(count), why) {
        ((taken, None), None) => Taken::without_error(taken),
        // An error of the provider itself takes precedence.
        ((taken, Some(why)), _) | ((taken, None), Some(why)) => Taken::with_error(taken, why),
    }
}

fn late_completion(wr_id: WrId, qp_num: u32, status: WcStatus, opcode: WcOpcode) -> WorkCompletion {
    WorkCompletion { wr_id, qp_num, status, opcode, byte_len: 0, invalidated: None }
}
