//! The calls of a session: under way on a connection, or waiting for one, in order.
//!
//! ```text
//!   Free ──take──▶ Taken ──────submitted──────▶ Sent ──completed──▶ Free
//!                    └─wait─▶ Waiting ─submitted──▲ │
//!                             ▲  └─ deadline, cancelled, closed ──▶ Free
//!                             └── its connection was lost, and it may be sent again
//! ```

use std::collections::VecDeque;

use rpcrdma_proto::CallId;

use crate::connection_id::ConnectionId;
use crate::error::{CallError, Execution, Sent};
use crate::message::owned_call::OwnedCall;
use crate::scatter::scattered;

/// What becomes of a call that was sent when its connection is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resend {
    /// It is completed with the loss. It may have been executed.
    #[default]
    Never,
    /// It is sent again on the next connection, with the same xid, by which a server with a reply
    /// cache executes it once. Its payload, the data placed in it and its result buffers stay until
    /// it is over: a loan placed in it is made constant, which allocates a few words.
    SameXid,
}

/// A call, in its place.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Its message, if it waits or may be sent again.
    pub call: OwnedCall,
    pub cookie: u64,
    pub resend: Resend,
    pub state: State,
    /// The xid of the first sending, of a call that is sent again.
    pub xid: Option<u32>,
    /// Whether an earlier sending, on a connection that was lost, may have been executed.
    pub was_sent: bool,
    /// Whether the program cancelled it.
    pub is_cancelled: bool,
    /// Whether its message is or was here, or anything of it is set beside cookie and state.
    is_kept: bool,
    /// Its number in the order of submission, if it is kept.
    order: u64,
    /// Distinguishes its calls from those before.
    generation: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Free,
    Taken,
    Waiting,
    Sent {
        peer: ConnectionId,
        id: CallId,
    },
}

/// Identifies a call of a session, to cancel it. With another session it finds no call: the numbers
/// of its calls begin elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionCallId {
    index: u32,
    generation: u32,
}

/// All calls of a session.
#[derive(Debug)]
pub(super) struct Calls {
    records: Vec<Record>,
    free: Vec<u32>,
    /// Calls without a connection, by their order.
    waiting: VecDeque<u32>,
    waiting_bytes: usize,
    waiting_max: usize,
    waiting_bytes_max: usize,
    /// No deadline of a waiting call is earlier.
    earliest: u64,
    next_order: u64,
    /// The first generation of each place: that of another session differs.
    first_generation: u32,
}

impl Record {
    /// The name of the call in this place, for the program.
    #[inline]
    pub fn id(&self, index: u32) -> SessionCallId {
        SessionCallId { index, generation: self.generation }
    }

    /// The program cancels it.
    pub fn cancel(&mut self) {
        (self.is_cancelled, self.is_kept) = (true, true);
    }

    /// Releases what was kept of a call.
    #[inline(never)]
    fn forget(&mut self) {
        self.call.clear();
        self.resend = Resend::Never;
        self.xid = None;
        (self.was_sent, self.is_cancelled, self.is_kept) = (false, false, false);
    }

    /// When its wait ends at the latest; `u64::MAX` if it has no deadline.
    fn waits_until(&self) -> u64 {
        if self.is_cancelled { 0 } else { self.call.deadline_at().unwrap_or(u64::MAX) }
    }

    /// What was sent of it.
    pub fn sent(&self) -> Sent {
        match self.state {
            _ if self.was_sent => Sent::Before,
            State::Sent { .. } => Sent::Here,
            State::Free | State::Taken | State::Waiting => Sent::Nothing,
        }
    }

    /// What is known about its execution.
    pub fn execution(&self) -> Execution {
        Execution::of(self.sent(), None)
    }

    /// An error of its connection, as one of all its sendings.
    pub fn failed(&self, error: CallError) -> CallError {
        if self.was_sent { error.after(Sent::Before) } else { error }
    }
}

impl Calls {
    /// No calls, of the session of a shard; so many may wait, with so many bytes.
    pub fn new(waiting_max: usize, waiting_bytes_max: usize, shard: u32) -> Calls {
        Calls {
            records: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_max,
            waiting_bytes_max,
            earliest: u64::MAX,
            next_order: 0,
            first_generation: scattered(shard.into()),
        }
    }

    /// The place of a new call.
    #[inline(always)]
    pub fn take(&mut self, cookie: u64) -> (u32, &mut Record) {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        let record = &mut self.records[index as usize];
        record.cookie = cookie;
        (index, record)
    }

    /// The place of a new call that is kept, with its message.
    pub fn keep(&mut self, cookie: u64, resend: Resend, call: &mut OwnedCall) -> u32 {
        self.next_order += 1;
        let order = self.next_order;
        let (index, record) = self.take(cookie);
        (record.resend, record.is_kept, record.state) = (resend, true, State::Taken);
        record.order = order;
        core::mem::swap(&mut record.call, call);
        index
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.records.push(Record { generation: self.first_generation, ..Record::default() });
        // Each place returns without an allocation.
        self.free.reserve(self.records.capacity());
        self.records.len() as u32 - 1
    }

    /// A call, by its place.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut Record {
        &mut self.records[index as usize]
    }

    /// As [`Calls::at`], for reading.
    pub fn get(&self, index: u32) -> &Record {
        &self.records[index as usize]
    }

    /// The name of a call, for the program.
    pub fn id(&self, index: u32) -> SessionCallId {
        self.records[index as usize].id(index)
    }

    /// The place of a call that is not over.
    pub fn find(&self, id: SessionCallId) -> Option<u32> {
        let record = self.records.get(id.index as usize)?;
        (record.generation == id.generation && record.state != State::Free).then_some(id.index)
    }

    /// A call is over, or was not made: its cookie. Its memory returns to its pools.
    #[inline(always)]
    pub fn end(&mut self, index: u32) -> u64 {
        let record = &mut self.records[index as usize];
        if record.is_kept {
            record.forget();
        }
        record.state = State::Free;
        record.generation = record.generation.wrapping_add(1);
        // It has room for each place: this is without its allocation.
        if self.free.len() < self.free.capacity() {
            self.free.push(index);
        }
        record.cookie
    }

    /// Whether any call waits.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one more call may wait.
    pub fn has_room_for(&self, held: usize) -> bool {
        let bytes = self.waiting_bytes.saturating_add(held);
        self.waiting.len() < self.waiting_max && bytes <= self.waiting_bytes_max
    }

    /// A kept call waits, before those that were submitted later. One that has been sent has a
    /// place, whatever the limits are: it had been taken.
    pub fn wait(&mut self, index: u32) {
        let record = &self.records[index as usize];
        let order = record.order;
        let at = self.waiting.partition_point(|at| self.records[*at as usize].order <= order);
        self.waiting_bytes += record.call.held();
        self.earliest = self.earliest.min(record.waits_until());
        self.waiting.insert(at, index);
        self.records[index as usize].state = State::Waiting;
    }

    /// The first of the waiting calls.
    pub fn first(&self) -> Option<u32> {
        self.waiting.front().copied()
    }

    /// A waiting call leaves.
    pub fn leave(&mut self, index: u32) {
        let Some(at) = self.waiting.iter().position(|of| *of == index) else { return };
        self.waiting.remove(at);
        self.waiting_bytes -= self.records[index as usize].call.held();
        if self.waiting.is_empty() {
            self.earliest = u64::MAX;
        }
    }

    /// Whether a waiting call will be sent with this xid: no other call may take it meanwhile.
    pub fn keeps_xid(&self, xid: u32) -> bool {
        self.waiting.iter().any(|at| self.records[*at as usize].xid == Some(xid))
    }

    /// When [`Calls::next_late`] is to be asked again.
    pub fn earliest(&self) -> u64 {
        self.earliest
    }

    /// A waiting call whose deadline has passed, or that was cancelled.
    pub fn next_late(&mut self, now: u64) -> Option<u32> {
        if now < self.earliest {
            return None;
        }
        let until = |at: u32| self.records[at as usize].waits_until();
        let late = self.waiting.iter().copied().find(|at| until(*at) <= now);
        if late.is_none() {
            self.earliest = self.waiting.iter().map(|at| until(*at)).min().unwrap_or(u64::MAX);
        }
        late
    }

    /// The program cancels a waiting call.
    pub fn cancel_waiting(&mut self, index: u32) {
        self.at(index).cancel();
        self.earliest = 0;
    }

    /// The places of the calls that are under way.
    pub fn all_sent(&self) -> impl Iterator<Item = u32> {
        let is_sent = |(_, record): &(usize, &Record)| matches!(record.state, State::Sent { .. });
        self.records.iter().enumerate().filter(is_sent).map(|(index, _)| index as u32)
    }

    /// Calls that are not over.
    pub fn open(&self) -> usize {
        self.records.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rpcrdma_proto::Refusal;

    use super::*;

    const WAITING_MAX: usize = 6;
    const BYTES_MAX: usize = 60;

    /// What is known of a call that is not over.
    #[derive(Debug, Clone, Copy)]
    struct Known {
        index: u32,
        id: SessionCallId,
        order: usize,
        held: usize,
        until: u64,
        is_waiting: bool,
        xid: Option<u32>,
    }

    /// The calls, and a list of what is known of them.
    struct Both {
        calls: Calls,
        known: Vec<Known>,
        over: Vec<SessionCallId>,
        begun: usize,
        now: u64,
    }

    impl Both {
        /// A new call, which waits or is sent.
        fn begin(&mut self, value: usize, is_waiting: bool) {
            let (mut draft, held, until) =
                (OwnedCall::new(), value % 8 * 4, self.now + 1 + value as u64 % 5);
            draft.put_fixed(&vec![7; held]);
            let until = if value.is_multiple_of(3) { u64::MAX } else { until };
            if until < u64::MAX {
                draft.deadline(until);
            }
            let has_room = self.calls.has_room_for(held);
            assert_eq!(has_room, self.waits() < WAITING_MAX && self.bytes() + held <= BYTES_MAX);
            if is_waiting && !has_room {
                return;
            }
            self.begun += 1;
            let index = self.calls.keep(0, Resend::SameXid, &mut draft);
            let id = self.calls.id(index);
            let order = self.begun;
            self.known.push(Known { index, id, order, held, until, is_waiting, xid: None });
            match is_waiting {
                true => self.calls.wait(index),
                false => self.send(self.known.len() - 1),
            }
        }

        /// As if it was sent.
        fn send(&mut self, at: usize) {
            let known = &mut self.known[at];
            known.is_waiting = false;
            let xid = *known.xid.get_or_insert(known.order as u32);
            self.calls.at(known.index).xid = Some(xid);
        }

        fn end(&mut self, at: usize) {
            let Known { index, id, .. } = self.known.swap_remove(at);
            self.calls.end(index);
            self.over.push(id);
        }

        /// The waiting, or the sent calls, in the order of submission.
        fn those(&self, is_waiting: bool) -> Vec<usize> {
            let mut those: Vec<usize> = (0..self.known.len()).collect();
            those.retain(|at| self.known[*at].is_waiting == is_waiting);
            those.sort_by_key(|at| self.known[*at].order);
            those
        }

        fn one(&self, is_waiting: bool, which: usize) -> Option<usize> {
            let those = self.those(is_waiting);
            those.get(which % those.len().max(1)).copied()
        }

        fn step(&mut self, event: u8, which: usize) {
            let first = self.those(true).first().copied();
            match (event, first, self.one(false, which), self.one(true, which)) {
                (0, ..) => self.begin(which, true),
                (1, ..) => self.begin(which, false),
                (2, Some(at), ..) => {
                    self.calls.leave(self.known[at].index);
                    self.send(at);
                }
                // It was refused for now.
                (3, Some(at), ..) => {
                    self.calls.leave(self.known[at].index);
                    self.calls.wait(self.known[at].index);
                }
                // It was lost.
                (4, _, Some(at), _) => {
                    self.known[at].is_waiting = true;
                    self.calls.wait(self.known[at].index);
                }
                (5, _, Some(at), _) => self.end(at),
                (6, _, Some(at), _) => {
                    self.calls.at(self.known[at].index).cancel();
                    self.known[at].until = 0;
                }
                (7, _, _, Some(at)) => {
                    self.calls.cancel_waiting(self.known[at].index);
                    self.known[at].until = 0;
                }
                (8, ..) => self.end_late(which as u64),
                _ => {}
            }
        }

        fn end_late(&mut self, wait: u64) {
            self.now += wait % 4;
            while let Some(index) = self.calls.next_late(self.now) {
                let at = self.known.iter().position(|it| it.index == index).expect("it is known");
                assert!(self.known[at].is_waiting && self.known[at].until <= self.now);
                self.calls.leave(index);
                self.end(at);
            }
            let waiting = self.known.iter().filter(|it| it.is_waiting);
            let earliest = waiting.map(|it| it.until).min().unwrap_or(u64::MAX);
            assert!(earliest > self.now, "all that were late have ended");
            assert!(self.calls.earliest() <= earliest, "none is asked for too late");
        }

        fn waits(&self) -> usize {
            self.those(true).len()
        }

        fn bytes(&self) -> usize {
            self.known.iter().filter(|it| it.is_waiting).map(|it| it.held).sum()
        }

        fn compare(&mut self) {
            let Both { calls, known, over, .. } = self;
            let waiting = || known.iter().filter(|it| it.is_waiting);
            let first = waiting().min_by_key(|it| it.order);
            assert_eq!(calls.first(), first.map(|it| it.index));
            assert_eq!((calls.has_waiting(), calls.open()), (first.is_some(), known.len()));
            for it in known.iter() {
                assert_eq!(calls.find(it.id), Some(it.index));
                let is_kept = it.is_waiting && it.xid.is_some();
                assert_eq!(calls.keeps_xid(it.order as u32), is_kept);
            }
            assert!(over.iter().all(|id| calls.find(*id).is_none()), "an old name finds nothing");
            assert_eq!(calls.waiting_bytes, waiting().map(|it| it.held).sum::<usize>());
        }
    }

    #[test]
    fn what_was_sent_on_an_earlier_connection_is_in_every_error_until_the_call_is_over() {
        let refused = CallError::FormRefused(Refusal::InvalOption, Execution::NotExecuted);
        let known = |it: &Record| (it.execution(), it.failed(refused).execution());
        let mut record = Record { state: State::Waiting, ..Record::default() };
        assert_eq!(known(&record), (Execution::NotExecuted, Execution::NotExecuted));
        record.was_sent = true;
        assert_eq!(known(&record), (Execution::Unknown, Execution::Unknown));
        record.forget();
        assert_eq!(known(&record), (Execution::NotExecuted, Execution::NotExecuted));
    }

    #[test]
    fn the_name_of_a_call_finds_none_of_another_session() {
        let mut sessions = [1, 2].map(|shard| Calls::new(WAITING_MAX, BYTES_MAX, shard));
        let ids = sessions.each_mut().map(|calls| {
            let index = calls.keep(0, Resend::Never, &mut OwnedCall::new());
            calls.id(index)
        });
        for (calls, at) in sessions.iter().zip(0..) {
            assert_eq!([0, 1].map(|of| calls.find(ids[of]).is_some()), [at == 0, at == 1]);
        }
    }

    proptest! {
        /// Order, room, xids, deadlines and names are those of a plain list.
        #[test]
        fn calls_behave_as_a_list(events in prop::collection::vec((0_u8..9, 0_usize..1000), 1..300)) {
            let calls = Calls::new(WAITING_MAX, BYTES_MAX, 0);
            let mut both = Both { calls, known: Vec::new(), over: Vec::new(), begun: 0, now: 0 };
            for (event, which) in events {
                both.step(event, which);
                both.compare();
            }
        }
    }
}
