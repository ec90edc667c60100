//! How queue pairs come and go.
//!
//! ```text
//!   destroy ─▶ error state ─▶ its Receives come back ─▶ destroyed ─▶ the completion queue is swept
//! ```
//! What the sweep finds of other queue pairs waits in `ready`. Receives that the dead queue pair took
//! from the shared queue come home as flushed, of queue pair 0; its sends are forgotten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_engine::SetupError;
use rpcrdma_engine::provider::{Attached, WC_BATCH, WcStatus, WorkCompletion};

use super::{Slot, VerbsQp, VerbsQueues};
use crate::port::VerbsEndpoint;
use crate::wc;

impl VerbsQueues {
    /// Takes a connected queue pair over, and what it has completed so far.
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
        let free = self.pairs.iter().position(|slot| slot.num == 0);
        let Some(slot) = free else {
            return Err(SetupError::Limit {
                what: "queue pairs of one shard",
                needed: self.pairs.len() as u64 + 1,
                limit: self.pairs.len() as u64,
                device: self.port.device.caps.name.clone(),
            });
        };
        let qp = self.port.attach(endpoint)?;
        self.pairs[slot] = Slot { qp, num };
        let at = self.attached.partition_point(|other| *other < num);
        self.attached.insert(at, num);
        self.release_held(num);
        Ok(Attached { qp: VerbsQp { slot: slot as u32, num }, qp_num: num })
    }

    /// What was held of a queue pair comes before what was taken from the device later.
    fn release_held(&mut self, num: u32) {
        let VerbsQueues { held, ready, .. } = self;
        for done in held.iter().rev().filter(|done| done.qp_num == num) {
            ready.push_front(*done);
        }
        held.retain(|done| done.qp_num != num);
    }

    /// Destroys an attached queue pair.
    pub(super) fn end(&mut self, qp: VerbsQp) {
        self.pairs[qp.slot as usize].num = 0;
        self.attached.retain(|num| *num != qp.num);
        self.bury(qp.num);
    }

    /// Destroys the queue pairs whose endpoints were dropped.
    #[cold]
    pub(super) fn bury_dropped(&mut self) {
        while let Some(num) = self.port.next_buried() {
            self.bury(num);
        }
    }

    /// Destroys a queue pair. When this returns, nothing of it is reported any more, but for its
    /// Receives.
    fn bury(&mut self, num: u32) {
        let port = Arc::clone(&self.port);
        port.with(num, |pair| pair.fail(&port.device));
        self.await_last_receive(num);
        let buried = {
            let mut pairs = port.pairs();
            let Some(mut pair) = port.take(&mut pairs, num) else { return };
            pair.destroy(&port.device);
            // Before the number can be that of another queue pair.
            self.sweep(num);
            pair
        };
        // Its end in librdmacm waits for the connection manager, which may wait for the lock.
        drop(buried);
        port.forget_events(num);
    }

    /// Waits until the device has no Receives of a queue pair in its hands, where it says so. Drivers
    /// may take completions of a destroyed queue pair out of the queue themselves, and the Receives
    /// with them.
    fn await_last_receive(&mut self, num: u32) {
        if !self.tells_last_receive {
            return;
        }
        let until = Instant::now() + LAST_RECEIVE_WAIT;
        while self.port.with(num, |pair| !pair.is_last_receive) == Some(true) {
            self.sweep(num);
            if Instant::now() >= until {
                // A device that has never told is not waited for again.
                self.tells_last_receive = self.port.device.events.has_told_last_receive();
                return;
            }
            std::thread::yield_now();
        }
        self.sweep(num);
    }

    /// Empties the completion queue: what is of this queue pair is done with, the rest is kept.
    fn sweep(&mut self, num: u32) {
        for _ in 0..self.ready.len() {
            let Some(done) = self.ready.pop_front() else { break };
            self.ready.extend(settled(done, num));
        }
        for _ in 0..self.held.len() {
            let Some(done) = self.held.pop_front() else { break };
            if done.qp_num == num {
                self.ready.extend(settled(done, num));
            } else {
                self.held.push_back(done);
            }
        }
        let mut left = self.limits.cq_depth as usize + WC_BATCH;
        while left > 0 {
            // A queue that is lost says so at the next poll, too.
            let Ok(count @ 1..) = self.poll_device(left) else { return };
            left -= count;
            let found = &self.polled[..count];
            let done = found.iter().map(|wc| wc::completion(wc, self.invalidated));
            self.ready.extend(done.filter_map(|done| settled(done, num)));
        }
    }

    /// Ends everything: nobody reads or writes memory that was posted when this returns.
    fn close(&mut self) {
        let port = Arc::clone(&self.port);
        let ended = {
            let mut pairs = port.pairs();
            let mut ended = port.close(&mut pairs);
            ended.iter_mut().for_each(|pair| pair.fail(&port.device));
            self.shown.close(&port.device);
            ended.iter_mut().for_each(|pair| pair.destroy(&port.device));
            ended
        };
        drop(ended);
    }
}

impl Drop for VerbsQueues {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
impl VerbsQueues {
    /// Has the device be one that says when it has no Receives of a queue pair any more, or takes in
    /// what was found out.
    pub(crate) fn tells_last_receive(&mut self) -> &mut bool {
        &mut self.tells_last_receive
    }
}

/// What is reported of a completion when a queue pair is gone.
fn settled(done: WorkCompletion, gone: u32) -> Option<WorkCompletion> {
    if done.qp_num != gone {
        return Some(done);
    }
    let flushed =
        WorkCompletion { qp_num: 0, status: WcStatus::Flushed, invalidated: None, ..done };
    wc::is_receive(&done).then_some(flushed)
}

/// How long the device may take to give the Receives of a queue pair in error back.
const LAST_RECEIVE_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use rpcrdma_engine::provider::{WcOpcode, WrId};

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
    fn receives_of_a_dead_queue_pair_come_home_as_flushed_and_its_sends_do_not_come() {
        let home = settled(done(3 | RECEIVE, 17), 17).expect("its buffer is not lost");
        assert_eq!((home.qp_num, home.status), (0, WcStatus::Flushed));
        assert_eq!((home.wr_id, home.invalidated), (WrId(3 | RECEIVE), None));
        assert_eq!(settled(done(3, 17), 17), None);
    }

    #[test]
    fn what_is_of_others_is_left_as_it_is() {
        for wr_id in [3, 3 | RECEIVE] {
            assert_eq!(settled(done(wr_id, 18), 17), Some(done(wr_id, 18)));
        }
    }
}
