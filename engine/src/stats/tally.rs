//! The counters of one connection: those of every call in three words, and the totals.
//!
//! ```text
//!   call ─▶ left: one fewer ─▶ 0: the total grows by what there were, and this call is timed
//! ```

/// What a connection counts for every call. The calls since the last fold are those that were left
/// then, less those that are left.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tally {
    /// Calls of the peer until the next fold.
    in_left: u32,
    /// Calls of the peer that are over, answered or not, since their last fold.
    over: u32,
    /// Own calls until the next fold.
    out_left: u32,
    /// Own calls that have ended since their last fold.
    done: u32,
}

/// The rest of the counters of a connection.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// Both include the calls until the next fold.
    calls_received: u64,
    calls_sent: u64,
    calls_over: u64,
    calls_completed: u64,
    /// The others are added as they happen.
    pub counted: Counts,
}

/// What a connection, or several, have counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Calls delivered to the handler. Each is open, answered, rejected or left unanswered.
    pub calls_received: u64,
    /// Replies sent, deferred ones included.
    pub replies_sent: u64,
    /// Calls answered without a reply of the program.
    pub refusals_sent: u64,
    /// Of `refusals_sent`: the handler rejected the call.
    pub refusals_handler: u64,
    /// Of `refusals_sent`: the reply could not be sent.
    pub refusals_unsent: u64,
    /// Of `refusals_sent`: the ticket of the call was dropped.
    pub refusals_dropped: u64,
    /// Calls without an answer when the connection ended or the shard stopped.
    pub calls_unanswered: u64,
    /// Calls not delivered for lack of resources, and answered with an error.
    pub calls_rejected: u64,
    /// Calls that arrived while the shard stopped: not delivered and not answered.
    pub calls_dropped: u64,
    /// Calls sent: open calls plus `calls_completed`.
    pub calls_sent: u64,
    /// Calls completed, failures included.
    pub calls_completed: u64,
    /// Calls completed with an error.
    pub calls_failed: u64,
    /// Of `calls_failed`: the deadline passed.
    pub failed_deadline: u64,
    /// Bytes received in groups of more than one transmission.
    pub bytes_continued: u64,
    /// Bytes of RDMA Reads of the peer's memory.
    pub bytes_read: u64,
    /// Bytes of RDMA Writes to the peer's memory.
    pub bytes_written: u64,
}

impl Counts {
    /// Adds what others have counted.
    pub fn add(&mut self, others: &Counts) {
        let Counts {
            calls_received,
            replies_sent,
            refusals_sent,
            refusals_handler,
            refusals_unsent,
            refusals_dropped,
            calls_unanswered,
            calls_rejected,
            calls_dropped,
            calls_sent,
            calls_completed,
            calls_failed,
            failed_deadline,
            bytes_continued,
            bytes_read,
            bytes_written,
        } = others;
        self.calls_received += calls_received;
        self.replies_sent += replies_sent;
        self.refusals_sent += refusals_sent;
        self.refusals_handler += refusals_handler;
        self.refusals_unsent += refusals_unsent;
        self.refusals_dropped += refusals_dropped;
        self.calls_unanswered += calls_unanswered;
        self.calls_rejected += calls_rejected;
        self.calls_dropped += calls_dropped;
        self.calls_sent += calls_sent;
        self.calls_completed += calls_completed;
        self.calls_failed += calls_failed;
        self.failed_deadline += failed_deadline;
        self.bytes_continued += bytes_continued;
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
    }
}

impl Tally {
    /// The tally of a new connection: so many calls until the first fold of each direction, and the
    /// totals that belong to it.
    pub fn new([in_left, out_left]: [u32; 2]) -> (Tally, Totals) {
        debug_assert!(in_left > 0 && out_left > 0, "a fold takes a call");
        let (calls_received, calls_sent) = (in_left.into(), out_left.into());
        let totals = Totals { calls_received, calls_sent, ..Totals::default() };
        (Tally { in_left, over: 0, out_left, done: 0 }, totals)
    }

    /// Counts a call of the peer. True if it is time to fold.
    #[inline(always)]
    #[must_use]
    pub fn call_in(&mut self) -> bool {
        self.in_left -= 1;
        self.in_left == 0
    }

    /// Counts a call of the peer that is over: open before.
    #[inline(always)]
    pub fn call_over(&mut self) {
        self.over = self.over.wrapping_add(1);
    }

    /// The calls of the peer that are over, since their last fold.
    pub fn over(&self) -> u32 {
        self.over
    }

    /// The calls of the peer until the next fold.
    #[inline]
    pub fn in_left(&self) -> u32 {
        self.in_left
    }

    /// Calls of the peer that are open.
    pub fn open(&self, totals: &Totals) -> u32 {
        let calls_received = totals.calls_received - u64::from(self.in_left);
        (calls_received - totals.calls_over - u64::from(self.over)) as u32
    }

    /// Ends all open calls of the peer, and returns how many there were.
    pub fn end_open(&mut self, totals: &mut Totals) -> u32 {
        let open = self.open(totals);
        totals.calls_over += u64::from(open);
        open
    }

    /// Counts an own call that begins. True if it is time to fold.
    #[inline(always)]
    #[must_use]
    pub fn call_out(&mut self) -> bool {
        self.out_left -= 1;
        self.out_left == 0
    }

    /// An own call was not sent.
    pub fn uncall_out(&mut self) {
        self.out_left += 1;
    }

    /// Counts an own call that has ended.
    #[inline(always)]
    pub fn call_done(&mut self) {
        self.done = self.done.wrapping_add(1);
    }

    /// Begins the next calls of the peer: so many until the next fold.
    pub fn fold_in(&mut self, totals: &mut Totals, left: u32) {
        totals.calls_received += u64::from(left);
        totals.calls_over += u64::from(core::mem::take(&mut self.over));
        self.in_left = left;
    }

    /// As [`Tally::fold_in`], for own calls.
    pub fn fold_out(&mut self, totals: &mut Totals, left: u32) {
        totals.calls_sent += u64::from(left);
        totals.calls_completed += u64::from(core::mem::take(&mut self.done));
        self.out_left = left;
    }

    /// What the connection has counted.
    pub fn counts(&self, totals: &Totals) -> Counts {
        let Totals { calls_received, calls_sent, calls_over, calls_completed, counted } = *totals;
        let calls_received = calls_received - u64::from(self.in_left);
        // The only way to end a call that nothing else counts.
        let ended = calls_over + u64::from(self.over);
        let replies_sent = ended - counted.refusals_sent - counted.calls_unanswered;
        let calls_sent = calls_sent - u64::from(self.out_left);
        let calls_completed = calls_completed + u64::from(self.done);
        Counts { calls_received, replies_sent, calls_sent, calls_completed, ..counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_counted_once_wherever_the_folds_are() {
        let (mut tally, mut totals) = Tally::new([3, 1]);
        let mut left = [1, 64, 2, 7].into_iter().cycle();
        for count in 1..=1000_u64 {
            if tally.call_in() {
                tally.fold_in(&mut totals, left.next().expect("a cycle"));
            }
            if tally.call_out() {
                tally.fold_out(&mut totals, left.next().expect("a cycle"));
            }
            if tally.call_out() {
                tally.fold_out(&mut totals, left.next().expect("a cycle"));
            }
            tally.uncall_out();
            tally.call_done();
            assert_eq!(tally.open(&totals), if count == 1 { 1 } else { 2 });
            if count > 1 {
                tally.call_over();
            }
            let Counts { calls_received, calls_sent, calls_completed, replies_sent, .. } =
                tally.counts(&totals);
            assert_eq!((calls_received, calls_sent, calls_completed), (count, count, count));
            assert_eq!(replies_sent, count - 1, "one is open");
        }
    }

    #[test]
    fn a_sum_has_each_counter_of_both() {
        let first = Counts {
            calls_received: 1,
            replies_sent: 2,
            refusals_sent: 3,
            refusals_handler: 4,
            refusals_unsent: 5,
            refusals_dropped: 6,
            calls_unanswered: 7,
            calls_rejected: 8,
            calls_dropped: 9,
            calls_sent: 10,
            calls_completed: 11,
            calls_failed: 12,
            failed_deadline: 13,
            bytes_continued: 14,
            bytes_read: 15,
            bytes_written: 16,
        };
        let mut sum = Counts::default();
        sum.add(&first);
        assert_eq!(sum, first);
        sum.add(&first);
        let twice = Counts {
            calls_received: 2,
            replies_sent: 4,
            refusals_sent: 6,
            refusals_handler: 8,
            refusals_unsent: 10,
            refusals_dropped: 12,
            calls_unanswered: 14,
            calls_rejected: 16,
            calls_dropped: 18,
            calls_sent: 20,
            calls_completed: 22,
            calls_failed: 24,
            failed_deadline: 26,
            bytes_continued: 28,
            bytes_read: 30,
            bytes_written: 32,
        };
        assert_eq!(sum, twice);
    }
}
