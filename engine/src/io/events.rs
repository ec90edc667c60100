//! Asynchronous events of the queues, and when they are polled.
//!
//! The end of a connection is heard behind the messages that came before it. When its requests come
//! back flushed, which says only that it is at an end, the reason may be there already: it is looked
//! for, and what is said of other connections meanwhile is kept for its turn.

use arrayvec::ArrayVec;

use crate::error::CloseReason;
use crate::provider::{QueueEvent, Queues};

/// Events that were taken from the queues before it was their turn.
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

    /// Why a queue pair is in the error state, if its queues have said so.
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

    /// The queues were found to be of no use.
    #[cold]
    pub fn on_lost(&mut self) {
        let is_known = self.kept.contains(&QueueEvent::DeviceLost);
        // Without room it is found once more.
        if !is_known && !self.kept.is_full() {
            self.kept.push(QueueEvent::DeviceLost);
        }
    }

    /// Drops what was said of a queue pair that is gone: its number may be used again.
    pub fn forget(&mut self, qp_num: u32) {
        self.kept.retain(|event| match *event {
            QueueEvent::Disconnected { qp_num: of } | QueueEvent::Failed { qp_num: of } => {
                of != qp_num
            }
            QueueEvent::DeviceLost | QueueEvent::PortDown | QueueEvent::PortUp => true,
        });
    }
}

/// Events that are kept; further ones stay with the queues.
const KEPT_MAX: usize = 16;
