//! Injected failures of queue pairs, queues, ports and devices, and when the program learns of
//! them.

use super::{FaultLog, QueueFaults};
use rpcrdma_provider::{CqError, QueueEvent, Queues};

impl<Q: Queues> QueueFaults<Q> {
    /// The completion queue may fail permanently with this poll.
    pub(super) fn break_queue(&mut self) {
        if self.broken.is_some() {
            return;
        }
        if self.chance(self.plan.overrun_ppm) {
            FaultLog::note(&self.log.overrun);
            self.broken = Some(CqError::Overrun);
        } else if self.chance(self.plan.cq_failed_ppm) {
            FaultLog::note(&self.log.cqs_failed);
            self.broken = Some(CqError::Device(libc::EIO));
        }
    }

    /// The events of this poll.
    pub(super) fn happen(&mut self, inner: &mut Q) {
        if self.chance(self.plan.disconnect_ppm)
            && let Some(qp_num) = self.lose_a_queue_pair(inner)
        {
            FaultLog::note(&self.log.disconnected);
            self.events.push_back((self.polls, QueueEvent::Disconnected { qp_num }));
        }
        if self.chance(self.plan.flush_ppm) {
            let until = self.delay();
            if let Some(qp_num) = self.lose_a_queue_pair(inner) {
                FaultLog::note(&self.log.flushed);
                self.events.push_back((until, QueueEvent::Disconnected { qp_num }));
            }
        }
        if self.chance(self.plan.qp_failed_ppm) {
            let until = self.delay() - 1;
            if let Some(qp_num) = self.lose_a_queue_pair(inner) {
                FaultLog::note(&self.log.qps_failed);
                self.events.push_back((until, QueueEvent::Failed { qp_num }));
            }
        }
        if self.chance(self.plan.device_lost_ppm) {
            FaultLog::note(&self.log.devices_lost);
            self.events.push_back((self.polls, QueueEvent::DeviceLost));
        }
        if self.chance(self.plan.port_changed_ppm) {
            FaultLog::note(&self.log.ports_changed);
            self.is_port_down = !self.is_port_down;
            let event = if self.is_port_down { QueueEvent::PortDown } else { QueueEvent::PortUp };
            self.events.push_back((self.polls, event));
        }
    }

    /// A queue pair is destroyed: it has no further events.
    pub(super) fn forget_events(&mut self, gone: u32) {
        self.events.retain(|(_, event)| match *event {
            QueueEvent::Disconnected { qp_num } | QueueEvent::Failed { qp_num } => qp_num != gone,
            QueueEvent::DeviceLost | QueueEvent::PortDown | QueueEvent::PortUp => true,
        });
    }

    /// Lets a random queue pair fail, and returns its number.
    fn lose_a_queue_pair(&mut self, inner: &mut Q) -> Option<u32> {
        if self.qps.is_empty() {
            return None;
        }
        let at = self.random.below(self.qps.len() as u64) as usize;
        let lost = self.qps.swap_remove(at);
        self.lost.push(lost);
        self.release_all(lost.qp_num);
        inner.disconnect(lost.qp);
        Some(lost.qp_num)
    }

    /// The next event: injected by the plan, injected by a test, or of the queues themselves.
    pub(super) fn next_of_all(&mut self, inner: &mut Q) -> Option<QueueEvent> {
        let polls = self.polls;
        let due = self.events.iter().position(|(when, _)| *when <= polls);
        let own = due.and_then(|at| self.events.remove(at)).map(|(_, event)| event);
        let own = own.or_else(|| self.log.next_injected(self.which));
        let event = own.or_else(|| inner.next_event())?;
        match event {
            QueueEvent::Disconnected { qp_num } | QueueEvent::Failed { qp_num } => {
                self.has_failed(|attached| attached.qp_num == qp_num);
            }
            QueueEvent::DeviceLost | QueueEvent::PortDown | QueueEvent::PortUp => {}
        }
        Some(event)
    }
}
