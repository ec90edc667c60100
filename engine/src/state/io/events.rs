//! Asynchronous events of the queues, and when they are polled.
//!
//! The end of a connection is processed behind the messages that came before it. A flushed request
//! states only that the connection has ended, but the reason may already be in the event queue: it
//! is searched, and events of other connections are kept for later.

use arrayvec::ArrayVec;

use crate::error::CloseReason;
use crate::provider::{QueueEvent, Queues};

/// Events taken from the queues ahead of time.
#[derive(Debug, Default)]
pub(crate) struct QueueEvents {
    kept: ArrayVec<QueueEvent, KEPT_MAX>,
}

impl QueueEvents {
    /// The next event. Costs two branches when there is none.
    #[inline]
    pub fn next(&mut self, queues: &mut impl Queues) -> Option<QueueEvent> {
        if self.kept.is_empty() { queues.next_event() } else { self.kept.pop_at(0) }
    }

    /// Why a queue pair is in the error state, if its queues have reported it.
    #[cold]
    pub fn reason(&mut self, queues: &mut impl Queues, qp_num: u32) -> Option<CloseReason> {
        while !self.kept.is_full()
            && let Some(event) = queues.next_event()
        {
            self.kept.push(event);
        }
        self.kept.iter().find_map(|event| match *event {
            QueueEvent::Disconnected { qp_num: of } if of == qp_num => Some(CloseReason::PeerGone),
            QueueEvent::Failed { qp_num: of } if of == qp_num => Some(CloseReason::Failed),
            QueueEvent::DeviceLost => Some(CloseReason::DeviceLost),
            _ => None,
        })
    }

    /// Records that the queues have failed.
    #[cold]
    pub fn on_lost(&mut self) {
        let is_known = self.kept.contains(&QueueEvent::DeviceLost);
        // Without room the failure is found again.
        if !is_known && !self.kept.is_full() {
            self.kept.push(QueueEvent::DeviceLost);
        }
    }

    /// Drops events of a queue pair that is gone: its number may be used again.
    pub fn forget(&mut self, qp_num: u32) {
        self.kept.retain(|event| match *event {
            QueueEvent::Disconnected { qp_num: of } | QueueEvent::Failed { qp_num: of } => {
                of != qp_num
            }
            QueueEvent::DeviceLost | QueueEvent::PortDown | QueueEvent::PortUp => true,
        });
    }
}

/// The maximum of kept events; further ones stay with the queues.
const KEPT_MAX: usize = 16;
