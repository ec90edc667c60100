//! Group assembly: one RPC message arriving in several transmissions.
//!
//! ```text
//!   initial(count=1) ──▶ delivered, no state
//!   initial(count=3) ──▶ Open{next=1} ──CONT(1)──▶ Open{next=2} ──CONT(2)──▶ Complete ──▶ Idle
//!                            ├── CONT, other number ──▶ BADSEQ, aborted
//!                            ├── CONT, other xid ─────▶ BADXID, aborted
//!                            └── anything else ───────▶ BADHMT or BADOMT, aborted, then processed
//!   Idle + CONT of an aborted xid ──▶ dropped         Idle + any other CONT ──▶ BADCONT
//! ```
//! A group belongs to one connection. A connection delivers in order, and no message may come
//! between the transmissions of a group (\[RTR\] 4.2; wire.md E4), so at most one group is open.

use arrayvec::ArrayVec;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::numbers::{opttype, proc};
use rpcrdma_xdr::onc::MsgType;

use crate::error::Violation;

/// One received transmission of a group: its buffer, and the position of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The engine's name for the receive buffer.
    pub buffer: u32,
    /// Bytes received.
    pub byte_len: u32,
    /// Where the payload begins, in bytes from the start of the transmission.
    pub payload_start: u32,
    /// Bytes of payload. `payload_start + payload_len` never exceeds `byte_len`.
    pub payload_len: u32,
}

impl Part {
    /// The end of the payload: placed items lie behind it.
    #[inline]
    #[must_use]
    pub fn payload_end(&self) -> u32 {
        self.payload_start + self.payload_len
    }
}

/// The first transmission of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initial {
    /// The RPC's xid.
    pub xid: u32,
    /// A call (transmit request) or a reply (transmit response).
    pub dir: MsgType,
    /// Transmissions in the group (`optxrq_count`, `optxrs_count`).
    pub count: u32,
    /// The most that are accepted: 1 to [`GROUP_MAX`].
    pub limit: u32,
}

impl Initial {
    /// The nearest number of transmissions that is possible, if this one is not (wire.md E2).
    #[inline]
    pub(crate) fn expect(&self) -> Option<u32> {
        let limit = self.limit.clamp(1, GROUP_MAX);
        match self.count {
            0 => Some(1),
            count if count > limit => Some(limit),
            _ => None,
        }
    }
}

/// The effect of a transmission on the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The message is complete.
    Complete,
    /// More transmissions follow.
    Partial,
}

/// The group that is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGroup {
    /// The RPC's xid.
    pub xid: u32,
    /// A call or a reply.
    pub dir: MsgType,
    /// The number that the next transmission must have.
    pub next: u32,
    /// Transmissions in the group.
    pub count: u32,
}

/// How a continuation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContinuationError {
    /// The open group is gone; report this.
    Aborted(OpenGroup, Violation),
    /// No group was open; report this.
    Unexpected(Violation),
    /// It belongs to a group that was aborted and reported before: drop it.
    Dropped,
}

/// Assembles the groups of one connection.
/// The order of the fields is fixed: every message asks whether a group is open.
#[derive(Debug)]
#[repr(C)]
pub struct GroupAssembler {
    open: Option<OpenGroup>,
    aborted: Option<u32>,
    /// Whether the parts of the group that was aborted are still parked.
    keeps_parts: bool,
    parts: ArrayVec<Part, { GROUP_MAX as usize }>,
}

impl GroupAssembler {
    /// No group open.
    #[must_use]
    pub fn new() -> Self {
        Self { open: None, aborted: None, keeps_parts: false, parts: ArrayVec::new() }
    }

    /// Takes the first transmission of a message. No group may be open.
    ///
    /// # Errors
    /// [`Violation::GroupSize`] for a count of zero or above the limit (wire.md E2); the rest of
    /// that group will be dropped.
    #[inline]
    pub fn on_initial(&mut self, initial: Initial, part: Part) -> Result<Step, Violation> {
        debug_assert!(self.open.is_none(), "an intervening message aborts the group first");
        if initial.count == 1 {
            self.on_single(initial.xid);
            return Ok(Step::Complete);
        }
        self.on_first_of_many(initial, part)
    }

    /// Takes a continuation.
    ///
    /// `itype` is `optxc_itype`: the type of the continued transmission. A group that fails here is
    /// closed, but its parts stay readable until the next group.
    ///
    /// # Errors
    /// [`ContinuationError`] states how to handle it.
    pub fn on_continuation(
        &mut self,
        xid: u32,
        number: u32,
        itype: u32,
        part: Part,
    ) -> Result<(Step, OpenGroup), ContinuationError> {
        let Some(open) = self.open.as_mut() else {
            return Err(match self.aborted {
                Some(aborted) if aborted == xid => ContinuationError::Dropped,
                _ => ContinuationError::Unexpected(Violation::UnexpectedContinuation),
            });
        };
        if let Err(violation) = open.check(xid, number, itype) {
            let open = *open;
            self.abort();
            return Err(ContinuationError::Aborted(open, violation));
        }
        self.on_next(part).ok_or(ContinuationError::Dropped)
    }

    /// As [`GroupAssembler::on_continuation`], for one that is known to be the next of the open
    /// group. `None` if no group is open.
    #[inline]
    pub(crate) fn on_next(&mut self, part: Part) -> Option<(Step, OpenGroup)> {
        let open = self.open.as_mut()?;
        open.next += 1;
        let group = *open;
        self.parts.push(part);
        if group.next == group.count {
            self.open = None;
            return Some((Step::Complete, group));
        }
        Some((Step::Partial, group))
    }

    /// Aborts the open group, because of an intervening message or an invalid transmission of its
    /// own. Its remaining transmissions are dropped.
    pub fn abort(&mut self) -> Option<OpenGroup> {
        let open = self.open.take()?;
        self.aborted = Some(open.xid);
        Some(open)
    }

    /// Records that a group was rejected at its first transmission: the rest of it is dropped.
    pub fn drop_rest(&mut self, xid: u32) {
        debug_assert!(self.open.is_none(), "an open group is aborted");
        self.aborted = Some(xid);
    }

    /// The connection ends with the message that has aborted a group: its parts are released like
    /// those of an open one.
    pub(crate) fn keep_parts(&mut self) {
        self.keeps_parts = true;
    }

    /// The transmissions that are not released: those of the open group.
    #[must_use]
    pub fn parked(&self) -> &[Part] {
        if self.open.is_some() || self.keeps_parts { &self.parts } else { &[] }
    }

    /// The group that is being received.
    #[inline]
    #[must_use]
    pub fn open(&self) -> Option<&OpenGroup> {
        self.open.as_ref()
    }

    /// The received parts of the open group, or all parts of the last one that was completed or
    /// aborted.
    #[inline]
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// As [`GroupAssembler::on_initial`], for a message that is known to be one transmission.
    #[inline]
    pub(crate) fn on_single(&mut self, xid: u32) {
        debug_assert!(self.open.is_none(), "an intervening message aborts the group first");
        if self.aborted == Some(xid) {
            self.aborted = None;
        }
    }

    fn on_first_of_many(&mut self, initial: Initial, part: Part) -> Result<Step, Violation> {
        let Initial { xid, dir, count, .. } = initial;
        if let Some(expect) = initial.expect() {
            self.aborted = Some(xid);
            return Err(Violation::GroupSize { expect, current: count });
        }
        self.aborted = None;
        self.open = Some(OpenGroup { xid, dir, next: 1, count });
        self.parts.clear();
        self.parts.push(part);
        Ok(Step::Partial)
    }
}

impl Default for GroupAssembler {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenGroup {
    /// The violation that a message other than a continuation is, while this group is open.
    ///
    /// `option` is the message's opttype if its `rdma_proc` is RDMA_OPTIONAL.
    #[must_use]
    pub fn intervention(&self, rdma_proc: u32, option: Option<u32>) -> Violation {
        match option {
            Some(current) => Violation::OptionType { expect: opttype::XMTCONT, current },
            None => Violation::HeaderType { expect: proc::OPTIONAL, current: rdma_proc },
        }
    }

    /// `rdma_opttype` of the group's first transmission.
    #[must_use]
    pub fn initial_type(&self) -> u32 {
        match self.dir {
            MsgType::Call => opttype::XMTREQ,
            MsgType::Reply => opttype::XMTRESP,
        }
    }

    /// Whether a continuation is the next of this group.
    ///
    /// # Errors
    /// The first [`Violation`].
    #[inline]
    pub(crate) fn check(&self, xid: u32, number: u32, itype: u32) -> Result<(), Violation> {
        if xid != self.xid {
            return Err(Violation::ForeignXid { expect: self.xid, current: xid });
        }
        if number != self.next {
            return Err(Violation::OutOfSequence { expect: self.next, current: number });
        }
        // wire.md E3: zero is tolerated.
        if itype != 0 && itype != self.initial_type() {
            return Err(Violation::OptionType { expect: self.initial_type(), current: itype });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const LIMIT: u32 = 3;

    /// What can arrive, as far as groups care.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Event {
        Initial { xid: u32, count: u32 },
        Cont { xid: u32, number: u32, itype: u32 },
        Other,
    }

    /// What a transmission led to; an abort comes before what its message itself leads to.
    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Outcome {
        Delivered(Vec<u32>),
        Parked,
        Aborted(Violation),
        Rejected(Violation),
        Dropped,
        Passed,
    }

    fn events() -> Vec<Event> {
        let mut events = vec![Event::Other];
        for xid in [7, 8] {
            events.extend((0..=LIMIT + 1).map(|count| Event::Initial { xid, count }));
            for number in 0..=3 {
                let itypes = [0, opttype::XMTREQ, opttype::XMTRESP];
                events.extend(itypes.map(|itype| Event::Cont { xid, number, itype }));
            }
        }
        events
    }

    fn part(buffer: u32) -> Part {
        Part { buffer, byte_len: 100, payload_start: 36, payload_len: 64 }
    }

    /// As the connection uses the assembler.
    fn feed(group: &mut GroupAssembler, event: Event, buffer: u32) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let option = match event {
            Event::Cont { .. } => None,
            Event::Initial { .. } => Some((proc::OPTIONAL, Some(opttype::XMTREQ))),
            Event::Other => Some((proc::MSG, None)),
        };
        if let (Some((proc, option)), Some(open)) = (option, group.open().copied()) {
            group.abort().expect("it is open");
            outcomes.push(Outcome::Aborted(open.intervention(proc, option)));
        }
        outcomes.push(match event {
            Event::Other => Outcome::Passed,
            Event::Initial { xid, count } => {
                let initial = Initial { xid, dir: MsgType::Call, count, limit: LIMIT };
                match group.on_initial(initial, part(buffer)) {
                    Ok(Step::Complete) => Outcome::Delivered(vec![buffer]),
                    Ok(Step::Partial) => Outcome::Parked,
                    Err(violation) => Outcome::Rejected(violation),
                }
            }
            Event::Cont { xid, number, itype } => {
                match group.on_continuation(xid, number, itype, part(buffer)) {
                    Ok((Step::Complete, _)) => {
                        Outcome::Delivered(group.parts().iter().map(|part| part.buffer).collect())
                    }
                    Ok((Step::Partial, _)) => Outcome::Parked,
                    Err(ContinuationError::Aborted(_, violation)) => Outcome::Aborted(violation),
                    Err(ContinuationError::Unexpected(violation)) => Outcome::Rejected(violation),
                    Err(ContinuationError::Dropped) => Outcome::Dropped,
                }
            }
        });
        outcomes
    }

    /// The rules again, derived from the history: which transmissions still belong together.
    #[derive(Default)]
    struct Model {
        parked: Vec<u32>,
        due: Option<(u32, u32)>,
        dead: Option<u32>,
    }

    impl Model {
        fn feed(&mut self, event: Event, buffer: u32) -> Vec<Outcome> {
            match event {
                Event::Other => self.intervene(Violation::HeaderType { expect: 5, current: 0 }, {
                    vec![Outcome::Passed]
                }),
                Event::Initial { xid, count } => {
                    let violation = Violation::OptionType { expect: 7, current: 5 };
                    let aborted = self.intervene(violation, vec![]);
                    let own = match count {
                        1 => {
                            self.dead = self.dead.filter(|dead| *dead != xid);
                            Outcome::Delivered(vec![buffer])
                        }
                        0 => {
                            self.dead = Some(xid);
                            Outcome::Rejected(Violation::GroupSize { expect: 1, current: 0 })
                        }
                        2..=LIMIT => {
                            (self.parked, self.due, self.dead) =
                                (vec![buffer], Some((xid, count)), None);
                            Outcome::Parked
                        }
                        _ => {
                            self.dead = Some(xid);
                            Outcome::Rejected(Violation::GroupSize { expect: 3, current: count })
                        }
                    };
                    [aborted, vec![own]].concat()
                }
                Event::Cont { xid, number, itype } => vec![self.cont(xid, number, itype, buffer)],
            }
        }

        fn cont(&mut self, xid: u32, number: u32, itype: u32, buffer: u32) -> Outcome {
            let Some((open, count)) = self.due else {
                return match self.dead == Some(xid) {
                    true => Outcome::Dropped,
                    false => Outcome::Rejected(Violation::UnexpectedContinuation),
                };
            };
            let next = self.parked.len() as u32;
            let wrong = if open != xid {
                Violation::ForeignXid { expect: open, current: xid }
            } else if number != next {
                Violation::OutOfSequence { expect: next, current: number }
            } else if itype == 6 {
                Violation::OptionType { expect: 5, current: 6 }
            } else {
                self.parked.push(buffer);
                if next + 1 < count {
                    return Outcome::Parked;
                }
                self.due = None;
                return Outcome::Delivered(self.parked.clone());
            };
            (self.due, self.dead) = (None, Some(open));
            Outcome::Aborted(wrong)
        }

        fn intervene(&mut self, violation: Violation, then: Vec<Outcome>) -> Vec<Outcome> {
            let Some((xid, _)) = self.due.take() else { return then };
            self.dead = Some(xid);
            [vec![Outcome::Aborted(violation)], then].concat()
        }
    }

    #[test]
    fn every_sequence_of_four_transmissions_is_as_the_model_has_it() {
        let events = events();
        let n = events.len();
        for code in 0..n.pow(4) {
            let mut group = GroupAssembler::new();
            let mut model = Model::default();
            for place in 0..4 {
                let event = events[code / n.pow(place) % n];
                let expected = model.feed(event, place);
                assert_eq!(feed(&mut group, event, place), expected, "{event:?} of {code}");
                assert_eq!(group.open().is_some(), model.due.is_some());
            }
        }
    }

    #[test]
    fn a_group_of_the_largest_size_is_taken_and_one_more_is_not() {
        let mut group = GroupAssembler::new();
        let initial = |count| Initial { xid: 1, dir: MsgType::Reply, count, limit: 1000 };
        let violation = Violation::GroupSize { expect: GROUP_MAX, current: GROUP_MAX + 1 };
        assert_eq!(group.on_initial(initial(GROUP_MAX + 1), part(0)), Err(violation));
        assert_eq!(group.on_initial(initial(GROUP_MAX), part(0)), Ok(Step::Partial));
        for number in 1..GROUP_MAX {
            let (step, open) = group
                .on_continuation(1, number, opttype::XMTRESP, part(number))
                .expect("in sequence");
            assert_eq!(step == Step::Complete, number + 1 == GROUP_MAX);
            assert_eq!(open.dir, MsgType::Reply);
        }
        assert_eq!(group.parts().len() as u32, GROUP_MAX);
    }

    #[test]
    fn an_initial_type_of_zero_is_tolerated_and_the_wrong_one_is_not() {
        for (itype, fine) in [(0, true), (opttype::XMTREQ, true), (opttype::XMTRESP, false)] {
            let mut group = GroupAssembler::new();
            let initial = Initial { xid: 1, dir: MsgType::Call, count: 2, limit: 2 };
            group.on_initial(initial, part(0)).expect("within the limit");
            assert_eq!(group.on_continuation(1, 1, itype, part(1)).is_ok(), fine);
        }
    }
}
