//! Fault injection: wraps a provider, and makes its calls fail by a seeded plan.
//!
//! ```text
//!   program ──▶ Faulty ──▶ Queues of the software fabric, or of a device
//!                 │ posts: all, some or none taken, with or without an error; a request that was
//!                 │ not taken may still complete          Receives: posted late
//!                 │ completions: late, never out of order within a queue pair
//!                 └ connections, queues, ports and devices lost; bytes of messages changed
//! ```
//!
//! The faults depend on the seed and on the sequence of calls only: two runs with the same sequence
//! of calls have the same faults.
#![expect(unsafe_code, reason = "Receives are posted late; a hostile peer writes into messages")]

mod events;
mod plan;
mod posts;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use rpcrdma_mempool::{RegisterError, Sge};

pub use self::plan::{FaultLog, FaultPlan};

use self::plan::SplitMix;
use rpcrdma_provider::interposed::{
    Hooks, Interposed, InterposedQueues, Promised, PromisedBytes, PromisedList, QueueHooks,
};
use rpcrdma_provider::{
    Armed, Attached, CqError, Provider, QueueAttr, QueueEvent, Queues, RecvWr, Requests, SendWr,
    SetupError, Taken, WcBatch, WcOpcode, WcStatus, Window, WindowId, WorkCompletion,
};

/// A provider whose queues have faults; its connection managers have none. It is made of a provider
/// and a [`FaultPlan`]; each of its queues uses the plan with its own seed.
pub type FaultyProvider<P> = Interposed<P, Faults>;

/// Queues with faults: made of queues and a [`FaultPlan`].
pub type Faulty<Q> = InterposedQueues<Q, QueueFaults<Q>>;

/// The faults of a provider.
pub struct Faults {
    plan: FaultPlan,
    opened: AtomicU64,
    log: Arc<FaultLog>,
}

impl From<FaultPlan> for Faults {
    fn from(plan: FaultPlan) -> Faults {
        Faults { plan, opened: AtomicU64::new(0), log: Arc::default() }
    }
}

impl Faults {
    /// The log of all faults of the provider's queues.
    pub fn log(&self) -> Arc<FaultLog> {
        Arc::clone(&self.log)
    }
}

impl<P: Provider> Hooks<P> for Faults {
    type Queues = QueueFaults<P::Queues>;
    type Cm = ();

    fn queue_hooks(&self, _: &P, _: &QueueAttr) -> QueueFaults<P::Queues> {
        let which = self.opened.fetch_add(1, Ordering::Relaxed);
        let seed = SplitMix(self.plan.seed.wrapping_add(which)).next();
        let (plan, log) = (FaultPlan { seed, ..self.plan }, Arc::clone(&self.log));
        QueueFaults::logged(plan, log, which)
    }

    fn cm_hooks(&self, _: &P) {}
}

/// The faults of a set of queues.
pub struct QueueFaults<Q: Queues> {
    plan: FaultPlan,
    random: SplitMix,
    log: Arc<FaultLog>,
    /// The number of these queues at their provider.
    which: u64,
    polls: u64,
    qps: Vec<Attached<Q::Qp>>,
    /// The queue pairs that have failed, until they are destroyed.
    lost: Vec<Attached<Q::Qp>>,
    /// The event to report, and the poll that reports it.
    events: VecDeque<(u64, QueueEvent)>,
    /// The memory of the receive buffers.
    lists: HashMap<u32, Vec<Sge>>,
    /// The Receives posted to the provider, in order.
    posted: VecDeque<RecvWr>,
    /// The Receives that are not posted to the provider yet.
    withheld: VecDeque<RecvWr>,
    /// The poll at which the withheld Receives are posted.
    withheld_until: u64,
    late: Vec<Late>,
    ready: VecDeque<WorkCompletion>,
    /// The error of the completion queue, once it has failed.
    broken: Option<CqError>,
    is_port_down: bool,
}

/// A completion that is reported late.
struct Late {
    until: u64,
    completion: WorkCompletion,
}

impl<Q: Queues> From<FaultPlan> for QueueFaults<Q> {
    fn from(plan: FaultPlan) -> QueueFaults<Q> {
        QueueFaults::logged(plan, Arc::default(), 0)
    }
}

impl<Q: Queues> QueueFaults<Q> {
    fn logged(plan: FaultPlan, log: Arc<FaultLog>, which: u64) -> QueueFaults<Q> {
        QueueFaults {
            plan,
            random: SplitMix(plan.seed),
            log,
            which,
            polls: 0,
            qps: Vec::new(),
            lost: Vec::new(),
            events: VecDeque::new(),
            lists: HashMap::new(),
            posted: VecDeque::new(),
            withheld: VecDeque::new(),
            withheld_until: 0,
            late: Vec::new(),
            ready: VecDeque::new(),
            broken: None,
            is_port_down: false,
        }
    }

    /// Changes the plan; the sequence of pseudo-random numbers continues.
    pub fn set_plan(&mut self, plan: FaultPlan) {
        self.plan = plan;
    }

    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && !self.log.is_off() && self.random.chance(ppm)
    }

    fn delay(&mut self) -> u64 {
        self.polls + 1 + self.random.below(self.plan.polls_late_max.max(1).into())
    }

    /// Posts withheld Receives to the provider, in order, as many as it takes.
    fn hand_on(&mut self, inner: &mut Q) {
        if self.polls < self.withheld_until {
            return;
        }
        while let Some(recv) = self.withheld.pop_front() {
            // SAFETY: the program was answered that the Receive is taken, and keeps the memory and
            // its description until the completion has been polled.
            let (taken, _) = unsafe { inner.post_srq_recv([recv].into_iter()) }.of(1);
            if taken == 0 {
                self.withheld.push_front(recv);
                return;
            }
            self.posted.push_back(recv);
        }
    }

    fn accept_completion(&mut self, completion: WorkCompletion) {
        if completion.opcode == WcOpcode::Recv || completion.status != WcStatus::Success {
            self.received(&completion);
        }
        if completion.status != WcStatus::Success {
            self.release_all(completion.qp_num);
        }
        let is_behind = self.late.iter().any(|late| late.completion.qp_num == completion.qp_num);
        let is_late = self.chance(self.plan.completion_delayed_ppm);
        if is_late {
            FaultLog::note(&self.log.delayed);
        }
        let is_explicit = !matches!(completion.opcode, WcOpcode::Recv | WcOpcode::Send);
        let is_withheld = is_explicit
            && completion.status == WcStatus::Success
            && self.chance(self.plan.completion_withheld_ppm);
        if is_withheld {
            FaultLog::note(&self.log.completions_withheld);
            self.late.push(Late { until: u64::MAX, completion });
        } else if is_late || is_behind {
            let until = if is_late { self.delay() } else { 0 };
            self.late.push(Late { until, completion });
        } else {
            self.ready.push_back(completion);
        }
    }

    /// Changes bytes of a received message, before the program sees the completion.
    fn received(&mut self, completion: &WorkCompletion) {
        let Some(at) = self.posted.iter().position(|recv| recv.wr_id == completion.wr_id) else {
            return;
        };
        let Some(recv) = self.posted.remove(at) else { return };
        let is_message = completion.status == WcStatus::Success && completion.byte_len > 0;
        if !is_message || !self.chance(self.plan.bytes_changed_ppm) {
            return;
        }
        let sgl = self.lists.get(&recv.buffer).map_or_else(Vec::new, Vec::clone);
        FaultLog::note(&self.log.messages_changed);
        let changed = (self.which, completion.qp_num);
        self.log.changed.lock().unwrap_or_else(PoisonError::into_inner).push(changed);
        let within = completion.byte_len.min(self.plan.header_len.max(1));
        for _ in 0..=self.random.below(4) {
            let offset = self.random.below(within.into()) as u32;
            let mask = 1 + self.random.below(255) as u8;
            if let Some(byte) = byte_at(&sgl, offset) {
                // SAFETY: the byte lies in the part of the Receive that the message has filled; it
                // is owned by the device, of which this provider is a part, until the completion is
                // polled.
                let old = unsafe { byte.read() };
                // SAFETY: as above.
                unsafe { byte.write(old ^ mask) };
            }
        }
    }

    /// A queue pair has failed: its withheld completions are reported.
    fn release_all(&mut self, qp_num: u32) {
        let theirs = self.late.iter_mut().filter(|late| late.completion.qp_num == qp_num);
        theirs.filter(|late| late.until == u64::MAX).for_each(|late| late.until = 0);
    }

    /// The program destroys a queue pair, or learns that it has failed.
    fn has_failed(&mut self, is_it: impl Fn(&Attached<Q::Qp>) -> bool) {
        if let Some(at) = self.qps.iter().position(is_it) {
            let lost = self.qps.swap_remove(at);
            self.lost.push(lost);
            self.release_all(lost.qp_num);
        }
    }

    /// Reports the late completions that are due, in order for each queue pair.
    fn release(&mut self) {
        let mut at = 0;
        while let Some(late) = self.late.get(at) {
            let qp_num = late.completion.qp_num;
            let is_first = self.late.iter().take(at).all(|other| other.completion.qp_num != qp_num);
            let is_over = late.until == u64::MAX && self.log.is_off();
            if is_first && (late.until <= self.polls || is_over) {
                self.ready.push_back(self.late.remove(at).completion);
            } else {
                at += 1;
            }
        }
    }
}

impl<Q: Queues> QueueHooks<Q> for QueueFaults<Q> {
    fn attach(
        &mut self,
        inner: &mut Q,
        endpoint: Q::Endpoint,
    ) -> Result<Attached<Q::Qp>, SetupError> {
        let attached = inner.attach(endpoint)?;
        self.qps.push(attached);
        Ok(attached)
    }

    fn poll_cq(&mut self, inner: &mut Q, out: &mut WcBatch) -> Result<(), CqError> {
        self.polls += 1;
        self.break_queue();
        if let Some(error) = self.broken {
            return Err(error);
        }
        self.hand_on(inner);
        self.happen(inner);
        self.release();
        let mut batch = WcBatch::new();
        inner.poll_cq(&mut batch)?;
        for completion in batch {
            self.accept_completion(completion);
        }
        let count = out.remaining_capacity().min(self.ready.len());
        out.extend(self.ready.drain(..count));
        Ok(())
    }

    fn describe_recv(&mut self, inner: &mut Q, list: PromisedList<'_>) {
        self.lists.insert(list.buffer(), list.sgl().to_vec());
        list.describe_recv(inner);
    }

    fn post_srq_recv(&mut self, inner: &mut Q, wrs: Promised<impl Requests<RecvWr>>) -> Taken {
        self.post_receives(inner, wrs)
    }

    fn post_send<'a>(
        &mut self,
        inner: &mut Q,
        qp: Q::Qp,
        wrs: Promised<impl Requests<SendWr<'a>>>,
    ) -> Taken {
        self.post_sends(inner, qp, wrs)
    }

    fn renew_window(&mut self, inner: &mut Q, id: WindowId) -> Result<Option<Window>, SetupError> {
        if self.chance(self.plan.window_kept_ppm) {
            FaultLog::note(&self.log.windows_kept);
            return Err(SetupError::Invalid {
                what: "memory window",
                value: "one that is not given back, on purpose".to_owned(),
                allowed: "none: the plan of faults takes it".to_owned(),
            });
        }
        let renewed = inner.renew_window(id)?;
        if self.chance(self.plan.window_lost_ppm) {
            FaultLog::note(&self.log.windows_lost);
            // It is not bound, and cannot be bound again.
            return Ok(None);
        }
        Ok(renewed)
    }

    fn expose(&mut self, inner: &mut Q, exposure: PromisedBytes<'_>) -> Result<u32, RegisterError> {
        if self.chance(self.plan.expose_refused_ppm) {
            FaultLog::note(&self.log.exposures_refused);
            let source = std::io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(RegisterError::Device { bytes: exposure.sge().length as usize, source });
        }
        exposure.expose(inner)
    }

    fn conceal(&mut self, inner: &mut Q, rkey: u32) -> std::io::Result<()> {
        if self.chance(self.plan.conceal_failed_ppm) {
            FaultLog::note(&self.log.exposures_kept);
            return Err(std::io::Error::from_raw_os_error(libc::EBUSY));
        }
        inner.conceal(rkey)
    }

    fn disconnect(&mut self, inner: &mut Q, qp: Q::Qp) {
        self.has_failed(|attached| attached.qp == qp);
        inner.disconnect(qp);
    }

    fn destroy(&mut self, inner: &mut Q, qp: Q::Qp) {
        self.has_failed(|attached| attached.qp == qp);
        if let Some(at) = self.lost.iter().position(|lost| lost.qp == qp) {
            let Attached { qp_num, .. } = self.lost.swap_remove(at);
            // A Receive that completed is reported, so that the program gets its memory back.
            let is_dropped =
                |wc: &WorkCompletion| wc.qp_num == qp_num && wc.opcode != WcOpcode::Recv;
            self.late.retain(|late| !is_dropped(&late.completion));
            self.ready.retain(|completion| !is_dropped(completion));
            self.forget_events(qp_num);
        }
        inner.destroy(qp);
        if self.chance(self.plan.recv_taken_along_ppm)
            && let Some(RecvWr { wr_id, .. }) = self.withheld.pop_front()
        {
            FaultLog::note(&self.log.recvs_taken_along);
            self.ready.push_back(WorkCompletion {
                wr_id,
                qp_num: 0,
                status: WcStatus::Flushed,
                // The opcode of a completion with an error is not valid.
                opcode: WcOpcode::Send,
                byte_len: 0,
                invalidated: None,
            });
        }
    }

    fn next_event(&mut self, inner: &mut Q) -> Option<QueueEvent> {
        self.next_of_all(inner)
    }

    fn arm(&mut self, inner: &mut Q) -> Result<Armed, CqError> {
        let is_busy = !self.withheld.is_empty() || !self.late.is_empty() || !self.ready.is_empty();
        if is_busy || !self.events.is_empty() {
            return Ok(Armed::Ready);
        }
        inner.arm()
    }
}

/// The address of the byte at `offset` of a message, from its scatter list.
fn byte_at(sgl: &[Sge], mut offset: u32) -> Option<*mut u8> {
    for sge in sgl {
        if offset < sge.length {
            let address = sge.addr as usize + offset as usize;
            return Some(std::ptr::with_exposed_provenance_mut(address));
        }
        offset -= sge.length;
    }
    None
}
