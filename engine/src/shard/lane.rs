//! A lane: what one queue pair has to send and has sent.
//!
//! ```text
//!   pending ──post──▶ copied while posting ───────────────────▶ released
//!              └────▶ in flight ──completion of its sequence──▶ released
//! ```
//! Every work request has a sequence number. A completion names one; all before it are done.

use super::message::Queue;
use crate::provider::PostError;

/// The sends of one queue pair. Laid out as written: a short message needs the beginning only.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lane {
    /// Work requests posted.
    posted: u32,
    /// Work requests known to be complete.
    done: u32,
    /// The last signaled work request.
    signaled: u32,
    /// Laid out, not posted in full.
    pub pending: Queue,
    /// Posted, memory still in the device's hands.
    pub flight: Queue,
    /// Whether the peer is in the outbox's list of those with pending messages.
    pub ready: bool,
    /// Reports and messages between the transports since `pending` was last empty.
    pub unsolicited: u32,
    /// What the device said of the queue pair, other than that it is full, when it took a message.
    pub trouble: Option<PostError>,
}

impl Lane {
    pub fn new() -> Lane {
        Lane {
            pending: Queue::EMPTY,
            flight: Queue::EMPTY,
            ready: false,
            unsolicited: 0,
            trouble: None,
            posted: 0,
            done: 0,
            signaled: 0,
        }
    }

    /// Work requests that the queue pair still has.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }

    /// Send slots of the shard that its messages hold.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.pending.slots() + self.flight.slots()
    }

    /// What tells whether the peer takes anything, while a completion of a message that holds
    /// memory is waited for: the last that has come.
    pub fn waits_behind(&self) -> Option<u32> {
        let is_waiting = self.outstanding() > self.unsignaled() && self.slots() > 0;
        is_waiting.then_some(self.done)
    }

    /// The sequence number of the next work request.
    #[inline]
    pub fn next_seq(&self) -> u32 {
        self.posted.wrapping_add(1)
    }

    /// The sequence number of the last work request.
    pub fn last_seq(&self) -> u32 {
        self.posted
    }

    /// Work requests since the last signaled one.
    #[inline]
    pub fn unsignaled(&self) -> u32 {
        self.posted.wrapping_sub(self.signaled)
    }

    /// Has the next work request signaled, where one in `signal_every` is.
    pub fn signal_next(&mut self, signal_every: u32) {
        self.signaled = self.posted.wrapping_sub(signal_every);
    }

    /// Counts a posted work request and returns its sequence number.
    #[inline]
    pub fn on_posted(&mut self, signaled: bool) -> u32 {
        self.posted = self.next_seq();
        if signaled {
            self.signaled = self.posted;
        }
        self.posted
    }

    /// Takes a completion in. False if it names a work request that is not outstanding.
    #[inline]
    pub fn on_completed(&mut self, seq: u32) -> bool {
        let is_outstanding = seq.wrapping_sub(self.done).wrapping_sub(1) < self.outstanding();
        if is_outstanding {
            self.done = seq;
        }
        is_outstanding
    }

    /// Whether the work request with this sequence number is complete.
    #[inline]
    pub fn is_done(&self, seq: u32) -> bool {
        // The distance between two sequence numbers in use is far below half of their range.
        self.done.wrapping_sub(seq) < u32::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_finishes_everything_before_it() {
        let mut lane = Lane::new();
        let seqs = [false, false, true].map(|signaled| lane.on_posted(signaled));
        assert_eq!((lane.outstanding(), lane.unsignaled()), (3, 0));
        assert!(lane.on_completed(seqs[2]));
        assert!(seqs.iter().all(|&seq| lane.is_done(seq)));
        assert_eq!(lane.outstanding(), 0);
    }

    #[test]
    fn a_completion_of_nothing_outstanding_is_refused() {
        let mut lane = Lane::new();
        assert!(!lane.on_completed(1), "nothing was posted");
        let seq = lane.on_posted(true);
        assert!(!lane.on_completed(seq.wrapping_add(1)), "not posted yet");
        assert!(lane.on_completed(seq));
        assert!(!lane.on_completed(seq), "twice");
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut lane = Lane {
            posted: u32::MAX - 1,
            done: u32::MAX - 1,
            signaled: u32::MAX - 1,
            ..Lane::new()
        };
        let seqs = [lane.on_posted(false), lane.on_posted(false), lane.on_posted(true)];
        assert!(lane.on_completed(seqs[1]));
        assert!(lane.is_done(seqs[0]) && lane.is_done(seqs[1]) && !lane.is_done(seqs[2]));
    }
}
