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
//! A group belongs to one connection; since a connection delivers in order and no message may come
//! between the transmissions of a group ([RTR] 4.2; wire.md E4), one open group is all there is.

use arrayvec::ArrayVec;
use rpcrdma_xdr::numbers::limit::GROUP_MAX;
use rpcrdma_xdr::numbers::{opttype, proc};
use rpcrdma_xdr::rpc::MsgType;

use crate::error::Violation;

/// One received transmission of a group: which buffer holds it and where its payload lies.
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
    /// Where the payload ends: only bytes from here on can be placed items.
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

/// What a transmission did to the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The message is whole with this transmission.
    Complete,
    /// More transmissions are to come.
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
pub enum ContinuationError {
    /// The open group is gone; report this.
    Aborted(OpenGroup, Violation),
    /// No group was open; report this.
    Unexpected(Violation),
    /// It belongs to a group that was aborted and reported before: drop it.
    Dropped,
}

/// Assembles the groups of one connection.
#[derive(Debug)]
pub struct GroupAssembler {
    open: Option<OpenGroup>,
    aborted: Option<u32>,
    parts: ArrayVec<Part, { GROUP_MAX as usize }>,
}

impl GroupAssembler {
    /// No group open.
    #[must_use]
    pub fn new() -> Self {
        Self { open: None, aborted: None, parts: ArrayVec::new() }
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
            if self.aborted == Some(initial.xid) {
                self.aborted = None;
            }
            return Ok(Step::Complete);
        }
        self.on_first_of_many(initial, part)
    }

    /// Takes a continuation.
    ///
    /// `itype` is `optxc_itype`: what the continued transmission was. A group that fails here is
    /// forgotten, but its parts stay readable until the next group.
    ///
    /// # Errors
    /// [`ContinuationError`] says what to do with it.
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
        open.next += 1;
        let group = *open;
        self.parts.push(part);
        if group.next == group.count {
            self.open = None;
            return Ok((Step::Complete, group));
        }
        Ok((Step::Partial, group))
    }

    /// Gives the open group up, because of an intervening message or a bad transmission of its own.
    /// What still arrives of it is dropped.
    pub fn abort(&mut self) -> Option<OpenGroup> {
        let open = self.open.take()?;
        self.aborted = Some(open.xid);
        Some(open)
    }

    /// Notes that a group was rejected at its first transmission: the rest of it is dropped.
    pub fn drop_rest(&mut self, xid: u32) {
        debug_assert!(self.open.is_none(), "an open group is aborted");
        self.aborted = Some(xid);
    }

    /// The group that is being received.
    #[inline]
    #[must_use]
    pub fn open(&self) -> Option<&OpenGroup> {
        self.open.as_ref()
    }

    /// What has arrived of the open group; or all of the last one that was completed or aborted.
    #[inline]
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    #[cold]
    fn on_first_of_many(&mut self, initial: Initial, part: Part) -> Result<Step, Violation> {
        let Initial { xid, dir, count, limit } = initial;
        // wire.md E2
        let expect = match count {
            0 => Some(1),
            count if count > limit.clamp(1, GROUP_MAX) => Some(limit.clamp(1, GROUP_MAX)),
            _ => None,
        };
        if let Some(expect) = expect {
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

    fn check(&self, xid: u32, number: u32, itype: u32) -> Result<(), Violation> {
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
