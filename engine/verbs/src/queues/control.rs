//! Attaching, disconnecting and destroying queue pairs.
//!
//! ```text
//!   destroy ─▶ error state ─▶ Dying ── its Receives returned, or timeout ──────▶ destroyed ─▶ swept
//!                               ▲  └── the device does not destroy it ────┐
//!                               └────────────── later ───────────────────┘
//! ```
//! Dying queue pairs are checked once a turn, without waiting. During that time and in the sweep,
//! the Receives that they took from the shared queue are reported as flushed, of queue pair 0;
//! their sends are dropped. Completions of other queue pairs in the sweep wait in `ready`.
//!
//! On a device that never completes what is posted to a queue pair in error, a disconnected one has
//! no name for posting, and what is posted to it is completed here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_provider::{
    Attached, PostError, QueueEvent, Requests, SendWr, SetupError, Taken, WC_BATCH, WcOpcode,
    WcStatus, WorkCompletion,
};

use super::{Dying, Slot, VerbsQp, VerbsQueues};
use crate::port::{Pair, Pending, PortEvent, Stage, VerbsEndpoint};
use crate::wc;

impl Dying {
    fn is_due(&self, now: Instant) -> bool {
        now >= self.until || (!self.is_stuck && self.pair.is_last_receive())
    }
}

impl VerbsQueues {
    /// Attaches a connected queue pair, and reports its completions so far.
    pub(super) fn take_over(
        &mut self,
        endpoint: VerbsEndpoint,
    ) -> Result<Attached<VerbsQp>, SetupError> {
        if !Arc::ptr_eq(endpoint.port(), &self.port) {
            return Err(SetupError::Invalid {
                what: "endpoint",
                value: "one made for other queues".to_owned(),
                allowed: "one made for these queues".to_owned(),
            });
        }
        let num = endpoint.num();
        let free = self.pairs.iter().position(|slot| slot.pair.is_none());
        let Some(slot) = free else {
            return Err(SetupError::Limit {
                what: "queue pairs of one shard",
                needed: self.pairs.len() as u64 + 1,
                limit: self.pairs.len() as u64,
                device: self.port.device.caps.name.clone(),
            });
        };
        let pair = self.port.attach(endpoint)?;
        let key = pair.key.0;
        self.pairs[slot] = Slot { qp: pair.qp, key, pair: Some(pair) };
        let at = self.attached.partition_point(|other| *other < num);
        self.attached.insert(at, num);
        self.release_held(num);
        Ok(Attached { qp: VerbsQp { slot: slot as u32, key }, qp_num: num })
    }

    /// Held completions precede those taken from the device later.
    fn release_held(&mut self, num: u32) {
        let VerbsQueues { held, ready, .. } = self;
        for done in held.iter().rev().filter(|done| done.qp_num == num) {
            ready.push_front(*done);
        }
        held.retain(|done| done.qp_num != num);
    }

    /// Starts the end of an attached queue pair.
    pub(super) fn detach(&mut self, qp: VerbsQp) {
        let slot = std::mem::take(&mut self.pairs[qp.slot as usize]);
        if let Some(pair) = slot.pair {
            self.attached.retain(|num| *num != pair.num);
            self.bury(pair);
        }
    }

    /// Completes requests to a queue pair in the error state as flushed, in place of a device that
    /// would not. They are reported behind everything that it has completed.
    #[cold]
    pub(super) fn flush<'a>(&mut self, qp: VerbsQp, wrs: impl Requests<SendWr<'a>>) -> Taken {
        let Some(pair) = self.attached_pair(qp) else {
            return Taken::with_error(0, PostError::QpGone);
        };
        let (qp_num, mut taken) = (pair.num, 0);
        self.take_completions(Some);
        for SendWr { wr_id, .. } in wrs {
            if self.ready.len() >= 2 * self.limits.cq_depth as usize {
                return Taken::with_error(taken, PostError::QueueFull);
            }
            let (status, opcode) = (WcStatus::Flushed, WcOpcode::Send);
            let done =
                WorkCompletion { wr_id, qp_num, status, opcode, byte_len: 0, invalidated: None };
            self.ready.push_back(done);
            taken += 1;
        }
        Taken::without_error(taken)
    }

    /// Does the pending work off the fast path. Returns the next event.
    #[cold]
    pub(super) fn look_after(&mut self, pending: Pending) -> Option<QueueEvent> {
        while let Some(pair) = self.port.next_buried() {
            self.bury(pair);
        }
        if pending.contains(Pending::DYING) {
            self.look_at_dying(Instant::now());
        }
        while let Some(event) = self.port.next_event() {
            match event {
                PortEvent::Device(event) => return Some(event),
                PortEvent::End(key, end) => {
                    // Before its requests are flushed, which says less. The end of a destroyed
                    // queue pair is not reported.
                    let pair = self.pairs.iter().filter_map(|slot| slot.pair.as_ref());
                    if let Some(pair) = pair.into_iter().find(|pair| pair.key == key) {
                        pair.fail(&self.port.device);
                        return Some(end.event(pair.num));
                    }
                }
            }
        }
        None
    }

    /// Starts the end of a queue pair. From now on only its Receives are reported.
    ///
    /// It is destroyed when the device holds no more of its Receives, if the device reports that.
    /// Drivers may themselves remove completions of a destroyed queue pair, and with them its
    /// Receives.
    fn bury(&mut self, pair: Arc<Pair>) {
        pair.fail(&self.port.device);
        let waits = self.reports_last_receive && pair.is_in_error() && !pair.is_last_receive();
        self.port.note_stage(pair.key, Stage::Dying);
        let until = Instant::now() + if waits { LAST_RECEIVE_WAIT } else { Duration::ZERO };
        self.dying.push(Dying { pair, until, is_stuck: false });
        self.port.set(Pending::DYING);
        if !waits {
            self.end(self.dying.len() - 1, until);
        }
    }

    /// Destroys at most one of the dying queue pairs.
    fn look_at_dying(&mut self, now: Instant) {
        let Some(at) = self.dying.iter().position(|it| it.is_due(now)) else { return };
        let Dying { pair, is_stuck, .. } = &self.dying[at];
        if !is_stuck && pair.is_in_error() && !pair.is_last_receive() {
            // A device that has never reported a last Receive is not waited for again.
            self.reports_last_receive = self.port.device.events.has_reported_last_receive();
        }
        pair.fail(&self.port.device);
        self.end(at, now);
    }

    /// Destroys a dying queue pair, or schedules another try.
    fn end(&mut self, at: usize, now: Instant) {
        let port = Arc::clone(&self.port);
        let pair = Arc::clone(&self.dying[at].pair);
        let mut pairs = port.pairs();
        if pair.destroy(&port.device) {
            // Before another queue pair can get the number.
            self.sweep(pair.num);
            port.remove(&mut pairs, pair.key);
            self.dying.remove(at);
            if self.dying.is_empty() {
                port.clear(Pending::DYING);
            }
        } else {
            drop(pairs);
            port.note_stage(pair.key, Stage::Stuck);
            (self.dying[at].until, self.dying[at].is_stuck) = (now + STUCK_WAIT, true);
        }
    }

    /// The time until a queue pair is to be destroyed.
    pub(super) fn until_next_end(&self) -> Option<Duration> {
        let now = Instant::now();
        let left = |it: &Dying| match it.is_due(now) {
            true => Duration::ZERO,
            false => it.until.saturating_duration_since(now),
        };
        self.dying.iter().map(left).min()
    }

    /// Whether a completion belongs to a dying queue pair.
    pub(super) fn is_dying(&self, done: &WorkCompletion) -> bool {
        self.dying.iter().any(|it| it.pair.num == done.qp_num)
    }

    /// Empties the completion queue: filters this queue pair's completions, and keeps the others.
    fn sweep(&mut self, num: u32) {
        for _ in 0..self.ready.len() {
            let Some(done) = self.ready.pop_front() else { break };
            self.ready.extend(filtered(done, num));
        }
        for _ in 0..self.held.len() {
            let Some(done) = self.held.pop_front() else { break };
            if done.qp_num == num {
                self.ready.extend(filtered(done, num));
            } else {
                self.held.push_back(done);
            }
        }
        self.take_completions(|done| filtered(done, num));
    }

    /// Empties the completion queue: what `keep` makes of each completion is reported later.
    fn take_completions(&mut self, keep: impl Fn(WorkCompletion) -> Option<WorkCompletion>) {
        let mut left = self.limits.cq_depth as usize + WC_BATCH;
        while left > 0 {
            // The next poll reports a failed queue, too.
            let Ok(count @ 1..) = self.poll_device(left) else { return };
            left -= count;
            let found = &self.polled[..count];
            let done = found.iter().map(|wc| wc::completion(wc, self.invalidated));
            self.ready.extend(done.filter_map(&keep));
        }
    }

    /// Ends everything: when this returns, the device accesses no posted memory.
    fn close(&mut self) {
        let port = Arc::clone(&self.port);
        let device = &port.device;
        let mut pairs = port.pairs();
        let mut left = port.close(&mut pairs);
        left.iter().for_each(|pair| pair.fail(device));
        // Some devices keep a window while its queue pair exists, others a queue pair while its
        // window does.
        for _ in 0..2 {
            self.exposed.close(device);
            left.retain(|pair| !pair.destroy(device));
        }
        self.exposed.give_up(device);
    }
}

impl Drop for VerbsQueues {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
impl VerbsQueues {
    /// Whether the device reports the last Receive of a queue pair.
    pub(crate) fn reports_last_receive(&mut self) -> &mut bool {
        &mut self.reports_last_receive
    }

    /// The queue pair with this name.
    pub(crate) fn pair(&self, qp: VerbsQp) -> Arc<Pair> {
        Arc::clone(self.pairs[qp.slot as usize].pair.as_ref().expect("it is attached"))
    }

    pub(crate) fn key(&self, qp: VerbsQp) -> crate::names::Key {
        self.pair(qp).key
    }

    /// Ends the waiting time of all dying queue pairs.
    pub(crate) fn let_time_pass(&mut self) {
        let now = Instant::now();
        self.dying.iter_mut().for_each(|it| it.until = now);
    }
}

/// What is reported of a completion if the queue pair `gone` is destroyed: of its own only Receives,
/// as flushed.
pub(super) fn filtered(done: WorkCompletion, gone: u32) -> Option<WorkCompletion> {
    if done.qp_num != gone {
        return Some(done);
    }
    let flushed =
        WorkCompletion { qp_num: 0, status: WcStatus::Flushed, invalidated: None, ..done };
    wc::is_receive(&done).then_some(flushed)
}

/// How long the device may take to return the Receives of a queue pair in error.
const LAST_RECEIVE_WAIT: Duration = Duration::from_millis(5);
/// The pause before the next try to destroy a queue pair.
const STUCK_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use rpcrdma_provider::{WcOpcode, WrId};

    use super::*;
    use crate::wc::RECEIVE;

    fn done(wr_id: u64, qp_num: u32) -> WorkCompletion {
        WorkCompletion {
            wr_id: WrId(wr_id),
            qp_num,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: 4,
            invalidated: Some(7),
        }
    }

    #[test]
    fn receives_of_a_dead_queue_pair_return_as_flushed_and_its_sends_do_not() {
        let returned = filtered(done(3 | RECEIVE, 17), 17).expect("its buffer is not lost");
        assert_eq!((returned.qp_num, returned.status), (0, WcStatus::Flushed));
        assert_eq!((returned.wr_id, returned.invalidated), (WrId(3 | RECEIVE), None));
        assert_eq!(filtered(done(3, 17), 17), None);
    }

    #[test]
    fn completions_of_other_queue_pairs_are_unchanged() {
        for wr_id in [3, 3 | RECEIVE] {
            assert_eq!(filtered(done(wr_id, 18), 17), Some(done(wr_id, 18)));
        }
    }
}
