//! A lane: the pending and outstanding sends of one queue pair.
//!
//! ```text
//!   pending ──post──▶ copied while posting ───────────────────▶ released
//!              └────▶ in flight ──completion of its sequence──▶ released
//! ```
//! Every work request has a sequence number. A completion names one, and completes all before it.
//! The numbers of refused requests are used again. A device that still completes a refused request
//! must not complete the next one of that number: so a work request's identifier is its number and
//! a mark, and the mark changes after every refusal. Both wrap: the outstanding numbers follow the
//! last completed one, and are far fewer than half of all numbers.

pub(crate) mod messages;
pub(crate) mod queue;

use self::messages::Messages;
use self::queue::Queue;
use crate::provider::PostError;
use crate::provider::shortly_before_end;

/// The sends of one queue pair. Field order is fixed: a short message uses only the first five, to
/// the head of `pending`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lane {
    /// The current mark, at its position in the identifier.
    mark: u64,
    /// Work requests posted.
    posted: u32,
    /// Work requests known to be complete.
    done: u32,
    /// The last signaled work request.
    signaled: u32,
    /// Send slots held by the messages of both queues, and by those with an item that leave before
    /// them.
    slots: u32,
    /// Laid out, not fully posted.
    pub pending: Queue,
    /// Posted, memory still owned by the device.
    pub flight: Queue,
    /// Whether the peer is in the outbox's list of peers with pending messages.
    pub ready: bool,
    /// Reports and control messages; as many of them as there are in `pending` may wait.
    unsolicited: u32,
    /// The queue pair's last post error, other than a full queue, when it took all requests.
    pub trouble: Option<PostError>,
    /// Earlier marks with outstanding work requests.
    eras: Vec<Era>,
}

/// The identifiers of work requests that are not posted yet, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestNames {
    mark: u64,
    next: u32,
}

impl RequestNames {
    /// The next one.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let name = self.mark | u64::from(self.next);
        self.next = self.next.wrapping_add(1);
        name
    }
}

/// Work requests posted under one mark: those up to `last`, behind those of the era before.
#[derive(Debug)]
struct Era {
    last: u32,
    mark: u64,
}

impl Lane {
    /// Where in a lane lies what a short message reads and writes: to the head of `pending`.
    #[cfg(test)]
    pub const SHORT_STATE: core::ops::Range<usize> =
        0..core::mem::offset_of!(Lane, pending) + size_of::<u32>();

    pub fn new() -> Lane {
        Lane {
            slots: 0,
            pending: Queue::EMPTY,
            flight: Queue::EMPTY,
            ready: false,
            unsolicited: 0,
            trouble: None,
            mark: (shortly_before_end(MARK_BITS, 2) as u64) << SEQ_BITS,
            eras: Vec::new(),
            posted: FIRST,
            done: FIRST,
            signaled: FIRST,
        }
    }

    /// Outstanding work requests of the queue pair.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.posted.wrapping_sub(self.done)
    }

    /// Send slots of the shard held by its messages.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Reports and control messages that wait to be posted, at most.
    pub fn unsolicited(&self) -> u32 {
        self.unsolicited.min(self.pending.len())
    }

    /// None waits: `pending` is empty.
    #[inline]
    pub fn forget_unsolicited(&mut self) {
        self.unsolicited = 0;
    }

    /// Counts a report or control message, before it is added.
    pub fn add_unsolicited(&mut self) {
        self.unsolicited = self.unsolicited() + 1;
    }

    /// Adds a message behind all others.
    #[inline]
    pub fn push(&mut self, messages: &mut Messages, index: u32) {
        self.pending.push(messages, index);
        self.slots += messages.slots(index);
    }

    /// Adds a message in front of all others.
    #[cold]
    pub fn push_front(&mut self, messages: &mut Messages, index: u32) {
        self.pending.push_front(messages, index);
        self.slots += messages.slots(index);
    }

    /// Removes the first pending message.
    #[inline]
    pub fn pop(&mut self, messages: &Messages) -> Option<u32> {
        let index = self.pending.pop(messages)?;
        self.slots -= messages.slots(index);
        Some(index)
    }

    /// Removes a pending message.
    #[cold]
    pub fn remove(&mut self, messages: &mut Messages, index: u32) {
        self.pending.remove(messages, index);
        self.slots -= messages.slots(index);
    }

    /// Keeps a posted message until it is complete.
    #[inline]
    pub fn hold(&mut self, messages: &mut Messages, index: u32) {
        self.flight.push(messages, index);
        self.slots += messages.slots(index);
    }

    /// Counts the one slot of a message that leaves before the pending ones.
    #[inline]
    pub fn count_slot(&mut self) {
        self.slots += 1;
    }

    /// Such a message does not leave, or waits behind others.
    #[cold]
    pub fn uncount_slot(&mut self) {
        self.slots -= 1;
    }

    /// Keeps such a message, now that it is posted.
    #[inline]
    pub fn hold_counted(&mut self, messages: &mut Messages, index: u32) {
        self.flight.push(messages, index);
    }

    /// Removes the first message in flight.
    #[inline]
    pub fn pop_flight(&mut self, messages: &Messages) -> Option<u32> {
        let index = self.flight.pop(messages)?;
        self.slots -= messages.slots(index);
        Some(index)
    }

    /// The last completion, if a message that holds memory is outstanding: it shows whether the
    /// peer accepts messages.
    pub fn waits_behind(&self) -> Option<u32> {
        let is_waiting = self.outstanding() > self.unsignaled() && self.slots() > 0;
        is_waiting.then_some(self.done)
    }

    /// The sequence number of the next work request.
    #[inline]
    fn next_seq(&self) -> u32 {
        self.posted.wrapping_add(1)
    }

    /// The identifier of the work request `at` places after the next: its number, and the mark.
    #[inline]
    pub fn name(&self, at: usize) -> u64 {
        self.mark | u64::from(self.next_seq().wrapping_add(at as u32))
    }

    /// The identifiers of the next work requests, in order.
    #[inline]
    pub fn names(&self) -> RequestNames {
        RequestNames { mark: self.mark, next: self.next_seq() }
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

    /// Makes the next work request signaled, where one in `signal_every` is.
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

    /// Counts posted work requests, the last `unsignaled` of which are not signaled.
    #[inline]
    pub fn on_run_posted(&mut self, count: u32, unsignaled: u32) {
        self.posted = self.posted.wrapping_add(count);
        self.signaled = self.posted.wrapping_sub(unsignaled);
    }

    /// Records that the device refused the next work request.
    #[cold]
    pub fn on_refused(&mut self) {
        self.end_eras();
        let is_new = self.eras.last().is_none_or(|era| era.last != self.posted);
        if is_new && self.outstanding() > 0 {
            // At most one era for each outstanding work request.
            self.eras.push(Era { last: self.posted, mark: self.mark });
        }
        self.mark = self.mark.wrapping_add(MARK_ONE) & MARK;
    }

    /// Processes a completion. False if it names a work request that is not outstanding.
    #[inline]
    pub fn on_completed(&mut self, name: u64) -> bool {
        let seq = name as u32;
        let is_outstanding = seq.wrapping_sub(self.done).wrapping_sub(1) < self.outstanding();
        let mark = if self.eras.is_empty() { self.mark } else { self.mark_of(seq) };
        let is_it = is_outstanding && name & MARK == mark;
        if is_it {
            self.done = seq;
        }
        is_it
    }

    /// Forgets the eras without outstanding work requests.
    fn end_eras(&mut self) {
        let done = self.done;
        self.eras.retain(|era| (era.last.wrapping_sub(done) as i32) > 0);
    }

    /// The mark of an outstanding work request.
    #[cold]
    fn mark_of(&mut self, seq: u32) -> u64 {
        self.end_eras();
        let ahead = |seq: u32| seq.wrapping_sub(self.done);
        let era = self.eras.iter().find(|era| ahead(seq) <= ahead(era.last));
        era.map_or(self.mark, |era| era.mark)
    }

    /// Whether the work request with this sequence number is complete.
    #[inline]
    pub fn is_done(&self, seq: u32) -> bool {
        // The distance between two sequence numbers in use is far below half of their range.
        self.done.wrapping_sub(seq) < u32::MAX / 2
    }
}

/// Bits of a sequence number, and of the mark above it. The two bits above both are not the lane's.
const SEQ_BITS: u32 = 32;
const MARK_BITS: u32 = 30;
const MARK: u64 = ((1 << MARK_BITS) - 1) << SEQ_BITS;
const MARK_ONE: u64 = 1 << SEQ_BITS;
/// The number before the first.
const FIRST: u32 = shortly_before_end(SEQ_BITS, 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_finishes_everything_before_it() {
        let mut lane = Lane::new();
        let names = [0, 1, 2].map(|at| lane.name(at));
        let seqs = [false, false, true].map(|signaled| lane.on_posted(signaled));
        assert_eq!((lane.outstanding(), lane.unsignaled()), (3, 0));
        assert!(lane.on_completed(names[2]));
        assert!(seqs.iter().all(|&seq| lane.is_done(seq)));
        assert_eq!(lane.outstanding(), 0);
    }

    #[test]
    fn a_completion_of_nothing_outstanding_is_refused() {
        let mut lane = Lane::new();
        let name = lane.name(0);
        assert!(!lane.on_completed(name), "nothing was posted");
        lane.on_posted(true);
        assert!(!lane.on_completed(lane.name(0)), "not posted yet");
        assert!(lane.on_completed(name));
        assert!(!lane.on_completed(name), "twice");
    }

    #[test]
    fn a_completion_of_a_refused_request_is_not_taken_for_another() {
        let mut lane = Lane::new();
        // A model: the outstanding identifiers, and the refused ones.
        let (mut posted, mut refused) = (Vec::new(), Vec::new());
        let mut random = 1_u64;
        let mut draw = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        for _ in 0..20_000 {
            match draw(4) {
                0 | 1 => {
                    let (asked, taken) = (1 + draw(4) as u32, draw(5) as u32);
                    let names: Vec<u64> = (0..asked as usize).map(|at| lane.name(at)).collect();
                    for name in names.iter().take(taken as usize) {
                        lane.on_posted(false);
                        posted.push(*name);
                    }
                    if taken < asked {
                        lane.on_refused();
                        refused.extend(&names[taken as usize..]);
                        assert!(lane.eras.len() <= posted.len(), "{:?}", lane.eras);
                    }
                }
                2 if !posted.is_empty() => {
                    let at = draw(posted.len() as u64) as usize;
                    assert!(lane.on_completed(posted[at]));
                    posted.drain(..=at);
                }
                _ if !refused.is_empty() => {
                    let late = refused[draw(refused.len() as u64) as usize];
                    assert!(!lane.on_completed(late), "{late:x}");
                }
                _ => {}
            }
            assert_eq!(lane.outstanding() as usize, posted.len());
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut lane = Lane {
            posted: u32::MAX - 1,
            done: u32::MAX - 1,
            signaled: u32::MAX - 1,
            ..Lane::new()
        };
        lane.on_refused();
        let second = lane.name(1);
        let seqs = [lane.on_posted(false), lane.on_posted(false), lane.on_posted(true)];
        lane.on_refused();
        assert!(lane.on_completed(second));
        assert!(lane.is_done(seqs[0]) && lane.is_done(seqs[1]) && !lane.is_done(seqs[2]));
    }

    #[test]
    fn marks_wrap_and_stay_in_their_place() {
        let mut lane = Lane { mark: MARK, ..Lane::new() };
        let name = lane.name(0);
        lane.on_posted(false);
        lane.on_refused();
        assert_eq!((lane.mark, name & !MARK), (0, u64::from(FIRST) + 1));
        assert!(lane.on_completed(name));
    }
}
