//! The end of own calls: matches replies and errors to their calls, and handles cancelled calls.
//!
//! ```text
//!   Sent ──first of several──▶ Replying ──last──▶ Answered ──finish_call──▶ free
//!    ├── reply, good or bad, or error ─────────────▲
//!    ├── withdraw_call ──▶ Opened, if nothing of it has left
//!    └── abandon_call ──▶ Abandoned ──late reply, error, end of the connection──▶ free
//! ```
//! A cancelled call keeps its xid, its credits and its receives until its peer has finished it
//! (wire.md W26).

use rpcrdma_xdr::onc::MsgType;

use crate::calls::{CallEntry, CallId, CallState, Ended, NO_MARK};
use crate::connection::{Connection, ShardLedger};
use crate::ingress::Ignored;

/// An own call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// As given to [`Connection::open_call`].
    pub token: u64,
    /// The engine's name for its timing; [`NO_MARK`](crate::NO_MARK) if it is not timed.
    pub timer: u32,
}

impl Connection {
    /// Ends an own call that is answered, has failed, or was never sent; any call if the connection
    /// has ended. Its credits and receives are released. `None` if it had ended before.
    #[inline]
    pub fn finish_call(&mut self, ledger: &mut ShardLedger, id: CallId) -> Option<Finished> {
        let (_, entry) = ledger.calls.find(id.xid(), self.peer)?;
        match entry.state {
            CallState::Abandoned => {
                self.end_abandoned(ledger, id);
                None
            }
            _ => self.end_call(ledger, id),
        }
    }

    /// Ends an own call for the program while the connection goes on, answered or not. If its reply
    /// may still come, the call keeps its xid, its credits and its receives until then: the peer
    /// counts on all of them. `None` if it had ended before.
    pub fn abandon_call(&mut self, ledger: &mut ShardLedger, id: CallId) -> Option<Finished> {
        let (_, entry) = ledger.calls.find_mut(id.xid(), self.peer)?;
        match entry.state {
            CallState::Sent | CallState::Replying => {
                entry.state = CallState::Abandoned;
                entry.mark = NO_MARK;
                self.abandoned += entry.credits;
                let timer = core::mem::replace(&mut entry.timer, NO_MARK);
                Some(Finished { token: entry.token, timer })
            }
            CallState::Abandoned => None,
            CallState::Opened | CallState::Answered => self.end_call(ledger, id),
        }
    }

    /// Withdraws a planned call of which nothing was sent: its peer does not know it. The caller
    /// ends it at once.
    pub fn withdraw_call(&mut self, ledger: &mut ShardLedger, id: CallId) {
        if let Some((_, entry)) = ledger.calls.find_mut(id.xid(), self.peer)
            && entry.state == CallState::Sent
        {
            entry.state = CallState::Opened;
        }
    }

    /// The peer has finished a cancelled call.
    #[cold]
    fn end_abandoned(&mut self, ledger: &mut ShardLedger, id: CallId) {
        let before = self.credits.in_flight();
        self.end_call(ledger, id);
        self.abandoned -= before - self.credits.in_flight();
    }

    /// Releases what a call holds.
    #[inline]
    pub(crate) fn end_call(&mut self, ledger: &mut ShardLedger, id: CallId) -> Option<Finished> {
        let ended = ledger.calls.remove(id, self.peer)?;
        Some(self.give_back(ledger, ended))
    }

    /// As [`Connection::end_call`], for a call with an xid from the table.
    #[inline(always)]
    pub(crate) fn end_own_call(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
    ) -> Option<Finished> {
        let ended = ledger.calls.remove_own(id, self.peer)?;
        Some(self.give_back(ledger, ended))
    }

    #[inline(always)]
    fn give_back(&mut self, ledger: &mut ShardLedger, ended: Ended) -> Finished {
        let Ended { credits, receives, token, timer } = ended;
        self.credits.give_back(credits);
        ledger.replies.release(receives);
        Finished { token, timer }
    }

    /// The call that a reply belongs to.
    #[inline]
    pub(crate) fn admit_reply<'l>(
        &mut self,
        ledger: &'l ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Option<(CallId, &'l CallEntry)> {
        self.on_accepted();
        self.on_credit(credit, MsgType::Reply);
        let (id, entry) = ledger.calls.find(xid, self.peer)?;
        let is_due = match entry.state {
            CallState::Sent | CallState::Abandoned => true,
            CallState::Opened | CallState::Replying | CallState::Answered => false,
        };
        is_due.then_some((id, entry))
    }

    /// Accepts a complete reply, if there is a call for it.
    pub(crate) fn take_reply(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
        credit: u32,
    ) -> Result<CallId, Ignored> {
        match self.admit_reply(ledger, xid, credit) {
            Some((id, _)) => self.on_answer(ledger, id),
            None => Err(Ignored::UnknownReply),
        }
    }

    /// The complete reply to a call, or an error about it, has arrived. This ends a cancelled call.
    pub(crate) fn on_answer(
        &mut self,
        ledger: &mut ShardLedger,
        id: CallId,
    ) -> Result<CallId, Ignored> {
        let found = ledger.calls.find_mut(id.xid(), self.peer);
        let (_, entry) = found.ok_or(Ignored::UnknownReply)?;
        match entry.state {
            CallState::Sent | CallState::Replying => {
                entry.state = CallState::Answered;
                Ok(id)
            }
            CallState::Abandoned => {
                self.end_abandoned(ledger, id);
                Err(Ignored::LateReply)
            }
            CallState::Opened | CallState::Answered => Err(Ignored::UnknownReply),
        }
    }

    /// A reply, or a part of it, breaks a rule. Returns the own call that has failed with it.
    pub(crate) fn refuse_reply(&mut self, ledger: &mut ShardLedger, xid: u32) -> Option<CallId> {
        let (id, _) = ledger.calls.find(xid, self.peer)?;
        self.on_answer(ledger, id).ok()
    }

    /// The own call with this xid, if it was sent: it has failed. Also whether it may be sent
    /// again: a peer that refuses a call for its form has not executed it, if it was sent by the
    /// extension and no part of a reply has arrived.
    pub(crate) fn fail_sent(
        &mut self,
        ledger: &mut ShardLedger,
        xid: u32,
    ) -> Option<Result<(CallId, bool), Ignored>> {
        let (id, entry) = ledger.calls.find(xid, self.peer)?;
        let may_repeat = entry.is_xmt && entry.state == CallState::Sent;
        match self.on_answer(ledger, id) {
            Err(Ignored::UnknownReply) => None,
            answered => Some(answered.map(|id| (id, may_repeat))),
        }
    }
}

/// The first transmission of a reply contains their number: the receives beyond it are released
/// (\[RTR\] 4.3; wire.md E8).
pub(crate) fn note_reply_count(ledger: &mut ShardLedger, id: CallId, peer: u32, count: u32) {
    let Some((_, entry)) = ledger.calls.find_mut(id.xid(), peer) else { return };
    if entry.state != CallState::Abandoned {
        entry.state = CallState::Replying;
    }
    let unused = entry.receives.saturating_sub(count);
    entry.receives -= unused;
    ledger.replies.release(unused);
}
